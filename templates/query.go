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

// queryChunk is 16 bytes of queries that a thread copies.
type queryChunk struct {
	from  gen.Pointer
	to    gen.Region
	some  gen.Value // whether the thread has one; zero Value: every thread does
	there gen.Value // whether the row exists; zero Value: every row does
}

// locate finds what a thread of so many copies of a row block. It reads no
// queries, so that it may be done before they are there.
func (q queries) locate(request, firstRow gen.Value, tile gen.SharedTile, threads int) []queryChunk {
	return append(q.chunks(q.latent, request, firstRow, tile, 0, q.s.Latent, threads),
		q.chunks(q.rope, request, firstRow, tile, q.s.Latent, q.s.Rope, threads)...)
}

// load copies a row block into the tile, zeros past the last row, all copies
// under way at once and none behind an address that has yet to be computed; the
// copy engine is not used, since packed rows of strided tensors are no box.
// FenceAsync and a barrier follow.
func (q queries) load(located []queryChunk) {
	for _, c := range located {
		copy := func() { c.to.CopyAsync(c.from, c.there) }
		if c.some.Type() == isa.Pred {
			q.k.If(c.some, copy)
		} else {
			copy()
		}
	}
	q.k.WaitCopies()
}

// chunks locates the chunks of some columns of the tile: threads lie side by side
// in rows.
func (q queries) chunks(from rowPlace, request, firstRow gen.Value, tile gen.SharedTile, firstCol, cols, threads int) (located []queryChunk) {
	k, s := q.k, q.s
	inRow, first := k.Thread().Rem(cols/chunkElems), k.Thread().Div(cols/chunkElems)
	step := threads / (cols / chunkElems) // rows at a time
	rows := from.of(request)
	whole := s.Rows()%s.BlockH == 0 // every row of every block exists
	var below gen.Pointer
	for at := 0; at < s.BlockH; at += step {
		row := first.Add(at)
		c := queryChunk{to: tile.Chunk(row, inRow.Add(firstCol/chunkElems))}
		if at+step > s.BlockH {
			c.some = row.Lt(s.BlockH)
		}
		global := firstRow.Add(row)
		switch {
		case !whole:
			c.there = global.Lt(s.Rows())
			c.from = rows.row(global.Min(s.Rows() - 1)).At(inRow.Mul(4))
		case at > 0 && s.SQ == 1:
			c.from = below.Bytes(rows.head.Mul(step))
		default:
			c.from = rows.row(global).At(inRow.Mul(4))
		}
		below = c.from
		located = append(located, c)
	}
	return located
}
