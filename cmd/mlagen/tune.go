package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/mlagen/mlagen/runtime/tune"
	"github.com/mlagen/mlagen/templates"
	"github.com/mlagen/mlagen/templates/variants"
)

// tuneFlags are the flags of tune.
type tuneFlags struct {
	device, out, csv, anchors, load string
	heads                           int
	sq                              numbers
	batch, kv                       points
	varlen, invariant, json         bool
	budget                          time.Duration
}

func (a *app) tune() *ffcli.Command {
	fs := newFlags("mlagen tune")
	var f tuneFlags
	fs.StringVar(&f.device, "device", "cuda", "`device` that is tuned for")
	fs.IntVar(&f.heads, "heads", 16, "query `heads` on the device")
	fs.Var(&f.sq, "sq", "query tokens per request, a `list` (1)")
	fs.Var(&f.batch, "batch", "requests, a `list` of numbers and of ranges such as 1:256, which are doubled through (1:256)")
	fs.Var(&f.kv, "kv", "tokens of the longest request, a `list` likewise (1024:32768)")
	fs.BoolVar(&f.varlen, "varlen", false, "requests' lengths vary, evenly from 1 to -kv")
	fs.StringVar(&f.anchors, "anchors", "", "CSV `files` of other implementations' times, comma-separated: tune for their shapes with so many heads; lists select among them")
	fs.DurationVar(&f.budget, "budget", tune.DefaultBudget, "`time` that tuning may take, loading included; 0 takes the defaults without measuring")
	fs.BoolVar(&f.invariant, "invariant", false, "batch-invariant mode: one row block and number of pieces for all loads; only what changes no bit is tuned")
	fs.StringVar(&f.out, "o", "", "`file` for the choices, - for standard output, which then has no table")
	fs.StringVar(&f.csv, "csv", "", "`file` for the figures")
	fs.BoolVar(&f.json, "json", false, "print the choices as JSON in place of the table")
	fs.StringVar(&f.load, "load", "", "tune nothing: load the kernels that a `file` of choices names, as an engine does when it starts, and say how long that took")
	return &ffcli.Command{
		Name:       "tune",
		ShortUsage: "mlagen tune -heads N [flags]",
		ShortHelp:  "find out by timing how decode runs best for the loads of an engine",
		LongHelp: `tune times decode for every combination of -sq, -batch and -kv, or for the
shapes of a table of anchors, and chooses for each what runs fastest: the row
block, whether and into how many pieces requests are cut, the grid of the merge
kernel and how much the L2 fetches at a time. The kernels and their results stay the same.

Choices that a cost model finds promising take turns with the default on random
data with scattered pages and a cold cache, in captured graphs; what looks
better is timed against the default once more in the end, and chosen only where
the median of the ratios is better by more than half a percent and by more than
four times its noise. The time is used up: what is left goes into further
rounds. Kernels are compiled within it, the defaults' first; loads whose default
could not be loaded or reached are not timed and keep it. After an interrupt what was confirmed is kept, other loads have their
default, and the exit status is 1.

The file that -o writes holds for cards of the same name and driver and for the
kernels that were timed; package runtime/tune loads it (LoadDecode) and ignores,
with a reason, one that does not fit.`,
		FlagSet: fs,
		Exec: func(ctx context.Context, args []string) error {
			if err := noArguments("tune", args); err != nil {
				return err
			}
			if f.load != "" {
				if err := onlyFlags(fs, "-load tunes nothing", "load", "device", "sq"); err != nil {
					return err
				}
				return a.loadTuned(&f)
			}
			if f.out == "-" && f.csv == "-" {
				return usagef("-o and -csv are both -")
			}
			ctx, stop := interruptible(ctx)
			defer stop()
			return a.runTune(ctx, &f)
		},
	}
}

// envelope is what the flags ask for.
func (f *tuneFlags) envelope() (e tune.Envelope, err error) {
	if f.anchors == "" {
		return tune.Envelope{SQ: f.sq.or(1), Batches: numbers(f.batch).or(tune.Doubling(1, 256)...), Tokens: numbers(f.kv).or(tune.Doubling(1024, 32768)...), Ragged: f.varlen}, nil
	}
	b := benchFlags{op: "decode", anchors: f.anchors, heads: numbers{f.heads}, sq: f.sq, batch: numbers(f.batch), kv: numbers(f.kv), varlen: f.varlen}
	anchors, err := b.anchored()
	for _, s := range anchors {
		e.Loads = append(e.Loads, tune.Load{SQ: s.SQ, Batch: s.Batch, Tokens: s.KV, Ragged: s.Varlen})
	}
	return e, err
}

