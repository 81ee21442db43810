package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

const (
	// mergeWords is the size of an entry of the merge list: request, first
	// slot, number of slots, unused. Entry 0 holds the number of entries and a
	// number of slots that none of them exceeds.
	mergeWords = 4

	combineWarps = 8
	warpSlots    = 8  // up to so many slots a warp merges a unit alone,
	halfSlots    = 16 // and up to so many half of a CTA's warps do; all beyond
	inFlight     = 4  // slots that a warp reads at a time
	halvesFlight = 8  // and where a lane has half of a vector
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
	c.states = k.SharedArray("states", isa.F32, gatherPlaces*32*c.savedWords())
	k.AllowNextGrid()
	c.lane = k.Lane()
	head := c.merges.LoadVector(0, 2)
	requests, most := head[0], head[1]
	halves := c
	halves.split = s.partialElems() / 4
	// What is executed once waits for its instructions, so none are there for slots
	// that are not: each number of slots has a path of its own. More than 80
	// registers would keep a third CTA off the multiprocessor (golden/perf/decode.md).
	k.IfElse(most.Le(warpSlots), func() { c.merge(requests, 1, inFlight) }, func() {
		k.IfElse(most.Le(halfSlots), func() { c.merge(requests, combineWarps/2, inFlight) }, func() {
			// Which way is told by the spec and the longest merge, which forced splits
			// fix, and not by the batch: the ways round differently.
			if s.mergeUnits() > fewUnits {
				c.merge(requests, combineWarps, inFlight)
				return
			}
			k.IfElse(most.Gt(inFlight*combineWarps), func() { halves.merge(requests, combineWarps, halvesFlight) }, func() { c.merge(requests, combineWarps, inFlight) })
		})
	})
	// Also with nothing to merge: who waits for this kernel waits for decode.
	k.WaitForPreviousGrid()
	return k.Build()
}

// fewUnits is the units of a request up to which long merges cut them in halves: as
// many as half of the multiprocessors of an H200.
const fewUnits = 66

// merge has so many warps share each unit's slots, of which each has so many in
// flight at a time. CTAs have a whole number of units.
func (c combiner) merge(requests gen.Value, warps, atOnce int) {
	k, s := c.k, c.s
	groups := combineWarps / warps
	group, warp := k.Warp().Div(warps), k.Warp().Rem(warps)
	units := requests.Mul(s.mergeUnits() * c.split)
	k.For("unit", k.Block().Mul(groups).Add(group), units, k.Blocks().Mul(groups), func(i gen.Value) {
		u := c.unit(i)
		never := u.count.Lt(0)
		u.vectors, u.states = u.vectors.Settle(never), u.states.Settle(never)
		k.WaitForPreviousGrid()
		st := c.accumulate(u, warp, warps, atOnce)
		c.gather(st, group, warp, warps)
		k.If(warp.Eq(0), func() { c.store(u, st) })
	})
}

// gatherPlaces is the states that gather keeps at a time.
const gatherPlaces = combineWarps/2 + combineWarps/4

