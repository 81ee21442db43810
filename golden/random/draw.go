package random

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/mlagen/mlagen/golden/cases"
)

// Draw draws the case of a number in a group.
func (g Group) Draw(seed uint64, number int, l Limits) *cases.Case {
	r := rand.New(rand.NewPCG(seed^0x9e3779b97f4a7c15, uint64(number)))
	c := cases.Default()
	c.Name, c.Why = fmt.Sprintf("random-%d-%d", seed, number), "drawn at random"
	c.Op, c.Model, c.DType = g.Op, g.Model, g.DType
	c.BlockH, c.Cluster, c.Teams, c.PieceCost, c.Partial, c.Rotate = g.BlockH, g.Cluster, g.Teams, g.Piece, g.Partial, g.Rotate
	c.Seed = uint64(r.Uint32())
	c.Repeat = pick(r, 1, 1, 1, 1, 2)
	c.LSEBase = pick(r, "e", "e", "2")
	drawMemory(r, &c)
	drawLengths(r, &c, g)
	switch g.Op {
	case "decode":
		c.Splits = pick(r, 0, 0, 0, 1, 2, 3, 2+r.IntN(6), 9+r.IntN(12))
		c.BatchInvariant = c.Splits > 0 && len(c.KVLen) <= 8 && one(r, 3)
	case "prefill":
		c.Causal = !one(r, 3)
	case "extend":
		c.Causal, c.Chunk = !one(r, 4), pick(r, 0, 1, 64, 127, 128, 129, 256, 1+r.IntN(500))
	case "layer":
		c.Chunk = pick(r, 0, 0, 128, 129, 1+r.IntN(500))
		if !one(r, 3) {
			for range c.KVLen {
				c.Paths = append(c.Paths, pick(r, "absorb", "expand"))
			}
		}
	case "merge":
		if c.Splits = pick(r, 1, 2, 3, 1+r.IntN(10), 1+r.IntN(150)); one(r, 3) {
			c.Splits, c.Chunk = 0, pick(r, 1+r.IntN(10), 1+r.IntN(100))
		}
	case "upproject":
		c.Chunk = pick(r, 0, 0, 0, 1+r.IntN(300), 128)
	}
	drawFills(r, &c)
	if one(r, 3) && slices.Contains([]string{"decode", "prefill", "extend", "layer", "upproject"}, g.Op) && !(g.Op == "upproject" && c.Chunk > 0) {
		c.Graph = &cases.Graph{CaptureKVLen: []int{}}
		for _, n := range c.KVLen {
			c.Graph.CaptureKVLen = append(c.Graph.CaptureKVLen, pick(r, 0, n, length(r, 300), 2*n+1))
		}
	}
	for range pick(r, 0, 0, 1, 2) {
		if some := cases.Relations[g.Op]; len(some) > 0 {
			relation := pick(r, some...)
			if whole := g.QLen > 1 && relation == cases.SplitMerged; !whole && !slices.Contains(c.Holds, relation) {
				c.Holds = append(c.Holds, relation)
			}
		}
	}
	most := l.Seconds
	if one(r, 40) {
		most *= 8
	}
	fit(&c, most, l.Emulated)
	return &c
}

// drawMemory draws how tensors lie in memory.
func drawMemory(r *rand.Rand, c *cases.Case) {
	record := c.Model.Record()
	c.Pages.Order = pick(r, "scattered", "scattered", "reversed", "identity")
	c.Pages.Tail = pick[int32](r, -1, 1<<31-1, -1<<31, 1<<20, 0)
	c.Pages.Base = pick(r, 0, 0, 1, int64(r.IntN(20)))
	if one(r, 3) && c.Op != "merge" {
		c.Layout.KVRow = record + 8*r.IntN(4)
		if c.Op != "prefill" { // which has no pages, but a rope key that is a view of such a row
			c.Layout.KVPage = int64(c.PageSize*c.Layout.KVRow + 8*r.IntN(9))
		}
	}
	c.Layout.Q = pick(r, "joint", "split")
	c.Layout.Out = pick(r, "dense", "padded")
	if slices.Contains([]string{"decode", "prefill", "extend", "layer"}, c.Op) {
		c.Layout.QRows, c.Layout.Out = pick(r, "dense", "padded", "heads"), pick(r, "dense", "padded", "heads")
	}
}

// length draws a length up to about most: none, one, the edges of tiles and
// of pages, anything.
func length(r *rand.Rand, most int) int {
	n := pick(r, 0, 1, 1+r.IntN(9), 63, 64, 65, 127, 128, 129, r.IntN(most+1), r.IntN(most+1), r.IntN(most+1), most)
	return min(n, max(most, 1))
}

// drawLengths draws a batch: how many sequences, and their tokens.
func drawLengths(r *rand.Rand, c *cases.Case, g Group) {
	batch := pick(r, 0, 1, 1, 2, 3, 4, 5, 9, 1+r.IntN(12), 1+r.IntN(40))
	if batch == 0 && !one(r, 4) {
		batch = 1
	}
	// One bound for all sequences, so that batches of short ones are drawn, of
	// long ones, and mixtures.
	bound := pick(r, 1, 10, 65, 130, 400, 400, 1000, 1000, 4000, 20000)
	c.KVLen = []int{}
	var queries []int
	for range batch {
		n := length(r, bound)
		if one(r, 12) {
			n = length(r, 5000)
		}
		q := g.QLen
		switch c.Op {
		case "prefill", "extend":
			q = pick(r, n, n, length(r, 300), r.IntN(n+1), 1)
		case "layer":
			q = pick(r, 1, 1, 1, 2+r.IntN(20), length(r, 200), n)
		case "merge":
			q = r.IntN(20)
		case "append":
			q = pick(r, 0, 1, n, r.IntN(n+1))
			q = min(q, n)
		}
		c.KVLen, queries = append(c.KVLen, n), append(queries, q)
	}
	switch c.Op {
	case "decode":
		c.QLen = cases.Lengths{All: g.QLen}
	case "absorb":
		c.KVLen, c.QLen = nil, cases.Lengths{All: pick(r, 0, 1, 7, 8, 9, 16, 17, 33, 64, 65, 127, 128, 129, 1+r.IntN(300), 1+r.IntN(2000))}
	case "upproject":
	default:
		if queries == nil {
			queries = []int{}
		}
		c.QLen = cases.Lengths{Each: queries}
	}
}
