package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/templates"
)

func (a *app) explain() *ffcli.Command {
	fs := newFlags("mlagen explain")
	kernel := fs.String("kernel", "", "`name` of the kernel, as mlagen list shows it, in place of a file")
	spec := specFlags(fs)
	asJSON := fs.Bool("json", false, "print JSON for programs")
	return &ffcli.Command{
		Name:       "explain",
		ShortUsage: "mlagen explain FILE|-kernel NAME [flags]",
		ShortHelp:  "say what a kernel takes of an SM, and what bounds it",
		LongHelp: `explain prints a kernel's card: threads, roles and their registers, a map of its
shared memory, and of a tile the products on the tensor cores, their cycles and
FLOP and the bytes that it brings, held against an H200's (roofline). FILE is PTX
that emit wrote, with its manifest (.json) beside it.`,
		FlagSet: fs,
		Exec: func(_ context.Context, args []string) error {
			var c *card
			var err error
			switch {
			case len(args) > 1:
				return usagef("explain takes one file and got %q", args)
			case len(args) == 1 && *kernel != "":
				return usagef("explain takes a file or -kernel, and got %s and %s", args[0], *kernel)
			case len(args) == 1:
				if _, err := spec(); err != nil {
					return err
				}
				c, err = cardOfFile(args[0])
			default:
				if err := knownKernel(*kernel); err != nil {
					return err
				}
				var s templates.Spec
				if s, err = spec(*kernel); err == nil {
					c, err = cardOfKernel(*kernel, s)
				}
			}
			if err != nil {
				return err
			}
			if *asJSON {
				text, err := json.MarshalIndent(c, "", "  ")
				if err == nil {
					_, err = fmt.Fprintf(a.stdout, "%s\n", text)
				}
				return err
			}
			return c.print(a.stdout)
		},
	}
}

// cardOfKernel generates a kernel.
func cardOfKernel(name string, s templates.Spec) (*card, error) {
	built, err := templates.Build(name, s)
	var refused *templates.SpecError
	if errors.As(err, &refused) {
		return nil, usageError{fmt.Errorf("explain %s: %w", name, err)}
	} else if err != nil {
		return nil, fmt.Errorf("explain %s: %w", name, err)
	}
	if s, err = templates.Defaults(name, s); err != nil {
		return nil, err
	}
	return newCard(name, s, built.Manifest, built.PTX)
}

// cardOfFile reads PTX and the manifest beside it.
func cardOfFile(file string) (*card, error) {
	text, err := readFile(file)
	if err != nil {
		return nil, err
	}
	if filepath.Ext(file) == ".json" {
		return nil, usagef("%s is a manifest: name the PTX that it describes, which lies beside it", file)
	}
	beside := strings.TrimSuffix(file, filepath.Ext(file)) + ".json"
	m, err := readManifest(beside)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, fmt.Errorf("%s is missing: explain reads the manifest beside the PTX; mlagen emit -manifest writes it", beside)
	}
	s, err := specOf(m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", beside, err)
	}
	return newCard(strings.ReplaceAll(m.Kernel, "_", "-"), s, m, text)
}

// specOf reads the spec in a manifest.
func specOf(m *manifest.Manifest) (templates.Spec, error) {
	var s templates.Spec
	raw, err := json.Marshal(m.Spec)
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		return s, fmt.Errorf("spec: %w", err)
	}
	// Sizes are divided by and multiplied: those of another hand must be a kernel's.
	name := strings.ReplaceAll(m.Kernel, "_", "-")
	if err := templates.Validate(name, s); err != nil {
		return s, fmt.Errorf("spec of %s: %w", m.Kernel, err)
	}
	return s, nil
}
