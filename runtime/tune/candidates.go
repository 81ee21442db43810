package tune

import (
	"fmt"
	"math"
	"slices"

	"github.com/mlagen/mlagen/runtime"
)

// Source makes the kernels that are tried and knows the defaults.
type Source interface {
	runtime.Source
	runtime.Chooser
	// RowBlocks returns the values of DecodeShape.BlockH worth trying for a shape:
	// those that shared memory and registers hold and that are not mostly padding.
	RowBlocks(runtime.DecodeShape) []int
}

// Estimator is a source that tells what a step takes about, in microseconds, with
// the shape's row block and so many forced pieces per request (0: balanced). It
// decides what is tried first, never what is chosen.
type Estimator interface {
	Estimate(shape runtime.DecodeShape, batch, tokens, splits, sms int) float64
}

// defaults returns what the source takes for a load without measuring.
func defaults(src Source, m Model, l Load, sms int) Choice {
	return Choice{BlockH: src.BlockH(m.shape(l.SQ, Choice{}), l.Batch, l.mean(), sms)}
}

// capacity returns the row block and the pieces that the source takes for all loads
// with so many query tokens, of which the largest batch and the longest request
// are given: the same for each of them, so that a request's bits depend on no other.
func capacity(src Source, m Model, loads []Load, sq, sms int) Choice {
	most := Load{SQ: sq, Batch: 1, Tokens: 1}
	for _, l := range loads {
		if l.SQ == sq {
			most.Batch, most.Tokens = max(most.Batch, l.Batch), max(most.Tokens, l.Tokens)
		}
	}
	c := defaults(src, m, most, sms)
	c.Splits = src.Splits(m.shape(sq, c), most.Batch, most.Tokens, sms)
	return c
}

const (
	// mostStructures is the row blocks and cuts that are timed for a load, beside
	// the default.
	mostStructures = 8
	// hopeless is how many times the default's estimate a choice's estimate may be
	// before it is not timed, boundSlack how many times its lower bound may be:
	// estimates are off by some percent, bounds are not.
	hopeless   = 1.25
	boundSlack = 1.05
)

