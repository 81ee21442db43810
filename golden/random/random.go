// Package random tests the kernels on cases that it draws from the whole
// contract, and shrinks those that fail to the least that still does. A seed and
// a case's number decide the case, whoever runs it and when.
package random

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/dtype"
)

// Limits bound what a case costs.
type Limits struct {
	// Seconds is about what an ordinary case may take on one core. A few take
	// more, up to eight times as much.
	Seconds float64
	// Emulated says that kernels are emulated, which costs more than the oracle.
	Emulated bool
	// Ops are the operations to draw from, none for all.
	Ops []string
}

// Group is what neighbouring cases have in common: the kernels, whose loading
// takes longer than a case, and the device.
type Group struct {
	Op      string
	Model   cases.Model
	DType   dtype.Type
	QLen    int        // decode: query tokens
	BlockH  int        // decode
	Cluster int        // decode
	Teams   int        // decode
	Piece   int        // decode: what a piece costs
	Partial dtype.Type // merge
	Rotate  string     // append
	SMs     int        // of an emulated device
}

// String names the group.
func (g Group) String() string {
	m := g.Model
	s := fmt.Sprintf("%s, %d heads, %d+%d, %d|%d, %s", g.Op, m.Heads, m.Latent, m.Rope, m.Nope, m.Value, g.DType)
	if g.Op == "decode" {
		s += fmt.Sprintf(", %d query tokens, block %d, cluster %d, teams %d", g.QLen, g.BlockH, g.Cluster, g.Teams)
	}
	return s
}

// weights are how often operations are drawn, in the order of cases.Ops.
var weights = map[string]int{"decode": 36, "prefill": 16, "extend": 10, "layer": 10, "merge": 8, "append": 6, "upproject": 7, "absorb": 7}

// DrawGroup draws the group of a number.
func DrawGroup(seed uint64, number int, l Limits) Group {
	r := rand.New(rand.NewPCG(seed, uint64(number)<<1|1))
	ops := l.Ops
	if len(ops) == 0 {
		ops = cases.Ops
	}
	total := 0
	for _, op := range ops {
		total += weights[op]
	}
	g := Group{}
	// Numbers that follow each other are spread over the operations, so that few
	// groups have most of them.
	place := rand.New(rand.NewPCG(seed, 0)).Float64() + float64(number)*math.Phi
	at := int((place - math.Floor(place)) * float64(total))
	for _, op := range ops {
		if at -= weights[op]; at < 0 {
			g.Op = op
			break
		}
	}
	g.DType = pick(r, dtype.BF16, dtype.BF16, dtype.FP16)
	g.SMs = pick(r, 1, 2, 3, 5, 8, 8, 13, 33, 132)
	g.Model = cases.Model{Heads: heads(r), Latent: pick(r, 512, 512, 512, 256, 128), Rope: 64, Nope: pick(r, 128, 128, 64), Value: pick(r, 128, 128, 64)}
	m := &g.Model
	switch g.Op {
	case "decode":
		m.Rope = pick(r, 64, 64, 64, 128)
		if g.QLen = pick(r, 1, 1, 1, 2, 1+r.IntN(9)); m.Heads*g.QLen > 1200 {
			g.QLen = 1 + 1200/m.Heads
		}
		g.BlockH = pick(r, 0, 0, 0, 8, 16, 24, 32, 40, 64)
		if g.BlockH > 0 && m.Heads*g.QLen > 16*g.BlockH {
			g.BlockH = 0 // each block reads the whole cache
		}
		rows := m.Heads * g.QLen
		if wide := g.BlockH == 64 || g.BlockH == 0 && rows > 40; m.Record() == 640 && g.BlockH == 64 {
			g.BlockH = 40 // two tiles do not fit beside more
		} else if wide && m.Record() < 640 && (rows+63)/64%2 == 0 {
			g.Cluster = pick(r, 0, 1, 2)
		} else if !wide && m.Latent > 128 {
			g.Teams = pick(r, 0, 1, 2)
		}
		g.Piece = pick(r, 0, 0, 0, 1, 3, 16)
		m.Nope, m.Value = 128, 128 // decode knows them by the scale alone
	case "merge":
		m.Heads = min(m.Heads, 40)
		m.Value = pick(r, 64, 128, 128, 256, 512)
		m.Nope, m.Rope = 8, 8 // for keys that the states have seen
		g.Partial = pick(r, "", "", dtype.F32)
	case "append":
		m.Rope, m.Heads = pick(r, 64, 64, 128), 1
		g.Rotate = pick(r, "", "interleaved", "half")
	case "upproject":
		m.Rope = pick(r, 64, 64, 128)
	case "layer", "extend":
		m.Latent = pick(r, 512, 512, 512, 256)
	}
	if each := g.headSeconds(l); each > 0 { // a few tiles and not only one
		most := l.Seconds / 3
		if one(r, 12) {
			most *= 8
		}
		if fit := max(1, int(most/each)); m.Heads > fit {
			m.Heads = 1 + r.IntN(fit)
		}
	}
	return g
}

// headSeconds is the least that a head costs where it has weights of its own or
// work that others do not share.
func (g Group) headSeconds(l Limits) (each float64) {
	switch g.Op {
	case "layer", "extend", "upproject", "absorb":
		each = float64((g.Model.Nope+g.Model.Value)*g.Model.Latent) * perElement / 3
		if l.Emulated {
			each += perUpTile
		}
	case "prefill":
		if l.Emulated {
			each = perScoreTile
		}
	}
	return each
}

// heads draws a head count: half of the time one that models have per device.
func heads(r *rand.Rand) int {
	return pick(r, pick(r, 1, 6, 8, 12, 16, 20, 24, 32, 48, 64, 96, 128), 1+r.IntN(9), 1+r.IntN(40), 1+r.IntN(200))
}

// pick draws one of choices.
func pick[T any](r *rand.Rand, choices ...T) T { return choices[r.IntN(len(choices))] }

// one reports true once in n draws.
func one(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }
