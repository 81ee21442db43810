package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/mlagen/mlagen/golden/oracle"
	"github.com/mlagen/mlagen/runtime/bench"
	"github.com/mlagen/mlagen/templates"
)

// benchFlags are the flags of bench.
type benchFlags struct {
	op, device, anchors, csv string
	heads, sq, batch, kv     numbers
	varlen, quick            bool
	sustained, pool          float64
	replays, splits          int
	tune                     templates.Spec
}

func (a *app) bench() *ffcli.Command {
	fs := newFlags("mlagen bench")
	var f benchFlags
	fs.StringVar(&f.op, "op", "decode", "`operation` to time: decode, or stream for the bandwidth alone")
	fs.StringVar(&f.device, "device", "cuda", "`device` that runs the kernels")
	fs.Var(&f.heads, "heads", "query heads, a `list` such as 16,128 (16 when left out)")
	fs.Var(&f.sq, "sq", "query tokens per request, a `list` (1)")
	fs.Var(&f.batch, "batch", "requests, a `list` (1,16,128)")
	fs.Var(&f.kv, "kv", "tokens per request, a `list` (4096)")
	fs.BoolVar(&f.varlen, "varlen", false, "draw each request's length evenly from 1 to -kv")
	fs.StringVar(&f.anchors, "anchors", "", "CSV `file` of other implementations' times: run its shapes and compare; lists select among them")
	fs.Float64Var(&f.sustained, "sustained", 0, "also replay every shape without pause for so many `seconds`")
	fs.StringVar(&f.csv, "csv", "", "`file` for the figures, - for standard output")
	fs.IntVar(&f.replays, "replays", 9, "`number` of bursts of which the median is taken")
	fs.BoolVar(&f.quick, "quick", false, "three bursts only")
	fs.Float64Var(&f.pool, "pool", 0, "size of the pool of pages in `GB` (0: 60 % of the device's memory, at most 20)")
	fs.IntVar(&f.splits, "splits", 0, "force so many `pieces` per request (0: the planner decides)")
	fs.IntVar(&f.tune.BlockH, "block-h", 0, "packed query `rows` per CTA (0: the template's default)")
	fs.IntVar(&f.tune.Stages, "stages", 0, "`tiles` in flight (0: the template's default)")
	fs.IntVar(&f.tune.Cluster, "cluster", 0, "`CTAs` per cluster (0: the template's default)")
	return &ffcli.Command{
		Name:       "bench",
		ShortUsage: "mlagen bench -op decode [flags]",
		ShortHelp:  "time kernels on the GPU and compare with other implementations",
		LongHelp: `bench times decode as servers run it: random bf16 data, scattered pages, a cold
cache (block tables rotate through a pool far larger than the L2), the schedule
computed beforehand, a CUDA graph of many calls replayed in short bursts after
rest, the combine kernel included; it prints the median. Before a shape is
timed, random rows of it are compared with a float64 oracle. TB/s counts the
cache, the queries and the outputs once, TFLOPS visible pairs only. The stream
kernel's bandwidth of the same run stands beside. Compile times are the
driver's; set CUDA_CACHE_DISABLE=1 to see them without its cache.

Lists give every combination. With -varlen, and in the anchors' varlen rows,
lengths are drawn evenly from 1 to kv with a fixed seed. -sustained adds the
first replays after half a second of rest (burst) and the last quarter.`,
		FlagSet: fs,
		Exec: func(_ context.Context, args []string) error {
			if err := noArguments("bench", args); err != nil {
				return err
			}
			anchors, err := f.shapes()
			if err != nil {
				return err
			}
			return a.runBench(&f, anchors)
		},
	}
}

