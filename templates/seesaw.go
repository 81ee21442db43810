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
//	left:  S₀ = Q·K₀ᵀ  P₀  O_left += P₀·V₀    O_left += P₁·V₁
//	right: S₁ = Q·K₁ᵀ  O_right += P₀·V₀  P₁   O_right += P₁·V₁
//
// While one takes a softmax the other's multiplies run. Weights are operands
// in registers on both sides: a thread leaves its own in shared memory for the
// thread of the other warpgroup that needs the very same fragment, which is
// sooner there than a tile that the tensor cores could read, for that would
// have to pass a proxy fence. V is the latent part of K's bytes, transposed. A
// part of a tile is refilled as soon as its last reader has multiplied it. (The
// schedule began as FlashMLA's, described in its deep-dive document.)
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
	weights := newExchange(k, s)
	references := k.SharedArray("references", isa.F32, 2*referenceWords)
	sums := k.SharedArray("sums", isa.F32, rowSumWords)
	ready := [2]*gen.Barrier{k.Barrier("weights of tile 0", gen.Warpgroups(1), 1), k.Barrier("weights of tile 1", gen.Warpgroups(1), 1)}
	c.begin()
	both := k.NamedBarrier(s.teamThreads())
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
				queries: queries, weights: weights,
				both: both, given: ready[which], taken: ready[1-which].Waiter(), reference: reference,
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
					p.tile, p.second = t, t.Add(1).Lt(it.end)
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

// exchange is where a thread of one warpgroup leaves the fragment of weights
// that its counterpart in the other needs: 16 bytes a thread, side by side,
// for each four registers. The two take turns in it, so one place serves both
// ways.
type exchange struct {
	place     gen.Region
	registers int
}

func newExchange(k *gen.Kernel, s Spec) exchange {
	registers := s.BlockN / 4
	return exchange{k.SharedArray("weights", isa.B32, registers*gen.WarpgroupThreads), registers}
}

// mine is the thread's place.
func (e exchange) mine(k *gen.Kernel) gen.Region {
	return e.place.At(k.Thread().And(gen.WarpgroupThreads - 1).Mul(4))
}

func (e exchange) give(k *gen.Kernel, weights []gen.Value) {
	at := e.mine(k)
	for i := 0; i < len(weights); i += 4 {
		at.StoreVector(i*gen.WarpgroupThreads, weights[i:i+4]...)
	}
}

func (e exchange) take(k *gen.Kernel) []gen.Value {
	at := e.mine(k)
	var weights []gen.Value
	for i := 0; i < e.registers; i += 4 {
		weights = append(weights, at.LoadVector(i*gen.WarpgroupThreads, 4)...)
	}
	return weights
}

// pair is one warpgroup's view of two consecutive KV tiles, the second of which
// may be missing.
type pair struct {
	k           *gen.Kernel
	s           Spec
	which       int // 0 left, 1 right: the half of the output this warpgroup owns
	team        gen.NamedBarrier
	tiles       *gen.Consumer
	scores, out gen.Accumulator
	softmax     *rowSoftmax
	queries     gen.SharedTile
	weights     exchange
	both        gen.NamedBarrier // of the two warpgroups
	given       *gen.Barrier     // this warpgroup's weights and reference are there, warp by warp
	taken       gen.Waiter       // for the other's
	reference   [2]gen.Region
	length      gen.Value
	firstRow    gen.Value
	tile        gen.Value // index of tile 0
	second      gen.Value // whether there is a tile 1
}

// warp is the warp's number in its warpgroup.
func (p pair) warp() gen.Value { return p.k.Warp().And(gen.Warpgroups(1) - 1) }

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
	p.k.Multiply(p.scores, p.queries.KMajor(), tile.KMajor(), 0, false)
	p.k.CommitMultiply()
}

// score waits for the scores of tile i, behind which so many groups of
// multiplies are pending, and returns them masked, in powers of two. The tile's
// rope key is then free.
func (p pair) score(i int, tile gen.Slot, pending int) []gen.Value {
	p.k.WaitMultiply(pending)
	tile.Release(p.speaker(), ropePart)
	p.mask(i).hideColumns(p.k, p.scores)
	return p.softmax.scaled(p.scores)
}

// lead takes the softmax of tile i, gives its weights to the other warpgroup
// and returns them, and what the output must still be multiplied by before it
// adds them.
func (p pair) lead(i int, s []gen.Value) ([]gen.Value, rescale) {
	change := p.softmax.lead(s, p.reference[i])
	weights := p.softmax.weights(s)
	p.weights.give(p.k, weights)
	p.given.Arrive(p.warp())
	return weights, change
}

// follow waits for the weights of tile i, which the other warpgroup gives, and
// scales the output to their reference.
func (p pair) follow(i int) []gen.Value {
	p.taken.Wait(p.warp())
	weights := p.weights.take(p.k)
	p.softmax.follow(p.reference[i]).apply(p.k, p.out)
	return weights
}

// multiplyValues issues what tile i adds to the output.
func (p pair) multiplyValues(i int, weights []gen.Value, tile gen.Slot) {
	p.clear(i, tile)
	p.k.MultiplyFragment(p.out, weights, p.values(tile).Transposed())
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
	weights, change := p.lead(0, p.score(0, first, 0))
	change.apply(p.k, p.out)
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
		weights, change := p.lead(1, p.score(1, second, 1))
		p.finish(first)
		change.apply(p.k, p.out)
		p.multiplyValues(1, weights, second)
		p.finish(second)
	}, func() {
		p.multiplyValues(0, p.follow(0), first)
		p.finish(first)
	})
}
