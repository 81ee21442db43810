package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/mlagen/mlagen/templates"
)

// specFlags defines the flags of a spec; the returned function reads it once
// they are parsed, and refuses those that none of the kernels has a use for, none being a file's.
func specFlags(fs *flag.FlagSet) func(kernels ...string) (templates.Spec, error) {
	var s templates.Spec
	numbers, words := map[string]*int{}, map[string]*string{}
	number := func(p *int, name, text string) {
		fs.IntVar(p, name, 0, text)
		numbers[name] = p
	}
	word := func(p *string, name, text string) {
		fs.StringVar(p, name, "", text)
		words[name] = p
	}
	number(&s.Heads, "heads", "query `heads` of a token")
	number(&s.SQ, "sq", "query `tokens` per request")
	number(&s.BlockH, "block-h", "packed query `rows` (token × head) per CTA")
	number(&s.BlockM, "block-m", "query `tokens` (or rows of a product) per CTA, outside decode")
	number(&s.BlockN, "block-n", "cache `tokens` (or columns of a product) per tile")
	number(&s.Latent, "latent", "`width` of the latent")
	number(&s.Rope, "rope", "`width` of the rope key")
	number(&s.Nope, "nope", "`width` of a head's key without the rope key, outside decode")
	number(&s.Value, "value", "`width` of a head's value, outside decode")
	number(&s.Page, "page", "`tokens` per page of the cache")
	number(&s.Stages, "stages", "`tiles` in flight")
	number(&s.Cluster, "cluster", "`CTAs` per cluster")
	word(&s.Evict, "evict", "decode: how the L2 `keeps` pages: normal, or evicted first when left out")
	number(&s.Teams, "teams", "decode of up to 40 rows: `warpgroups` that take a row block's tiles in turn, 1 or 2")
	number(&s.PieceCost, "piece-cost", "decode-schedule: what a cut costs, in `tiles`")
	word(&s.DType, "dtype", "element `type`: bf16 or fp16")
	word(&s.Partial, "partial", "`type` of the partial outputs that merge-states takes: f32, or the element type")
	word(&s.Rotate, "rotate", "`way` in which append-kv rotates rope keys: interleaved or half (default not at all)")
	return func(kernels ...string) (templates.Spec, error) {
		var used []string
		for _, k := range kernels {
			names, err := templates.Fields(k)
			if err != nil {
				return s, usageError{err}
			}
			used = append(used, names...)
		}
		var err error
		fs.Visit(func(f *flag.Flag) {
			number, word := numbers[f.Name], words[f.Name]
			switch {
			case number == nil && word == nil || err != nil:
			case len(kernels) == 0:
				err = usagef("-%s goes with -kernel: the manifest of a file has its spec", f.Name)
			case !slices.Contains(used, f.Name):
				err = usagef("-%s %v: there is no use for it in %s; leave it out", f.Name, f.Value, strings.Join(kernels, ", "))
			case number != nil && *number < 1: // zero stands for the default inside; given by hand it is a mistake
				err = usagef("%s %d cannot be built: it must be at least 1; the nearest that can is 1", f.Name, *number)
			}
		})
		return s, err
	}
}

// emitFlags are the flags of emit beside those of a spec.
type emitFlags struct {
	kernel, ptx, manifest string
	goFile, pkg, cFile    string
	check                 bool
}

func (a *app) emit() *ffcli.Command {
	fs := newFlags("mlagen emit")
	var f emitFlags
	fs.StringVar(&f.kernel, "kernel", "", "`name` of the kernel, as mlagen list shows it")
	spec := specFlags(fs)
	fs.StringVar(&f.ptx, "o", "-", "`file` for the PTX, - for standard output; beside -go its stem with .ptx unless given")
	fs.StringVar(&f.manifest, "manifest", "", "`file` for the manifest (JSON), - for standard output")
	fs.StringVar(&f.goFile, "go", "", "`file` for Go code that embeds PTX and manifest, loads the kernel and launches it")
	fs.StringVar(&f.pkg, "pkg", "", "`name` of the package that the Go code belongs to ($GOPACKAGE, else kernels)")
	fs.StringVar(&f.cFile, "c", "", "`file` for a C header: parameters as a struct, launch rules as functions, the PTX as a string")
	lines := fs.Bool("lineinfo", false, "add .loc directives that lead back to the template's lines")
	fs.BoolVar(&f.check, "check", false, "write nothing; fail when the files differ from what would be written")
	return &ffcli.Command{
		Name:       "emit",
		ShortUsage: "mlagen emit -kernel NAME [flags]",
		ShortHelp:  "print the PTX of a kernel",
		LongHelp: `emit generates a kernel and writes its PTX, and on request the manifest that
says how to launch it, and code in Go or C that does. A spec that cannot be built
is refused with the reason and the nearest that can be (exit status 2), and so is
a flag that the kernel has no use for. Files appear whole or not at all; one that
already holds the same bytes is left alone. Flags left out take the kernel's
defaults.

With -go the PTX and the manifest are written beside the Go file, which embeds
them. It imports package runtime alone and has a type named after the file, with
Launch and its arguments. For a line of go generate:

    //go:generate go tool mlagen emit -kernel absorb-decode -heads 16 -go absorb_decode_h16.go

The C header needs nothing but the driver's cuda.h.`,
		FlagSet: fs,
		Exec: func(_ context.Context, args []string) error {
			if err := noArguments("emit", args); err != nil {
				return err
			}
			if err := knownKernel(f.kernel); err != nil {
				return err
			}
			s, err := spec(f.kernel)
			if err != nil {
				return err
			}
			s.LineInfo = *lines
			given := map[string]bool{}
			fs.Visit(func(set *flag.Flag) { given[set.Name] = true })
			if err := f.complete(given); err != nil {
				return err
			}
			return a.emitKernel(&f, s)
		},
	}
}

func (a *app) emitKernel(f *emitFlags, s templates.Spec) error {
	built, err := templates.Build(f.kernel, s)
	var refused *templates.SpecError
	if errors.As(err, &refused) {
		return usageError{fmt.Errorf("emit %s: %w", f.kernel, err)}
	} else if err != nil {
		return fmt.Errorf("emit %s: %w", f.kernel, err)
	}
	outputs, err := f.outputs(built)
	if err != nil {
		return err
	}
	if f.check {
		return checkOutputs(outputs)
	}
	return writeOutputs(a.stdout, outputs...)
}

// checkOutputs fails for the first file that is not what would be written.
func checkOutputs(outputs []output) error {
	for _, o := range outputs {
		if o.place == "-" {
			return usagef("-check compares files: name one with -o")
		}
		if at, err := os.Stat(o.place); err == nil && !at.Mode().IsRegular() {
			return usagef("-check compares files, and %s is none", o.place)
		}
		old, err := os.ReadFile(o.place)
		if err != nil {
			return err
		}
		if !bytes.Equal(old, o.data) {
			return fmt.Errorf("%s is not what the generator writes today", o.place)
		}
	}
	return nil
}

// knownKernel refuses a kernel that does not exist.
func knownKernel(name string) error {
	var names []string
	for _, k := range templates.Kernels() {
		names = append(names, k.Name)
	}
	switch {
	case name == "":
		return usagef("name a kernel with -kernel: %s", strings.Join(names, ", "))
	case !slices.Contains(names, name):
		return usagef("kernel %q does not exist; the kernels are %s", name, strings.Join(names, ", "))
	}
	return nil
}
