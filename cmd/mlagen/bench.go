package main

import (
	"context"
	"errors"

	"github.com/peterbourgon/ff/v3/ffcli"
)

func (a *app) bench() *ffcli.Command {
	return &ffcli.Command{
		Name:       "bench",
		ShortUsage: "mlagen bench -op decode [flags]",
		ShortHelp:  "time kernels on the GPU",
		LongHelp:   "bench times kernels.",
		FlagSet:    newFlags("mlagen bench"),
		Exec:       func(context.Context, []string) error { return errors.New("not yet") },
	}
}
