package main

import (
	"fmt"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

// source makes the runtime's kernels from the templates.
type source struct {
	tune templates.Spec // fields that override the template's defaults
}

// Decode implements runtime.Source.
func (s source) Decode(shape runtime.DecodeShape) (runtime.DecodeVariants, error) {
	spec := s.tune
	spec.Heads, spec.SQ, spec.Latent, spec.Rope, spec.Page = shape.Heads, shape.SQ, shape.Latent, shape.Rope, shape.Page
	spec.DType = string(shape.DType)
	if spec.BlockH == 0 {
		spec.BlockH = shape.BlockH
	}
	var v runtime.DecodeVariants
	for _, k := range []struct {
		name string
		to   *runtime.Variant
	}{
		{"absorb-decode", &v.Decode}, {"decode-schedule", &v.Schedule}, {"decode-combine", &v.Combine},
	} {
		variant, err := build(k.name, spec)
		if err != nil {
			return v, err
		}
		*k.to = variant
	}
	return v, nil
}

// BlockH implements runtime.Chooser.
func (s source) BlockH(shape runtime.DecodeShape, batch, tokens, sms int) int {
	return templates.ChooseBlockH(shape.Heads*shape.SQ, batch, tokens, sms)
}

// build generates one kernel for the runtime.
func build(kernel string, spec templates.Spec) (runtime.Variant, error) {
	out, err := templates.Build(kernel, spec)
	if err != nil {
		return runtime.Variant{}, fmt.Errorf("%s: %w", kernel, err)
	}
	name := fmt.Sprintf("%s heads=%d s_q=%d %s", kernel, spec.Heads, spec.SQ, spec.DType)
	return runtime.Variant{Name: name, PTX: out.PTX, Manifest: out.Manifest}, nil
}