// structures returns the row blocks and cuts worth timing for a load beside the
// default, the most promising first.
func structures(src Source, m Model, l Load, def Choice, sms int) []Choice {
	estimate := func(c Choice) float64 { return bound(m, l, c, sms) }
	if e, ok := src.(Estimator); ok {
		estimate = func(c Choice) float64 { return e.Estimate(m.shape(l.SQ, c), l.Batch, l.mean(), c.Splits, sms) }
	}
	own := estimate(def)
	var choices []Choice
	for _, h := range src.RowBlocks(m.shape(l.SQ, Choice{})) {
		for _, n := range cuts(m, l, h, sms) {
			c := Choice{BlockH: h, Splits: n}
			if c != def && estimate(c) <= hopeless*own && bound(m, l, c, sms) <= boundSlack*own {
				choices = append(choices, c)
			}
		}
	}
	for _, n := range cutCosts(m, l, def, sms) {
		c := def
		c.PieceCost = n
		choices = append(choices, c)
	}
	slices.SortStableFunc(choices, func(a, b Choice) int {
		x, y := estimate(a), estimate(b)
		if a.merges() != b.merges() && math.Abs(x-y) < 1 { // estimates leave out what a launch costs
			if b.merges() {
				return -1
			}
			return 1
		}
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	return choices[:min(len(choices), mostStructures)]
}

// cutCosts returns what the balanced schedule may count for a cut beside the
// source's guess, where it has a choice of where to cut.
func cutCosts(m Model, l Load, def Choice, sms int) []int {
	switch {
	case def.Splits > 0:
		return nil
	case l.Ragged:
		return []int{1, 3, 6}
	case 2*l.Batch > partsOf(m, l, def.BlockH, sms):
		return []int{1, 6}
	}
	return nil
}

// cuts returns the numbers of pieces worth trying: balanced on the device, one and
// two, which need no merge kernel, and those that fill the device once and twice
// or leave some of it idle for a shorter merge.
func cuts(m Model, l Load, blockH, sms int) []int {
	if l.Ragged { // even pieces of uneven requests are uneven work
		return []int{0}
	}
	tiles, parts := quotient(l.Tokens, m.Page), partsOf(m, l, blockH, sms)
	fill := parts / l.Batch
	ns := []int{0, 1, 2, fill, fill / 2, fill * 2 / 3, fill * 5 / 6, 2 * fill}
	ns = slices.DeleteFunc(ns, func(n int) bool { return n < 0 || n > tiles || n > 1 && l.Batch*n > 2*parts })
	slices.Sort(ns)
	return slices.Compact(ns)
}

func partsOf(m Model, l Load, blockH, sms int) int {
	return max(1, sms/quotient(m.Heads*l.SQ, blockH))
}

func quotient(a, b int) int { return (a + b - 1) / b }

// What no Hopper card exceeds; times below are lower bounds.
const (
	streamRate  = 4.8e6  // bytes per microsecond from memory
	ingestRate  = 0.12e6 // bytes per microsecond into one SM
	tensorRate  = 7.6e6  // FLOP per microsecond of one SM
	mergeRate   = 6e6    // bytes per microsecond of partial results, written and read in the L2
	leastLaunch = 2.0    // microseconds of a step without work
)

// bound returns microseconds that a step takes at least: the memory's time for
// the cache, or the longest part's for its tiles, as they arrive or as they are
// multiplied, the row block's padding included; beside a launch and the traffic of
// partial results.
func bound(m Model, l Load, c Choice, sms int) float64 {
	rows, tiles := m.Heads*l.SQ, quotient(l.mean(), m.Page)
	blocks, parts := quotient(rows, c.BlockH), partsOf(m, l, c.BlockH, sms)
	width := m.Latent + m.Rope
	tileBytes := float64(m.Page*width) * float64(m.DType.Bytes())
	memory := float64(l.Batch*tiles) * tileBytes / streamRate

	longest, pieces := quotient(l.Batch*tiles, parts), 0 // a part's tiles at least, and pieces merged
	if c.Splits > 0 {
		n := min(c.Splits, tiles)
		longest = quotient(l.Batch*n, parts) * (tiles / n)
		if n > 2 { // pairs merge while others still read
			pieces = l.Batch * n
		}
	}
	tile := max(tileBytes/ingestRate, 2*float64(m.Page*c.BlockH*(width+m.Latent))/tensorRate)
	waves := quotient(blocks*parts, max(1, sms)) // more row blocks than the device holds take turns
	merge := 2 * float64(pieces*blocks*c.BlockH*m.Latent*m.DType.PartialBytes()) / mergeRate
	return leastLaunch + max(memory, float64(waves*longest)*tile) + merge
}

// variation is a change of a choice that changes no bit.
type variation struct {
	field string // of which it is another value
	name  string
	apply func(*Choice)
}

// Two row blocks begin together by themselves. Of more, row blocks of wideBlockH may
// begin in pairs: with four that gains 1.3 % where a request is long and alone, and
// loses as much at 64 × 4096 (golden/perf/decode.md).
const (
	wideBlockH = 64
	pairBatch  = 32    // requests at most
	pairTokens = 16384 // tokens at least
)

// variations returns what may be changed of a choice for a load. That the L2 may
// keep pages as it does other data is not among it: it lost wherever it mattered.
func variations(m Model, l Load, c Choice, sms int) (all []variation) {
	if c.merges() {
		for _, n := range []int{sms, 2 * sms, max(1, sms/2)} {
			all = append(all, variation{"merge grid", fmt.Sprintf("merge grid %d", n), func(c *Choice) { c.MergeBlocks = n }})
		}
	}
	if blocks := quotient(m.Heads*l.SQ, c.BlockH); c.BlockH == wideBlockH && blocks > 2 && blocks%2 == 0 && l.Batch <= pairBatch && l.Tokens >= pairTokens {
		all = append(all, variation{"cluster", "clusters of 2", func(c *Choice) { c.Cluster = 2 }})
	}
	return append(all,
		variation{"promotion", "promotion 64", func(c *Choice) { c.Promotion = 64 }},
		variation{"promotion", "promotion 256", func(c *Choice) { c.Promotion = 256 }},
	)
}
