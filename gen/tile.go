package gen

import (
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/hopper"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Tile is the shape and layout of a matrix in shared memory: column blocks of
// one swizzle span (64 elements for 128 bytes), each with all rows, as the copy
// engine writes them box by box and as wgmma reads them either way round
// (hopper.Tile).
type Tile struct {
	DType      DType
	Rows, Cols int
	Swizzle    hopper.Swizzle
}

func (t Tile) layout() hopper.Tile {
	return hopper.Tile{Rows: t.Rows, Columns: t.Cols, ElemBytes: t.DType.Bytes(), Swizzle: t.Swizzle}
}

// BlockCols returns the columns of one block.
func (t Tile) BlockCols() int { return t.layout().BlockColumns() }

// Blocks returns the number of column blocks.
func (t Tile) Blocks() int { return t.layout().Blocks() }

// BlockBytes returns the size of one column block.
func (t Tile) BlockBytes() int { return t.layout().BlockBytes() }

// Box returns the shape in which the copy engine brings one column block:
// columns, then rows.
func (t Tile) Box() []int { return t.layout().Box() }

// Bytes returns the size of the tile.
func (t Tile) Bytes() int { return t.layout().Bytes() }

// SharedTile is a tile at a place in shared memory.
type SharedTile struct {
	Tile
	k      *Kernel
	offset int   // in dynamic shared memory
	base   Value // extra byte offset, when set (the stage of a pipeline)

	pipe     *Slot     // the pipeline's slot that the tile is, if it is one
	segments []segment // where the column blocks lie, when not one after another
}

// segment is a run of column blocks that lie one after another.
type segment struct {
	first, count int   // column blocks
	base         Value // byte offset from the tile's
}

// SharedTile reserves shared memory for a tile.
func (k *Kernel) SharedTile(name string, t Tile) SharedTile {
	k.checkTile(name, t)
	s := SharedTile{Tile: t, k: k, offset: k.alloc(t.Bytes(), t.Swizzle.AtomBytes())}
	k.Comment("shared: %s at %d, %dx%d %s, swizzle %d bytes", name, s.offset, t.Rows, t.Cols, t.DType.Name, t.Swizzle.Bytes())
	return s
}

// SharedTiles reserves n tiles, one after another, and returns the one of an index.
func (k *Kernel) SharedTiles(name string, n int, t Tile, index Value) SharedTile {
	k.checkTile(name, t)
	s := SharedTile{Tile: t, k: k, offset: k.alloc(n*t.Bytes(), t.Swizzle.AtomBytes()), base: index.Mul(t.Bytes())}
	k.Comment("shared: %d of %s at %d, %dx%d %s each, swizzle %d bytes", n, name, s.offset, t.Rows, t.Cols, t.DType.Name, t.Swizzle.Bytes())
	return s
}

func (k *Kernel) checkTile(name string, t Tile) {
	if err := t.layout().Validate(); err != nil {
		k.errorf("tile %s: %v", name, err)
	}
}

// Reuse gives the tile's bytes to a tile of another shape, for a time when the
// first is not needed.
func (s SharedTile) Reuse(t Tile) SharedTile {
	s.k.checkTile("reuse", t)
	if t.Bytes() > s.Bytes() {
		s.k.errorf("a tile of %d bytes does not fit into one of %d", t.Bytes(), s.Bytes())
	}
	s.Tile = t
	return s
}

// Array gives the tile's bytes to an array of elem, for a time when the tile is
// not needed.
func (s SharedTile) Array(elem isa.Type) Region {
	if s.segments != nil {
		s.k.errorf("the tile's blocks lie apart: take its Pieces")
	}
	return Region{k: s.k, elem: elem, offset: s.offset, index: s.base, space: "shared"}
}

// Columns returns the tile made of count columns from first on; both are whole
// column blocks.
func (s SharedTile) Columns(first, count int) SharedTile {
	if first%s.BlockCols() != 0 || count%s.BlockCols() != 0 {
		s.k.errorf("columns %d to %d do not fall on blocks of %d", first, first+count, s.BlockCols())
	}
	from, blocks := first/s.BlockCols(), count/s.BlockCols()
	s.Cols = count
	s.pipe = nil // part of a slot; its arrival is the whole tile's business
	if s.segments == nil {
		s.offset += from * s.BlockBytes()
		return s
	}
	var kept []segment
	for _, g := range s.segments {
		lo, hi := max(g.first, from), min(g.first+g.count, from+blocks)
		if lo < hi {
			kept = append(kept, segment{lo - from, hi - lo, g.base.Add((lo - g.first) * s.BlockBytes())})
		}
	}
	s.segments = kept
	return s.joined()
}

// joined turns a tile of one segment into a plain one.
func (s SharedTile) joined() SharedTile {
	if len(s.segments) == 1 {
		s.base, s.segments = s.segments[0].base, nil
	}
	return s
}

// Pieces returns the tile cut into tiles whose blocks lie one after another.
func (s SharedTile) Pieces() []SharedTile {
	if s.segments == nil {
		return []SharedTile{s}
	}
	var pieces []SharedTile
	for _, g := range s.segments {
		pieces = append(pieces, s.Columns(g.first*s.BlockCols(), g.count*s.BlockCols()))
	}
	return pieces
}

// address returns the tile's byte address in the shared window.
func (s SharedTile) address() Value {
	if s.segments != nil {
		s.k.errorf("the tile's blocks lie apart: take its Pieces")
	}
	a := s.k.sharedBase().Add(s.offset)
	if s.base.op != nil {
		a = a.Add(s.base)
	}
	return a
}

// Chunk returns the 16-byte chunk that holds the elements (row, 8·chunk … 8·chunk+7)
// as a region of four b32 words. Both indices are values.
func (s SharedTile) Chunk(row, chunk Value) Region {
	if s.segments != nil {
		s.k.errorf("the tile's blocks lie apart: take its Pieces")
	}
	perRow := s.Swizzle.Bytes() / 16
	blk, in := chunk.Div(perRow), chunk.Rem(perRow)
	if perRow == 8 {
		blk, in = chunk.Shr(3), chunk.And(7)
	}
	off := blk.Mul(s.BlockBytes()).Add(row.Mul(s.Swizzle.Bytes()))
	off = off.Add(in.Xor(s.swizzleRow(row)).Shl(4))
	return s.region(off, isa.B32)
}

// SwizzleRows is after how many rows the swizzling of a tile repeats.
const SwizzleRows = 8

// RowWords returns how far a row of a column block is from the next, in 32-bit
// words, which are Chunk's elements.
func (t Tile) RowWords() int { return t.Swizzle.Bytes() / 4 }

// Below returns the chunk so many rows, a multiple of SwizzleRows, below another of
// the tile.
func (s SharedTile) Below(chunk Region, rows int) Region {
	if rows%SwizzleRows != 0 {
		s.k.errorf("a chunk %d rows below another: want a multiple of %d, after which swizzling repeats", rows, SwizzleRows)
	}
	return chunk.At(rows * s.RowWords())
}

// swizzleRow returns what a row's chunk indices are xored with.
func (s SharedTile) swizzleRow(row Value) Value {
	switch s.Swizzle.Bytes() {
	case 128:
		return row.And(7)
	case 64:
		return row.Shr(1).And(3)
	case 32:
		return row.Shr(2).And(1)
	}
	return s.k.Int(0)
}

func (s SharedTile) region(off Value, elem isa.Type) Region {
	if s.base.op != nil {
		off = off.Add(s.base)
	}
	return Region{k: s.k, elem: elem, offset: s.offset, index: off, space: "shared"}
}

// View is a tile seen as a wgmma operand: Extent rows of the operand (M or N)
// by Depth elements of the contraction (K).
type View struct {
	tile SharedTile
	view hopper.View
}

// KMajor views the tile's rows as the operand's rows: the contraction runs
// along the tile's columns, which lie together in memory.
func (s SharedTile) KMajor() View { return s.viewed(hopper.KMajor) }

// Transposed views the tile's columns as the operand's rows, on the same
// bytes: the contraction runs along the tile's rows (MN-major).
func (s SharedTile) Transposed() View { return s.viewed(hopper.MNMajor) }

func (s SharedTile) viewed(as func(hopper.Tile) (hopper.View, error)) View {
	v, err := as(s.layout())
	if err != nil {
		s.k.errorf("%v", err)
	}
	return View{s, v}
}

// Extent returns the operand's rows.
func (v View) Extent() int {
	if v.view.MNMajor {
		return v.tile.Cols
	}
	return v.tile.Rows
}

// Depth returns the contraction's length.
func (v View) Depth() int {
	if v.view.MNMajor {
		return v.tile.Rows
	}
	return v.tile.Cols
}

// descriptors are the matrix descriptors of a view's origin, one per segment
// of its tile.
type descriptors []Value

// at returns the descriptor moved to the operand's rows from mn on and its
// contraction from depth on.
func (v View) at(d descriptors, mn, depth int) ptx.Operand {
	segment := 0
	if gs := v.tile.segments; gs != nil {
		along := &depth // the tile's columns are the contraction, or the operand's rows
		if v.view.MNMajor {
			along = &mn
		}
		block := *along / v.tile.BlockCols()
		for i, g := range gs {
			if block >= g.first && block < g.first+g.count {
				segment = i
			}
		}
		*along -= gs[segment].first * v.tile.BlockCols()
	}
	step, err := v.view.Step(mn, depth)
	if err != nil {
		v.tile.k.errorf("%v", err)
	}
	return d[segment].Add(step >> 4).op
}

// descriptors returns the view's descriptors in registers.
func (v View) descriptors() descriptors {
	k := v.tile.k
	bits := v.view.Descriptor(0).Encode()
	high := k.Int(int(int32(bits >> 32)))
	var all descriptors
	for _, piece := range v.tile.Pieces() {
		address := piece.address()
		if k.man.Cluster > 1 {
			address = address.And(hopper.FieldMask) // it also names the CTA in the cluster
		}
		lo := address.Shr(4).Or(int(bits & 0xffffffff))
		desc := k.reg(isa.B64)
		k.emit("mov.b64", desc, ptx.Vec{lo.register(), high.register()})
		all = append(all, Value{k, desc, isa.S64})
	}
	return all
}

// RowsFrom returns the tile made of count rows from one on that is a multiple
// of 8; the tile has one column block.
func (s SharedTile) RowsFrom(row Value, count int) SharedTile {
	if s.Blocks() != 1 || count > s.Rows || count%8 != 0 {
		s.k.errorf("%d rows of a tile of %d rows and %d column blocks", count, s.Rows, s.Blocks())
	}
	offset := row.Mul(s.Swizzle.Bytes())
	if s.base.op != nil {
		offset = offset.Add(s.base)
	}
	s.base, s.Rows = offset, count
	return s
}
