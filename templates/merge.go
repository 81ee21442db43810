package templates

import (
	"github.com/mlagen/mlagen/gen"
)

// published is what the first piece of a pair adds to the pair's arrival count
// once its partial result is there; taking a ticket adds 1.
const published = 1 << 16

// mergeTeam is the threads of a CTA that hold a row block's output.
type mergeTeam struct {
	barrier gen.NamedBarrier
	threads int
	thread  gen.Value // 0 … threads−1
}

// attended is a finished item's result, in the registers of a team.
type attended struct {
	out    []gen.Accumulator // sums, not normalised
	state  softmaxState
	units  []*gen.Var // of the state's rows, set by measure
	layout fragmentRows
	team   mergeTeam
}

// verdict is what becomes of a piece's result, decided when it is finished.
type verdict struct {
	last *gen.Var // 1: this CTA writes the request's output, from both pieces of a pair
	// What the elements of either piece count for as they are stored, for each
	// query row of the thread.
	mine, their []*gen.Var
	theirs      gen.Pointer // the thread's vectors of the other piece
}

// quads lists the output's elements in fours.
func (p *attended) quads() []quad { return quads(p.out) }

// judge decides about a finished piece and leaves its result in the workspace
// where another finishes the request: decodeCombine, or of a pair's two pieces
// the later one. That one waits for the earlier one's result and writes the
// output from both; waiting is safe, for the earlier one has begun to write.
// The state's LSE becomes that of the output.
func (r results) judge(it item, rowBlock, firstRow gen.Value, p *attended) verdict {
	k := r.k
	v := verdict{last: k.Var(k.Int(0))}
	for range p.state.lse {
		v.mine = append(v.mine, k.Var(k.Float(0)))
		v.their = append(v.their, k.Var(k.Float(0)))
		p.units = append(p.units, k.Var(k.Float(1)))
	}
	own := it.slot()
	first := own.Sub(it.second())
	other := first.Add(k.Int(1).Sub(it.second()))
	v.theirs, _ = r.place(other, firstRow, p)
	count := r.arrivals.At(first.Mul(r.s.RowBlocks()).Add(rowBlock))
	leader := p.team.thread.Eq(0)
	k.If(it.paired().And(leader), func() { r.ticket.Store(0, count.AtomicAdd(0, 1)) })
	r.measure(p)
	k.If(it.paired(), func() {
		p.team.barrier.Sync()
		v.last.Set(r.ticket.Load(0))
	})
	k.IfElse(v.last.Eq(0), func() {
		r.leave(own, firstRow, p)
		k.If(it.paired(), func() {
			p.team.barrier.Sync()
			k.If(leader, func() { count.Signal(0, published) })
		})
	}, func() {
		k.If(leader, func() {
			count.AwaitAtLeast(0, published)
			count.Store(0, 0) // ready for the next launch
		})
		p.team.barrier.Sync()
		r.weigh(other, firstRow, p, v)
	})
	return v
}

// measure chooses the units of the piece's rows, and normalises to them.
func (r results) measure(p *attended) {
	if r.s.partialElems() == partialWords {
		return // the unit is 1
	}
	for j, peak := range p.peaks() {
		unit, per := r.partials.unit(peak)
		p.units[j].Set(unit)
		p.state.inverse[j].Scale(per)
	}
}

// peaks returns the largest normalised magnitude of each row in the warp's share
// of it.
func (p *attended) peaks() []gen.Value {
	peak := make([]gen.Value, len(p.state.lse))
	seen := make([]bool, len(peak))
	for _, o := range p.out {
		for e, x := range o.R {
			j, m := p.layout.index(e), x.Abs()
			if seen[j] {
				m = peak[j].Max(m)
			}
			peak[j], seen[j] = m, true
		}
	}
	for j := range peak {
		peak[j] = peak[j].Reduce(gen.MaxOf, p.layout.lanes...).Mul(p.state.inverse[j])
	}
	return peak
}

// place returns where a slot keeps the thread's vectors of a piece, and the
// states of the share that the thread's rows belong to.
func (r results) place(slot, firstRow gen.Value, p *attended) (vectors, states gen.Pointer) {
	return r.partials.vectors(slot, firstRow).At(p.team.thread.Mul(partialWords)),
		r.partials.rows(slot, p.layout.share, firstRow.Add(p.layout.first))
}

// leave writes the piece to a slot.
func (r results) leave(slot, firstRow gen.Value, p *attended) {
	vectors, states := r.place(slot, firstRow, p)
	for n := range r.vectorsOf(p) {
		vectors.StoreVector(n*partialWords*p.team.threads, r.stored(p, n)...)
	}
	r.k.If(p.layout.sharer, func() {
		for j, lse := range p.state.lse {
			states.StoreVector(p.layout.step(j)*stateWords, lse.Value, p.units[j].Value)
		}
	})
}

