package templates

import (
	"github.com/mlagen/mlagen/gen"
)

// The parts of seesaw's KV tiles in the order of their arrival: the rope key,
// which is free first, then the latent's halves.
const (
	ropePart = iota
	leftPart
	rightPart
)

// seesawDecode attends a row block with two warpgroups. Each owns half of the
// output's latent columns, since the whole does not fit one's registers or one
// would be busy with softmax half of the time, and they take turns with the KV
// tiles:
//
//	left:  S₀ = Q·K₀ᵀ  P₀  O_left += P₀·V₀    O_left += P₁·V₁
//	right: S₁ = Q·K₁ᵀ  O_right += P₀·V₀  P₁   O_right += P₁·V₁
//
// While one takes a softmax the other's multiplies run. Which way round the
// products are taken is rowsOn's. V is the latent part of K's bytes, transposed.
// A part of a tile is refilled as soon as its last reader has multiplied it.
// (The schedule began as FlashMLA's, described in its deep-dive document.)
func seesawDecode(s Spec) (*gen.Output, error) {
	k := gen.NewKernel("absorb_decode", s, s.options())
	c := newDecodeCTA(k, s)
	scale := scoreScale(k)

	half := s.latentBlocks() / 2
	ring := k.Pipeline("kv", 3*s.Stages, s.kvTile(),
		gen.Part{First: s.latentBlocks(), Count: s.kvTile().Blocks() - s.latentBlocks(), Arrivals: 4},
		gen.Part{First: 0, Count: half, Arrivals: 4},
		gen.Part{First: half, Count: half, Arrivals: 4})
	queries, rows := shareRows(k, s, scale)
	c.begin()
	both := k.NamedBarrier(s.teamThreads())

	// side is one warpgroup's work; which says whether it is the left (0) or
	// the right (1).
	side := func(which int, attend func(pair pair)) func() {
		return func() {
			team := k.NamedBarrier(gen.WarpgroupThreads)
			tiles := ring.Consumer()
			p := pair{k: k, s: s, which: which, rows: rows(which, team), team: team, both: both, tiles: tiles}
			c.todo.each(c.part, func(it item) {
				p.length = c.kvLen.At(it.request).Load(0)
				p.firstRow = c.firstRow
				p.rows.reset()
				k.WaitForPreviousGrid()
				c.queries.load(it.request, c.firstRow, queries, s.teamThreads())
				for _, o := range p.rows.output() {
					o.Zero()
				}
				k.FenceAsync()
				both.Sync()
				k.For("pair", it.begin, it.end, 2, func(t gen.Value) {
					p.tile, p.second = t, t.Add(1).Lt(it.end)
					attend(p)
				})
				state := p.rows.finish(both)
				c.result.write(it, c.rowBlock, c.firstRow, p.rows, state, mergeTeam{both, s.teamThreads(), k.Thread()}, queries.Reuse(s.outputTile()))
				both.Sync() // the staged output has been read before the next queries overwrite it
			})
		}
	}

	load := func() {
		k.If(k.Warp().Eq(8), func() { c.loadPages(ring) })
	}
	attending, loading := registers(s)
	k.Roles(
		gen.Role{Name: "left", Warps: gen.Warpgroups(1), Registers: attending, Body: side(0, pair.left)},
		gen.Role{Name: "right", Warps: gen.Warpgroups(1), Registers: attending, Body: side(1, pair.right)},
		gen.Role{Name: "load", Warps: gen.Warpgroups(1), Registers: loading, Body: load},
	)
	k.WaitForPreviousGrid() // also without work: who waits for this kernel waits for those before
	return k.Build()
}

// registers returns the registers per thread of seesaw's roles: together what
// the CTA was launched with. The output of 64 rows alone is 128 of each thread's
// that attends.
func registers(s Spec) (attending, loading int) {
	if s.rowsOnM() {
		return 240, 24
	}
	return 232, 40
}

// shareRows lays out what the warpgroups of a row block share and returns the
// queries' tile and what makes each warpgroup's part of the arithmetic.
func shareRows(k *gen.Kernel, s Spec, scale gen.Scalar) (gen.SharedTile, func(which int, team gen.NamedBarrier) rowsOn) {
	if s.rowsOnM() {
		sh := shareRowsOnM(k, s)
		return sh.queries, func(which int, _ gen.NamedBarrier) rowsOn { return newRowsOnM(k, s, scale, which, sh) }
	}
	sh := shareRowsOnN(k, s)
	return sh.queries, func(which int, team gen.NamedBarrier) rowsOn { return newRowsOnN(k, s, scale, which, team, sh) }
}

