package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// results writes finished row blocks: to the caller's output where an item
// covers its request, to the workspace otherwise.
type results struct {
	k          *gen.Kernel
	s          Spec
	out        rowPlace
	lse        gen.Pointer
	lseFactor  gen.Scalar
	partialOut gen.Pointer // [slot][padded row][latent] f32, normalised
	partialLSE gen.Pointer // [slot][padded row] f32, base 2
	arrivals   gen.Pointer // [slot][row block]: how far a pair's pieces are
	ticket     gen.Region  // one word
}

func resultWriter(k *gen.Kernel, s Spec) results {
	return results{
		k: k, s: s,
		out:        place(k, s, "out"),
		lse:        k.Pointer("lse", isa.F32),
		lseFactor:  k.Scalar("lse_factor", isa.F32),
		partialOut: k.Pointer("partial_out", isa.F32),
		partialLSE: k.Pointer("partial_lse", isa.F32),
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

// write brings a finished item's result to its destination, by way of the
// output tile.
func (r results) write(it item, rowBlock, firstRow gen.Value, held outputRows, st softmaxState, team mergeTeam, tile gen.SharedTile) {
	k, s := r.k, r.s
	layout, out := held.layout(), held.output()
	v := r.judge(it, rowBlock, firstRow, out, st, team, layout)
	k.If(v.finished.Eq(1), func() {
		all, batch := quads(out), held.batch()
		for n := 0; n < len(all); n += batch {
			held.stage(tile, r.packed(v, st, all[n:min(n+batch, len(all))], n, team, layout), n)
			k.SyncWarp() // keeps the next batch's loads, and their registers, behind
		}
		k.If(layout.speaker, func() {
			r.storeLSE(r.lse.Stride(it.request, s.Rows()), firstRow, st, layout, r.lseFactor.Read())
		})
		r.copyRows(it, firstRow, tile, team)
	})
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
	end := k.Int(s.Rows()).Sub(firstRow).Min(s.BlockH)
	k.For("row", row, end, team.threads/chunks, func(at gen.Value) {
		rows.row(firstRow.Add(at)).At(inRow.Mul(4)).StoreVector(0, stage.Chunk(at, inRow).LoadVector(0, 4)...)
	})
}
