package main

import (
	"fmt"

	"github.com/mlagen/mlagen/gen/bind"
	"github.com/mlagen/mlagen/templates"
	"github.com/mlagen/mlagen/templates/variants"
)

// prefillBinding generates the kernels of prefill.
func prefillBinding(s templates.Spec) (*bind.Binding, error) {
	s, err := templates.Defaults("expand-prefill", s)
	if err != nil {
		return nil, err
	}
	b := &bind.Binding{Op: "Prefill", Summary: fmt.Sprintf(
		"attention over expanded keys and values for %d heads: %s, keys of %d + %d, values of %d", s.Heads, s.DType, s.Nope, s.Rope, s.Value)}
	for _, k := range []struct{ field, name string }{{"Attend", "expand-prefill"}, {"Schedule", "expand-schedule"}} {
		v, err := variants.Build(k.name, s)
		if err != nil {
			return nil, err
		}
		b.Kernels = append(b.Kernels, bind.Kernel{Field: k.field, Name: v.Name, PTX: v.PTX, Manifest: v.Manifest})
	}
	return b, nil
}

// prefillStem names a binding after its heads and what else is not the default.
func prefillStem(s templates.Spec) string {
	s, _ = templates.Defaults("expand-prefill", s) // the kernel exists
	standard, _ := templates.Defaults("expand-prefill", templates.Spec{})
	tile, _ := templates.Defaults("expand-prefill", templates.Spec{BlockM: s.BlockM}) // its tokens are by its queries
	stem := "mla_prefill"
	if s.DType != standard.DType {
		stem += "_" + s.DType
	}
	stem += fmt.Sprintf("_h%d", s.Heads)
	for _, part := range []struct {
		letter       string
		is, standard int
	}{
		{"m", s.BlockM, standard.BlockM}, {"n", s.BlockN, tile.BlockN}, {"k", s.Nope, standard.Nope}, {"v", s.Value, standard.Value}, {"s", s.Stages, standard.Stages},
	} {
		if part.is != part.standard {
			stem += fmt.Sprintf("_%s%d", part.letter, part.is)
		}
	}
	return stem
}
