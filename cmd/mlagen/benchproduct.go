package main

import (
	"fmt"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/mlagen/mlagen/golden/oracle"
	"github.com/mlagen/mlagen/runtime/bench"
)

// productOps are the operations of bench that are products with weights.
var productOps = map[string][]bench.ProductOp{
	"upproject": {bench.UpProject},
	"absorb":    {bench.AbsorbQuery, bench.AbsorbOutput},
}

// products returns the shapes that the flags name.
func (f *benchFlags) products() (shapes []bench.ProductShape) {
	tokens := f.tokens.or(1, 16, 64, 128, 256, 1024, 4096)
	if f.op == "upproject" {
		tokens = f.tokens.or(1024, 4096, 8192)
	}
	for _, op := range productOps[f.op] {
		for _, heads := range f.heads.or(128) {
			for _, n := range tokens {
				shapes = append(shapes, bench.ProductShape{Op: op, Heads: heads, Tokens: n})
			}
		}
	}
	return shapes
}

// productMeasurer is what products takes of bench.Bench.
type productMeasurer interface {
	Bandwidth() (float64, error)
	Product(bench.ProductShape, bench.ProductReference) (bench.ProductResult, error)
}

// products times products between two measurements of the bandwidth.
func (r *benchRun) products(report *benchReport, b productMeasurer, shapes []bench.ProductShape, p progress) (err error) {
	if report.stream, err = b.Bandwidth(); err != nil {
		return err
	}
	for _, s := range shapes {
		p.step(s.String())
		result, err := b.Product(s, productReference)
		ok, err := r.timed(err, false)
		if ok {
			report.products = append(report.products, result)
		}
		if err != nil {
			return err
		}
	}
	report.streamAfter, err = b.Bandwidth()
	return err
}

// productReference is the oracle's answer for one row.
func productReference(op bench.ProductOp, weights [][]float32, row []float32) []float64 {
	w := oracle.Weights[float32]{Heads: 1, Nope: len(weights) / 2, Value: len(weights) / 2, Latent: len(weights[0])}
	for _, x := range weights {
		w.Data = append(w.Data, x...)
	}
	switch op {
	case bench.AbsorbQuery:
		return oracle.AbsorbQuery(w, 0, row)
	case bench.AbsorbOutput:
		return oracle.AbsorbOutput(w, 0, row)
	}
	return oracle.UpProject(w, 0, row)
}

// productTable is a row per product. The bound is reading the weights once at
// the stream's bandwidth.
func (b *benchReport) productTable() table.Writer {
	header := []any{"product", "heads", "tokens", "tile", "µs", "TFLOPS", "TB/s", "% of weights' read", "spread", "error", "calls"}
	if b.sustained {
		header = append(header, "sustained µs", "TFLOPS", "W", "SM MHz")
	}
	t := newTable(header...)
	for _, r := range b.products {
		row := table.Row{
			r.Op, r.Heads, r.Tokens, fmt.Sprintf("%d×%d", r.BlockM, r.BlockN), fixed(r.Microseconds, 2), fixed(r.TFLOPS(), 1), fixed(r.TBps(), 2),
			fixed(100*r.Bound(b.stream), 1), percent(r.Spread), fmt.Sprintf("%.1e", r.Error), r.Calls,
		}
		if b.sustained {
			row = append(row, fixed(r.SustainedMicroseconds, 2), fixed(r.FLOP()/r.SustainedMicroseconds/1e6, 1))
			if p := r.Power; p != nil {
				row = append(row, meanAndRange(p.Watts), meanAndRange(p.MHz))
			} else {
				row = append(row, "-", "-")
			}
		}
		t.AppendRow(row)
	}
	return t
}

// productColumns are the figures of products for programs.
func (b *benchReport) productColumns() []column[bench.ProductResult] {
	type r = bench.ProductResult
	sustained := func(r) bool { return b.sustained }
	return []column[r]{
		{"op", func(x r) string { return string(x.Op) }},
		{"heads", func(x r) string { return strconv.Itoa(x.Heads) }},
		{"tokens", func(x r) string { return strconv.Itoa(x.Tokens) }},
		{"block_m", func(x r) string { return strconv.Itoa(x.BlockM) }},
		{"block_n", func(x r) string { return strconv.Itoa(x.BlockN) }},
		{"us", func(x r) string { return fixed(x.Microseconds, 3) }},
		{"tflops", func(x r) string { return fixed(x.TFLOPS(), 2) }},
		{"tbps", func(x r) string { return fixed(x.TBps(), 4) }},
		{"weights_bound", func(x r) string { return fixed(x.Bound(b.stream), 4) }},
		{"spread", func(x r) string { return fixed(x.Spread, 4) }},
		{"error", func(x r) string { return strconv.FormatFloat(x.Error, 'g', 3, 64) }},
		{"calls", func(x r) string { return strconv.Itoa(x.Calls) }},
		{"sustained_us", when(sustained, func(x r) string { return fixed(x.SustainedMicroseconds, 3) })},
		{"stream_tbps", func(r) string { return fixed(b.stream, 4) }},
	}
}

var _ productMeasurer = (*bench.Bench)(nil)