// shapes returns what is to be timed, with what is known of others.
func (f *benchFlags) shapes() ([]bench.Anchor, error) {
	if f.op != "decode" && f.op != "stream" {
		return nil, usagef("op %q cannot be timed; decode and stream can", f.op)
	}
	if f.replays < 1 || f.sustained < 0 || f.pool < 0 || f.splits < 0 {
		return nil, usagef("-replays must be at least 1; -sustained, -pool and -splits must not be negative")
	}
	var shapes []bench.Anchor
	if f.op == "stream" {
		return nil, nil // its bandwidth is measured in any case
	}
	if f.anchors != "" {
		file, err := os.Open(f.anchors)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		all, err := bench.ReadAnchors(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.anchors, err)
		}
		for _, s := range all {
			if f.heads.has(s.Heads) && f.sq.has(s.SQ) && f.batch.has(s.Batch) && f.kv.has(s.KV) && (s.Varlen || !f.varlen) {
				shapes = append(shapes, s)
			}
		}
		if len(shapes) == 0 {
			return nil, usagef("the lists select none of the %d shapes in %s", len(all), f.anchors)
		}
		return shapes, nil
	}
	for _, heads := range f.heads.or(16) {
		for _, sq := range f.sq.or(1) {
			for _, batch := range f.batch.or(1, 16, 128) {
				for _, kv := range f.kv.or(4096) {
					shapes = append(shapes, bench.Anchor{Shape: bench.Shape{Heads: heads, SQ: sq, Batch: batch, KV: kv, Varlen: f.varlen}})
				}
			}
		}
	}
	return shapes, nil
}

// runBench times the shapes and reports.
func (a *app) runBench(f *benchFlags, shapes []bench.Anchor) (err error) {
	d, err := findDevice(f.device)
	if err != nil {
		return err
	}
	stream, err := build("stream", templates.Spec{})
	if err != nil {
		return err
	}
	driver, err := d.open(false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, driver.Close()) }()
	replays := f.replays
	if f.quick {
		replays = min(replays, 3)
	}
	b, err := bench.New(bench.Config{
		Driver: driver, Source: source{tune: f.tune}, Stream: stream, Reference: reference,
		PoolBytes: int64(f.pool * 1e9), Replays: replays, Splits: f.splits, Sustained: f.sustained,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()

	report := benchReport{device: driver.Name(), attributes: driver.Attributes(), pool: b.Pool(), sustained: f.sustained > 0}
	if report.stream, err = b.Bandwidth(); err != nil {
		return err
	}
	p := a.progress(len(shapes))
	failed := 0
	for _, s := range shapes {
		p.step(s.String())
		r, err := b.Decode(s.Shape)
		var wrong *bench.WrongError
		if errors.As(err, &wrong) {
			fmt.Fprintf(p.writer(a.stderr), "mlagen: %v\n", err)
			failed++
			continue
		}
		if err != nil {
			// The device may be beyond use; what was measured is still told.
			p.done()
			report.compiled = b.Compiled()
			return errors.Join(err, report.print(a.stdout))
		}
		report.rows = append(report.rows, benchRow{s, r})
	}
	p.done()
	if report.streamAfter, err = b.Bandwidth(); err != nil {
		return err
	}
	report.compiled = b.Compiled()
	if err := report.print(a.stdout); err != nil {
		return err
	}
	if f.csv != "" {
		if err := writeOutputs(a.stdout, output{f.csv, report.csv()}); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d shapes gave WRONG RESULTS and were not timed", failed, len(shapes))
	}
	return nil
}

// reference is the oracle's answer for one row.
func reference(r bench.Row) ([]float64, float64) {
	d := oracle.Decode[float32]{
		Heads: 1, QLen: 1, Latent: r.Latent, Rope: len(r.Q) - r.Latent, Scale: r.Scale, KVLen: []int{r.Keys},
		Q:   func(int, int, int) []float32 { return r.Q },
		Row: func(_, position int) []float32 { return r.Record(position) },
	}
	return d.One(0, 0, 0)
}

// numbers is a flag that holds a comma-separated list.
type numbers []int

var _ flag.Value = (*numbers)(nil)

func (n *numbers) String() string {
	var s []string
	for _, v := range *n {
		s = append(s, strconv.Itoa(v))
	}
	return strings.Join(s, ",")
}

// Set implements flag.Value.
func (n *numbers) Set(text string) (err error) {
	*n, err = parseNumbers(text, 1)
	return err
}

// parseNumbers reads a comma-separated list.
func parseNumbers(text string, least int) (n []int, err error) {
	for _, s := range strings.Split(text, ",") {
		v, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || v < least {
			return nil, fmt.Errorf("%q is not a number of at least %d", s, least)
		}
		n = append(n, v)
	}
	return n, nil
}

// has reports whether v is in the list, or the list was not given.
func (n numbers) has(v int) bool { return n == nil || slices.Contains(n, v) }

// or returns the list, or a default when it was not given.
func (n numbers) or(v ...int) []int {
	if n == nil {
		return v
	}
	return n
}
