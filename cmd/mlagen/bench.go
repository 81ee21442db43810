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

	"github.com/mlagen/mlagen/runtime/bench"
	"github.com/mlagen/mlagen/templates"
)

// benchFlags are the flags of bench.
type benchFlags struct {
	op, device, anchors, csv   string
	variant, path, choices     string
	heads, sq, batch, kv       numbers
	tokens, prefix             numbers
	workspace                  int64
	varlen, quick, noncausal   bool
	cautious                   bool
	sustained, pool            float64
	replays, splits, invariant int
	parallel                   int
	tune                       templates.Spec
}

// allVariants is the value of -variant that times every one.
const allVariants = "all"

func (a *app) bench() *ffcli.Command {
	fs := newFlags("mlagen bench")
	var f benchFlags
	fs.StringVar(&f.op, "op", "decode", "`operation` to time: decode, schedule for the schedule kernel alone, prefill, extend, upproject, absorb, load, or stream for the bandwidth alone")
	fs.StringVar(&f.device, "device", "cuda", "`device` that runs the kernels")
	fs.Var(&f.heads, "heads", "query heads, a `list` such as 16,128 (16 when left out)")
	fs.Var(&f.sq, "sq", "query tokens per request, a `list` (1)")
	fs.Var(&f.batch, "batch", "requests, a `list` (1,16,128; with -op schedule 128,8192,20000)")
	fs.Var(&f.kv, "kv", "tokens per request, a `list` (4096)")
	fs.Var(&f.tokens, "tokens", "tokens of a product, a `list` (with -op absorb 1,16,64,128,256,1024,4096; with -op upproject 1024,4096,8192)")
	fs.Var(&f.prefix, "prefix", "with -op extend: cached tokens before the new ones, a `list` (32768)")
	fs.Int64Var(&f.workspace, "workspace", defaultWorkspace, "with -op extend: `bytes` for what is expanded at a time")
	fs.StringVar(&f.path, "path", "expand", "with -op extend: `path` to time, absorb, expand, or both")
	fs.BoolVar(&f.varlen, "varlen", false, "draw each request's length evenly from 1 to -kv")
	fs.BoolVar(&f.noncausal, "noncausal", false, "with -op prefill: every query sees every key")
	fs.BoolVar(&f.cautious, "cautious", false, "promise nothing of the cache; without it calls promise that only the step's own tokens were written since the schedule")
	fs.StringVar(&f.anchors, "anchors", "", "CSV `files` of other implementations' times, comma-separated: run their shapes and compare; lists select among them")
	fs.Float64Var(&f.sustained, "sustained", 0, "also replay every shape without pause for so many `seconds`, and read power, clock and energy meanwhile")
	fs.StringVar(&f.variant, "variant", "chosen", "`which` row blocks to time: the chosen one, or all that suit the rows, to check the choice")
	fs.Func("invariant", "also time the batch-invariant mode with so many `pieces` per request, or auto for what suits the shape as a capacity (0: do not)", f.setInvariant)
	fs.StringVar(&f.csv, "csv", "", "`file` for the figures, - for standard output")
	fs.IntVar(&f.replays, "replays", 9, "`number` of bursts of which the median is taken")
	fs.BoolVar(&f.quick, "quick", false, "three bursts only")
	fs.Float64Var(&f.pool, "pool", 0, "size of the pool of pages in `GB` (0: 60 % of the device's memory, at most 20)")
	fs.IntVar(&f.splits, "splits", 0, "force so many `pieces` per request (0: the planner decides)")
	fs.IntVar(&f.parallel, "parallel", 0, "with -op load: `texts` compiled at a time (0: as many as threads)")
	fs.StringVar(&f.choices, "choices", "", "with -op load: load also what a `file` that tune wrote names (without it: what is chosen without tuning)")
	fs.IntVar(&f.tune.BlockH, "block-h", 0, "packed query `rows` per CTA (0: chosen by rows and load)")
	fs.IntVar(&f.tune.BlockM, "block-m", 0, "query `tokens` of prefill, or rows of a product, per CTA (0: the template's default, or chosen by the tokens)")
	fs.IntVar(&f.tune.BlockN, "block-n", 0, "key `tokens` of prefill, or columns of a product, per tile (0: the template's default)")
	fs.IntVar(&f.tune.Stages, "stages", 0, "`tiles` in flight (0: the template's default)")
	fs.IntVar(&f.tune.Cluster, "cluster", 0, "`CTAs` per cluster (0: the template's default)")
	fs.IntVar(&f.tune.Teams, "teams", 0, "`warpgroups` that take a row block's tiles in turn, in decode of up to 40 rows (0: the template's default)")
	fs.IntVar(&f.tune.PieceCost, "piece-cost", 0, "what decode's schedule counts a piece beside its tiles, in `tiles` (0: the template's default)")
	return &ffcli.Command{
		Name:       "bench",
		ShortUsage: "mlagen bench [-op decode] [flags]",
		ShortHelp:  "time kernels on the GPU and compare with other implementations",
		LongHelp: `bench times decode as servers run it: random bf16 data, scattered pages, a cold
cache (block tables rotate through a pool far larger than the L2), the schedule
computed beforehand, a CUDA graph of many calls replayed in short bursts after
rest, the combine kernel included; it prints the median. Calls promise that no
tokens but their own are new in the cache (runtime.DecodeArgs.NewTokens); with
-cautious they do not. Before a shape is timed, random rows of it are compared
with a float64 oracle. TB/s counts the cache, the queries and the outputs once,
TFLOPS visible pairs only. The stream kernel's bandwidth of the same run stands
beside. Compile times are the driver's; a kernel from the cache (mlagen cache)
has none.

Tables of anchors hold other libraries' times, in columns heads,s_q,batch,kv_len,
causal,varlen and NAME_us for each; their shapes are run.

Lists give every combination. With -varlen, and in the anchors' varlen rows,
lengths are drawn evenly from 1 to kv with a fixed seed.

-sustained adds the first replays after half a second of rest (burst) and the
last quarter (sustained), and, where NVIDIA's management library is installed,
what the GPU's own instruments show in the second half: power, SM clock, and
joules per million tokens in the cache. Tables of anchors whose header begins
with what,heads,s_q,batch,kv_len,burst_us hold other libraries' sustained times.

-variant all times every row block that suits a shape beside the chosen one and
prints the geometric mean of chosen ÷ best. -invariant N times forced splits and
the row block that is chosen without knowing the load (-block-h fixes it), so
that a request's bits depend on no other, and prints what that costs; with auto
both are chosen as an engine would that is built for the shape's batch and
longest request, and keeps to them whatever comes.

-op upproject and -op absorb time products with weights: the up-projection of
paged latents, and both products with the absorbed weights. Weights rotate
through more memory than the L2 holds; rows and results stay where they are, as
between kernels of a step. The tables say which share of the time reading the
weights once at the stream's bandwidth would take.

-op schedule times the schedule kernel alone, after its schedule was found to
cover every request: calls one after another in a graph, lengths in the L2.

-op prefill times attention over expanded keys and values, causal unless
-noncausal is given, for -batch sequences of -sq queries (as many as keys when
left out) and -kv keys each, 128 heads; tensors rotate so that none is in the
L2. Its anchors are tables that begin heads,batch,q_len,kv_len,causal.

-op extend times -batch requests of -sq new tokens (512) on -prefix cached ones on
the expand path, chunk by chunk in -workspace bytes, 128 heads, or with -path on
the absorb path, products with the weights included. The times beside are a bound,
1.08 times what the path's FLOP take at 650 TFLOPS and 60 µs, and what mlagen plan
expects.

-op load times loading all decode kernels of a model (-heads, -sq): decode,
schedule and combine for every row block that may be chosen. Each row but the
last is the first load of a process started for it: with our cache and that of
the GPU's driver turned off, with both empty, of the kernels alone that a file of
choices names, which is read too, and of all with both caches full. The caches are in a
temporary directory that is the model's own (CUDA_CACHE_PATH, MLAGEN_CACHE). The
last row loads again in a process that has. Opening the driver and generating
the texts are told apart.`,
		FlagSet: fs,
		Exec: func(ctx context.Context, args []string) error {
			if err := noArguments("bench", args); err != nil {
				return err
			}
			if f.choices != "" && f.op != "load" {
				return usagef("-choices goes with -op load")
			}
			if err := f.unused(fs); err != nil {
				return err
			}
			if f.op == "prefill" {
				return a.benchPrefill(&f)
			}
			if f.op == "extend" {
				return a.benchExtend(&f)
			}
			if f.op == "load" {
				ctx, stop := interruptible(ctx)
				defer stop()
				return a.benchLoad(ctx, &f)
			}
			anchors, err := f.shapes()
			if err != nil {
				return err
			}
			return a.runBench(&f, anchors)
		},
	}
}

