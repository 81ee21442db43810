package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/bench"
)

// prefillPool is the pool, in bytes, that empties the L2 between bursts.
const prefillPool = 1 << 30

// prefillShapes returns what is to be timed, with what is known of others.
func (f *benchFlags) prefillShapes() (shapes []bench.PrefillAnchor, err error) {
	switch {
	case f.replays < 1 || f.sustained < 0:
		return nil, usagef("-replays must be at least 1; -sustained must not be negative")
	case f.splits != 0 || f.invariant != 0 || f.variant == allVariants || f.varlen || f.tune.BlockH != 0:
		return nil, usagef("-splits, -invariant, -variant all, -varlen and -block-h are for -op decode")
	}
	if f.anchors == "" {
		for _, heads := range f.heads.or(128) {
			for _, batch := range f.batch.or(1) {
				for _, kv := range f.kv.or(1024, 4096, 8192) {
					for _, q := range f.sq.or(kv) {
						shapes = append(shapes, bench.PrefillAnchor{PrefillShape: bench.PrefillShape{Heads: heads, Batch: batch, Q: q, KV: kv, Causal: !f.noncausal}})
					}
				}
			}
		}
		return shapes, nil
	}
	var all []bench.PrefillAnchor
	for _, name := range strings.Split(f.anchors, ",") {
		anchors, err := readPrefillAnchors(name)
		if err != nil {
			return nil, err
		}
		all = append(all, anchors...)
	}
	all = bench.MergePrefillAnchors(all)
	for _, s := range all {
		if f.heads.has(s.Heads) && f.sq.has(s.Q) && f.batch.has(s.Batch) && f.kv.has(s.KV) && (!s.Causal || !f.noncausal) {
			shapes = append(shapes, s)
		}
	}
	if len(shapes) == 0 {
		return nil, usagef("the lists select none of the %d shapes in %s", len(all), f.anchors)
	}
	return shapes, nil
}

