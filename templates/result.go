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
	// stage writes packed output, from its quad-th four elements on, to the tile
	// that is copied to the result; batch is how many fours it takes at a time.
	stage(tile gen.SharedTile, packed []gen.Value, quad int)
	batch() int
}

// quadsAtOnce returns how many quads a thread packs before it stages them: eight
// vectors of a partial output, which it has under way where it merges.
func (s Spec) quadsAtOnce() int { return 8 * s.partialElems() / 4 }

// write brings a finished item's result to its destination, by way of the
// output tile.
func (r results) write(it item, rowBlock, firstRow gen.Value, held outputRows, st softmaxState, team mergeTeam, tile gen.SharedTile) {
	k, s := r.k, r.s
	p := &attended{out: held.output(), state: st, layout: held.layout(), team: team}
	finish := func(packed func(first, end int) []gen.Value) {
		r.stage(held, tile, packed)
		k.If(p.layout.speaker, func() {
			r.storeLSE(r.lse.Stride(it.request, s.Rows()), firstRow, st, p.layout, r.lseFactor.Read())
		})
		r.copyRows(it, firstRow, tile, team)
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

// stage brings the output's quads to the tile, packed in pairs.
func (r results) stage(held outputRows, tile gen.SharedTile, packed func(first, end int) []gen.Value) {
	all := len(quads(held.output()))
	for n := 0; n < all; n += held.batch() {
		held.stage(tile, packed(n, min(n+held.batch(), all)), n)
		r.k.SyncWarp() // keeps the next batch's values, and their registers, behind
	}
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

// copyRows writes the staged rows to the output, once the team has staged them.
func (r results) copyRows(it item, firstRow gen.Value, stage gen.SharedTile, team mergeTeam) {
	k, s := r.k, r.s
	team.barrier.Sync()
	chunks := s.Latent / chunkElems
	inRow, row := team.thread.Rem(chunks), team.thread.Div(chunks)
	rows := r.out.of(it.request)
	if s.evenRows() {
		w := rowWalk{k, stage.Tile, s.BlockH, team.threads / chunks, rows.head}
		w.each(row, func(further int) gen.Region { return stage.Chunk(row.Add(further), inRow) }, rows.row(firstRow.Add(row)).At(inRow.Mul(4)),
			func(at gen.Pointer, in gen.Region) { at.StoreVector(0, in.LoadVector(0, 4)...) })
		return
	}
	end := k.Int(s.Rows()).Sub(firstRow).Min(s.BlockH)
	k.For("row", row, end, team.threads/chunks, func(at gen.Value) {
		rows.row(firstRow.Add(at)).At(inRow.Mul(4)).StoreVector(0, stage.Chunk(at, inRow).LoadVector(0, 4)...)
	})
}
