package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// chunkElems is the number of 16-bit elements in a 16-byte access.
const chunkElems = 8

// rowPlace addresses rows of a tensor [batch, token, head, …] by byte strides,
// a row being token × head packed.
type rowPlace struct {
	k                  *gen.Kernel
	s                  Spec
	base               gen.Pointer
	batch, token, head gen.Scalar
}

// place declares a row tensor's parameters: NAME and NAME_batch, NAME_token,
// NAME_head, strides in bytes.
func place(k *gen.Kernel, s Spec, name string) rowPlace {
	return rowPlace{k, s, k.Pointer(name, isa.B32),
		k.Scalar(name+"_batch", isa.S64), k.Scalar(name+"_token", isa.S64), k.Scalar(name+"_head", isa.S64)}
}

// rowsOf addresses the rows of one request.
type rowsOf struct {
	s           Spec
	base        gen.Pointer
	token, head gen.Value // strides in bytes
}

// of returns the rows of a request.
func (p rowPlace) of(request gen.Value) rowsOf {
	r := rowsOf{s: p.s, base: p.base.Bytes(request.Extend().Mul(p.batch.Read())), head: p.head.Read()}
	if p.s.SQ > 1 {
		r.token = p.token.Read()
	}
	return r
}

// row returns a row's start.
func (r rowsOf) row(row gen.Value) gen.Pointer {
	if r.s.SQ == 1 {
		return r.base.Bytes(row.Extend().Mul(r.head))
	}
	token, head := row.Div(r.s.Heads), row.Rem(r.s.Heads)
	return r.base.Bytes(token.Extend().Mul(r.token)).Bytes(head.Extend().Mul(r.head))
}

// queries reads query rows, whose latent and rope parts may lie in one tensor
// or in two.
type queries struct {
	k            *gen.Kernel
	s            Spec
	latent, rope rowPlace
}

func queryReader(k *gen.Kernel, s Spec) queries {
	return queries{k, s, place(k, s, "q_latent"), place(k, s, "q_rope")}
}

// load copies a row block into the tile, zeros past the last row. Run by so
// many threads, all copies under way at once; the copy engine is not used, since
// packed rows of strided tensors are no box. FenceAsync and a barrier follow.
func (q queries) load(request, firstRow gen.Value, tile gen.SharedTile, threads int) {
	q.copy(q.latent, request, firstRow, tile, 0, q.s.Latent, threads)
	q.copy(q.rope, request, firstRow, tile, q.s.Latent, q.s.Rope, threads)
	q.k.WaitCopies()
}

// copy copies some columns of a row block, threads side by side in rows. Where
// one warpgroup does, no loop stands between copies: with two, the instructions
// of so many would be waited for longer than a loop takes.
func (q queries) copy(from rowPlace, request, firstRow gen.Value, tile gen.SharedTile, firstCol, cols, threads int) {
	k, s := q.k, q.s
	inRow, first := k.Thread().Rem(cols/chunkElems), k.Thread().Div(cols/chunkElems)
	step := threads / (cols / chunkElems) // rows at a time
	rows := from.of(request)
	one := func(row gen.Value) {
		global := firstRow.Add(row)
		var there gen.Value
		if s.Rows()%s.BlockH != 0 {
			there, global = global.Lt(s.Rows()), global.Min(s.Rows()-1)
		}
		tile.Chunk(row, inRow.Add(firstCol/chunkElems)).CopyAsync(rows.row(global).At(inRow.Mul(4)), there)
	}
	if s.warpgroups() > 1 {
		k.For("rows", first, s.BlockH, step, one)
		return
	}
	for at := 0; at < s.BlockH; at += step {
		row := first.Add(at)
		if at+step <= s.BlockH {
			one(row)
			continue
		}
		k.If(row.Lt(s.BlockH), func() { one(row) })
	}
}
