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
		ShortHelp:  "list the kernels",
		LongHelp:   "list prints the kernels that emit can generate, with a line on each.",
		FlagSet:    fs,
		Exec: func(_ context.Context, args []string) error {
			if err := noArguments("list", args); err != nil {
				return err
			}
			kernels := templates.Kernels()
			if *asJSON {
				text, err := json.MarshalIndent(kernels, "", "  ")
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
			for _, k := range kernels {
				if _, err := fmt.Fprintf(a.stdout, "%-*s  %s\n", width, k.Name, k.Summary); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
