package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// The parts of seesaw's KV tiles in the order of their arrival: the rope key,
// which is free first, then the latent's halves.
const (
	ropePart = iota
	leftPart
	rightPart
)

// seesawDecode attends up to 64 packed query rows, which lie on wgmma's M. The
// output, 64 × 512 in f32, is half of the register file, so two warpgroups own
// half of its columns each and take turns with the KV tiles:
//
//	left:  S₀ = Q·K₀ᵀ  P₀  O_left += P₀·V₀  O_left += P₁·V₁
//	right: S₁ = Q·K₁ᵀ      O_right += P₀·V₀  P₁  O_right += P₁·V₁
//
// While one takes a softmax the other's multiplies run. A warpgroup multiplies
// its own weights from registers and the other's from shared memory: P₀ has a
// tile of its own, P₁ lies where K₁'s rope key was. V is the latent part of
// K's bytes, transposed. A half of a tile is refilled as soon as its owner has
// multiplied it. (The schedule is FlashMLA's, described in its deep-dive
// document, with a producer warpgroup and a lagging maximum.)
func seesawDecode(s Spec) (*gen.Output, error) {
	k := gen.NewKernel("absorb_decode", s, s.options())
	c := newDecodeCTA(k, s)
	scale := k.Scalar("scale_log2", isa.F32)

	half := s.Latent / 2
	ring := k.Pipeline("kv", 3*s.Stages, s.kvTile(),
		gen.Part{First: s.latentBlocks(), Count: s.kvTile().Blocks() - s.latentBlocks(), Arrivals: 4},
		gen.Part{First: 0, Count: s.latentBlocks() / 2, Arrivals: 4},
		gen.Part{First: s.latentBlocks() / 2, Count: s.latentBlocks() / 2, Arrivals: 4})
	queries := k.SharedTile("q", s.queryTile())
	firstWeights := k.SharedTile("p", s.weightTile())
	references := k.SharedArray("references", isa.F32, 2*referenceWords)
	sums := k.SharedArray("sums", isa.F32, rowSumWords)
	c.begin()
	both := k.NamedBarrier(s.teamThreads())
	ready := [2]gen.NamedBarrier{k.NamedBarrier(s.teamThreads()), k.NamedBarrier(s.teamThreads())}
	turn := k.NamedBarrier(s.teamThreads())
	reference := [2]gen.Region{references, references.At(referenceWords)}

	// side is one warpgroup's work; which says whether it is the left (0) or
	// the right (1).
	side := func(which int, attend func(pair pair)) func() {
		return func() {
			team := k.NamedBarrier(gen.WarpgroupThreads)
			tiles := ring.Consumer()
			p := pair{
				k: k, s: s, which: which, team: team, tiles: tiles,
				scores: k.Accumulator(s.BlockN), out: k.Accumulator(half),
				queries: queries, firstWeights: firstWeights, ready: ready, turn: turn, reference: reference,
			}
			p.softmax = newRowSoftmax(k, s, scale)
			c.todo.each(c.part, func(it item) {
				p.length = c.kvLen.At(it.request).Load(0)
				p.firstRow = c.firstRow
				p.softmax.reset()
				k.WaitForPreviousGrid()
				c.queries.load(it.request, c.firstRow, queries, s.teamThreads())
				p.out.Zero()
				k.FenceAsync()
				both.Sync()
				k.For("pair", it.begin, it.end, 2, func(t gen.Value) {
					p.first, p.second = t, t.Add(1).Lt(it.end)
					attend(p)
				})
				state := p.softmax.finish(sums, k.Int(which), both)
				tile := queries.Reuse(s.outputTile())
				c.result.write(it, c.rowBlock, c.firstRow, []gen.Accumulator{p.out}, state, mergeTeam{both, s.teamThreads(), k.Thread()}, rowLayout(k), tile, quadsInFlight,
					func(packed []gen.Value, quad int) { tile.StoreRows(packed, which*half+8*quad) })
				both.Sync() // the staged output has been read before the next queries overwrite it
			})
		}
	}

	load := func() {
		k.If(k.Warp().Eq(8), func() { c.loadPages(ring) })
	}
	k.Roles(
		gen.Role{Name: "left", Warps: gen.Warpgroups(1), Registers: 240, Body: side(0, pair.left)},
		gen.Role{Name: "right", Warps: gen.Warpgroups(1), Registers: 240, Body: side(1, pair.right)},
		gen.Role{Name: "load", Warps: gen.Warpgroups(1), Registers: 24, Body: load},
	)
	k.WaitForPreviousGrid() // also without work: who waits for this kernel waits for those before
	return k.Build()
}

