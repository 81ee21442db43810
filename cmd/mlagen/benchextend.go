package main

import (
	"bytes"
	"fmt"
	"io"
	"strconv"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/bench"
	"github.com/mlagen/mlagen/runtime/plan"
)

// defaultWorkspace is what extend may expand into when -workspace is left out.
const defaultWorkspace = 512 << 20

// extendShapes returns what is to be timed.
func (f *benchFlags) extendShapes() (shapes []bench.ExtendShape, err error) {
	switch {
	case f.replays < 1 || f.sustained < 0 || f.workspace < 1:
		return nil, usagef("-replays and -workspace must be at least 1; -sustained must not be negative")
	case f.splits != 0 || f.invariant != 0 || f.variant == allVariants || f.varlen || f.tune.BlockH != 0 || f.anchors != "" || f.kv != nil:
		return nil, usagef("-kv, -splits, -invariant, -variant all, -varlen, -anchors and -block-h are not for -op extend")
	}
	paths := []bool{false} // absorbed
	switch f.path {
	case "expand":
	case "absorb":
		paths = []bool{true}
	case "both":
		paths = []bool{true, false}
	default:
		return nil, usagef("-path %q is unknown; absorb, expand and both can be timed", f.path)
	}
	for _, heads := range f.heads.or(128) {
		for _, batch := range f.batch.or(1) {
			for _, prefix := range f.prefix.or(32768) {
				for _, n := range f.sq.or(512) {
					for _, absorb := range paths {
						shapes = append(shapes, bench.ExtendShape{Heads: heads, Batch: batch, New: n, Prefix: prefix, Workspace: f.workspace, Absorb: absorb})
					}
				}
			}
		}
	}
	return shapes, nil
}

// benchExtend times extend.
func (a *app) benchExtend(f *benchFlags) (err error) {
	shapes, err := f.extendShapes()
	if err != nil {
		return err
	}
	pool := int64(f.pool * 1e9)
	if pool == 0 {
		pool = prefillPool
	}
	var report extendReport
	return a.timeOperation(f, operationRun{
		shapes: len(shapes), pool: pool,
		measure: func(b *bench.Bench, p progress, w io.Writer) (int, error) { return report.measure(b, shapes, p, w) },
		done: func(driver runtime.Driver, b *bench.Bench) {
			report.device, report.attributes = driver.Name(), driver.Attributes()
			report.compiled, report.meter = b.Compiled(), b.MeterError()
		},
		print: report.print, csv: report.csv,
	})
}

// extendReport is what a run has to tell.
type extendReport struct {
	device     string
	attributes runtime.Attributes
	meter      error // why power was not measured
	rows       []bench.ExtendResult
	compiled   []*runtime.Kernel
}

// measure times the shapes and counts wrong results, which it tells to w.
func (r *extendReport) measure(b interface {
	Extend(bench.ExtendShape, bench.ProductReference) (bench.ExtendResult, error)
}, shapes []bench.ExtendShape, p progress, w io.Writer) (wrong int, err error) {
	return timeShapes(shapes, p, w,
		func(s bench.ExtendShape) (bench.ExtendResult, error) { return b.Extend(s, productReference) },
		func(_ bench.ExtendShape, result bench.ExtendResult) { r.rows = append(r.rows, result) })
}

// planned is the planner's estimate of the path in microseconds, 0 where it has
// none: for a batch, or a workspace that does not allow the path.
func planned(r bench.ExtendResult) float64 {
	p := plan.Planner{Card: plan.H200, Model: plan.DeepSeek(r.Heads), Workspace: r.Workspace}
	decided, err := p.Plan(plan.Request{New: r.New, Prefix: r.Prefix})
	if err != nil || r.Batch != 1 {
		return 0
	}
	best := 0.0
	for _, e := range decided.Estimates {
		if e.Possible && (e.Path == plan.Absorb) == r.Absorb {
			best = 1e6 * e.Seconds
		}
	}
	return best
}

// choice is the path that the planner chooses.
func choice(r bench.ExtendResult) string {
	p := plan.Planner{Card: plan.H200, Model: plan.DeepSeek(r.Heads), Workspace: r.Workspace}
	requests := make([]plan.Request, r.Batch)
	for i := range requests {
		requests[i] = plan.Request{New: r.New, Prefix: r.Prefix}
	}
	paths, err := p.Batch(requests)
	if err != nil || len(paths) == 0 {
		return ""
	}
	return string(paths[0])
}

