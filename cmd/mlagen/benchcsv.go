package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"strconv"

	"github.com/mlagen/mlagen/runtime/bench"
)

// column is a column of the figures for programs. New ones go to the end; what
// was not measured is empty.
type column[T any] struct {
	name string
	cell func(T) string
}

// csvRow is a measured variant of a shape. The row of the chosen one also
// carries what was measured beside it.
type csvRow struct {
	benchRow
	bench.Result // hides the chosen one's
	chosen       bool
}

func bit(v bool) string {
	if v {
		return "1"
	}
	return "0"
}

// figure is a number, empty where it is not known.
func figure(v float64, digits int) string {
	if math.IsNaN(v) {
		return ""
	}
	return fixed(v, digits)
}

// when is a cell that only some rows have.
func when[T any](has func(T) bool, cell func(T) string) func(T) string {
	return func(r T) string {
		if has(r) {
			return cell(r)
		}
		return ""
	}
}

func shapeCSV[T any](shape func(T) bench.Shape) []column[T] {
	return []column[T]{
		{"heads", func(r T) string { return strconv.Itoa(shape(r).Heads) }},
		{"s_q", func(r T) string { return strconv.Itoa(shape(r).SQ) }},
		{"batch", func(r T) string { return strconv.Itoa(shape(r).Batch) }},
		{"kv_len", func(r T) string { return strconv.Itoa(shape(r).KV) }},
		{"causal", func(r T) string { return bit(shape(r).SQ > 1) }},
		{"varlen", func(r T) string { return bit(shape(r).Varlen) }},
	}
}

// decodeColumns are the figures of decode.
func decodeColumns() []column[csvRow] {
	sustained := func(r csvRow) bool { return r.SustainedMicroseconds > 0 }
	power := func(r csvRow) bool { return r.Power != nil }
	peer := func(r csvRow) bool { return r.chosen && len(r.anchor.Peers) > 0 }
	sustainedPeer := func(r csvRow) bool { return r.chosen && len(r.anchor.Sustained) > 0 && sustained(r) }
	invariant := func(r csvRow) bool { return r.chosen && r.invariant != nil }
	return append(shapeCSV(func(r csvRow) bench.Shape { return r.Result.Shape }), []column[csvRow]{
		{"us", func(r csvRow) string { return fixed(r.Microseconds, 3) }},
		{"tb_per_s", func(r csvRow) string { return fixed(r.TBps(r.Microseconds), 4) }},
		{"tflops", func(r csvRow) string { return fixed(r.TFLOPS(r.Microseconds), 2) }},
		{"spread", func(r csvRow) string { return fixed(r.Spread, 4) }},
		{"calls", func(r csvRow) string { return strconv.Itoa(r.Calls) }},
		{"out_error", func(r csvRow) string { return strconv.FormatFloat(r.OutError, 'e', 2, 64) }},
		{"lse_error", func(r csvRow) string { return strconv.FormatFloat(r.LSEError, 'e', 2, 64) }},
		{"burst_us", when(sustained, func(r csvRow) string { return fixed(r.BurstMicroseconds, 3) })},
		{"sustained_us", when(sustained, func(r csvRow) string { return fixed(r.SustainedMicroseconds, 3) })},
		{"best_peer", when(peer, func(r csvRow) string { return r.anchor.Best().Name })},
		{"best_peer_us", when(peer, func(r csvRow) string { return fixed(r.anchor.Best().Microseconds, 3) })},
		{"ratio", when(peer, func(r csvRow) string { return fixed(r.ratio(), 4) })},
		{"block_h", func(r csvRow) string { return strconv.Itoa(r.BlockH) }},
		{"splits", func(r csvRow) string { return strconv.Itoa(r.Splits) }},
		{"chosen", func(r csvRow) string { return bit(r.chosen) }},
		{"best", when(func(r csvRow) bool { return r.variants != nil }, func(r csvRow) string { return bit(r.BlockH == r.best().BlockH) })},
		{"sustained_tb_per_s", when(sustained, func(r csvRow) string { return fixed(r.TBps(r.SustainedMicroseconds), 4) })},
		{"sustained_tflops", when(sustained, func(r csvRow) string { return fixed(r.TFLOPS(r.SustainedMicroseconds), 2) })},
		{"watts", when(power, func(r csvRow) string { return figure(r.Power.Watts.Mean, 1) })},
		{"watts_min", when(power, func(r csvRow) string { return figure(r.Power.Watts.Min, 1) })},
		{"watts_max", when(power, func(r csvRow) string { return figure(r.Power.Watts.Max, 1) })},
		{"sm_mhz", when(power, func(r csvRow) string { return figure(r.Power.MHz.Mean, 0) })},
		{"sm_mhz_min", when(power, func(r csvRow) string { return figure(r.Power.MHz.Min, 0) })},
		{"sm_mhz_max", when(power, func(r csvRow) string { return figure(r.Power.MHz.Max, 0) })},
		{"joules_per_million_tokens", when(power, func(r csvRow) string { return figure(r.JoulesPerMillionTokens(), 4) })},
		{"sustained_peer", when(sustainedPeer, func(r csvRow) string { return r.anchor.BestSustained().Name })},
		{"sustained_peer_us", when(sustainedPeer, func(r csvRow) string { return fixed(r.anchor.BestSustained().Microseconds, 3) })},
		{"sustained_ratio", when(sustainedPeer, func(r csvRow) string { return fixed(r.sustainedRatio(), 4) })},
		{"invariant_block_h", when(invariant, func(r csvRow) string { return strconv.Itoa(r.invariant.BlockH) })},
		{"invariant_splits", when(invariant, func(r csvRow) string { return strconv.Itoa(r.invariant.Splits) })},
		{"invariant_us", when(invariant, func(r csvRow) string { return fixed(r.invariant.Microseconds, 3) })},
		{"invariant_cost", when(invariant, func(r csvRow) string { return fixed(r.cost(), 4) })},
	}...)
}