// pair is one warpgroup's view of two consecutive KV tiles, the second of which
// may be missing.
type pair struct {
	k            *gen.Kernel
	s            Spec
	which        int // 0 left, 1 right: the half of the output this warpgroup owns
	team         gen.NamedBarrier
	tiles        *gen.Consumer
	scores, out  gen.Accumulator
	softmax      *rowSoftmax
	queries      gen.SharedTile
	firstWeights gen.SharedTile
	ready        [2]gen.NamedBarrier // weights and reference of tile 0, 1 are there
	turn         gen.NamedBarrier    // the left's scores are issued, it is the right's turn
	reference    [2]gen.Region
	length       gen.Value
	firstRow     gen.Value
	first        gen.Value // index of tile 0
	second       gen.Value // whether there is a tile 1
}

// speaker is the thread that releases parts for its warp.
func (p pair) speaker() gen.Value { return p.k.Lane().Eq(0) }

// values returns this warpgroup's half of a tile's values.
func (p pair) values(tile gen.Slot) gen.SharedTile {
	half := p.s.Latent / 2
	return tile.Columns(p.which*half, half)
}

// secondWeights returns the place of P₁: K₁'s rope key, which nobody needs
// after S₁.
func (p pair) secondWeights(tile gen.Slot) gen.SharedTile {
	return tile.Columns(p.s.Latent, p.s.Rope).Reuse(p.s.weightTile())
}

// mask returns the visibility of tile i of the pair.
func (p pair) mask(i int) visibility {
	return visibility{s: p.s, length: p.length, firstToken: p.first.Add(i).Mul(p.s.BlockN), firstRow: p.firstRow}
}

// clear zeroes unused tokens in this warpgroup's half of tile i's values.
func (p pair) clear(i int, tile gen.Slot) {
	mask := p.mask(i)
	p.k.If(mask.partial(), func() {
		p.team.Sync() // all warps have read the tile as keys
		mask.clearUnused(p.k, p.values(tile))
		p.k.FenceAsync()
		p.team.Sync()
	})
}

// multiplyKeys issues the scores of a tile.
func (p pair) multiplyKeys(tile gen.Slot) {
	p.k.Multiply(p.scores, p.queries.KMajor(), tile.KMajor(), 0, false)
	p.k.CommitMultiply()
}

// score returns the finished scores of tile i, masked, in powers of two.
func (p pair) score(i int) []gen.Value {
	p.mask(i).hideColumns(p.k, p.scores)
	return p.softmax.scaled(p.scores)
}

// publish stores weights for the other warpgroup and tells it.
func (p pair) publish(i int, weights []gen.Value, to gen.SharedTile) {
	to.StoreRows(weights, 0)
	p.k.FenceAsync()
	p.ready[i].Arrive()
}

// left runs the left warpgroup's side of the pair.
func (p pair) left() {
	k := p.k
	tile := p.tiles.Next()
	p.multiplyKeys(tile)
	p.turn.Arrive()
	k.WaitMultiply(0)
	tile.Release(p.speaker(), ropePart)
	s := p.score(0)
	p.softmax.lead(p.softmax.top(s), p.reference[0], p.out)
	weights := p.softmax.weights(s)
	p.publish(0, weights, p.firstWeights)
	p.clear(0, tile)
	k.MultiplyFragment(p.out, weights, p.values(tile).Transposed())
	k.CommitMultiply()
	k.WaitMultiply(0)
	tile.Release(p.speaker(), leftPart)
	k.If(p.second, func() {
		tile := p.tiles.Next()
		p.ready[1].Sync()
		p.softmax.follow(p.reference[1], p.out)
		p.clear(1, tile)
		k.Multiply(p.out, p.secondWeights(tile).KMajor(), p.values(tile).Transposed(), 0, true)
		k.CommitMultiply()
		k.WaitMultiply(0)
		tile.Release(p.speaker(), ropePart, leftPart)
	})
}

// right runs the right warpgroup's side of the pair. Tile 1's scores are
// issued behind tile 0's and not among them: the left warpgroup then takes its
// softmax while they are multiplied, and not both warpgroups at a time.
func (p pair) right() {
	k := p.k
	first := p.tiles.Next()
	multiplyFirst := func() {
		p.ready[0].Sync()
		p.softmax.follow(p.reference[0], p.out)
		p.clear(0, first)
		k.Multiply(p.out, p.firstWeights.KMajor(), p.values(first).Transposed(), 0, true)
		k.CommitMultiply()
	}
	p.turn.Sync()
	k.IfElse(p.second, func() {
		second := p.tiles.Next()
		p.multiplyKeys(second)
		multiplyFirst()
		k.WaitMultiply(1)
		s := p.score(1)
		top := p.softmax.top(s)
		k.WaitMultiply(0)
		first.Release(p.speaker(), rightPart)
		p.softmax.lead(top, p.reference[1], p.out)
		weights := p.softmax.weights(s)
		p.team.Sync() // all warps have read the rope key that the weights replace
		p.publish(1, weights, p.secondWeights(second))
		p.clear(1, second)
		k.MultiplyFragment(p.out, weights, p.values(second).Transposed())
		k.CommitMultiply()
		k.WaitMultiply(0)
		second.Release(p.speaker(), rightPart)
	}, func() {
		multiplyFirst()
		k.WaitMultiply(0)
		first.Release(p.speaker(), rightPart)
	})
}
