package templates

import (
	"github.com/mlagen/mlagen/gen"
)

// absorbDecode picks the schedule by where the rows lie.
func absorbDecode(s Spec) (*gen.Output, error) {
	switch {
	case s.rowsOnM():
		return seesawDecode(s)
	case s.teams() > 1:
		return teamsDecode(s)
	}
	return swapDecode(s)
}

// kvParts cuts a tile into equal runs of boxes, at most three: the first
// multiplies start when a third of the tile is there, and a third is refilled
// as soon as it has been multiplied. Every warp of the teams gives it back.
func (s Spec) kvParts() []gen.Part {
	blocks := s.kvTile().Blocks()
	n := 3
	for blocks%n != 0 {
		n--
	}
	var parts []gen.Part
	for i := range n {
		parts = append(parts, gen.Part{First: i * blocks / n, Count: blocks / n, Arrivals: gen.Warpgroups(s.teams())})
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
// cache, rows on wgmma's N (see rowsOnN), with one warpgroup that keeps up with
// memory where rows are few.
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

	scale := scoreScale(k)
	ring := k.Pipeline("kv", s.kvSlots(), s.kvTile(), s.kvParts()...)
	shared := shareRowsOnN(k, s, k.Int(0))
	k.PinShared() // fewer instructions than finding it in a cluster again and again
	c.begin()

	attend := func() {
		team := k.NamedBarrier(s.teamThreads())
		tiles := ring.Consumer()
		rows := newRowsOnN(k, s, scale, k.Int(0), team, shared)
		speaker := k.Lane().Eq(0) // releases parts for its warp
		c.attendItems(rows, team, func(it item, length gen.Value) {
			k.For("tile", it.begin, it.end, 1, func(t gen.Value) {
				rows.attend(it, tiles.Next(), t, length, c.firstRow, speaker)
			})
		}, rows.softmax.finish)
	}

	k.Roles(
		gen.Role{Name: "attend", Warps: gen.Warpgroups(1), Body: attend},
		gen.Role{Name: "load", Warps: 1, Body: func() { c.loadPages(ring) }},
	)
	k.WaitForPreviousGrid() // also without work: who waits for this kernel waits for those before
	return k.Build()
}

// attendItems runs through the part's items with rows on wgmma's N: walk adds an
// item's tiles, finish puts its sums together. all is everybody who does so.
func (c *decodeCTA) attendItems(rows *rowsOnN, all gen.NamedBarrier, walk func(it item, length gen.Value), finish func() softmaxState) {
	k, s := c.k, c.s
	c.todo.each(c.part, func(it item) {
		length := c.kvLen.At(it.request).Load(0)
		rows.begin()
		queries := c.queries.locate(it, c.firstRow, rows.queries, s.teamThreads())
		k.WaitForPreviousGrid()
		queries.load()
		k.WaitCopies()
		k.FenceAsync()
		all.Sync()
		walk(it, length)
		state := finish()
		c.result.write(it, c.rowBlock, c.firstRow, rows, state, mergeTeam{all, s.teamThreads(), k.Thread()})
		all.Sync() // the staged output has been read before the next queries overwrite it
	})
}