// unusedFlags are the flags that have no say in an operation and would pass
// unnoticed; others are refused where it reads its own.
var unusedFlags = map[string][]string{
	"decode":    unusedByDecode,
	"schedule":  append([]string{"cautious"}, unusedByDecode...),
	"stream":    {"heads", "sq", "batch", "kv", "varlen", "cautious", "splits", "tokens", "prefix", "workspace", "path", "noncausal", "parallel", "block-h", "block-m", "block-n", "stages", "cluster", "teams", "piece-cost"},
	"upproject": unusedByProducts,
	"absorb":    unusedByProducts,
	"prefill":   {"cautious", "tokens", "prefix", "workspace", "path", "parallel", "teams", "piece-cost"},
	"extend":    {"cautious", "tokens", "noncausal", "parallel"},
	"load":      {"cautious", "tokens", "prefix", "workspace", "path", "noncausal"},
}

var (
	unusedByDecode   = []string{"tokens", "prefix", "workspace", "path", "noncausal", "parallel", "block-m", "block-n"}
	unusedByProducts = []string{"sq", "batch", "kv", "varlen", "cautious", "splits", "prefix", "workspace", "path", "noncausal", "parallel", "block-h", "teams", "piece-cost"}
)

// unused refuses flags that were given and have no say in the operation.
func (f *benchFlags) unused(fs *flag.FlagSet) (err error) {
	fs.Visit(func(given *flag.Flag) {
		if err == nil && slices.Contains(unusedFlags[f.op], given.Name) {
			err = usagef("-%s has no say in -op %s", given.Name, f.op)
		}
	})
	return err
}

