package templates

import (
	"github.com/mlagen/mlagen/gen"
)

// narrow builds the body of a product with few rows: one tile per CTA, rows on
// wgmma's N and the weights' columns on its M:
//
//	outᵀ[column, row] = Σ_depth weights[column, depth] · rows[row, depth]
//
// The ring holds all of the contraction where it can, so that a CTA asks for
// all its weights at once, before the grid that makes the rows has ended. CTAs
// are few enough for all of a launch to be on the SMs together: those of the
// next launch, where there is room for some beside, compete for memory with the
// last ones of this launch, which the next must wait for.
func (p *product) narrow(r headRows, extra func(t headTile, rows gen.Value)) {
	k, s := p.k, p.s
	p.ring = k.Ring("blocks", s.Stages, 2, 4, 0, s.rowsTile(), s.weightsTile(p.g))
	stage := k.SharedTile("stage", s.stageTile(s.BlockN))
	k.LimitCTAs(s.narrowCTAs(p.g))
	k.AlignmentCheck()
	k.InitBarriers()
	k.AllowNextGrid()
	t := r.tile(p, k.Block())

	multiply := func() {
		team := k.NamedBarrier(gen.WarpgroupThreads)
		accs := make([]gen.Accumulator, s.BlockN/gen.AccumulatorRows)
		for i := range accs {
			accs[i] = k.Accumulator(s.BlockM)
		}
		slots := p.ring.Reader()
		speaker := k.Lane().Eq(0)
		for block := range p.depthBlocks() {
			slot := slots.Next()
			for i, acc := range accs {
				k.Multiply(acc, p.weightsOf(slot), slot.Tile(rowsPart).KMajor(), i*gen.AccumulatorRows, block > 0)
			}
			k.CommitMultiply()
			if block+s.Stages < p.depthBlocks() { // somebody waits for the slot
				k.WaitMultiply(0)
				slot.Release(speaker)
			}
		}
		k.WaitMultiply(0)
		for i, acc := range accs {
			var packed []gen.Value
			for e := 0; e < len(acc.R); e += 2 {
				packed = append(packed, k.Pack(s.dtype(), acc.R[e].Value, acc.R[e+1].Value))
			}
			stage.StoreTransposed(packed, i*gen.AccumulatorRows)
		}
		team.Sync()
		k.WaitForPreviousGrid()
		p.copyStage(stage, t, r.end(t))
	}
	k.Roles(
		gen.Role{Name: "multiply", Warps: gen.Warpgroups(1), Body: multiply},
		gen.Role{Name: "weights", Warps: 1, Body: func() {
			k.OneLane(func() { p.loadWeights(p.ring.Filler(), k.EvictFirst(), t.head, t.column) })
		}},
		gen.Role{Name: "rows", Warps: 1, Body: func() {
			k.WaitForPreviousGrid()
			k.OneLane(func() {
				slots, policy := p.ring.Filler(), k.EvictNormal()
				k.For("depth", 0, p.g.depth, depthBlock, func(depth gen.Value) { r.load(slots.Next(), policy, depth, t) })
			})
			if extra != nil {
				k.If(t.column.Eq(0), func() { extra(t, r.end(t)) })
			}
		}},
	)
	k.WaitForPreviousGrid() // who waits for this kernel waits for those before
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
