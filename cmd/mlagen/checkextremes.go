package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/mlagen/mlagen/golden/extremes"
	"github.com/mlagen/mlagen/templates"
	"github.com/mlagen/mlagen/templates/variants"
)

// checkExtremes runs the checks of extremes, or those of the names.
func (a *app) checkExtremes(d device, names []string) (err error) {
	var all []string
	for _, c := range extremes.Checks {
		all = append(all, c.Name)
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			return usagef("check %q does not exist; the extremes are %s", name, strings.Join(all, ", "))
		}
	}
	driver, err := d.open(false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, driver.Close()) }()
	e := &extremes.Env{Driver: driver, Source: variants.Source{Tune: templates.Spec{LineInfo: d.emulated}}, Small: d.emulated}
	if program, err := os.Executable(); err == nil {
		e.Again = func(ctx context.Context, files ...string) *exec.Cmd {
			return exec.CommandContext(ctx, program, append([]string{"check", "-device", d.name}, files...)...)
		}
	}
	tally := extremes.Run(a.stdout, e, func(name string) bool { return len(names) == 0 || slices.Contains(names, name) })
	if tally.Failed > 0 {
		return errQuiet
	}
	return nil
}
