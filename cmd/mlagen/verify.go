package main

import (
	"context"

	"github.com/peterbourgon/ff/v3/ffcli"
)

func (a *app) verify() *ffcli.Command {
	fs := newFlags("mlagen verify")
	return &ffcli.Command{
		Name:       "verify",
		ShortUsage: "mlagen verify FILE...",
		ShortHelp:  "check PTX files against the static rules",
		LongHelp: `verify parses PTX files and prints what breaks a rule, one finding a line as
file:line:col: rule: text. A manifest beside a file (the same name with .json)
is taken into account. - reads standard input. Findings give exit status 1.`,
		FlagSet: fs,
		Exec: func(_ context.Context, args []string) error {
			if len(args) == 0 {
				return usagef("verify needs PTX files")
			}
			return nil
		},
	}
}
