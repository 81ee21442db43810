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
	partialOut gen.Pointer // [slot][row][latent] f32, normalised
	partialLSE gen.Pointer // [slot][row] f32, base 2
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

// whole writes Oᵀ·(1/Σp) as rows of the output, through the stage tile so that
// global memory sees full 16-byte chunks, and the LSE in the caller's base.
func (r results) whole(it item, firstRow gen.Value, out []gen.Accumulator, st softmaxState, stage gen.SharedTile, team gen.NamedBarrier) {
	k, s := r.k, r.s
	for m, o := range out {
		var packed []gen.Value
		for e := 0; e < len(o.R); e += 2 {
			j := e / 4 * 2 // the thread's column pair that elements e, e+1 belong to
			packed = append(packed, k.Pack(s.dtype(), o.R[e].Mul(st.inverse[j]), o.R[e+1].Mul(st.inverse[j+1])))
		}
		stage.StoreTransposed(packed, 64*m)
	}
	r.storeLSE(r.lse.At(it.request.Extend().Mul(s.Rows())), firstRow, st, r.lseFactor.Read())
	r.copyRows(it, firstRow, stage, team, 128)
}

// copyRows writes the staged rows to the output, once the team has staged them.
func (r results) copyRows(it item, firstRow gen.Value, stage gen.SharedTile, team gen.NamedBarrier, threads int) {
	k, s := r.k, r.s
	team.Sync()
	chunks := s.Latent / chunkElems
	step := threads / chunks // rows that the threads copy at once
	inRow, row := k.Thread().Rem(chunks), k.Thread().Div(chunks)
	for i := 0; i < s.BlockH; i += step {
		at := row.Add(i)
		global := firstRow.Add(at)
		inside := global.Lt(s.Rows())
		if step > s.BlockH {
			inside = inside.And(at.Lt(s.BlockH))
		}
		k.If(inside, func() {
			r.out.row(it.request, global).At(inRow.Mul(4)).StoreVector(0, stage.Chunk(at, inRow).LoadVector(0, 4)...)
		})
	}
}

// partial writes the normalised outputs and their LSE to the item's slot.
func (r results) partial(it item, firstRow gen.Value, out []gen.Accumulator, st softmaxState) {
	k, s := r.k, r.s
	rows := it.slot.Extend().Mul(s.Rows())
	r.storeLSE(r.partialLSE.At(rows), firstRow, st, k.Float(1))
	column := firstRow.Add(k.FragmentColumn())
	latent := k.FragmentRow()
	for j := range st.lse {
		row := column.Add(columnStep(j))
		k.If(row.Lt(s.Rows()), func() {
			at := r.partialOut.At(rows.Add(row.Extend()).Mul(s.Latent)).At(latent)
			for m, o := range out {
				for i, e := range elements(j) {
					at.Store(64*m+8*i, o.R[e].Mul(st.inverse[j]))
				}
			}
		})
	}
}

// storeLSE writes the row block's LSE, times factor, to to[row].
func (r results) storeLSE(to gen.Pointer, firstRow gen.Value, st softmaxState, factor gen.Value) {
	k := r.k
	k.If(k.Thread().Lt(4), func() { // the columns repeat in every fourth lane and in every warp
		column := firstRow.Add(k.FragmentColumn())
		at := to.At(column)
		for j, lse := range st.lse {
			k.If(column.Add(columnStep(j)).Lt(r.s.Rows()), func() {
				at.Store(columnStep(j), lse.Mul(factor))
			})
		}
	})
}

// wholeRows is whole for a warpgroup that holds one half of the columns of
// rows that lie on wgmma's M.
func (r results) wholeRows(it item, firstRow gen.Value, out gen.Accumulator, half int, st softmaxState, stage gen.SharedTile, both gen.NamedBarrier) {
	k, s := r.k, r.s
	var packed []gen.Value
	for e := 0; e < len(out.R); e += 2 {
		inverse := st.inverse[rowOf(e)]
		packed = append(packed, k.Pack(s.dtype(), out.R[e].Mul(inverse), out.R[e+1].Mul(inverse)))
	}
	stage.StoreRows(packed, half*s.Latent/2)
	if half == 0 {
		r.storeRowLSE(r.lse.At(it.request.Extend().Mul(s.Rows())), firstRow, st, r.lseFactor.Read())
	}
	r.copyRows(it, firstRow, stage, both, 256)
}

// partialRows is partial for such a warpgroup.
func (r results) partialRows(it item, firstRow gen.Value, out gen.Accumulator, half int, st softmaxState) {
	k, s := r.k, r.s
	rows := it.slot.Extend().Mul(s.Rows())
	if half == 0 {
		r.storeRowLSE(r.partialLSE.At(rows), firstRow, st, k.Float(1))
	}
	for h := range st.lse {
		row := firstRow.Add(k.FragmentRow()).Add(8 * h)
		k.If(row.Lt(s.Rows()), func() {
			at := r.partialOut.At(rows.Add(row.Extend()).Mul(s.Latent)).At(k.FragmentColumn())
			for e := 2 * h; e < len(out.R); e += 4 {
				at.StoreVector(half*s.Latent/2+out.ColumnStep(e), out.R[e].Mul(st.inverse[h]), out.R[e+1].Mul(st.inverse[h]))
			}
		})
	}
}

// storeRowLSE is storeLSE for rows on wgmma's M: one value for each of a
// thread's two rows, the same in four lanes.
func (r results) storeRowLSE(to gen.Pointer, firstRow gen.Value, st softmaxState, factor gen.Value) {
	k := r.k
	k.If(k.Lane().And(3).Eq(0), func() {
		row := firstRow.Add(k.FragmentRow())
		for h, lse := range st.lse {
			k.If(row.Add(8*h).Lt(r.s.Rows()), func() { to.At(row).Store(8*h, lse.Mul(factor)) })
		}
	})
}
