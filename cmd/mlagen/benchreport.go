package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"math"
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
	rows                []benchRow
	compiled            []*runtime.Kernel
}

// benchRow is a measured shape beside its anchor.
type benchRow struct {
	anchor bench.Anchor
	bench.Result
}

// ratio is how many times faster than the best peer, NaN without one.
func (r benchRow) ratio() float64 {
	if len(r.anchor.Peers) == 0 {
		return math.NaN()
	}
	return r.anchor.Best().Microseconds / r.Microseconds
}

func (b *benchReport) compares() bool {
	for _, r := range b.rows {
		if len(r.anchor.Peers) > 0 {
			return true
		}
	}
	return false
}

// print writes the tables.
func (b *benchReport) print(w io.Writer) error {
	var out bytes.Buffer
	a := b.attributes
	fmt.Fprintf(&out, "%s, %d SMs, driver for CUDA %d.%d, pool %.1f GB; stream %.2f TB/s", b.device, a.SMs, a.DriverVersion/1000, a.DriverVersion%1000/10, float64(b.pool)/1e9, b.stream)
	if b.streamAfter > 0 {
		fmt.Fprintf(&out, " before, %.2f after", b.streamAfter)
	}
	out.WriteString("\n")
	if len(b.rows) > 0 {
		out.WriteString(b.table().Render() + "\n")
	}
	if b.compares() {
		out.WriteString(b.means().Render() + "\n")
	}
	if len(b.compiled) > 0 {
		out.WriteString(b.compileTimes().Render() + "\n")
	}
	_, err := w.Write(out.Bytes())
	return err
}

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

func (b *benchReport) table() table.Writer {
	header := []any{"heads", "s_q", "batch", "kv", "µs", "TB/s", "TFLOPS", "spread"}
	if b.sustained {
		header = append(header, "burst µs", "sustained µs")
	}
	compares := b.compares()
	if compares {
		header = append(header, "best peer", "µs", "ratio")
	}
	t := newTable(header...)
	for _, r := range b.rows {
		kv := strconv.Itoa(r.KV)
		if r.Varlen {
			kv = "≤" + kv
		}
		row := table.Row{r.Heads, r.SQ, r.Batch, kv, fixed(r.Microseconds, 2), fixed(r.TBps(), 2), fixed(r.TFLOPS(), 0), fixed(100*r.Spread, 1) + "%"}
		if b.sustained {
			row = append(row, fixed(r.BurstMicroseconds, 2), fixed(r.SustainedMicroseconds, 2))
		}
		if compares && len(r.anchor.Peers) > 0 {
			best := r.anchor.Best()
			row = append(row, best.Name, fixed(best.Microseconds, 2), fixed(r.ratio(), 3))
		}
		t.AppendRow(row)
	}
	return t
}

// means are the geometric means of the ratios, by group.
func (b *benchReport) means() table.Writer {
	t := newTable("geometric mean of best peer / ours", "shapes", "ratio", "slowest", "faster in")
	for _, g := range bench.Groups {
		var ratios []float64
		faster := 0
		for _, r := range b.rows {
			if g.Has(r.Shape) && len(r.anchor.Peers) > 0 {
				ratios = append(ratios, r.ratio())
				if r.ratio() > 1 {
					faster++
				}
			}
		}
		if len(ratios) == 0 {
			continue
		}
		low := ratios[0]
		for _, v := range ratios {
			low = min(low, v)
		}
		t.AppendRow(table.Row{g.Name, len(ratios), fixed(bench.GeometricMean(ratios), 3), fixed(low, 3), faster})
	}
	return t
}

func (b *benchReport) compileTimes() table.Writer {
	t := newTable("kernel", "PTX KB", "compile s", "registers", "warnings")
	total := 0.0
	for _, k := range b.compiled {
		t.AppendRow(table.Row{k.Name, fixed(float64(len(k.PTX))/1e3, 0), fixed(k.CompileSeconds, 3), k.Attributes.Registers, len(k.Warnings)})
		total += k.CompileSeconds
	}
	t.AppendFooter(table.Row{"", "", fixed(total, 3)})
	return t
}

func fixed(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }

// csv is the figures for programs.
func (b *benchReport) csv() []byte {
	var out bytes.Buffer
	a := b.attributes
	fmt.Fprintf(&out, "# %s, driver for CUDA %d.%d, bf16, page %d, stream %.3f TB/s before and %.3f after; microseconds per call incl. combine\n",
		b.device, a.DriverVersion/1000, a.DriverVersion%1000/10, 64, b.stream, b.streamAfter)
	w := csv.NewWriter(&out)
	header := []string{"heads", "s_q", "batch", "kv_len", "causal", "varlen", "us", "tb_per_s", "tflops", "spread", "calls", "out_error", "lse_error"}
	if b.sustained {
		header = append(header, "burst_us", "sustained_us")
	}
	if b.compares() {
		header = append(header, "best_peer", "best_peer_us", "ratio")
	}
	w.Write(header)
	bit := func(v bool) string {
		if v {
			return "1"
		}
		return "0"
	}
	for _, r := range b.rows {
		row := []string{
			strconv.Itoa(r.Heads), strconv.Itoa(r.SQ), strconv.Itoa(r.Batch), strconv.Itoa(r.KV), bit(r.SQ > 1), bit(r.Varlen),
			fixed(r.Microseconds, 3), fixed(r.TBps(), 4), fixed(r.TFLOPS(), 2), fixed(r.Spread, 4), strconv.Itoa(r.Calls),
			strconv.FormatFloat(r.OutError, 'e', 2, 64), strconv.FormatFloat(r.LSEError, 'e', 2, 64),
		}
		if b.sustained {
			row = append(row, fixed(r.BurstMicroseconds, 3), fixed(r.SustainedMicroseconds, 3))
		}
		if b.compares() {
			best := r.anchor.Best()
			row = append(row, best.Name, fixed(best.Microseconds, 3), fixed(r.ratio(), 4))
		}
		w.Write(row)
	}
	w.Flush() // a bytes.Buffer does not fail
	return out.Bytes()
}
