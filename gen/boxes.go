package gen

import (
	"github.com/mlagen/mlagen/ptx"
)

// Boxes is a run of a tile's column blocks that come from one tensor.
type Boxes struct {
	From   TensorMap
	Count  int     // column blocks
	Column int     // of the tensor, where the first begins
	Coords []Value // the other coordinates, second dimension first
}

// LoadBoxes is Load for a tile whose columns come from several tensors: the
// sources in turn supply its column blocks from the first on. A policy that is
// the zero Value leaves caching to the hardware.
func (pr *Producer) LoadBoxes(policy Value, sources ...Boxes) {
	p, k := pr.p, pr.p.k
	tile := p.tile
	type box struct {
		desc   ptx.Operand
		column int
		coords []Value
	}
	var boxes []box
	for _, s := range sources {
		if got, want := boxBytes(s.From.box, tile.DType), tile.BlockBytes(); got != want {
			k.errorf("a box of tensor %s has %d bytes: want %d, one column block of the tile", s.From.name, got, want)
		}
		desc := s.From.address()
		for i := range s.Count {
			boxes = append(boxes, box{desc, s.Column + i*tile.BlockCols(), s.Coords})
		}
	}
	if len(boxes) != tile.Blocks() {
		k.errorf("%d boxes for the %d column blocks of a tile", len(boxes), tile.Blocks())
		return
	}
	slot := pr.next()
	ring := k.sharedBase().Add(tile.offset)
	for i, part := range p.parts {
		at := slot.parts[i]
		k.await(at.empty.addr(0), at.phase)
		k.expect(at.full.addr(0), part.Count*tile.BlockBytes())
		dst := ring.Add(at.base)
		for b := range part.Count {
			x := boxes[part.First+b]
			k.copyBox(ptx.Addr{Base: dst.op, Offset: int64(b * tile.BlockBytes())}, x.desc, k.Int(x.column), x.coords, at.full.addr(0), policy)
		}
	}
}

// FromRow returns the tile from a row on, a multiple of 8 that only the kernel
// knows. The rows before it are cut off; as many past the end do not exist.
func (s SharedTile) FromRow(row Value) SharedTile {
	if s.segments != nil {
		s.k.errorf("the tile's blocks lie apart: take its Pieces")
	}
	step := row.Mul(s.Swizzle.Bytes())
	if s.base.op != nil {
		step = s.base.Add(step)
	}
	s.base, s.pipe = step, nil
	return s
}
