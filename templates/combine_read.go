package templates

import (
	"github.com/mlagen/mlagen/gen"
)

// sharers are lanes of a warp that have elements of the same two query rows and
// share the weighing of slots: of so many at a time each weighs one.
type sharers struct {
	bits []int     // in which their indices differ
	mine gen.Value // which of them the lane is
	rows gen.Value // the lane's index without those bits
}

// sharers returns those of the lane's rows, or the lane alone.
func (c combiner) sharers(shared bool) sharers {
	s := sharers{mine: c.k.Int(0)}
	low := c.split / 2 // bits in which lanes of one vector differ
	switch {
	case !shared:
	case c.s.rowsOnM():
		s.bits = []int{0, 1, 2}[:2+low] // four lanes have a fragment's row
	case low == 0:
		s.bits = []int{2, 3, 4} // and every fourth has a column
	default:
		s.bits = []int{0, 3, 4}
	}
	all := 0
	for i, b := range s.bits {
		s.mine = s.mine.Or(c.lane.Shr(b).And(1).Shl(i))
		all |= 1 << b
	}
	s.rows = c.lane.And(^all)
	return s
}

// number returns how many they are.
func (s sharers) number() int { return 1 << len(s.bits) }

// sharer returns the index of the i-th.
func (s sharers) sharer(i int) gen.Value {
	at := 0
	for j, b := range s.bits {
		at |= i >> j & 1 << b
	}
	return s.rows.Or(at)
}

// of returns the i-th of the values that they have, of which each has every so
// many-th.
func (s sharers) of(values []gen.Value, i int) gen.Value {
	if s.number() == 1 {
		return values[i]
	}
	return values[i/s.number()].FromLane(s.sharer(i % s.number()))
}

// together combines a value over them.
func (s sharers) together(v gen.Value, combine func(a, b gen.Value) gen.Value) gen.Value {
	for _, b := range s.bits {
		v = v.Reduce(combine, 1<<b)
	}
	return v
}

// slotReader adds up a warp's slots of a unit: every so many-th of them.
type slotReader struct {
	combiner
	sharers
	way     mergeWay
	left    gen.Value   // slots from the warp's first on
	own     gen.Value   // and from the first that the lane weighs on
	vectors gen.Pointer // the lane's vector in the warp's first slot
	states  gen.Pointer // of the lane's first row in the first slot that it weighs
}

// reader makes ready to read the slots of a unit from first on.
func (c combiner) reader(u unit, way mergeWay, first, never gen.Value) slotReader {
	p := c.r.partials
	r := slotReader{combiner: c, sharers: c.sharers(way.shared), way: way}
	if !way.once() && way.atOnce%r.number() != 0 {
		panic("a round's slots are weighed by lanes of which some would weigh those of the next")
	}
	own := first.Add(r.mine.Mul(way.warps))
	r.left, r.own = u.count.Sub(first), u.count.Sub(own)
	r.vectors = u.vectors.Stride(first, p.slotWords()).Settle(never)
	r.states = u.states.Stride(own, p.slotStates()).Settle(never)
	return r
}

// read adds up the warp's slots.
func (r slotReader) read() weightedSum {
	k := r.k
	st := weightedSum{rowIndex: r.rowIndex}
	if r.way.once() {
		r.round(&st, k.Int(0))
	} else {
		for row := range 2 {
			st.top[row], st.total[row] = k.Var(k.NegInf()), k.Var(k.Float(0))
		}
		for range r.elems() {
			st.acc = append(st.acc, k.Var(k.Float(0)))
		}
		k.ForRolled("slots", 0, r.left, r.way.warps*r.way.atOnce, func(done gen.Value) { r.round(&st, done) })
	}
	for row := range 2 {
		st.total[row].Set(r.together(st.total[row].Value, gen.SumOf))
	}
	return st
}

// round adds slots behind those that are done, the first to sums that are nil. Of a
// row's weights each of its sharers adds up those that it has made.
func (r slotReader) round(st *weightedSum, done gen.Value) {
	k, p := r.k, r.r.partials
	vectors, states := r.vectors.Stride(done, p.slotWords()), r.states.Stride(done, p.slotStates())
	var lses, units [2][]gen.Value
	for i := 0; i < r.way.atOnce; i += r.number() {
		there := r.own.Gt(done.Add(i * r.way.warps))
		for row, state := range r.load(states, there, i*r.way.warps*p.slotStates()) {
			lses[row] = append(lses[row], k.Select(there, state[0], k.NegInf()))
			units[row] = append(units[row], state[1])
		}
	}
	var parts [][]gen.Value
	for i := range r.way.atOnce {
		parts = append(parts, vectors.LoadVectorIf(r.left.Gt(done.Add(i*r.way.warps)), i*r.way.warps*p.slotWords(), r.words()))
	}
	first := st.acc == nil
	var weights [2][]gen.Value
	for row := range 2 {
		top := lses[row][0]
		for _, l := range lses[row][1:] {
			top = top.Max(l)
		}
		top = r.together(top, gen.MaxOf)
		var reference gen.Value
		if first {
			reference = finite(k, top)
			st.top[row], st.total[row] = k.Var(top), k.Var(k.Float(0))
		} else {
			reference = st.raise(k, row, top)
		}
		for i, l := range lses[row] {
			weight := l.Sub(reference).Exp2()
			st.total[row].Increase(weight)
			weights[row] = append(weights[row], weight.Mul(units[row][i]))
		}
	}
	for i, part := range parts {
		var weight [2]gen.Value
		for row := range 2 {
			weight[row] = r.of(weights[row], i)
		}
		for e, x := range p.unpack(part) {
			w := weight[r.rowIndex(e)]
			if first && i == 0 {
				st.acc = append(st.acc, k.Var(x.Mul(w)))
				continue
			}
			st.acc[e].Set(x.MulAdd(w, st.acc[e]))
		}
	}
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