// pair is one warpgroup's view of two consecutive KV tiles, the second of which
// may be missing.
type pair struct {
	k        *gen.Kernel
	s        Spec
	which    int // 0 left, 1 right: the half of the output this warpgroup owns
	rows     rowsOn
	team     gen.NamedBarrier
	both     gen.NamedBarrier
	tiles    *gen.Consumer
	length   gen.Value
	firstRow gen.Value
	tile     gen.Value // index of tile 0
	second   gen.Value // whether there is a tile 1
}

// speaker is the thread that releases parts for its warp.
func (p pair) speaker() gen.Value { return p.k.Lane().Eq(0) }

// values returns this warpgroup's half of a tile's values.
func (p pair) values(tile gen.Slot) gen.SharedTile {
	half := p.s.Latent / 2
	return tile.Columns(p.which*half, half)
}

// valuePart is the part of a tile that holds this warpgroup's values.
func (p pair) valuePart() int { return leftPart + p.which }

// mask returns the visibility of tile i of the pair.
func (p pair) mask(i int) visibility {
	return visibility{s: p.s, length: p.length, firstToken: p.tile.Add(i).Mul(p.s.BlockN), firstRow: p.firstRow}
}

// clear zeroes unused tokens in this warpgroup's half of tile i's values.
func (p pair) clear(i int, tile gen.Slot) {
	mask := p.mask(i)
	p.k.If(mask.partial(), func() {
		p.both.Sync() // all warps have read the tile as keys
		mask.clearUnused(p.k, p.values(tile))
		p.k.FenceAsync()
		p.team.Sync()
	})
}

// multiplyKeys issues the scores of a tile.
func (p pair) multiplyKeys(tile gen.Slot) {
	p.rows.multiplyKeys(tile.SharedTile)
	p.k.CommitMultiply()
}

// score waits for the scores of tile i, behind which so many groups of
// multiplies are pending, and returns them masked, in powers of two. The tile's
// rope key is then free.
func (p pair) score(i int, tile gen.Slot, pending int) []gen.Value {
	p.k.WaitMultiply(pending)
	tile.Release(p.speaker(), ropePart)
	return p.rows.scored(p.mask(i))
}

// follow waits for the weights of tile i, which the other warpgroup gives, and
// scales the output to their references.
func (p pair) follow(i int) weights {
	w, change := p.rows.follow(i)
	change.apply(p.k, p.rows.output())
	return w
}

// multiplyValues issues what tile i adds to the output.
func (p pair) multiplyValues(i int, w weights, tile gen.Slot) {
	p.clear(i, tile)
	p.rows.multiplyValues(w, p.values(tile))
	p.k.CommitMultiply()
}

// finish waits for what has been issued and gives the tile's values back.
func (p pair) finish(tile gen.Slot) {
	p.k.WaitMultiply(0)
	tile.Release(p.speaker(), p.valuePart())
}

// left runs the left warpgroup's side of the pair.
func (p pair) left() {
	first := p.tiles.Next()
	p.multiplyKeys(first)
	w, change := p.rows.lead(0, p.score(0, first, 0))
	change.apply(p.k, p.rows.output())
	p.multiplyValues(0, w, first)
	p.finish(first)
	p.k.If(p.second, func() {
		second := p.tiles.Next()
		p.multiplyValues(1, p.follow(1), second)
		p.finish(second)
	})
}

// right runs the right warpgroup's side of the pair. Tile 1's softmax does not
// wait for the product with tile 0's values: where it raises the reference, the
// output follows once that product is there.
func (p pair) right() {
	first := p.tiles.Next()
	p.k.IfElse(p.second, func() {
		second := p.tiles.Next()
		p.multiplyKeys(second)
		p.multiplyValues(0, p.follow(0), first)
		w, change := p.rows.lead(1, p.score(1, second, 1))
		p.finish(first)
		p.rows.taken(0)
		change.apply(p.k, p.rows.output())
		p.multiplyValues(1, w, second)
		p.finish(second)
	}, func() {
		p.multiplyValues(0, p.follow(0), first)
		p.finish(first)
		p.rows.taken(0)
	})
}
