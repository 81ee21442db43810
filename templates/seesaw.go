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

// seesawDecode attends 64 packed query rows, on wgmma's M (see rowsOnM), with
// two warpgroups. Each owns half of the output's latent columns, since the whole
// does not fit one's registers, and they take turns with the KV tiles:
//
//	left:  S₀ = Q·K₀ᵀ  P₀  O_left += P₀·V₀    O_left += P₁·V₁
//	right: S₁ = Q·K₁ᵀ  O_right += P₀·V₀  P₁   O_right += P₁·V₁
//
// While one takes a softmax the other's multiplies run. V is the latent part of
// K's bytes, transposed. A part of a tile is refilled as soon as its last reader
// has multiplied it.
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
	shared := shareRowsOnM(k, s)
	c.begin()
	both := k.NamedBarrier(s.teamThreads())

	// Both sides run the same instructions but for an item's tiles: what is executed
	// once waits for its instructions, which then come once and not twice.
	attend := func() {
		side := k.Warpgroup()
		p := pair{k: k, s: s, rows: newRowsOnM(k, s, scale, side, shared), both: both, tiles: ring.Consumer()}
		left, right := p, p
		right.which = 1
		for _, one := range []*pair{&left, &right} {
			one.team = k.NamedBarrier(gen.WarpgroupThreads)
		}
		length := k.Var(k.Int(0))
		state := newSoftmaxState(k, len(p.rows.softmax.max))
		p.rows.out.Zero()
		fetch := func(it item) {
			length.Set(c.kvLen.At(it.request).Load(0))
			queries := c.queries.locate(it, c.firstRow, shared.queries, s.teamThreads())
			k.WaitForPreviousGrid()
			queries.load()
		}
		attendTiles := func(it item) {
			p.rows.softmax.reset()
			k.WaitCopies()
			k.FenceAsync()
			both.Sync()
			run := func(p pair, attend func(pair)) func() {
				p.length, p.firstRow = length.Value, c.firstRow
				return func() {
					k.For("pair", it.begin, it.end, 2, func(t gen.Value) {
						p.tile, p.second, p.begun = t, t.Add(1).Lt(it.end), t.Gt(it.begin)
						attend(p)
					})
				}
			}
			k.IfElse(side.Eq(0), run(left, pair.left), run(right, pair.right))
			state.set(p.rows.finish(both)) // where all have multiplied the queries for the last time
		}
		deliver := func(it item) {
			c.result.write(it, c.rowBlock, c.firstRow, p.rows, state, mergeTeam{both, s.teamThreads(), k.Thread()})
			p.rows.out.Zero() // for the next item
		}
		c.todo.overlapped(c.part, fetch, attendTiles, deliver)
	}

	load := func() {
		k.If(k.Warp().Eq(gen.Warpgroups(2)), func() { c.loadPages(ring) })
	}
	k.Roles(
		gen.Role{Name: "attend", Warps: gen.Warpgroups(2), Registers: 232, Body: attend}, // the output alone is 128
		gen.Role{Name: "load", Warps: gen.Warpgroups(1), Registers: 40, Body: load},
	)
	k.WaitForPreviousGrid() // also without work: who waits for this kernel waits for those before
	return k.Build()
}

// pair is one warpgroup's view of two consecutive KV tiles, the second of which
// may be missing.
type pair struct {
	k        *gen.Kernel
	s        Spec
	which    int // 0 left, 1 right: the half of the output this warpgroup owns
	rows     *rowsOnM
	team     gen.NamedBarrier
	both     gen.NamedBarrier
	tiles    *gen.Consumer
	length   gen.Value
	firstRow gen.Value
	tile     gen.Value // index of tile 0
	second   gen.Value // whether there is a tile 1
	begun    gen.Value // whether the output has anything before tile 0
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
func (p pair) follow(i int) (weights []gen.Value) {
	weights, change := p.rows.follow(i)
	p.apply(i, change)
	return weights
}

// apply scales the output to the references of tile i.
func (p pair) apply(i int, change rescale) {
	if i == 0 {
		change = change.where(p.begun)
	}
	change.apply(p.k, p.rows.output())
}

// multiplyValues issues what tile i adds to the output.
func (p pair) multiplyValues(i int, weights []gen.Value, tile gen.Slot) {
	p.clear(i, tile)
	p.rows.multiplyValues(weights, p.values(tile))
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
	weights, change := p.rows.lead(0, p.score(0, first, 0))
	p.apply(0, change)
	p.multiplyValues(0, weights, first)
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
		weights, change := p.rows.lead(1, p.score(1, second, 1))
		p.finish(first)
		p.apply(1, change)
		p.multiplyValues(1, weights, second)
		p.finish(second)
	}, func() {
		p.multiplyValues(0, p.follow(0), first)
		p.finish(first)
	})
}
