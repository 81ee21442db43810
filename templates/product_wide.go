package templates

import (
	"github.com/mlagen/mlagen/gen"
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

// wideWork is what distinguishes one wide product from another.
type wideWork struct {
	// tiles runs body for every tile of this CTA, in a warp of its own. load
	// brings the rows for depth block starting at depth into a slot; it is run
	// by one thread.
	tiles func(body func(t wideTile, load func(slot gen.Place, policy, depth gen.Value)))
	// extra runs in a warp beside, for what is copied and not multiplied.
	extra func()
}

// wide builds the kernel's body: a ring, two warpgroups that multiply, each
// half of a tile's rows, and a warpgroup whose warps load. A tile's output
// leaves through a stage in shared memory while the next is multiplied: every
// warp stages its own rows and has the copy engine write them one by one, so
// that a tile may end anywhere and nobody waits for another warp.
func (p *product) wide(prepare func(), work wideWork) {
	k, s := p.k, p.s
	p.ring = k.Ring("blocks", s.Stages, 2, 4*wideTeam, wideNotes, s.rowsTile(), s.weightsTile(p.g))
	stage := k.SharedRows("stage", s.dtype(), s.BlockM, s.passColumns(p.g))
	k.AlignmentCheck()
	k.InitBarriers()
	k.AllowNextGrid()
	prepare()

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
		k.If(warp.Eq(2), work.extra)
	}
	k.Roles(
		gen.Role{Name: "multiply", Warps: gen.Warpgroups(wideTeam), Registers: 232, Body: func() { p.multiplyWide(stage) }},
		gen.Role{Name: "load", Warps: gen.Warpgroups(1), Registers: 40, Body: load},
	)
	k.WaitForPreviousGrid() // also without work: who waits for this kernel waits for those before
}

// multiplyWide multiplies tiles as they come.
func (p *product) multiplyWide(stage gen.SharedRows) {
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
	k.WaitBulk(0)
}

// writeWide brings a warp's rows of a finished tile on their way.
func (p *product) writeWide(t wideTile, accs []gen.Accumulator, firstRow gen.Value, stage gen.SharedRows) {
	k, s := p.k, p.s
	const slice = 16 // rows of a fragment that a warp has
	columns := s.passColumns(p.g)
	mine := stage.From(k.Warp().Mul(slice * len(accs)))
	lane := k.Lane()
	row := firstRow.Add(lane.Shr(4).Mul(gen.AccumulatorRows)).Add(k.Warp().And(3).Mul(slice)).Add(lane.And(slice - 1))
	exists := row.Ge(t.first()).And(row.Lt(t.end())).And(lane.Lt(slice * len(accs)))
	k.WaitForPreviousGrid()
	to := p.out.at(t.row.Add(row), t.head).At(t.column.Shr(1))
	for from := 0; from < s.BlockN; from += columns {
		k.WaitBulkRead(0)
		k.SyncWarp()
		for i, acc := range accs {
			for c := from; c < from+columns; c += 16 {
				var packed []gen.Value
				for e := c / 2; e < c/2+8; e += 2 {
					packed = append(packed, k.Pack(s.dtype(), acc.R[e].Value, acc.R[e+1].Value))
				}
				mine.From(slice*i).StoreFragment(packed, c-from)
			}
		}
		k.FenceAsync()
		k.SyncWarp()
		k.If(exists, func() { mine.BulkStore(lane, columns, to.At(from/2)) })
		k.CommitBulk()
	}
}
