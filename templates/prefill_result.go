package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// prefillResult writes finished rows: out [token][head][value] of the inputs'
// type, by strides, and lse [token][head].
type prefillResult struct {
	k           *gen.Kernel
	s           Spec
	out         gen.Pointer
	token, head gen.Scalar // strides of out in bytes
	lse         gen.Pointer
	factor      gen.Scalar // from powers of two to the caller's base
	stage       gen.SharedTile
}

func prefillResultWriter(k *gen.Kernel, s Spec) prefillResult {
	return prefillResult{
		k: k, s: s,
		out: k.Pointer("out", isa.B32), token: k.Scalar("out_token", isa.S64), head: k.Scalar("out_head", isa.S64),
		lse: k.Pointer("lse", isa.F32), factor: k.Scalar("lse_factor", isa.F32),
	}
}

// write writes a warpgroup's rows, those that there are. Each warp turns its
// 16 rows into whole ones in shared memory, some columns at a time, and needs
// no other.
func (r prefillResult) write(it prefillItem, firstRow gen.Value, out gen.Accumulator, st softmaxState) {
	k, s := r.k, r.s
	rows := it.rows.Sub(firstRow) // of the warpgroup
	token := it.query.Add(firstRow)
	k.If(k.Lane().And(3).Eq(0), func() {
		row := k.FragmentRow()
		factor := r.factor.Read()
		at := r.lse.Bytes(token.Add(row).MulWide(4 * s.Heads)).At(it.head)
		for h, lse := range st.lse {
			k.If(row.Add(8*h).Lt(rows), func() { at.Store(8*h*s.Heads, lse.Mul(factor)) })
		}
	})
	stage := r.stage.FromRow(firstRow)
	chunks := prefillStageColumns / chunkElems
	perPass := 32 / chunks // rows
	inRow := k.Lane().Rem(chunks)
	row := k.Thread().And(gen.WarpgroupThreads - 1).Shr(5).Mul(16).Add(k.Lane().Div(chunks))
	stride := r.token.Read()
	base := r.out.Bytes(token.Add(row).Extend().Mul(stride)).Bytes(it.head.Extend().Mul(r.head.Read())).At(inRow.Mul(4))
	for column := 0; column < s.Value; column += prefillStageColumns {
		var packed []gen.Value
		for i := column / 2; i < (column+prefillStageColumns)/2; i += 2 {
			inverse := st.inverse[rowOf(i)]
			packed = append(packed, k.Pack(s.dtype(), out.R[i].Mul(inverse.Value), out.R[i+1].Mul(inverse.Value)))
		}
		stage.StoreRows(packed, 0)
		k.SyncWarp()
		to := base.At(column / 2)
		for pass := 0; pass < 16; pass += perPass {
			k.If(row.Add(pass).Lt(rows), func() {
				to.StoreVector(0, stage.Chunk(row.Add(pass), inRow).LoadVector(0, 4)...)
			})
			to = to.Bytes(stride.Mul(perPass))
		}
		k.SyncWarp() // the columns have been read before the next overwrite them
	}
}
