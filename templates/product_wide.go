package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/hopper"
)

// wideTile is a tile of a wide product's output: BlockM rows, of which those
// from first to end−1 exist and the tile's row 0 is row of the output, and
// BlockN columns of a head.
type wideTile struct{ head, column, row, bounds gen.Value }

// boundsOf packs the rows that exist into one word.
func boundsOf(first, end gen.Value) gen.Value { return first.Shl(16).Or(end) }

func (t wideTile) first() gen.Value { return t.bounds.Shr(16) }
func (t wideTile) end() gen.Value   { return t.bounds.And(0xffff) }

// lastTile is the head of the note that ends the work.
const lastTile = -1

// wideNotes is the words of wideTile.
const wideNotes = 4

// sliceRows is the rows of an accumulator that a warp has.
const sliceRows = 16

// resultPromotion is the L2 promotion of the output's tensor map, which is only
// written.
const resultPromotion = 0

// wideWork is what distinguishes one wide product from another.
type wideWork struct {
	// prepare runs first, in all warps; nil where there is nothing to prepare.
	prepare func()
	// tiles runs body for every tile of this CTA, in a warp of its own. load
	// brings the rows for depth block starting at depth into a slot; it is run
	// by one thread.
	tiles func(body func(t wideTile, load func(slot gen.Place, policy, depth gen.Value)))
	// extra runs in a warp beside, for what is copied and not multiplied; nil
	// where there is nothing.
	extra func()
}

// wide builds the kernel's body: a ring, two warpgroups that multiply, each
// half of a tile's rows, and a warpgroup whose warps load. A tile's output
// leaves through a stage in shared memory while the next is multiplied: every
// warp stages its own 16 rows and has the copy engine write them, or, where
// only some of them exist, writes those itself. Nobody waits for another warp.
func (p *product) wide(work wideWork) {
	k, s := p.k, p.s
	p.results = k.Tensor("results", s.dtype(), []string{"column", "row", "head"}, []int{depthBlock, sliceRows, 1}, hopper.Swizzle128, resultPromotion)
	stage := k.SharedTile("stage", s.stageTile(s.passColumns(p.g)))
	p.ring = k.Ring("blocks", s.Stages, 2, 4*wideTeam, wideNotes, s.rowsTile(), s.weightsTile(p.g))
	k.AlignmentCheck()
	k.InitBarriers()
	k.AllowNextGrid()
	if work.prepare != nil {
		work.prepare()
	}

	load := func() {
		warp := k.Warp().And(3)
		k.If(warp.Eq(0), func() {
			slots := p.ring.Filler()
			k.WaitForPreviousGrid()
			work.tiles(func(t wideTile, load func(gen.Place, gen.Value, gen.Value)) {
				k.OneLane(func() {
					policy := k.EvictNormal()
					k.For("depth", 0, p.g.depth, depthBlock, func(depth gen.Value) {
						slot := slots.Next()
						k.If(depth.Eq(0), func() { slot.SetNotes(t.head, t.column, t.row, t.bounds) })
						load(slot, policy, depth)
					})
				})
			})
			k.OneLane(func() {
				slot := slots.Next()
				zero := k.Int(0)
				slot.SetNotes(k.Int(lastTile), zero, zero, zero)
				slot.Finish()
			})
		})
		k.If(warp.Eq(1), func() {
			slots := p.ring.Filler()
			work.tiles(func(t wideTile, _ func(gen.Place, gen.Value, gen.Value)) {
				k.OneLane(func() { p.loadWeights(slots, k.EvictNormal(), t.head, t.column) })
			})
			k.OneLane(func() { slots.Next().Finish() })
		})
		if work.extra != nil {
			k.If(warp.Eq(2), work.extra)
		}
	}
	k.Roles(
		gen.Role{Name: "multiply", Warps: gen.Warpgroups(wideTeam), Registers: 232, Body: func() { p.multiplyWide(stage) }},
		gen.Role{Name: "load", Warps: gen.Warpgroups(1), Registers: 40, Body: load},
	)
	k.WaitForPreviousGrid() // also without work: who waits for this kernel waits for those before
}