func readPrefillAnchors(name string) ([]bench.PrefillAnchor, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	anchors, err := bench.ReadPrefillAnchors(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return anchors, nil
}

// benchPrefill times prefill.
func (a *app) benchPrefill(f *benchFlags) (err error) {
	shapes, err := f.prefillShapes()
	if err != nil {
		return err
	}
	var report prefillReport
	return a.timeOperation(f, operationRun{
		shapes: len(shapes), pool: prefillPool,
		measure: func(b *bench.Bench, p progress, w io.Writer) (int, error) { return report.measure(b, shapes, p, w) },
		done: func(driver runtime.Driver, b *bench.Bench) {
			report.device, report.attributes = driver.Name(), driver.Attributes()
			report.compiled, report.meter = b.Compiled(), b.MeterError()
		},
		print: report.print, csv: report.csv,
	})
}

// prefillReport is what a run has to tell.
type prefillReport struct {
	device     string
	attributes runtime.Attributes
	meter      error // why power was not measured
	rows       []prefillRow
	compiled   []*runtime.Kernel
}

// prefillRow is a measured shape beside its anchor.
type prefillRow struct {
	anchor bench.PrefillAnchor
	bench.PrefillResult
}

// measure times the shapes and counts wrong results, which it tells to w.
func (r *prefillReport) measure(b interface {
	Prefill(bench.PrefillShape) (bench.PrefillResult, error)
}, shapes []bench.PrefillAnchor, p progress, w io.Writer) (wrong int, err error) {
	return timeShapes(shapes, p, w,
		func(s bench.PrefillAnchor) (bench.PrefillResult, error) { return b.Prefill(s.PrefillShape) },
		func(s bench.PrefillAnchor, result bench.PrefillResult) {
			r.rows = append(r.rows, prefillRow{s, result})
		})
}

// peerNames lists the peers of the rows, as of says which.
func (r *prefillReport) peerNames(of func(bench.PrefillAnchor) []bench.Peer) (names []string) {
	for _, row := range r.rows {
		for _, p := range of(row.anchor) {
			if !slices.Contains(names, p.Name) {
				names = append(names, p.Name)
			}
		}
	}
	return names
}

func burstPeers(a bench.PrefillAnchor) []bench.Peer     { return a.Peers }
func sustainedPeers(a bench.PrefillAnchor) []bench.Peer { return a.Sustained }

// timeOf returns a peer's time, NaN where it has none.
func timeOf(peers []bench.Peer, name string) float64 {
	for _, p := range peers {
		if p.Name == name {
			return p.Microseconds
		}
	}
	return math.NaN()
}

var prefillShapeColumns = []any{"heads", "batch", "queries", "keys", "causal"}

func prefillShapeCells(s bench.PrefillShape) table.Row {
	causal := "no"
	if s.Causal {
		causal = "yes"
	}
	return table.Row{s.Heads, s.Batch, s.Q, s.KV, causal}
}

// print writes the tables.
func (r *prefillReport) print(w io.Writer) error {
	var out bytes.Buffer
	a := r.attributes
	fmt.Fprintf(&out, "%s, %d SMs, driver for CUDA %d.%d\n", r.device, a.SMs, a.DriverVersion/1000, a.DriverVersion%1000/10)
	if len(r.rows) > 0 {
		out.WriteString(r.burstTable().Render() + "\n")
		for _, peer := range r.peerNames(burstPeers) {
			r.means(&out, peer+" ÷ ours", func(row prefillRow) float64 { return timeOf(row.anchor.Peers, peer) / row.Microseconds })
		}
	}
	if slices.ContainsFunc(r.rows, func(row prefillRow) bool { return row.SustainedMicroseconds > 0 }) {
		out.WriteString(r.sustainedTable().Render() + "\n")
		for _, peer := range r.peerNames(sustainedPeers) {
			r.means(&out, peer+" ÷ ours, sustained", func(row prefillRow) float64 {
				return timeOf(row.anchor.Sustained, peer) / row.SustainedMicroseconds
			})
		}
		if r.meter != nil {
			fmt.Fprintf(&out, "power and clock were not measured: %v\n", r.meter)
		}
	}
	out.WriteString(compileReport(r.compiled))
	_, err := w.Write(out.Bytes())
	return err
}

// shortTokens is up to how many query tokens a sequence counts as short.
const shortTokens = 1024

// means writes the geometric mean and the least of a ratio, of all rows and of
// the short ones.
func (r *prefillReport) means(w io.Writer, title string, ratio func(prefillRow) float64) {
	var all, short []float64
	for _, row := range r.rows {
		if v := ratio(row); !math.IsNaN(v) {
			all = append(all, v)
			if row.Q <= shortTokens {
				short = append(short, v)
			}
		}
	}
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(w, "%s: geometric mean %.3f, least %.3f of %d shapes", title, bench.GeometricMean(all), slices.Min(all), len(all))
	if len(short) > 0 {
		fmt.Fprintf(w, "; up to %d query tokens %.3f, least %.3f of %d", shortTokens, bench.GeometricMean(short), slices.Min(short), len(short))
	}
	fmt.Fprintln(w)
}

func (r *prefillReport) burstTable() table.Writer {
	header := slices.Concat(prefillShapeColumns, []any{"block", "µs", "TFLOPS", "spread", "schedule µs"})
	peers := r.peerNames(burstPeers)
	for _, p := range peers {
		header = append(header, p+" µs", "TFLOPS", "ratio")
	}
	t := newTable(header...)
	for _, row := range r.rows {
		cells := append(prefillShapeCells(row.PrefillShape), fmt.Sprintf("%d×%d", row.BlockM, row.BlockN),
			fixed(row.Microseconds, 1), fixed(row.TFLOPS(row.Microseconds), 0), percent(row.Spread), fixed(row.ScheduleMicros, 1))
		for _, p := range peers {
			us := timeOf(row.anchor.Peers, p)
			cells = append(cells, known(us, 1), known(row.TFLOPS(us), 0), known(us/row.Microseconds, 3))
		}
		t.AppendRow(cells)
	}
	return t
}

func (r *prefillReport) sustainedTable() table.Writer {
	header := slices.Concat(prefillShapeColumns, []any{"burst µs", "sustained µs", "TFLOPS", "W", "SM MHz"})
	peers := r.peerNames(sustainedPeers)
	for _, p := range peers {
		header = append(header, p+" µs", "TFLOPS", "ratio")
	}
	t := newTable(header...)
	for _, row := range r.rows {
		us := row.SustainedMicroseconds
		cells := append(prefillShapeCells(row.PrefillShape), fixed(row.BurstMicroseconds, 1), fixed(us, 1), fixed(row.TFLOPS(us), 0))
		if p := row.Power; p != nil {
			cells = append(cells, meanAndRange(p.Watts), meanAndRange(p.MHz))
		} else {
			cells = append(cells, "-", "-")
		}
		for _, p := range peers {
			peer := timeOf(row.anchor.Sustained, p)
			cells = append(cells, known(peer, 1), known(row.TFLOPS(peer), 0), known(peer/us, 3))
		}
		t.AppendRow(cells)
	}
	return t
}

// csv is the figures for programs.
func (r *prefillReport) csv() []byte {
	var out bytes.Buffer
	a := r.attributes
	fmt.Fprintf(&out, "# %s, driver for CUDA %d.%d, bf16; microseconds per call, the schedule computed beforehand\n", r.device, a.DriverVersion/1000, a.DriverVersion%1000/10)
	sustained := func(row prefillRow) bool { return row.SustainedMicroseconds > 0 }
	power := func(row prefillRow) bool { return row.Power != nil }
	columns := []column[prefillRow]{
		{"heads", func(row prefillRow) string { return strconv.Itoa(row.Heads) }},
		{"batch", func(row prefillRow) string { return strconv.Itoa(row.Batch) }},
		{"q_len", func(row prefillRow) string { return strconv.Itoa(row.Q) }},
		{"kv_len", func(row prefillRow) string { return strconv.Itoa(row.KV) }},
		{"causal", func(row prefillRow) string { return bit(row.Causal) }},
		{"us", func(row prefillRow) string { return fixed(row.Microseconds, 3) }},
		{"tflops", func(row prefillRow) string { return fixed(row.TFLOPS(row.Microseconds), 2) }},
		{"spread", func(row prefillRow) string { return fixed(row.Spread, 4) }},
		{"calls", func(row prefillRow) string { return strconv.Itoa(row.Calls) }},
		{"out_error", func(row prefillRow) string { return strconv.FormatFloat(row.OutError, 'e', 2, 64) }},
		{"lse_error", func(row prefillRow) string { return strconv.FormatFloat(row.LSEError, 'e', 2, 64) }},
		{"schedule_us", func(row prefillRow) string { return fixed(row.ScheduleMicros, 3) }},
		{"block_m", func(row prefillRow) string { return strconv.Itoa(row.BlockM) }},
		{"block_n", func(row prefillRow) string { return strconv.Itoa(row.BlockN) }},
		{"burst_us", when(sustained, func(row prefillRow) string { return fixed(row.BurstMicroseconds, 3) })},
		{"sustained_us", when(sustained, func(row prefillRow) string { return fixed(row.SustainedMicroseconds, 3) })},
		{"sustained_tflops", when(sustained, func(row prefillRow) string { return fixed(row.TFLOPS(row.SustainedMicroseconds), 2) })},
		{"watts", when(power, func(row prefillRow) string { return figure(row.Power.Watts.Mean, 1) })},
		{"sm_mhz", when(power, func(row prefillRow) string { return figure(row.Power.MHz.Mean, 0) })},
	}
	for _, p := range r.peerNames(burstPeers) {
		columns = append(columns,
			column[prefillRow]{p + "_us", func(row prefillRow) string { return figure(timeOf(row.anchor.Peers, p), 3) }},
			column[prefillRow]{p + "_ratio", func(row prefillRow) string { return figure(timeOf(row.anchor.Peers, p)/row.Microseconds, 4) }})
	}
	for _, p := range r.peerNames(sustainedPeers) {
		columns = append(columns,
			column[prefillRow]{p + "_sustained_us", func(row prefillRow) string { return figure(timeOf(row.anchor.Sustained, p), 3) }},
			column[prefillRow]{p + "_sustained_ratio", when(sustained, func(row prefillRow) string {
				return figure(timeOf(row.anchor.Sustained, p)/row.SustainedMicroseconds, 4)
			})})
	}
	writeCSV(&out, columns, r.rows)
	return out.Bytes()
}
