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

// located is a thread's part of a row block of queries: what has been found, and
// what is yet to be looked for.
type located struct {
	k      *gen.Kernel
	chunks []queryChunk
	ahead  []queryFinder
}

// locate finds what a thread of so many copies of a row block into the tile, zeros
// past the last row. It reads no queries, so that it may be done before they are
// there. With two warpgroups it is left to load: the instructions for so many
// addresses would be waited for longer than a loop takes.
func (q queries) locate(it item, firstRow gen.Value, tile gen.SharedTile, threads int) located {
	l := located{k: q.k}
	for _, part := range []struct {
		from        rowPlace
		first, cols int
	}{{q.latent, 0, q.s.Latent}, {q.rope, q.s.Latent, q.s.Rope}} {
		f := queryFinder{q.k, q.s, part.from.of(it.request), firstRow, tile, part.first / chunkElems, part.cols / chunkElems, threads}
		if q.s.warpgroups() > 1 {
			l.ahead = append(l.ahead, f)
			continue
		}
		l.chunks = append(l.chunks, f.all(it.begin.Lt(0))...)
	}
	return l
}

// load begins to copy what was located, all copies under way at once; the copy
// engine is not used, since packed rows of strided tensors are no box. WaitCopies,
// FenceAsync and a barrier follow.
func (l located) load() {
	for _, c := range l.chunks {
		if c.some.Type() == isa.Pred {
			l.k.If(c.some, c.copy)
			continue
		}
		c.copy()
	}
	for _, f := range l.ahead {
		f.each(queryChunk.copy)
	}
}

func (c queryChunk) copy() { c.to.CopyAsync(c.from, c.there) }

// queryFinder finds the chunks of some columns of a row block, threads side by
// side in rows.
type queryFinder struct {
	k                         *gen.Kernel
	s                         Spec
	rows                      rowsOf
	firstRow                  gen.Value
	tile                      gen.SharedTile
	firstChunk, chunks, width int // of a row; threads
}

// rowsAtOnce returns how many rows the threads copy at a time.
func (f queryFinder) rowsAtOnce() int { return f.width / f.chunks }

// place returns the thread's row among those, and its chunk of a row.
func (f queryFinder) place() (row, chunk gen.Value) {
	return f.k.Thread().Div(f.chunks), f.k.Thread().Rem(f.chunks)
}

// source returns the chunk's place in a row of the row block, and whether the row
// exists.
func (f queryFinder) source(row, chunk gen.Value) (from gen.Pointer, there gen.Value) {
	global := f.firstRow.Add(row)
	if f.s.Rows()%f.s.BlockH != 0 {
		there, global = global.Lt(f.s.Rows()), global.Min(f.s.Rows()-1)
	}
	return f.rows.row(global).At(chunk.Mul(4)), there
}

// each runs body for the thread's chunks in a loop.
func (f queryFinder) each(body func(queryChunk)) {
	first, chunk := f.place()
	if !f.s.evenRows() {
		f.k.For("rows", first, f.s.BlockH, f.rowsAtOnce(), func(row gen.Value) {
			c := queryChunk{to: f.tile.Chunk(row, chunk.Add(f.firstChunk))}
			c.from, c.there = f.source(row, chunk)
			body(c)
		})
		return
	}
	from, _ := f.source(first, chunk)
	w := rowWalk{f.k, f.tile.Tile, f.s.BlockH, f.rowsAtOnce(), f.rows.head}
	w.each(first, func(row int) gen.Region { return f.tile.Chunk(first.Add(row), chunk.Add(f.firstChunk)) }, from,
		func(at gen.Pointer, in gen.Region) { body(queryChunk{from: at, to: in}) })
}

// all returns the thread's chunks, whose addresses are settled where it stands.
func (f queryFinder) all(never gen.Value) (all []queryChunk) {
	first, chunk := f.place()
	to := map[int]gen.Region{} // by the row in the swizzling's pattern
	for at := 0; at < f.s.BlockH; at += f.rowsAtOnce() {
		row, above := first.Add(at), at%gen.SwizzleRows
		if _, ok := to[above]; !ok {
			to[above] = f.tile.Chunk(first.Add(above), chunk.Add(f.firstChunk))
		}
		c := queryChunk{to: f.tile.Below(to[above], at-above)}
		c.from, c.there = f.source(row, chunk)
		c.from = c.from.Settle(never)
		if at+f.rowsAtOnce() > f.s.BlockH {
			c.some = row.Lt(f.s.BlockH)
		}
		all = append(all, c)
	}
	return all
}