// gather brings the states of a group of warps together in its first warp's: the
// upper half of those that are left gives its own to the lower, until one is left.
// The CTA meets in it.
func (c combiner) gather(st weightedSum, group, warp gen.Value, warps int) {
	k := c.k
	if warps == 1 {
		return
	}
	// A loop, for what is executed once waits for its instructions. Rounds change
	// between the upper places and the lower.
	left, first := k.Var(k.Int(warps/2)), k.Var(k.Int(0))
	k.While("gather", func() gen.Value { return left.Gt(0) }, func() {
		place := group.Mul(left).Add(warp.And(left.Sub(1))).Add(first)
		at := c.states.At(place.Mul(32).Add(c.lane).Mul(c.savedWords()))
		k.If(warp.Ge(left).And(warp.Lt(left.Shl(1))), func() { st.save(at) })
		k.SyncCTA()
		k.If(warp.Lt(left), func() { st.merge(k, at) })
		first.Set(k.Int(combineWarps / 2).Sub(first))
		left.Set(left.Shr(1))
	})
	k.SyncCTA() // the states have been read
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
		return 8
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

// savedWords is a state's size in shared memory.
func (c combiner) savedWords() int { return 4 + c.elems() }

// accumulate merges the slots first, first+step, … of a unit, so many at once.
func (c combiner) accumulate(u unit, first gen.Value, step, unroll int) weightedSum {
	k := c.k
	st := weightedSum{rowIndex: c.rowIndex}
	for row := range 2 {
		st.top[row], st.total[row] = k.Var(k.NegInf()), k.Var(k.Float(0))
	}
	for range c.elems() {
		st.acc = append(st.acc, k.Var(k.Float(0)))
	}
	k.For("slot", first, u.count, step*unroll, func(slot gen.Value) {
		var lses, units [2][]gen.Value
		var parts [][]gen.Value
		p := c.r.partials
		vectors, states := u.vectors.Stride(slot, p.slotWords()), u.states.Stride(slot, p.slotStates())
		for i := range unroll {
			there := slot.Lt(u.count.Sub(i * step))
			parts = append(parts, vectors.LoadVectorIf(there, i*step*p.slotWords(), c.words()))
			for row, state := range c.load(states, there, i*step*p.slotStates()) {
				lses[row] = append(lses[row], k.Select(there, state[0], k.NegInf()))
				units[row] = append(units[row], state[1])
			}
		}
		var weights [2][]gen.Value
		for row, lse := range lses {
			top := lse[0]
			for _, l := range lse[1:] {
				top = top.Max(l)
			}
			reference := st.raise(k, row, top)
			for i, l := range lse {
				weight := l.Sub(reference).Exp2()
				st.total[row].Increase(weight)
				weights[row] = append(weights[row], weight.Mul(units[row][i]))
			}
		}
		for i := range unroll {
			for e, x := range p.unpack(parts[i]) {
				st.acc[e].Set(x.MulAdd(weights[c.rowIndex(e)][i], st.acc[e]))
			}
		}
	})
	return st
}

// load reads the states of a lane's two rows, so many words on.
func (c combiner) load(states gen.Pointer, there gen.Value, offset int) (rows [2][]gen.Value) {
	if c.rowStep() == 1 {
		both := states.LoadVectorIf(there, offset, 2*stateWords)
		return [2][]gen.Value{both[:stateWords], both[stateWords:]}
	}
	for row := range rows {
		rows[row] = states.LoadVectorIf(there, offset+row*c.rowStep()*stateWords, stateWords)
	}
	return rows
}

// store writes a unit's output, and the LSE of rows whose first column it has.
func (c combiner) store(u unit, st weightedSum) {
	k, s := c.k, c.s
	x := make([]gen.Value, len(st.acc))
	var lse [2]gen.Value
	for row := range 2 {
		some := st.total[row].Gt(0.0)
		inverse := k.Select(some, st.total[row].Reciprocal(), k.Float(0))
		lse[row] = k.Select(some, st.top[row].Add(st.total[row].Log2()), k.NegInf())
		for e, a := range st.acc {
			if c.rowIndex(e) == row {
				x[e] = a.Mul(inverse)
			}
		}
	}
	rows := c.r.out.of(u.request)
	put := func(row, latent, packed gen.Value) {
		k.If(row.Lt(s.Rows()), func() { rows.row(row).At(latent.Shr(1)).Store(0, packed) })
	}
	if s.rowsOnM() {
		for e := 0; e < len(x); e += 4 {
			latent := u.latent.Add(e / 4 * c.quadStep())
			put(u.row, latent, k.Pack(s.dtype(), x[e], x[e+1]))
			put(u.row.Add(8), latent, k.Pack(s.dtype(), x[e+2], x[e+3]))
		}
	} else {
		// Lanes of decode's warp that are four apart hold neighbouring latent columns of
		// the same rows: the lower one takes the pair of the first row, the upper the
		// second's.
		upper := c.lane.And(4 * c.split).Ne(0)
		for e := 0; e < len(x); e += 2 {
			theirs := k.Select(upper, x[e], x[e+1]).Butterfly(4 * c.split)
			lo, hi := k.Select(upper, theirs, x[e]), k.Select(upper, x[e+1], theirs)
			row := k.Select(upper, u.row.Add(1), u.row)
			latent := k.Select(upper, u.latent.Sub(1), u.latent)
			put(row, latent.Add(e/4*c.quadStep()+e%4*4), k.Pack(s.dtype(), lo, hi))
		}
	}
	k.If(u.latent.Eq(0), func() {
		for row := range 2 {
			at := u.row.Add(row * c.rowStep())
			k.If(at.Lt(s.Rows()), func() {
				c.r.lse.Stride(u.request, s.Rows()).At(at).Store(0, lse[row].Mul(c.r.lseFactor.Read()))
			})
		}
	})
}
