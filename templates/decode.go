package templates

import (
	"github.com/mlagen/mlagen/gen"
)

// absorbDecode picks the family by the row block.
func absorbDecode(s Spec) (*gen.Output, error) {
	if s.seesaw() {
		return seesawDecode(s)
	}
	return swapDecode(s)
}

// kvParts cuts a tile into equal runs of boxes, at most three: the first
// multiplies start when a third of the tile is there, and a third is refilled
// as soon as it has been multiplied.
func (s Spec) kvParts() []gen.Part {
	blocks := s.kvTile().Blocks()
	n := 3
	for blocks%n != 0 {
		n--
	}
	var parts []gen.Part
	for i := range n {
		parts = append(parts, gen.Part{First: i * blocks / n, Count: blocks / n, Arrivals: 4})
	}
	return parts
}

// kvSlots returns how many parts the ring holds: Stages tiles, or, where no
// further tile fits, all that does.
func (s Spec) kvSlots() int {
	parts := len(s.kvParts())
	if s.Stages < s.maxStages() {
		return s.Stages * parts
	}
	return s.ringBytes() / (s.kvTile().Bytes() / parts)
}

// latentRun is the part of a KV part that is latent, in blocks of 64 columns.
type latentRun struct{ first, end int }

// latentRuns returns one run per part; the last may be shorter or empty, for the
// rope key is no value.
func (s Spec) latentRuns() []latentRun {
	var runs []latentRun
	for _, p := range s.kvParts() {
		runs = append(runs, latentRun{p.First, min(p.First+p.Count, s.latentBlocks())})
	}
	return runs
}

// swapDecode attends packed query rows (token × head) to a paged latent
// cache, tokens on wgmma's M and rows on its N ("swap-AB"):
//
//	Sᵀ = K·Qᵀ          64 tokens × BlockH rows, over 576 columns
//	Oᵀ += Vᵀ·Pᵀ        512 latent columns × BlockH rows, over 64 tokens
//
// V is the latent part of the very bytes of K, read transposed. One CTA owns
// BlockH rows of a request and runs through its part of the schedule; a request
// that is split over several CTAs leaves normalised partial outputs, which
// decodeCombine merges.
//
// What the schedule read (lengths and tables) and wrote does not change until
// the step is over, so it is read before the previous kernel has ended; queries
// and cache are not.
func swapDecode(s Spec) (*gen.Output, error) {
	k := gen.NewKernel("absorb_decode", s, s.options())
	c := newDecodeCTA(k, s)

	ring := k.Pipeline("kv", s.kvSlots(), s.kvTile(), s.kvParts()...)
	queries := k.SharedTile("q", s.queryTile())
	weights := k.SharedTile("p", s.weightTile())
	c.begin()

	attend := func() {
		team := k.NamedBarrier(s.teamThreads())
		width := gen.AccumulatorRows // latent columns of an accumulator, one box of the tile
		tiles := ring.Consumer()
		scores := k.Accumulator(s.BlockH)
		out := make([]gen.Accumulator, s.latentBlocks())
		for i := range out {
			out[i] = k.Accumulator(s.BlockH)
		}
		softmax := newColumnSoftmax(k, s, team)
		speaker := k.Lane().Eq(0) // releases parts for its warp
		c.todo.each(c.part, func(it item) {
			length := c.kvLen.At(it.request).Load(0)
			softmax.reset()
			for _, o := range out {
				o.Zero()
			}
			k.WaitForPreviousGrid()
			c.queries.load(it.request, c.firstRow, queries, s.teamThreads())
			k.FenceAsync()
			team.Sync()
			k.For("tile", it.begin, it.end, 1, func(t gen.Value) {
				tile := tiles.Next()
				k.Multiply(scores, tile.KMajor(), queries.KMajor(), 0, false)
				k.CommitMultiply()
				k.WaitMultiply(0)
				mask := visibility{s: s, length: length, firstToken: t.Mul(s.BlockN), firstRow: c.firstRow}
				mask.hide(k, scores)
				p := softmax.update(scores, out)
				mask.clearUnused(k, tile.Columns(0, s.Latent))
				weights.StoreTransposed(p, 0)
				k.FenceAsync()
				team.Sync()
				for _, run := range s.latentRuns() {
					if run.first < run.end {
						k.MultiplyRows(out[run.first:run.end], tile.Columns(width*run.first, width*(run.end-run.first)).Transposed(), weights.KMajor())
					}
					k.CommitMultiply()
				}
				for i := range s.kvParts() {
					k.WaitMultiply(len(s.kvParts()) - 1 - i)
					tile.Release(speaker, i)
				}
			})
			state := softmax.finish()
			tile := queries.Reuse(s.outputTile())
			perBlock := len(out[0].R) / 4 // quads of one accumulator's latent columns
			batch := perBlock * max(1, quadsInFlight/perBlock)
			c.result.write(it, c.rowBlock, c.firstRow, out, state, mergeTeam{team, s.teamThreads(), k.Thread()}, columnLayout(k), tile, batch,
				func(packed []gen.Value, quad int) {
					for i := 0; i < len(packed); i += 2 * perBlock {
						tile.StoreTransposed(packed[i:i+2*perBlock], (quad+i/2)/perBlock*width)
					}
				})
			team.Sync() // the staged output has been read before the next queries overwrite it
		})
	}

	k.Roles(
		gen.Role{Name: "attend", Warps: gen.Warpgroups(1), Body: attend},
		gen.Role{Name: "load", Warps: 1, Body: func() { c.loadPages(ring) }},
	)
	k.WaitForPreviousGrid() // also without work: who waits for this kernel waits for those before
	return k.Build()
}