// pathName is the path that was timed.
func pathName(r bench.ExtendResult) string {
	if r.Absorb {
		return string(plan.Absorb)
	}
	return string(plan.Expand)
}

// print writes the table.
func (r *extendReport) print(w io.Writer) error {
	var out bytes.Buffer
	a := r.attributes
	fmt.Fprintf(&out, "%s, %d SMs, driver for CUDA %d.%d; the bound is 1.08 × the FLOP at 650 TFLOPS + 60 µs\n", r.device, a.SMs, a.DriverVersion/1000, a.DriverVersion%1000/10)
	if len(r.rows) > 0 {
		header := []any{"heads", "batch", "new", "prefix", "path", "workspace MB", "chunks", "µs", "TFLOPS", "bound µs", "of bound", "planned µs", "planned ÷ µs", "chosen", "spread", "schedule µs", "out error", "lse error"}
		sustained := r.rows[0].SustainedMicroseconds > 0
		if sustained {
			header = append(header, "sustained µs", "TFLOPS", "W", "SM MHz")
		}
		t := newTable(header...)
		for _, x := range r.rows {
			cells := []any{
				x.Heads, x.Batch, x.New, x.Prefix, pathName(x), fixed(float64(x.WorkspaceBytes)/1e6, 0), fmt.Sprintf("%d × %d", x.Chunks, x.Chunk),
				fixed(x.Microseconds, 1), fixed(x.TFLOPS(x.Microseconds), 0), fixed(x.Bound(), 0), fixed(x.Microseconds/x.Bound(), 3), fixed(planned(x), 0),
				fixed(planned(x)/x.Microseconds, 3), choice(x),
				percent(x.Spread), fixed(x.ScheduleMicros, 1), fmt.Sprintf("%.1e", x.OutError), fmt.Sprintf("%.1e", x.LSEError),
			}
			if sustained {
				cells = append(cells, fixed(x.SustainedMicroseconds, 1), fixed(x.TFLOPS(x.SustainedMicroseconds), 0))
				if x.Power != nil {
					cells = append(cells, meanAndRange(x.Power.Watts), meanAndRange(x.Power.MHz))
				}
			}
			t.AppendRow(cells)
		}
		out.WriteString(t.Render() + "\n")
		if sustained && r.meter != nil {
			fmt.Fprintf(&out, "power and clock were not measured: %v\n", r.meter)
		}
	}
	out.WriteString(compileReport(r.compiled))
	_, err := w.Write(out.Bytes())
	return err
}

// csv is the figures for programs.
func (r *extendReport) csv() []byte {
	var out bytes.Buffer
	a := r.attributes
	fmt.Fprintf(&out, "# %s, driver for CUDA %d.%d, bf16; microseconds per call, the schedule computed beforehand\n", r.device, a.DriverVersion/1000, a.DriverVersion%1000/10)
	type row = bench.ExtendResult
	writeCSV(&out, []column[row]{
		{"heads", func(x row) string { return strconv.Itoa(x.Heads) }},
		{"batch", func(x row) string { return strconv.Itoa(x.Batch) }},
		{"new", func(x row) string { return strconv.Itoa(x.New) }},
		{"prefix", func(x row) string { return strconv.Itoa(x.Prefix) }},
		{"path", pathName},
		{"workspace", func(x row) string { return strconv.FormatInt(x.WorkspaceBytes, 10) }},
		{"chunk", func(x row) string { return strconv.Itoa(x.Chunk) }},
		{"chunks", func(x row) string { return strconv.Itoa(x.Chunks) }},
		{"us", func(x row) string { return fixed(x.Microseconds, 3) }},
		{"tflops", func(x row) string { return fixed(x.TFLOPS(x.Microseconds), 2) }},
		{"bound_us", func(x row) string { return fixed(x.Bound(), 2) }},
		{"planned_us", func(x row) string { return fixed(planned(x), 2) }},
		{"chosen", choice},
		{"spread", func(x row) string { return fixed(x.Spread, 4) }},
		{"calls", func(x row) string { return strconv.Itoa(x.Calls) }},
		{"schedule_us", func(x row) string { return fixed(x.ScheduleMicros, 3) }},
		{"out_error", func(x row) string { return strconv.FormatFloat(x.OutError, 'e', 2, 64) }},
		{"lse_error", func(x row) string { return strconv.FormatFloat(x.LSEError, 'e', 2, 64) }},
		{"sustained_us", func(x row) string { return fixed(x.SustainedMicroseconds, 3) }},
	}, r.rows)
	return out.Bytes()
}