// scheduleColumns are the figures of the schedule kernel.
func scheduleColumns() []column[bench.ScheduleResult] {
	type row = bench.ScheduleResult
	return append(shapeCSV(func(r row) bench.Shape { return r.Shape }), []column[row]{
		{"us", func(r row) string { return fixed(r.Microseconds, 3) }},
		{"spread", func(r row) string { return fixed(r.Spread, 4) }},
		{"calls", func(r row) string { return strconv.Itoa(r.Calls) }},
		{"block_h", func(r row) string { return strconv.Itoa(r.BlockH) }},
		{"splits", func(r row) string { return strconv.Itoa(r.Splits) }},
		{"parts", func(r row) string { return strconv.Itoa(r.Parts) }},
		{"pieces", func(r row) string { return strconv.Itoa(r.Pieces) }},
	}...)
}

// csv is the figures for programs.
func (b *benchReport) csv() []byte {
	var out bytes.Buffer
	a := b.attributes
	fmt.Fprintf(&out, "# %s, driver for CUDA %d.%d, bf16, page %d", b.device, a.DriverVersion/1000, a.DriverVersion%1000/10, 64)
	if b.schedules != nil {
		out.WriteString("; microseconds per call of the schedule kernel\n")
		writeCSV(&out, scheduleColumns(), b.schedules)
		return out.Bytes()
	}
	fmt.Fprintf(&out, ", stream %.3f TB/s before and %.3f after; microseconds per call incl. combine\n", b.stream, b.streamAfter)
	if b.products != nil {
		writeCSV(&out, b.productColumns(), b.products)
		return out.Bytes()
	}
	var rows []csvRow
	for _, r := range b.rows {
		variants := r.variants
		if variants == nil {
			variants = []bench.Result{r.Result}
		}
		for _, v := range variants {
			rows = append(rows, csvRow{r, v, v.BlockH == r.BlockH})
		}
	}
	writeCSV(&out, decodeColumns(), rows)
	return out.Bytes()
}

// writeCSV writes a header and the rows.
func writeCSV[T any](out *bytes.Buffer, columns []column[T], rows []T) {
	w := csv.NewWriter(out)
	var cells []string
	for _, c := range columns {
		cells = append(cells, c.name)
	}
	w.Write(cells)
	for _, r := range rows {
		cells = cells[:0]
		for _, c := range columns {
			cells = append(cells, c.cell(r))
		}
		w.Write(cells)
	}
	w.Flush() // a bytes.Buffer does not fail
}
