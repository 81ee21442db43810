package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/mlagen/mlagen/runtime/bench"
)

// sustainedRatio is how many times faster than the best peer without pause,
// NaN without one.
func (r benchRow) sustainedRatio() float64 {
	if len(r.anchor.Sustained) == 0 {
		return math.NaN()
	}
	return r.anchor.BestSustained().Microseconds / r.SustainedMicroseconds
}

// sustainedTable is the runs without pause.
func (b *benchReport) sustainedTable() table.Writer {
	header := slices.Concat(shapeColumns, []any{"burst µs", "sustained µs", "TB/s", "TFLOPS", "W", "SM MHz", "J/Mtoken"})
	compares := b.has(func(r benchRow) bool { return len(r.anchor.Sustained) > 0 })
	if compares {
		header = append(header, "best peer", "µs", "TFLOPS", "ratio")
	}
	t := newTable(header...)
	for _, r := range b.rows {
		us := r.SustainedMicroseconds
		row := append(shapeCells(r.Shape), fixed(r.BurstMicroseconds, 2), fixed(us, 2), fixed(r.TBps(us), 2), fixed(r.TFLOPS(us), 0))
		if p := r.Power; p != nil {
			row = append(row, meanAndRange(p.Watts), meanAndRange(p.MHz), known(r.JoulesPerMillionTokens(), 3))
		} else {
			row = append(row, "-", "-", "-")
		}
		if len(r.anchor.Sustained) > 0 {
			best := r.anchor.BestSustained()
			row = append(row, best.Name, fixed(best.Microseconds, 2), fixed(r.TFLOPS(best.Microseconds), 0), fixed(r.sustainedRatio(), 3))
		}
		t.AppendRow(row)
	}
	return t
}

func meanAndRange(r bench.Range) string {
	if math.IsNaN(r.Mean) {
		return "-"
	}
	return fmt.Sprintf("%.0f (%.0f–%.0f)", r.Mean, r.Min, r.Max)
}

// known is a figure that the device may not have told.
func known(v float64, digits int) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fixed(v, digits)
}

// powerNote says what the figures of power are, or why there are none.
func (b *benchReport) powerNote() string {
	note := ""
	if b.has(func(r benchRow) bool { return r.Power != nil }) {
		note = "W, MHz: mean (least–most) over the second half of the run; J/Mtoken: by the energy counter, per million tokens in the cache\n"
	}
	if b.has(func(r benchRow) bool { return r.Power != nil && !r.Power.Counted }) {
		note += "J/Mtoken where the energy counter is missing or moved too seldom: mean power × time\n"
	}
	if b.meter != nil {
		note += fmt.Sprintf("power, clock and energy were not measured: %v\n", b.meter)
	}
	return note
}

// best is the fastest of the variants.
func (r benchRow) best() bench.Result {
	return slices.MinFunc(r.variants, func(a, b bench.Result) int { return cmp.Compare(a.Microseconds, b.Microseconds) })
}

// choice is how many times slower the chosen variant is than the best, NaN
// where they were not all timed.
func (r benchRow) choice() float64 {
	if r.variants == nil {
		return math.NaN()
	}
	return r.Microseconds / r.best().Microseconds
}

const variantLegend = "µs by row block; * chosen, < best, - not timed\n"

// variantTable is a column per row block.
func (b *benchReport) variantTable() table.Writer {
	var blocks []int
	for _, r := range b.rows {
		for _, v := range r.variants {
			blocks = append(blocks, v.BlockH)
		}
	}
	slices.Sort(blocks)
	blocks = slices.Compact(blocks)
	header := slices.Clone(shapeColumns)
	for _, h := range blocks {
		header = append(header, fmt.Sprintf("%d rows", h))
	}
	t := newTable(append(header, "chosen", "best", "chosen / best")...)
	for _, r := range b.rows {
		if r.variants == nil {
			continue
		}
		row, best := shapeCells(r.Shape), r.best()
		for _, h := range blocks {
			i := slices.IndexFunc(r.variants, func(v bench.Result) bool { return v.BlockH == h })
			if i < 0 {
				row = append(row, "-")
				continue
			}
			mark := ""
			if h == r.BlockH {
				mark += "*"
			}
			if h == best.BlockH {
				mark += "<"
			}
			row = append(row, mark+" "+fixed(r.variants[i].Microseconds, 2))
		}
		t.AppendRow(append(row, r.BlockH, best.BlockH, fixed(r.choice(), 3)))
	}
	return t
}

func (b *benchReport) variantMeans() table.Writer {
	return b.summarise(summary{
		"geometric mean of chosen / best", "worst", "best chosen in", benchRow.choice, more, func(v float64) bool { return v <= 1 },
	})
}

// cost is how many times slower the batch-invariant mode is, NaN where it was
// not timed.
func (r benchRow) cost() float64 {
	if r.invariant == nil {
		return math.NaN()
	}
	return r.invariant.Microseconds / r.Microseconds
}

func (b *benchReport) invariantTable() table.Writer {
	t := newTable(slices.Concat(shapeColumns, []any{"block", "µs", "invariant block", "splits", "µs", "cost"})...)
	for _, r := range b.rows {
		if v := r.invariant; v != nil {
			t.AppendRow(append(shapeCells(r.Shape), r.BlockH, fixed(r.Microseconds, 2), v.BlockH, v.Splits, fixed(v.Microseconds, 2), fixed(r.cost(), 3)))
		}
	}
	return t
}

func (b *benchReport) invariantMeans() table.Writer {
	return b.summarise(summary{
		"geometric mean of batch-invariant / default", "slowest", "no slower in", benchRow.cost, more, func(v float64) bool { return v <= 1 },
	})
}

// scheduleTable is the schedule kernel alone.
func (b *benchReport) scheduleTable() table.Writer {
	t := newTable(slices.Concat(shapeColumns, []any{"block", "splits", "parts", "pieces", "schedule µs", "spread", "calls"})...)
	for _, r := range b.schedules {
		t.AppendRow(append(shapeCells(r.Shape), r.BlockH, r.Splits, r.Parts, r.Pieces, fixed(r.Microseconds, 2), percent(r.Spread), r.Calls))
	}
	return t
}