// runTune tunes and tells.
func (a *app) runTune(ctx context.Context, f *tuneFlags) (err error) {
	start := time.Now()
	d, err := findDevice(f.device)
	if err != nil {
		return err
	}
	switch {
	case f.heads < 1:
		return usagef("-heads was %d, must be at least 1", f.heads)
	case f.budget < 0:
		return usagef("-budget was %v, must be 0 or more", f.budget)
	case d.emulated && f.budget > 0:
		return usagef("-device %s keeps no time: tune on a GPU (-device cuda), or see the defaults with -budget 0", d.name)
	}
	envelope, err := f.envelope()
	if err != nil {
		return err
	}
	loads, err := envelope.Buckets()
	if err != nil {
		return usageError{err}
	}
	driver, err := d.open(false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, driver.Close()) }()
	opened := time.Since(start)

	p := a.progress(len(loads) + 2)
	choices, err := tune.OnDevice(ctx, driver, tune.Config{
		Source: variants.Keeping(), Model: tune.DeepSeek(f.heads), Envelope: envelope, Budget: f.budget, Invariant: f.invariant,
		Progress: func(now tune.Progress) {
			if now.Phase == "search" {
				p.step(now.Load.String())
			} else {
				p.step(now.Phase)
			}
		},
	})
	p.done()
	if refused := (*templates.SpecError)(nil); choices == nil && errors.As(err, &refused) {
		return usageError{err}
	}
	if choices == nil {
		return err
	}
	if told := a.tellTuned(f, choices, opened); told != nil || err != nil {
		return errors.Join(err, told)
	}
	if choices.Interrupted {
		return errors.New("interrupted: what was confirmed until then is kept, other loads have their default")
	}
	return nil
}

// tellTuned prints the table and writes the files.
func (a *app) tellTuned(f *tuneFlags, c *tune.Choices, opened time.Duration) error {
	text, err := c.Text()
	if err != nil {
		return err
	}
	switch {
	case f.json:
		if f.out != "-" {
			_, err = a.stdout.Write(text)
		}
	case f.out != "-":
		err = printTuned(a.stdout, c, opened)
	}
	if err != nil {
		return err
	}
	var outputs []output
	if f.out != "" {
		outputs = append(outputs, output{f.out, text})
	}
	if f.csv != "" {
		outputs = append(outputs, output{f.csv, tunedCSV(c)})
	}
	return writeOutputs(a.stdout, outputs...)
}

// loadTuned loads what a file names and says how long it took.
func (a *app) loadTuned(f *tuneFlags) (err error) {
	d, err := findDevice(f.device)
	if err != nil {
		return err
	}
	driver, err := d.open(false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, driver.Close()) }()
	start := time.Now()
	choices, err := tune.ReadFile(f.load)
	if err != nil {
		return err
	}
	var sqs []int
	for _, b := range choices.Buckets {
		if f.sq.has(b.SQ) && !slices.Contains(sqs, b.SQ) {
			sqs = append(sqs, b.SQ)
		}
	}
	if len(sqs) == 0 {
		return usagef("-sq %v: %s has no choices for any of them", []int(f.sq), f.load)
	}
	read := time.Since(start)
	decode, err := tune.LoadDecode(driver, variants.Keeping(), choices, choices.Model, sqs...)
	if err != nil {
		return err
	}
	took := time.Since(start)
	defer func() { err = errors.Join(err, decode.Close()) }()
	compiled := 0.0
	for _, k := range decode.Kernels() {
		compiled += k.CompileSeconds
	}
	fmt.Fprintf(a.stdout, "%d kernels for %d loads in %.1f ms, of which reading and checking the file took %.1f; the driver compiled for %.1f ms in all\n",
		len(decode.Kernels()), len(choices.Buckets), took.Seconds()*1e3, read.Seconds()*1e3, compiled*1e3)
	if err := decode.Ignored(); err != nil {
		return err
	}
	return nil
}

// points is a flag that holds a list of numbers and of ranges that are doubled
// through.
type points numbers

var _ flag.Value = (*points)(nil)

func (p *points) String() string { return (*numbers)(p).String() }

// Set implements flag.Value.
func (p *points) Set(text string) error {
	*p = nil
	for _, item := range strings.Split(text, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(item), ":")
		n, err := parseNumbers(from, 1)
		if err != nil {
			return err
		}
		if isRange {
			last, err := parseNumbers(to, n[0])
			if err != nil {
				return err
			}
			n = tune.Doubling(n[0], last[0])
		}
		*p = append(*p, n...)
	}
	return nil
}

// tunedCSV is the figures, one load a line.
func tunedCSV(c *tune.Choices) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "# %s, driver %s, bf16, page 64; microseconds per call incl. merge, cold cache, graph; budget %.3g s, spent %.3f; gain = default ÷ chosen, median of paired ratios\n",
		c.Card.Name, c.Card.Driver, c.Budget, c.Spent)
	out.WriteString("heads,s_q,batch,kv_len,varlen,default_block_h,default_us,block_h,splits,piece_cost,cluster,evict,merge_blocks,promotion,chosen_us,gain,rounds,tried\n")
	for _, b := range c.Buckets {
		varlen := 0
		if b.Ragged {
			varlen = 1
		}
		fmt.Fprintf(&out, "%d,%d,%d,%d,%d,%d,%s,%d,%d,%d,%d,%s,%d,%d,%s,%.4f,%d,%d\n", c.Model.Heads, b.SQ, b.Batch, b.Tokens, varlen,
			b.Default.BlockH, microseconds(b.DefaultUS), b.Choice.BlockH, b.Choice.Splits, b.Choice.PieceCost, b.Choice.Cluster, b.Choice.Evict,
			b.Choice.MergeBlocks, b.Choice.Promotion, microseconds(b.ChosenUS), b.Gain, b.Rounds, b.Tried)
	}
	return out.Bytes()
}

// microseconds is empty for what was not measured.
func microseconds(us float64) string {
	if us == 0 {
		return ""
	}
	return strconv.FormatFloat(us, 'f', 2, 64)
}