// multiplyWide multiplies tiles as they come.
func (p *product) multiplyWide(stage gen.SharedTile) {
	k, s := p.k, p.s
	half := s.BlockM / wideTeam // rows of a warpgroup
	accs := make([]gen.Accumulator, half/gen.AccumulatorRows)
	for i := range accs {
		accs[i] = k.Accumulator(s.BlockN)
	}
	slots := p.ring.Reader()
	firstRow := k.Warp().Broadcast(0).Shr(2).Mul(half) // of this warpgroup
	speaker := k.Lane().Eq(0)                          // releases slots for its warp
	k.Loop("tile", func(leaveIf func(gen.Value)) {
		slot := slots.Next()
		n := slot.Notes()
		t := wideTile{head: n[0], column: n[1], row: n[2], bounds: n[3]}
		leaveIf(t.head.Eq(lastTile))
		for block := range p.depthBlocks() {
			before := slot
			if block > 0 {
				slot = slots.Next()
			}
			rows := slot.Tile(rowsPart).RowsFrom(firstRow, half).KMajor()
			for i, acc := range accs {
				k.Multiply(acc, rows, p.weightsOf(slot), i*gen.AccumulatorRows, block > 0)
			}
			k.CommitMultiply()
			if block > 0 {
				k.WaitMultiply(1)
				before.Release(speaker)
			}
		}
		k.WaitMultiply(0)
		slot.Release(speaker)
		p.writeWide(t, accs, firstRow, stage)
	})
	k.OneLane(func() { k.WaitBulk(0) })
}

// writeWide brings a warp's rows of a finished tile on their way.
func (p *product) writeWide(t wideTile, accs []gen.Accumulator, firstRow gen.Value, stage gen.SharedTile) {
	k, s := p.k, p.s
	columns := s.passColumns(p.g)
	slices := make([]gen.Value, len(accs)) // the first row in the tile of this warp's slice of each
	for i := range slices {
		slices[i] = firstRow.Add(k.Warp().Broadcast(0).And(3).Mul(sliceRows)).Add(i * gen.AccumulatorRows)
	}
	k.WaitForPreviousGrid()
	for from := 0; from < s.BlockN; from += columns {
		k.OneLane(func() { k.WaitBulkRead(0) })
		k.SyncWarp()
		for i, acc := range accs {
			for c := from; c < from+columns; c += 16 {
				var packed []gen.Value
				for e := c / 2; e < c/2+8; e += 2 {
					packed = append(packed, k.Pack(s.dtype(), acc.R[e].Value, acc.R[e+1].Value))
				}
				stage.StoreSlice(packed, slices[i], c-from)
			}
		}
		k.FenceAsync()
		k.SyncWarp()
		for _, row := range slices {
			whole := row.Ge(t.first()).And(row.Add(sliceRows).Le(t.end()))
			k.IfElse(whole, func() {
				k.OneLane(func() {
					for b := range columns / depthBlock {
						stage.BulkStore(b, row, p.results, t.column.Add(from+b*depthBlock), t.row.Add(row), t.head)
					}
				})
			}, func() { p.writeSome(t, row, stage, from, columns) })
		}
		k.OneLane(func() { k.CommitBulk() })
	}
}

// writeSome writes those rows of a staged slice that exist.
func (p *product) writeSome(t wideTile, row gen.Value, stage gen.SharedTile, from, columns int) {
	k := p.k
	chunks := columns / chunkElems
	begin, end := row.Max(t.first()), t.end().Min(row.Add(sliceRows))
	k.For("chunk", k.Lane(), end.Sub(begin).Mul(chunks), 32, func(i gen.Value) {
		at, chunk := begin.Add(i.Div(chunks)), i.Rem(chunks)
		to := p.out.at(t.row.Add(at), t.head).At(t.column.Add(from).Shr(1)).At(chunk.Mul(4))
		to.StoreVector(0, stage.Chunk(at, chunk).LoadVector(0, 4)...)
	})
	k.SyncWarp()
}
