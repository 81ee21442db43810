package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/mlagen/mlagen/golden/check"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
	"github.com/mlagen/mlagen/templates"
	"github.com/mlagen/mlagen/templates/variants"
)

func (a *app) check() *ffcli.Command {
	fs := newFlags("mlagen check")
	deviceName := fs.String("device", devices[0].name, "`device` that runs the kernels: emu or cuda")
	seeds, seed := seedFlags(fs)
	sms := fs.Int("sms", 0, "`number` of multiprocessors of the emulated device, 0 for 8")
	draw := newRandomFlags(fs)
	atExtremes := fs.Bool("extremes", false, "run checks of extremes, all or those named, in place of files")
	dump := fs.String("dump", "", "`directory` for every case's inputs and outputs as .npy files")
	return &ffcli.Command{
		Name: "check",
		ShortUsage: "mlagen check [-device emu|cuda] [-seeds N] [-dump DIR] FILE...\n" +
			"       mlagen check [-device emu|cuda] -random N|-for DURATION [-seed S] [-op LIST] [-failures DIR]\n" +
			"       mlagen check [-device emu|cuda] -extremes [NAME...]",
		ShortHelp: "run conformance cases, or random ones, and compare them with the oracle",
		LongHelp: `check runs each case (a JSON file) on a device exactly as a user's call would
and compares the result with a float64 oracle: tolerances, every element
written, nothing written outside, runs identical. On the emulator, the default,
a hazard fails the case as well, and -seeds runs each case under several
schedules. It prints a line per case and the tally, and exits with 1 when one
fails. What a device cannot run is skipped with the reason.

With -random or -for it draws cases from the whole contract instead: the same
for a seed, whatever runs beside. On the emulator the number of multiprocessors
and the schedules are drawn too. A case that fails is shrunk to the least that
still does and written to -failures, from where check runs it again.

With -extremes it runs checks of a million tokens, 20,000 requests, 70,000 rows,
pools beyond 32 bits, graphs of any size, 10,000 replays, streams and processes
side by side, memory that runs out and kernels that are unloaded; they are small
on the emulator.`,
		FlagSet: fs,
		Exec: func(ctx context.Context, args []string) (err error) {
			d, err := findDevice(*deviceName)
			if err != nil {
				return err
			}
			if draw.wanted() {
				if *atExtremes || len(args) > 0 || *seeds != 1 || *sms != 0 || *dump != "" {
					return usagef("-random and -for draw cases, schedules and devices themselves; they take neither files, -extremes, -seeds, -sms nor -dump")
				}
				ctx, stop := interruptible(ctx)
				defer stop()
				return a.checkRandom(ctx, draw, d, *seed)
			}
			if *atExtremes {
				if err := onlyFlags(fs, "-extremes runs checks of its own", "extremes", "device"); err != nil {
					return err
				}
				return a.checkExtremes(d, args)
			}
			if len(args) == 0 {
				return usagef("check needs case files, -random or -extremes")
			}
			if err := onlyFlags(fs, "files are checked as they are", "device", "seeds", "seed", "sms", "dump"); err != nil {
				return err
			}
			if *sms < 0 || *sms > 0 && !d.emulated {
				return usagef("-sms %d: it is the number of multiprocessors of an emulated device", *sms)
			}
			if err := d.schedules(*seeds, *seed); err != nil {
				return err
			}
			open := d.open
			if *sms > 0 {
				open = func(bool) (runtime.Driver, error) { return emu.Open(emu.Options{SMs: *sms}) }
			}
			driver, err := open(false)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, driver.Close()) }()
			o := check.Options{
				Driver: driver, Source: variants.Source{Tune: templates.Spec{LineInfo: d.emulated}}, Dump: *dump,
				MaxFLOP: d.maxFLOP, Hazards: d.emulated, Seeds: *seeds, Seed: *seed,
			}
			doubts := 0
			if e, ok := driver.(emulated); ok {
				o.Inspect = func(uint64) error {
					for _, l := range e.Reports() {
						doubts += len(l.Hazards) - len(l.Errors())
					}
					return nil
				}
			}
			p := a.progress(len(args))
			o.Warn = a.warn(p.writer(a.stderr))
			r := check.New(o)
			defer func() { err = errors.Join(r.Close(), err) }()
			tally := r.Files(p.writer(a.stdout), args, p.step)
			p.done()
			if doubts > 0 {
				fmt.Fprintf(a.stderr, "mlagen: the emulator has doubts about %d pairs of instructions; mlagen run names them\n", doubts)
			}
			if tally.Failed > 0 {
				return errQuiet
			}
			return nil
		},
	}
}
