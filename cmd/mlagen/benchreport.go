package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/bench"
)

// benchReport is what a run of bench has to tell.
type benchReport struct {
	device              string
	attributes          runtime.Attributes
	pool                int64
	stream, streamAfter float64 // TB/s before and after the shapes
	sustained           bool
	meter               error // why power was not measured
	rows                []benchRow
	schedules           []bench.ScheduleResult
	products            []bench.ProductResult
	compiled            []*runtime.Kernel
}

// benchRow is a measured shape beside its anchor.
type benchRow struct {
	anchor       bench.Anchor
	bench.Result                // with what was chosen
	variants     []bench.Result // by row block, the chosen one among them; nil = not asked for
	invariant    *bench.Result  // in the batch-invariant mode; nil = not asked for
}

// ratio is how many times faster than the best peer, NaN without one.
func (r benchRow) ratio() float64 {
	if len(r.anchor.Peers) == 0 {
		return math.NaN()
	}
	return r.anchor.Best().Microseconds / r.Microseconds
}

func (b *benchReport) compares() bool {
	return b.has(func(r benchRow) bool { return len(r.anchor.Peers) > 0 })
}

// print writes the tables.
func (b *benchReport) print(w io.Writer) error {
	var out bytes.Buffer
	a := b.attributes
	fmt.Fprintf(&out, "%s, %d SMs, driver for CUDA %d.%d, pool %.1f GB", b.device, a.SMs, a.DriverVersion/1000, a.DriverVersion%1000/10, float64(b.pool)/1e9)
	if b.stream > 0 {
		fmt.Fprintf(&out, "; stream %.2f TB/s", b.stream)
	}
	if b.streamAfter > 0 {
		fmt.Fprintf(&out, " before, %.2f after", b.streamAfter)
	}
	out.WriteString("\n")
	show := func(wanted bool, t func() table.Writer) {
		if wanted {
			out.WriteString(t().Render() + "\n")
		}
	}
	show(len(b.rows) > 0, b.table)
	show(b.compares(), b.means)
	if b.sustained && len(b.rows) > 0 {
		show(true, b.sustainedTable)
		out.WriteString(b.powerNote())
	}
	if b.has(func(r benchRow) bool { return r.variants != nil }) {
		show(true, b.variantTable)
		out.WriteString(variantLegend)
		show(true, b.variantMeans)
	}
	if b.has(func(r benchRow) bool { return r.invariant != nil }) {
		show(true, b.invariantTable)
		show(true, b.invariantMeans)
	}
	show(len(b.schedules) > 0, b.scheduleTable)
	show(len(b.products) > 0, b.productTable)
	out.WriteString(compileReport(b.compiled))
	_, err := w.Write(out.Bytes())
	return err
}

// has reports whether some row is such.
func (b *benchReport) has(such func(benchRow) bool) bool { return slices.ContainsFunc(b.rows, such) }

func newTable(header ...any) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.Style().Options.SeparateColumns = false
	t.AppendHeader(header)
	var columns []table.ColumnConfig
	for i := range header {
		columns = append(columns, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	return t
}

// shapeColumns head a table by shape.
var shapeColumns = []any{"heads", "s_q", "batch", "kv"}

func shapeCells(s bench.Shape) table.Row {
	kv := strconv.Itoa(s.KV)
	if s.Varlen {
		kv = "≤" + kv
	}
	return table.Row{s.Heads, s.SQ, s.Batch, kv}
}

func (b *benchReport) table() table.Writer {
	header := slices.Concat(shapeColumns, []any{"block", "µs", "TB/s", "TFLOPS", "spread"})
	compares := b.compares()
	if compares {
		header = append(header, "best peer", "µs", "ratio")
	}
	t := newTable(header...)
	for _, r := range b.rows {
		row := append(shapeCells(r.Shape), r.BlockH, fixed(r.Microseconds, 2), fixed(r.TBps(r.Microseconds), 2), fixed(r.TFLOPS(r.Microseconds), 0), percent(r.Spread))
		if compares && len(r.anchor.Peers) > 0 {
			best := r.anchor.Best()
			row = append(row, best.Name, fixed(best.Microseconds, 2), fixed(r.ratio(), 3))
		}
		t.AppendRow(row)
	}
	return t
}

// summary is a table of the geometric means of a value of the rows, by group:
// its title and the columns after the mean.
type summary struct {
	title, worst, count string
	value               func(benchRow) float64 // NaN = the row has none
	isWorse             func(a, b float64) bool
	counts              func(float64) bool
}

func (b *benchReport) summarise(s summary) table.Writer {
	t := newTable(s.title, "shapes", "ratio", s.worst, s.count)
	for _, g := range bench.Groups {
		var values []float64
		count := 0
		worst := math.NaN()
		for _, r := range b.rows {
			v := s.value(r)
			if !g.Has(r.Shape) || math.IsNaN(v) {
				continue
			}
			values = append(values, v)
			if s.counts(v) {
				count++
			}
			if math.IsNaN(worst) || s.isWorse(v, worst) {
				worst = v
			}
		}
		if len(values) > 0 {
			t.AppendRow(table.Row{g.Name, len(values), fixed(bench.GeometricMean(values), 3), fixed(worst, 3), count})
		}
	}
	return t
}

func less(a, b float64) bool { return a < b }
func more(a, b float64) bool { return a > b }

// means are the geometric means of the ratios to the best peers.
func (b *benchReport) means() table.Writer {
	return b.summarise(summary{
		"geometric mean of best peer / ours", "slowest", "faster in", benchRow.ratio, less, func(v float64) bool { return v > 1 },
	})
}

func fixed(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }

func percent(v float64) string { return fixed(100*v, 1) + "%" }
