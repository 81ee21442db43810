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

// verdict is what becomes of an item's result, decided when it is finished.
type verdict struct {
	finished *gen.Var // 1: this CTA writes the request's output
	merging  *gen.Var // 1: together with the other piece's partial result
	mine     []*gen.Var
	their    []*gen.Var  // weights of both normalised results, for each query row of the thread
	theirs   gen.Pointer // the thread's vectors of the other piece's accumulators
}

// judge decides about a finished item and leaves its result in the workspace
// where another finishes the request: decodeCombine, or of a pair's two pieces
// the later one. That one waits for the earlier one's result and writes the
// output from both; waiting is safe, for the earlier one has begun to write.
// The state's LSE becomes that of the output.
func (r results) judge(it item, rowBlock, firstRow gen.Value, out []gen.Accumulator, st softmaxState, team mergeTeam, layout fragmentRows) verdict {
	k, s := r.k, r.s
	v := verdict{finished: k.Var(k.Select(it.whole(), k.Int(1), k.Int(0))), merging: k.Var(k.Int(0))}
	for range st.inverse {
		v.mine = append(v.mine, k.Var(k.Float(1)))
		v.their = append(v.their, k.Var(k.Float(0)))
	}
	own := it.slot()
	first := own.Sub(it.second())
	other := first.Add(k.Int(1).Sub(it.second()))
	// place is where a slot keeps this thread's accumulators: vectors of four,
	// of all threads side by side.
	place := func(slot gen.Value) gen.Pointer {
		return r.partialOut.Stride(slot, s.PaddedRows()*s.Latent).Stride(firstRow, s.Latent).At(team.thread.Mul(4))
	}
	lses := func(slot gen.Value) gen.Pointer {
		return r.partialLSE.Stride(slot, s.PaddedRows()).At(firstRow.Add(layout.first))
	}
	v.theirs = place(other)
	leaves := k.Var(k.Select(it.combined(), k.Int(1), k.Int(0))) // this CTA leaves a partial result
	count := r.arrivals.At(first.Mul(s.RowBlocks()).Add(rowBlock))
	leader := team.thread.Eq(0)
	k.If(it.paired(), func() {
		k.If(leader, func() { r.ticket.Store(0, count.AtomicAdd(0, 1)) })
		team.barrier.Sync()
		leaves.Set(k.Select(r.ticket.Load(0).Eq(0), k.Int(1), k.Int(0)))
	})
	k.If(leaves.Eq(1), func() {
		to := place(own)
		for n, q := range quads(out) {
			var scaled []gen.Value
			for e := range 4 {
				scaled = append(scaled, q.acc.R[q.first+e].Mul(st.inverse[layout.index(q.first+e)]))
			}
			to.StoreVector(n*4*team.threads, scaled...)
		}
		k.If(layout.speaker, func() {
			for j, lse := range st.lse {
				lses(own).Store(layout.step(j), lse)
			}
		})
		k.If(it.paired(), func() {
			team.barrier.Sync()
			k.If(leader, func() { count.Signal(0, published) })
		})
	})
	k.If(it.paired().And(leaves.Eq(0)), func() {
		k.If(leader, func() {
			count.AwaitAtLeast(0, published)
			count.Store(0, 0) // ready for the next launch
		})
		team.barrier.Sync()
		for j, lse := range st.lse {
			lse2 := lses(other).Load(layout.step(j))
			top := finite(k, lse.Max(lse2))
			w, w2 := lse.Sub(top).Exp2(), lse2.Sub(top).Exp2()
			total := w.Add(w2)
			some := total.Gt(0.0)
			inverse := k.Select(some, total.Reciprocal(), k.Float(0))
			v.mine[j].Set(w.Mul(inverse))
			v.their[j].Set(w2.Mul(inverse))
			lse.Set(k.Select(some, top.Add(total.Log2()), k.NegInf()))
		}
		v.finished.Set(1)
		v.merging.Set(1)
	})
	return v
}

// packed returns the output's values of quads n, n+1, … in packed pairs: the
// accumulators scaled, and the other piece's added where there is one. Every
// product is rounded by itself, so that the bits do not depend on which piece
// finishes last.
func (r results) packed(v verdict, st softmaxState, batch []quad, n int, team mergeTeam, layout fragmentRows) []gen.Value {
	k := r.k
	merging := v.merging.Ne(0)
	var theirs [][]gen.Value
	for i := range batch {
		theirs = append(theirs, v.theirs.LoadVectorIf(merging, (n+i)*4*team.threads, 4))
	}
	var packed []gen.Value
	for i, q := range batch {
		var x [4]gen.Value
		for e := range x {
			j := layout.index(q.first + e)
			mine := q.acc.R[q.first+e].Mul(st.inverse[j]) // as a partial result is stored
			x[e] = mine.Mul(v.mine[j]).Add(theirs[i][e].Mul(v.their[j]))
		}
		packed = append(packed, k.Pack(r.s.dtype(), x[0], x[1]), k.Pack(r.s.dtype(), x[2], x[3]))
	}
	return packed
}

// quad is four consecutive elements of an accumulator, from first on.
type quad struct {
	acc   gen.Accumulator
	first int
}

// quads lists the accumulators' elements in fours.
func quads(out []gen.Accumulator) []quad {
	var q []quad
	for _, o := range out {
		for i := 0; i < len(o.R); i += 4 {
			q = append(q, quad{o, i})
		}
	}
	return q
}

// quadsInFlight is how many 16-byte loads a thread has under way while it
// merges: as many registers as the scores, which are done with, have left free.
const quadsInFlight = 8

// fragmentRows says which query rows a thread's accumulator elements belong to.
type fragmentRows struct {
	index   func(element int) int // element of an accumulator → index in a softmaxState
	first   gen.Value             // the state's first row in the row block
	step    func(j int) int       // the j-th row relative to the first
	speaker gen.Value             // threads that speak for their rows
}

// columnLayout is for rows on wgmma's N.
func columnLayout(k *gen.Kernel) fragmentRows {
	return fragmentRows{
		index:   columnOf,
		first:   k.FragmentColumn(),
		step:    columnStep,
		speaker: k.Thread().Lt(4),
	}
}

// rowLayout is for rows on wgmma's M.
func rowLayout(k *gen.Kernel) fragmentRows {
	return fragmentRows{
		index:   rowOf,
		first:   k.FragmentRow(),
		step:    func(j int) int { return 8 * j },
		speaker: k.Thread().Lt(gen.WarpgroupThreads).And(k.Lane().And(3).Eq(0)),
	}
}
