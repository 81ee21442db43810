package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/check"
	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
	"github.com/mlagen/mlagen/templates/variants"
)

// runFlags are the flags of run beside those of a spec.
type runFlags struct {
	device        string
	batch, splits int
	kv            lengths
	seeds         int
	seed          uint64
	json          bool
}

// mostRequests bounds -batch.
const mostRequests = 1 << 16

// lengths is a flag that holds a list of sequence lengths.
type lengths []int

func (l *lengths) String() string {
	var s []string
	for _, n := range *l {
		s = append(s, strconv.Itoa(n))
	}
	return strings.Join(s, ",")
}

// Set implements flag.Value.
func (l *lengths) Set(text string) (err error) {
	*l, err = parseNumbers(text, 0)
	return err
}

func (a *app) run() *ffcli.Command {
	fs := newFlags("mlagen run")
	// Ten tiles for eight multiprocessors: one request is cut, a ring of tiles
	// goes round, and both last tiles are partly filled.
	f := runFlags{kv: lengths{450, 100}}
	spec := specFlags(fs)
	fs.StringVar(&f.device, "device", devices[0].name, "`device` that runs the kernels: emu or cuda")
	fs.IntVar(&f.batch, "batch", 0, "`requests` (0: one for each length)")
	fs.Var(&f.kv, "kv", "cache `tokens` of each request, a list that repeats up to -batch")
	fs.IntVar(&f.splits, "splits", 0, "force so many `pieces` per request (0: the schedule decides)")
	fs.BoolVar(&f.json, "json", false, "print JSON for programs")
	seeds, seed := seedFlags(fs)
	return &ffcli.Command{
		Name:       "run",
		ShortUsage: "mlagen run [flags]",
		ShortHelp:  "run decode on random inputs, on the emulator unless told otherwise",
		LongHelp: `run generates the decode kernels for a shape, runs them on random inputs and
compares the result with a float64 oracle. The emulator executes the PTX text
itself and tells what each kernel did: instructions (one for each lane), the
tensor cores' FLOP, bytes copied by TMA and all bytes to and from global memory,
and extra cycles from bank conflicts. Hazards, which hardware punishes only at
random, are named with the instructions and the lines of the template that made
them. A seed decides all timing that PTX leaves open; -seeds runs several
schedules up to the first that fails or differs.

Exit status 1 means a wrong result or a hazard. Flags left out take the kernel's
defaults.`,
		FlagSet: fs,
		Exec: func(_ context.Context, args []string) error {
			if err := noArguments("run", args); err != nil {
				return err
			}
			s, err := spec("absorb-decode", "decode-schedule", "decode-combine")
			if err != nil {
				return err
			}
			f.seeds, f.seed = *seeds, *seed
			return a.runDecode(&f, s)
		},
	}
}

// problem is the case that the flags describe.
func (f *runFlags) problem(s templates.Spec) (*cases.Case, error) {
	if f.splits < 0 {
		return nil, usagef("-splits %d: a request cannot be cut in fewer pieces than none", f.splits)
	}
	if f.batch < 0 || f.batch > 0 && f.batch < len(f.kv) {
		return nil, usagef("-batch %d: -kv has %d lengths, one for each request", f.batch, len(f.kv))
	}
	if f.batch > mostRequests {
		return nil, usagef("-batch %d: at most %d, for the host makes everybody's inputs", f.batch, mostRequests)
	}
	c := cases.Default()
	c.Name, c.Op = "run", "decode"
	c.Model.Heads, c.Model.Latent, c.Model.Rope = s.Heads, s.Latent, s.Rope
	c.DType, c.PageSize, c.QLen = dtype.Type(s.DType), s.Page, cases.Lengths{All: s.SQ}
	for i := range max(f.batch, len(f.kv)) {
		c.KVLen = append(c.KVLen, f.kv[i%len(f.kv)])
	}
	c.Splits = f.splits
	return &c, nil
}

// generated is a source of one shape's kernels, generated before.
type generated struct{ kernels runtime.DecodeVariants }

// Decode implements runtime.Source.
func (g generated) Decode(runtime.DecodeShape) (runtime.DecodeVariants, error) { return g.kernels, nil }

// runDecode generates the kernels of a spec and runs them.
func (a *app) runDecode(f *runFlags, s templates.Spec) error {
	d, err := findDevice(f.device)
	if err != nil {
		return err
	}
	if err := d.schedules(f.seeds, f.seed); err != nil {
		return err
	}
	s.LineInfo = d.emulated
	full := s.WithDefaults()
	c, err := f.problem(full)
	if err != nil {
		return err
	}
	variants, err := variants.Source{Tune: s}.Decode(runtime.DecodeShape{
		Heads: full.Heads, SQ: full.SQ, Latent: full.Latent, Rope: full.Rope, Page: full.Page, DType: runtime.DType(full.DType),
	})
	var refused *templates.SpecError
	if errors.As(err, &refused) {
		return usageError{fmt.Errorf("run: %w", err)}
	} else if err != nil {
		return err
	}
	return a.runKernels(f, d, full, c, variants)
}

// runKernels runs a case once or under several schedules, and reports.
func (a *app) runKernels(f *runFlags, d device, s templates.Spec, c *cases.Case, kernels runtime.DecodeVariants) (err error) {
	driver, err := d.open(true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, driver.Close()) }()

	report := newRunReport(driver, s, c, kernels.Decode.Manifest)
	o := check.Options{Driver: driver, Source: generated{kernels}, MaxFLOP: d.maxFLOP, Hazards: d.emulated, Seeds: f.seeds, Seed: f.seed, Warn: a.warn(a.stderr)}
	if e, ok := driver.(emulated); ok {
		o.Inspect = func(seed uint64) error { return report.add(seed, e.Reports()) }
	}
	r := check.New(o)
	defer func() { err = errors.Join(err, r.Close()) }()
	report.finish(r.Case(c))
	if report.Status == check.Skipped {
		return usagef("run: %s", report.Reason)
	}
	if f.json {
		err = report.json(a.stdout)
	} else {
		err = report.print(a.stdout)
	}
	if err == nil && report.Status != check.OK {
		return errQuiet
	}
	return err
}
