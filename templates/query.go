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

// row returns the row's start in a request.
func (p rowPlace) row(request, row gen.Value) gen.Pointer {
	token, head := row.Div(p.s.Heads), row.Rem(p.s.Heads)
	if p.s.SQ == 1 {
		token, head = p.k.Int(0), row
	}
	at := p.base.Bytes(request.Extend().Mul(p.batch.Read()))
	at = at.Bytes(head.Extend().Mul(p.head.Read()))
	if p.s.SQ > 1 {
		at = at.Bytes(token.Extend().Mul(p.token.Read()))
	}
	return at
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
// many threads; the copy engine is not used, since packed rows of strided
// tensors are no box.
func (q queries) load(request, firstRow gen.Value, tile gen.SharedTile, threads int) {
	q.copy(q.latent, request, firstRow, tile, 0, q.s.Latent, threads)
	q.copy(q.rope, request, firstRow, tile, q.s.Latent, q.s.Rope, threads)
}

// inFlight is how many 16-byte loads a thread issues before it stores the first.
const inFlight = 8

func (q queries) copy(from rowPlace, request, firstRow gen.Value, tile gen.SharedTile, firstCol, cols, threads int) {
	k := q.k
	chunks := cols / chunkElems
	step := threads / chunks // rows that the threads copy at once
	inRow, row := k.Thread().Rem(chunks), k.Thread().Div(chunks)
	inBlock := row.Lt(q.s.BlockH)
	for r := 0; r < q.s.BlockH; r += step * inFlight {
		var to []gen.Region
		var data [][]gen.Value
		for i := r; i < min(r+step*inFlight, q.s.BlockH); i += step {
			at := row.Add(i)
			global := firstRow.Add(at)
			valid := global.Lt(q.s.Rows())
			if step > q.s.BlockH {
				valid = valid.And(inBlock)
			}
			source := from.row(request, global.Min(q.s.Rows()-1)).At(inRow.Mul(4))
			to = append(to, tile.Chunk(at, inRow.Add(firstCol/chunkElems)))
			data = append(data, source.LoadVectorIf(valid, 0, 4))
		}
		store := func() {
			for i := range to {
				to[i].StoreVector(0, data[i]...)
			}
		}
		if step > q.s.BlockH {
			k.If(inBlock, store)
		} else {
			store()
		}
	}
}
