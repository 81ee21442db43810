package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/mlagen/mlagen/gen/bind"
	"github.com/mlagen/mlagen/templates"
	"github.com/mlagen/mlagen/templates/variants"
)

// bindFlags are the flags of bind beside those of a spec.
type bindFlags struct {
	op, pkg, dir, stem string
	check              bool
}

func (a *app) bind() *ffcli.Command {
	fs := newFlags("mlagen bind")
	var f bindFlags
	fs.StringVar(&f.op, "op", "decode", "`operation` to bind: decode or prefill")
	spec := specFlags(fs)
	fs.StringVar(&f.pkg, "pkg", "", "`name` of the package the Go file belongs to ($GOPACKAGE, else kernels)")
	fs.StringVar(&f.dir, "out-dir", ".", "`folder` for the files; it must exist")
	fs.StringVar(&f.stem, "name", "", "`stem` of the file names and, in camel case, of the loader (made of the spec: mla_decode_h16)")
	fs.BoolVar(&f.check, "check", false, "write nothing; fail when the files differ from what would be written")
	return &ffcli.Command{
		Name:       "bind",
		ShortUsage: "mlagen bind [-op decode|prefill] [flags]",
		ShortHelp:  "write kernels and the Go code that embeds and loads them",
		LongHelp: `bind generates the kernels of an operation and writes, for each, STEM_KERNEL.ptx
and its manifest STEM_KERNEL.json, and STEM_mlagen.go, which embeds them and has
a function that loads them with package runtime: LoadMLADecodeH16 for the stem
mla_decode_h16. It is meant for a line of go generate:

    //go:generate go tool mlagen bind -op decode -heads 16
    //go:generate go tool mlagen bind -op prefill -heads 128

The same flags write the same bytes. Files appear whole; one that already holds
the same bytes is left alone. Flags left out take the kernels' defaults.`,
		FlagSet: fs,
		Exec: func(_ context.Context, args []string) error {
			if err := noArguments("bind", args); err != nil {
				return err
			}
			op, ok := bindings[f.op]
			if !ok {
				return usagef("-op %q cannot be bound; decode and prefill can", f.op)
			}
			s, err := spec(op.kernels...)
			if err != nil {
				return err
			}
			return a.bindKernels(&f, s)
		},
	}
}

// bindings are the operations that can be bound: their kernels, how these are
// generated, and what a binding is called.
var bindings = map[string]struct {
	kernels []string
	binding func(templates.Spec) (*bind.Binding, error)
	stem    func(templates.Spec) string
}{
	"decode":  {[]string{"absorb-decode", "decode-schedule", "decode-combine"}, decodeBinding, decodeStem},
	"prefill": {[]string{"expand-prefill", "expand-schedule"}, prefillBinding, prefillStem},
}

func (a *app) bindKernels(f *bindFlags, s templates.Spec) error {
	op := bindings[f.op]
	if at, err := os.Stat(f.dir); err != nil || !at.IsDir() {
		return usagef("-out-dir %q is no folder; make it first, or name another", f.dir)
	}
	b, err := op.binding(s)
	var refused *templates.SpecError
	if errors.As(err, &refused) {
		return usageError{fmt.Errorf("bind: %w", err)}
	} else if err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	b.Package = cmp.Or(f.pkg, os.Getenv("GOPACKAGE"), "kernels")
	b.Stem = cmp.Or(f.stem, op.stem(s))
	files, err := b.Files()
	var unusable *bind.OptionError
	if errors.As(err, &unusable) {
		return usageError{err}
	} else if err != nil {
		return err
	}
	var outputs []output
	for _, file := range files {
		outputs = append(outputs, output{filepath.Join(f.dir, file.Name), file.Data})
	}
	if f.check {
		return checkOutputs(outputs)
	}
	return writeOutputs(a.stdout, outputs...)
}

// decodeBinding generates the kernels of decode.
func decodeBinding(s templates.Spec) (*bind.Binding, error) {
	s = s.WithDefaults()
	tokens := "1 query token"
	if s.SQ > 1 {
		tokens = fmt.Sprintf("%d query tokens", s.SQ)
	}
	b := &bind.Binding{Op: "Decode", Summary: fmt.Sprintf(
		"absorbed MLA decode for %d heads and %s per request: %s, latent %d, rope %d, pages of %d tokens",
		s.Heads, tokens, s.DType, s.Latent, s.Rope, s.Page)}
	for _, k := range []struct{ field, name string }{
		{"Decode", "absorb-decode"}, {"Schedule", "decode-schedule"}, {"Combine", "decode-combine"},
	} {
		v, err := variants.Build(k.name, s)
		if err != nil {
			return nil, err
		}
		b.Kernels = append(b.Kernels, bind.Kernel{Field: k.field, Name: v.Name, PTX: v.PTX, Manifest: v.Manifest})
	}
	return b, nil
}

// decodeStem names a binding after its heads and what else is not the default.
func decodeStem(s templates.Spec) string {
	standard := templates.Spec{Heads: s.Heads, SQ: s.SQ}.WithDefaults()
	s = s.WithDefaults()
	stem := "mla_decode"
	if s.DType != standard.DType {
		stem += "_" + s.DType
	}
	stem += fmt.Sprintf("_h%d", s.Heads)
	if s.SQ > 1 {
		stem += fmt.Sprintf("_sq%d", s.SQ)
	}
	for _, part := range []struct {
		letter       string
		is, standard int
	}{
		{"b", s.BlockH, standard.BlockH}, {"l", s.Latent, standard.Latent}, {"r", s.Rope, standard.Rope}, {"s", s.Stages, standard.Stages},
		{"c", s.Cluster, standard.Cluster}, {"p", s.PieceCost, standard.PieceCost}, {"t", s.Teams, standard.Teams},
	} {
		if part.is != part.standard {
			stem += fmt.Sprintf("_%s%d", part.letter, part.is)
		}
	}
	if s.Evict != standard.Evict {
		stem += "_e" + s.Evict
	}
	return stem
}
