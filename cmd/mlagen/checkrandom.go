package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/random"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
	"github.com/mlagen/mlagen/templates"
	"github.com/mlagen/mlagen/templates/variants"
)

// randomFlags are those of check on cases that it draws.
type randomFlags struct {
	cases    *int
	duration *time.Duration
	ops      *string
	workers  *int
	failures *string
	seconds  *float64
	sample   *int
}

func newRandomFlags(fs *flag.FlagSet) randomFlags {
	return randomFlags{
		cases:    fs.Int("random", 0, "`number` of cases to draw and run, by -seed, in place of files"),
		duration: fs.Duration("for", 0, "draw and run cases for so `long`, such as 10m"),
		ops:      fs.String("op", "", "`operations` to draw, separated by commas; none for all"),
		workers:  fs.Int("workers", 0, "`number` of groups of cases side by side; 0 for one per core"),
		failures: fs.String("failures", ".", "`directory` for drawn cases that fail, shrunk, as JSON"),
		sample:   fs.Int("sample", 0, "on a GPU, run every `N`-th drawn case on the emulator too, which finds hazards; 0 for none"),
		seconds:  fs.Float64("cost", 0, "about how many `seconds` of a core a drawn case may take; 0 for 0.25 on a GPU, 0.4 on the emulator"),
	}
}

// wanted reports whether cases are to be drawn.
func (f *randomFlags) wanted() bool { return *f.cases != 0 || *f.duration != 0 }

// What a group of cases and a failing case may cost.
const (
	groupOnGPU      = 150 // kernels take seconds to compile
	groupOnEmulator = 4
	shrinkTries     = 300
	stallOnGPU      = 3 * time.Minute
)

// checkRandom draws and runs cases.
func (a *app) checkRandom(ctx context.Context, f randomFlags, d device, seed uint64) (err error) {
	o := random.Options{
		Seed: seed, Cases: *f.cases, Duration: *f.duration, Workers: *f.workers, Failures: *f.failures, Tries: shrinkTries,
		Source: variants.Source{Tune: templates.Spec{LineInfo: d.emulated}},
		Limits: random.Limits{Seconds: *f.seconds, Emulated: d.emulated},
	}
	emulated := func(g random.Group) (runtime.Driver, error) { return emu.Open(emu.Options{SMs: g.SMs}) }
	if *f.sample < 0 || *f.sample > 0 && d.emulated {
		return usagef("-sample %d: it is how many cases of a GPU there are to one that the emulator runs too", *f.sample)
	}
	if *f.cases < 0 || *f.duration < 0 || *f.workers < 0 || *f.seconds < 0 {
		return usagef("-random, -for, -workers and -cost must not be negative")
	}
	if *f.ops != "" {
		o.Limits.Ops = strings.Split(*f.ops, ",")
		for _, op := range o.Limits.Ops {
			if !slices.Contains(cases.Ops, op) {
				return usagef("-op %q does not exist; the operations are %s", op, strings.Join(cases.Ops, ", "))
			}
		}
	}
	if err := os.MkdirAll(o.Failures, 0o777); err != nil {
		return err
	}
	if o.Workers == 0 {
		o.Workers = goruntime.GOMAXPROCS(0)
	}
	if d.emulated {
		o.PerGroup = groupOnEmulator
		o.Open = emulated
		if o.Limits.Seconds == 0 {
			o.Limits.Seconds = 0.4
		}
	} else {
		driver, err := d.open(false)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, driver.Close()) }()
		o.PerGroup, o.Open, o.Stall = groupOnGPU, random.Share(driver), stallOnGPU
		o.Sample, o.OpenEmulated = *f.sample, emulated
		if o.Limits.Seconds == 0 {
			o.Limits.Seconds = 0.25
		}
	}
	o.Progress = func(t random.Tally) { fmt.Fprintln(a.stderr, t) }
	o.Found = func(f random.Failure) { fmt.Fprintln(a.stdout, f) }
	tally, err := random.Run(ctx, o)
	fmt.Fprintf(a.stdout, "%s%s\n", tally.Details(), tally)
	if err == nil && tally.Total().Failed > 0 {
		return errQuiet
	}
	return err
}