// check refuses flags that do not go together.
func (f *benchFlags) check() error {
	product := productOps[f.op] != nil
	onlyDecode := f.anchors != "" || f.sustained > 0 && !product || f.invariant != 0 || f.variant == allVariants
	switch {
	case f.op != "decode" && f.op != "schedule" && f.op != "stream" && !product:
		return usagef("op %q cannot be timed; decode, schedule, prefill, extend, upproject, absorb, load and stream can", f.op)
	case f.variant != "" && f.variant != "chosen" && f.variant != allVariants:
		return usagef("-variant %q is unknown; chosen and all can be timed, and -block-h forces one", f.variant)
	case f.replays < 1 || f.sustained < 0 || f.pool < 0 || f.splits < 0 || f.invariant < bench.FromCapacity:
		return usagef("-replays must be at least 1; -sustained, -pool, -splits and -invariant must not be negative")
	case f.op != "decode" && onlyDecode:
		return usagef("-anchors, -sustained, -variant all and -invariant are for -op decode")
	case f.variant == allVariants && f.tune.BlockH != 0:
		return usagef("-variant all times every row block; -block-h forces one")
	case f.invariant != 0 && f.splits > 0:
		return usagef("-invariant compares with the planner's schedule; -splits forces another")
	}
	return nil
}

// shapes returns what is to be timed, with what is known of others.
func (f *benchFlags) shapes() ([]bench.Anchor, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	if f.op == "stream" || productOps[f.op] != nil {
		return nil, nil // the bandwidth is measured in any case, and products have shapes of their own
	}
	if f.anchors != "" {
		return f.anchored()
	}
	batches := f.batch.or(1, 16, 128)
	if f.op == "schedule" {
		batches = f.batch.or(128, 8192, 20000)
	}
	var shapes []bench.Anchor
	for _, heads := range f.heads.or(16) {
		for _, sq := range f.sq.or(1) {
			for _, batch := range batches {
				for _, kv := range f.kv.or(4096) {
					shapes = append(shapes, bench.Anchor{Shape: bench.Shape{Heads: heads, SQ: sq, Batch: batch, KV: kv, Varlen: f.varlen}})
				}
			}
		}
	}
	return shapes, nil
}

// anchored returns the shapes in the files of anchors that the lists select.
func (f *benchFlags) anchored() (shapes []bench.Anchor, err error) {
	var all []bench.Anchor
	for _, name := range strings.Split(f.anchors, ",") {
		anchors, err := readAnchors(name)
		if err != nil {
			return nil, err
		}
		all = append(all, anchors...)
	}
	all = bench.MergeAnchors(all)
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

func readAnchors(name string) ([]bench.Anchor, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	anchors, err := bench.ReadAnchors(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return anchors, nil
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

// setInvariant reads the flag's number of pieces, or auto.
func (f *benchFlags) setInvariant(text string) error {
	if text == "auto" {
		f.invariant = bench.FromCapacity
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return errors.New("it is a number of pieces, at least 0, or auto")
	}
	f.invariant = n
	return nil
}