// weigh sets what this piece and the one in a slot count for in their sum.
func (r results) weigh(slot, firstRow gen.Value, p *attended, v verdict) {
	k := r.k
	_, states := r.place(slot, firstRow, p)
	for j, lse := range p.state.lse {
		theirs := states.LoadVector(p.layout.step(j)*stateWords, stateWords)
		lse2, unit := theirs[0], theirs[1]
		top := finite(k, lse.Max(lse2))
		w, w2 := lse.Sub(top).Exp2(), lse2.Sub(top).Exp2()
		total := w.Add(w2)
		some := total.Gt(0.0)
		inverse := k.Select(some, total.Reciprocal(), k.Float(0))
		v.mine[j].Set(w.Mul(inverse).Mul(p.units[j].Value))
		v.their[j].Set(w2.Mul(inverse).Mul(unit))
		lse.Set(k.Select(some, top.Add(total.Log2()), k.NegInf()))
	}
}

// merged returns the sums of both pieces' elements in the quads first to end,
// whole vectors of the workspace, packed in pairs. Every product is rounded by
// itself, and this piece's elements count as they would be stored, so that the
// bits do not depend on which piece finishes last.
func (r results) merged(p *attended, v verdict, first, end int) []gen.Value {
	k, perVector := r.k, r.s.partialElems()/4 // quads
	var loaded [][]gen.Value
	for n := first / perVector; n < end/perVector; n++ {
		loaded = append(loaded, v.theirs.LoadVector(n*partialWords*p.team.threads, partialWords))
	}
	packed := make([]gen.Value, 2*(end-first))
	for i, vector := range loaded {
		n := first/perVector + i
		mine, their := r.partials.unpack(r.stored(p, n)), r.partials.unpack(vector)
		for i, at := range r.partials.quadsOf(n, p.layout.apart) {
			var x [4]gen.Value
			for e := range x {
				j := p.layout.index(p.quads()[at].first + e)
				x[e] = mine[4*i+e].Mul(v.mine[j]).Add(their[4*i+e].Mul(v.their[j]))
			}
			packed[2*(at-first)] = k.Pack(r.s.dtype(), x[0], x[1])
			packed[2*(at-first)+1] = k.Pack(r.s.dtype(), x[2], x[3])
		}
	}
	return packed
}

// vectorsOf returns how many vectors of the workspace a thread's part of the piece takes.
func (r results) vectorsOf(p *attended) int { return 4 * len(p.quads()) / r.s.partialElems() }

// stored returns vector n of a measured piece as it is stored.
func (r results) stored(p *attended, n int) []gen.Value {
	var x []gen.Value
	for _, i := range r.partials.quadsOf(n, p.layout.apart) {
		q := p.quads()[i]
		for e := range 4 {
			j := p.layout.index(q.first + e)
			x = append(x, q.acc.R[q.first+e].Mul(p.state.inverse[j]))
		}
	}
	return r.partials.pack(x)
}

// fragmentRows says which query rows a thread's accumulator elements belong to.
type fragmentRows struct {
	index   func(element int) int // element of an accumulator → index in a softmaxState
	first   gen.Value             // the state's first row in the row block
	step    func(j int) int       // the j-th row relative to the first
	speaker gen.Value             // threads that speak for their rows
	share   gen.Value             // which share of its rows the warp has
	sharer  gen.Value             // threads that speak for their warp's share
	lanes   []int                 // lanes that share a row differ in these bits
	apart   int                   // how far quads of the same rows are apart
}

// columnLayout is for rows on wgmma's N.
func columnLayout(k *gen.Kernel, s Spec) fragmentRows {
	return fragmentRows{
		index:   columnOf,
		first:   k.FragmentColumn(),
		step:    columnStep,
		speaker: k.Thread().Lt(4),
		share:   k.Warp(),
		sharer:  k.Lane().Lt(4),
		lanes:   []int{4, 8, 16},
		apart:   s.BlockH / 8,
	}
}

// rowLayout is for rows on wgmma's M.
func rowLayout(k *gen.Kernel) fragmentRows {
	one := k.Lane().And(3).Eq(0) // of the lanes that share a row
	return fragmentRows{
		index:   rowOf,
		first:   k.FragmentRow(),
		step:    func(j int) int { return 8 * j },
		speaker: k.Thread().Lt(gen.WarpgroupThreads).And(one),
		share:   k.Warp().Div(gen.Warpgroups(1)),
		sharer:  one,
		lanes:   []int{1, 2},
		apart:   1,
	}
}
