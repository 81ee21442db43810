package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// results writes finished row blocks: to the caller's output where an item
// covers its request, to the workspace otherwise.
type results struct {
	k         *gen.Kernel
	s         Spec
	out       rowPlace
	lse       gen.Pointer
	lseFactor gen.Scalar
	partials  partials
	arrivals  gen.Pointer // [slot][row block]: how far a pair's pieces are
	ticket    gen.Region  // one word
}

func resultWriter(k *gen.Kernel, s Spec) results {
	return results{
		k: k, s: s,
		out:       place(k, s, "out"),
		lse:       k.Pointer("lse", isa.F32),
		lseFactor: k.Scalar("lse_factor", isa.F32),
		partials:  partialResults(k, s),
	}
}

// pairs declares the parameter that merging pairs of pieces needs.
func (r results) pairs() results {
	r.arrivals = r.k.Pointer("arrivals", isa.S32)
	return r
}

// outputRows is a row block's output in one warpgroup's accumulators, whichever way
// round it lies there: rowsOnM or rowsOnN.
type outputRows interface {
	// output returns the accumulators of the warpgroup's latent columns.
	output() []gen.Accumulator
	// layout says how the rows lie in them.
	layout() fragmentRows
	// wayTo returns the way of the finished output to an item's rows of a tensor.
	wayTo(out rowPlace, it item, firstRow gen.Value, team mergeTeam) outputWay
}

// outputWay is how a row block's output, packed in pairs, gets from the registers to
// the rows of the caller's tensor.
type outputWay interface {
	// batch is how many fours of elements are put at a time.
	batch() int
	// put takes the output from its quad-th four elements on.
	put(packed []gen.Value, quad int)
	// end follows when everything has been put.
	end()
}

// quadsAtOnce returns how many quads a thread packs before it stages them: eight
// vectors of a partial output, which it has under way where it merges.
func (s Spec) quadsAtOnce() int { return 8 * s.partialElems() / 4 }

// write brings a finished item's result to its destination.
func (r results) write(it item, rowBlock, firstRow gen.Value, held outputRows, st softmaxState, team mergeTeam) {
	k, s := r.k, r.s
	p := &attended{out: held.output(), state: st, layout: held.layout(), team: team}
	finish := func(packed func(first, end int) []gen.Value) {
		way := held.wayTo(r.out, it, firstRow, team)
		for n, all := 0, len(p.quads()); n < all; n += way.batch() {
			way.put(packed(n, min(n+way.batch(), all)), n)
			k.SyncWarp() // keeps the next batch's values, and their registers, behind
		}
		k.If(p.layout.speaker, func() {
			r.storeLSE(r.lse.Stride(it.request, s.Rows()), firstRow, st, p.layout, r.lseFactor.Read())
		})
		way.end()
	}
	// What is done once per item waits for its instructions wherever they do not
	// lie in a row: whole requests have a path of their own.
	k.IfElse(it.whole(), func() {
		finish(func(first, end int) []gen.Value { return r.packed(p, first, end) })
	}, func() {
		v := r.judge(it, rowBlock, firstRow, p)
		k.If(v.last.Ne(0), func() {
			finish(func(first, end int) []gen.Value { return r.merged(p, v, first, end) })
		})
	})
}

// packed returns the values of the quads first to end of a whole request, packed
// in pairs.
func (r results) packed(p *attended, first, end int) (packed []gen.Value) {
	for _, q := range p.quads()[first:end] {
		var x [4]gen.Value
		for e := range x {
			x[e] = q.acc.R[q.first+e].Mul(p.state.inverse[p.layout.index(q.first+e)])
		}
		packed = append(packed, r.k.Pack(r.s.dtype(), x[0], x[1]), r.k.Pack(r.s.dtype(), x[2], x[3]))
	}
	return packed
}

// storeLSE writes the row block's LSE, times factor, to to[row].
func (r results) storeLSE(to gen.Pointer, firstRow gen.Value, st softmaxState, layout fragmentRows, factor gen.Value) {
	k := r.k
	row := firstRow.Add(layout.first)
	for j, lse := range st.lse {
		k.If(row.Add(layout.step(j)).Lt(r.s.Rows()), func() { to.At(row).Store(layout.step(j), lse.Mul(factor)) })
	}
}
