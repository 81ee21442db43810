package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

const (
	// mergeWords is the size of an entry of the merge list: request, first
	// slot, number of slots, unused. Entry 0 holds the number of entries and a
	// number of slots that none of them exceeds: by it a way to merge is chosen, and
	// slots beyond what that reads would be left out.
	mergeWords = 4

	combineWarps = 8
	combineCTAs  = 3  // that fit a multiprocessor: with fewer it is slower (golden/perf/decode.md)
	warpSlots    = 8  // up to so many slots a warp merges a unit alone,
	halfSlots    = 16 // and up to so many half of a CTA's warps do; all beyond
)

// combiner merges the partial outputs of requests cut into three pieces or
// more: with LSEᵢ in base 2 and M their maximum,
//
//	out = Σ outᵢ·2^(LSEᵢ−M) / Σ 2^(LSEᵢ−M)     lse = M + log₂ Σ 2^(LSEᵢ−M)
//
// Partial outputs lie as decode's threads held them: vectors of elements of two
// query rows, all threads side by side (see partials). A unit of work is the
// vectors of one of decode's warps. Where no request has many slots a warp does a
// unit; otherwise some or all of a CTA's warps share the unit's slots.
type combiner struct {
	k      *gen.Kernel
	s      Spec
	r      results
	merges gen.Pointer
	states gen.Region // of warps that share a unit
	lane   gen.Value
	split  int // lanes that share a vector: 2 where its quads are merged apart
}

func decodeCombine(s Spec) (*gen.Output, error) {
	k := gen.NewKernel("decode_combine", s, s.options())
	c := combiner{k: k, s: s, merges: k.Pointer("merges", isa.S32), split: 1}
	c.r = resultWriter(k, s)
	k.Threads(32 * combineWarps)
	k.FitCTAs(combineCTAs)
	c.states = k.SharedArray("states", isa.F32, combineWarps*32*c.savedWords())
	k.AllowNextGrid()
	c.lane = k.Lane()
	head := c.merges.LoadVector(0, 2)
	requests, most := head[0], head[1]
	c.choose(c.ways(), requests, most)
	// Also with nothing to merge: who waits for this kernel waits for decode.
	k.WaitForPreviousGrid()
	return k.Build()
}

// mergeWay is a way to merge.
type mergeWay struct {
	upTo   int  // slots that a request has at most; 0: any number
	warps  int  // that share a unit's slots
	atOnce int  // slots that each of them has under way at a time
	shared bool // lanes that have the same rows share the weighing of slots
	halves bool // a lane has half of a vector
}

// once reports whether the slots are all under way at a time.
func (w mergeWay) once() bool { return w.upTo == w.warps*w.atOnce }

// fewUnits is the units of a request up to which long merges cut them in halves: as
// many as half of the multiprocessors of an H200.
const fewUnits = 66

// ways lists the ways, for ever more slots. What is executed once takes as long as
// its instructions, so none are there for slots that are not. Which way is told by
// the spec and the longest merge, which forced splits fix, and not by the batch:
// they round differently. (golden/perf/decode.md has what was measured.)
func (c combiner) ways() []mergeWay {
	ways := []mergeWay{
		{upTo: warpSlots, warps: 1, atOnce: 4},
		{upTo: halfSlots, warps: combineWarps / 2, atOnce: 4},
	}
	if c.s.mergeUnits() > fewUnits {
		return append(ways, mergeWay{warps: combineWarps, atOnce: 4})
	}
	return append(ways,
		mergeWay{upTo: 4 * combineWarps, warps: combineWarps, atOnce: 4},
		mergeWay{upTo: 8 * combineWarps, warps: combineWarps, atOnce: 8, shared: true, halves: true},
		mergeWay{warps: combineWarps, atOnce: 16, shared: true, halves: true})
}

// choose merges requests of at most so many slots in the first way that serves them.
func (c combiner) choose(ways []mergeWay, requests, most gen.Value) {
	way := ways[0]
	this := func() {
		if way.halves {
			c.split = c.s.partialElems() / 4
		}
		c.merge(requests, way)
	}
	if way.upTo == 0 {
		this()
		return
	}
	c.k.IfElse(most.Le(way.upTo), this, func() { c.choose(ways[1:], requests, most) })
}

