package templates

import (
	"github.com/mlagen/mlagen/gen"
)

// narrow builds the body of a product with few rows, which lie on wgmma's N, and
// the weights' columns on its M:
//
//	outᵀ[column, row] = Σ_depth weights[column, depth] · rows[row, depth]
//
// Reading the weights is all the time that it takes, so that they must never
// cease to come: CTAs ask for as many of theirs as the ring holds before the
// grid that makes the rows has ended, and are small enough that all of the next
// launch's do so beside this one's.
func (p *product) narrow(r headRows, extra func(t headTile, rows gen.Value)) {
	k, s := p.k, p.s
	stage := k.SharedTile("stage", s.stageTile(s.BlockN))
	p.ring = k.Ring("blocks", s.Stages, 2, 4, 0, s.rowsTile(), s.weightsTile(p.g))
	k.AlignmentCheck()
	k.InitBarriers()
	k.AllowNextGrid()
	each := func(body func(t headTile)) {
		k.For("item", k.Block(), r.tiles(p), k.Blocks(), func(i gen.Value) { body(r.tile(p, i)) })
	}
	multiply := func() {
		team := k.NamedBarrier(gen.WarpgroupThreads)
		slots := p.ring.Reader()
		k.WaitForPreviousGrid() // before results are written
		each(func(t headTile) {
			accs := p.multiplyNarrow(slots)
			team.Sync() // the stage is free again
			for i, acc := range accs {
				var packed []gen.Value
				for e := 0; e < len(acc.R); e += 2 {
					packed = append(packed, k.Pack(s.dtype(), acc.R[e].Value, acc.R[e+1].Value))
				}
				stage.StoreTransposed(packed, i*gen.AccumulatorRows)
			}
			team.Sync()
			p.copyStage(stage, t, r.end(t))
		})
	}
	weights := func() {
		slots := p.ring.Filler()
		k.OneLane(func() {
			policy := k.EvictFirst()
			each(func(t headTile) { p.loadWeights(slots, policy, t.head, t.column) })
		})
	}
	rows := func() {
		slots := p.ring.Filler()
		k.WaitForPreviousGrid()
		k.OneLane(func() {
			policy := k.EvictNormal()
			each(func(t headTile) {
				k.For("depth", 0, p.g.depth, depthBlock, func(depth gen.Value) { r.load(slots.Next(), policy, depth, t) })
			})
		})
		if extra != nil {
			each(func(t headTile) { k.If(t.column.Eq(0), func() { extra(t, r.end(t)) }) })
		}
	}
	k.Roles(
		gen.Role{Name: "multiply", Warps: gen.Warpgroups(1), Body: multiply},
		gen.Role{Name: "weights", Warps: 1, Body: weights},
		gen.Role{Name: "rows", Warps: 1, Body: rows},
	)
	k.WaitForPreviousGrid() // who waits for this kernel waits for those before
}

// multiplyNarrow multiplies the tile in the next slots.
func (p *product) multiplyNarrow(slots *gen.Reader) []gen.Accumulator {
	k, s := p.k, p.s
	accs := make([]gen.Accumulator, s.BlockN/gen.AccumulatorRows)
	for i := range accs {
		accs[i] = k.Accumulator(s.BlockM)
	}
	speaker := k.Lane().Eq(0)
	var before gen.Place
	for block := range p.depthBlocks() {
		slot := slots.Next()
		k.MultiplyAll(accs, p.weightsOf(slot), slot.Tile(rowsPart).KMajor(), block > 0)
		k.CommitMultiply()
		if block > 0 {
			k.WaitMultiply(1)
			before.Release(speaker)
		}
		before = slot
	}
	k.WaitMultiply(0)
	before.Release(speaker)
	return accs
}

// copyStage writes the staged rows to the output.
func (p *product) copyStage(stage gen.SharedTile, t headTile, rows gen.Value) {
	k := p.k
	chunks := p.s.BlockN / chunkElems
	inRow, row := k.Thread().Rem(chunks), k.Thread().Div(chunks)
	k.For("row", row, rows, gen.WarpgroupThreads/chunks, func(at gen.Value) {
		to := p.out.at(t.token.Add(at), t.head).At(t.column.Shr(1)).At(inRow.Mul(4))
		to.StoreVector(0, stage.Chunk(at, inRow).LoadVector(0, 4)...)
	})
}
