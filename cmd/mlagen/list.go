package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/mlagen/mlagen/templates"
)

func (a *app) list() *ffcli.Command {
	fs := newFlags("mlagen list")
	asJSON := fs.Bool("json", false, "print JSON for programs")
	return &ffcli.Command{
		Name:       "list",
		ShortUsage: "mlagen list [-json]",
		ShortHelp:  "list the kernels and the presets",
		LongHelp: `list prints the kernels that emit can generate, with a line on each, and the
presets: specs whose PTX is kept among the goldens.`,
		FlagSet: fs,
		Exec: func(_ context.Context, args []string) error {
			if err := noArguments("list", args); err != nil {
				return err
			}
			kernels, presets := templates.Kernels(), templates.Presets()
			if *asJSON {
				type listed struct {
					templates.Info
					Presets []templates.Preset `json:"presets,omitempty"`
				}
				var list []listed
				for _, k := range kernels {
					l := listed{Info: k}
					for _, p := range presets {
						if p.Kernel == k.Name {
							l.Presets = append(l.Presets, p)
						}
					}
					list = append(list, l)
				}
				text, err := json.MarshalIndent(list, "", "  ")
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(a.stdout, "%s\n", text)
				return err
			}
			width := 0
			for _, k := range kernels {
				width = max(width, len(k.Name))
			}
			for _, p := range presets {
				width = max(width, len(p.Name))
			}
			for _, k := range kernels {
				if _, err := fmt.Fprintf(a.stdout, "%-*s  %s\n", width, k.Name, k.Summary); err != nil {
					return err
				}
			}
			if _, err := fmt.Fprintf(a.stdout, "\npresets:\n"); err != nil {
				return err
			}
			for _, p := range presets {
				if _, err := fmt.Fprintf(a.stdout, "%-*s  %s\n", width, p.Name, emitCommand(p)); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// emitCommand returns the command line that emits a preset.
func emitCommand(p templates.Preset) string {
	text := "mlagen emit -kernel " + p.Kernel
	s := p.Spec
	d, _ := templates.Defaults(p.Kernel, templates.Spec{})
	if s.Heads != d.Heads {
		text += fmt.Sprintf(" -heads %d", s.Heads)
	}
	if s.SQ != d.SQ {
		text += fmt.Sprintf(" -sq %d", s.SQ)
	}
	if d, _ := templates.Defaults(p.Kernel, templates.Spec{Heads: s.Heads, SQ: s.SQ}); s.BlockH != d.BlockH {
		text += fmt.Sprintf(" -block-h %d", s.BlockH)
	}
	if s.BlockM != d.BlockM {
		text += fmt.Sprintf(" -block-m %d", s.BlockM)
	}
	if s.Cluster != d.Cluster {
		text += fmt.Sprintf(" -cluster %d", s.Cluster)
	}
	if s.Teams != d.Teams {
		text += fmt.Sprintf(" -teams %d", s.Teams)
	}
	if s.DType != d.DType {
		text += " -dtype " + s.DType
	}
	if s.Partial != d.Partial && s.Partial != s.DType {
		text += " -partial " + s.Partial
	}
	if s.Rotate != d.Rotate {
		text += " -rotate " + s.Rotate
	}
	return text
}