// merge merges requests in a way. CTAs have a whole number of units.
func (c combiner) merge(requests gen.Value, way mergeWay) {
	k, s := c.k, c.s
	groups := combineWarps / way.warps
	group, warp := k.Warp().Div(way.warps), k.Warp().Rem(way.warps)
	units := requests.Mul(s.mergeUnits() * c.split)
	k.For("unit", k.Block().Mul(groups).Add(group), units, k.Blocks().Mul(groups), func(i gen.Value) {
		u := c.unit(i)
		never := u.count.Lt(0)
		slots := c.reader(u, way, warp, never)
		if way.warps == 1 {
			to := c.places(u, never)
			k.WaitForPreviousGrid()
			c.store(u, slots.read(), to)
			return
		}
		to := c.place(u, warp, never)
		k.WaitForPreviousGrid()
		c.gather(u, slots.read(), to, group, warp, way.warps)
	})
}

// unit is one warp's vectors in a request's partial outputs.
type unit struct {
	request, count gen.Value   // slots
	row            gen.Value   // the lane's first query row; the second is rowStep further
	latent         gen.Value   // the latent column of the lane's first element
	vectors        gen.Pointer // the lane's vector in the first slot
	states         gen.Pointer // of the lane's first row in the first slot
}

// mergeUnits returns the warps' vectors that merging a request takes: the units
// of work where a warp has one vector per lane.
func (s Spec) mergeUnits() int { return s.RowBlocks() * s.BlockH * s.Latent / s.partialElems() / 32 }

// elems returns the elements that a lane has of a slot, words their size.
func (c combiner) elems() int { return c.s.partialElems() / c.split }
func (c combiner) words() int { return partialWords / c.split }

// rowStep returns the distance between a vector's two query rows.
func (c combiner) rowStep() int {
	if c.s.rowsOnM() {
		return halfRows
	}
	return 1
}

// rowIndex returns which of a vector's two query rows element e belongs to.
func (c combiner) rowIndex(e int) int {
	if c.s.rowsOnM() {
		return rowOf(e)
	}
	return e % 2
}

// quadStep returns how many latent columns the quads of a vector are apart.
func (c combiner) quadStep() int {
	if c.s.rowsOnM() {
		return 8
	}
	return gen.AccumulatorRows
}

// unit returns unit i of all requests'.
func (c combiner) unit(i gen.Value) unit {
	s := c.s
	per, perBlock := s.mergeUnits()*c.split, s.mergeUnits()*c.split/s.RowBlocks()
	e := c.merges.At(i.Div(per).Add(1).Mul(mergeWords)).LoadVector(0, mergeWords)
	inRequest := i.Rem(per)
	block, inBlock := inRequest.Div(perBlock), inRequest.Rem(perBlock)
	// The lane is for part of a vector of this lane of decode's warp.
	v, part := inBlock.Div(c.split), c.lane.Rem(c.split)
	lane := inBlock.Rem(c.split).Mul(32 / c.split).Add(c.lane.Div(c.split))
	warps := s.teamThreads() / 32
	vector, warp := v.Div(warps), v.Rem(warps)
	columns := s.partialElems() / 4 * c.quadStep() // that vectors of the same rows are apart
	share := warp
	u := unit{request: e[0], count: e[2]}
	fragmentRow := warp.And(3).Mul(16).Add(lane.Shr(2))
	fragmentColumn := lane.And(3).Mul(2)
	if s.rowsOnM() {
		u.row = fragmentRow
		u.latent = fragmentColumn.Add(vector.Mul(columns))
		share = warp.Div(gen.Warpgroups(1))
	} else {
		groups := s.BlockH / 8
		u.row = fragmentColumn.Add(vector.Rem(groups).Mul(8))
		u.latent = fragmentRow.Add(vector.Div(groups).Mul(columns))
	}
	u.latent = warp.Shr(2).Mul(s.Latent / s.warpgroups()).Add(u.latent).Add(part.Mul(c.quadStep())) // the warpgroup's
	firstRow := block.Mul(s.BlockH)
	u.row = u.row.Add(firstRow)
	u.vectors = c.r.partials.vectors(e[1], firstRow).At(v.Mul(32).Add(lane).Mul(partialWords).Add(part.Mul(c.words())))
	u.states = c.r.partials.rows(e[1], share, u.row)
	return u
}
