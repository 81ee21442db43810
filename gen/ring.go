package gen

import (
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Ring is a ring of slots in shared memory that the operands of a product pass
// through: a slot holds one tile of each, and a few words that say what they
// are for. Several warps may fill a slot, each its share (Filler), and several
// read it (Reader). A Pipeline passes one tile at a time, in parts.
type Ring struct {
	k       *Kernel
	slots   int
	tiles   []SharedTile // of slot 0
	bytes   int          // of a slot
	notes   Region       // [slots][words]
	words   int
	fillers int
	full    *Barrier // [slots], completed by the fillers and their copies
	empty   *Barrier // [slots], completed by the readers
}

// Ring reserves a ring of so many slots. fillers and readers are the arrivals
// that a slot takes before it is full and before it is empty: the calls of Fill
// or Finish, and of Release. words is the number of 32-bit notes of a slot.
func (k *Kernel) Ring(name string, slots, fillers, readers, words int, tiles ...Tile) *Ring {
	r := &Ring{k: k, slots: slots, words: words, fillers: fillers}
	if slots < 1 || len(tiles) == 0 {
		k.errorf("ring %s has %d slots of %d tiles: want at least one of either", name, slots, len(tiles))
		r.slots, slots, tiles = 1, 1, []Tile{{DType: BF16, Rows: 8, Cols: 8}} // go on, to find further mistakes
	}
	align := 0
	for _, t := range tiles {
		k.checkTile(name, t)
		align = max(align, t.Swizzle.AtomBytes())
	}
	offset := 0
	for _, t := range tiles {
		r.tiles = append(r.tiles, SharedTile{Tile: t, k: k, offset: offset})
		offset = (offset + t.Bytes() + align - 1) / align * align
	}
	r.bytes = offset
	base := k.alloc(slots*r.bytes, align)
	for i := range r.tiles {
		t := &r.tiles[i]
		t.offset += base
		k.Comment("shared: %s at %d, tile %d of %d slots of %d bytes, %dx%d %s, swizzle %d bytes",
			name, t.offset, i, slots, r.bytes, t.Rows, t.Cols, t.DType.Name, t.Swizzle.Bytes())
	}
	r.full = k.Barrier(name+" full", slots, fillers)
	r.empty = k.Barrier(name+" empty", slots, readers)
	if words > 0 {
		r.notes = k.SharedArray(name+" notes", isa.S32, slots*words)
	}
	return r
}

// ringCursor walks a ring's slots.
type ringCursor struct {
	r           *Ring
	slot, phase *Var
}

func (r *Ring) cursor(phase int) ringCursor {
	return ringCursor{r, r.k.Var(r.k.Int(0)), r.k.Var(r.k.Int(phase))}
}

// Place is a slot of a ring at one time.
type Place struct {
	r           *Ring
	slot, phase Value
}

func (c ringCursor) next() Place {
	k := c.r.k
	p := Place{c.r, k.Var(c.slot.Value).Value, k.Var(c.phase.Value).Value}
	following := p.slot.Add(1)
	over := following.Ge(c.r.slots)
	c.slot.Set(k.Select(over, k.Int(0), following))
	c.phase.Set(k.Select(over, p.phase.Xor(1), p.phase))
	return p
}

// Filler is a filling warp's place in the ring.
type Filler struct{ ringCursor }

// Filler starts at the ring's beginning, where nothing is to be awaited.
func (r *Ring) Filler() *Filler { return &Filler{r.cursor(1)} }

// Next returns the next slot once its readers have given it back, and moves on.
// Run, like what is done with the slot, by one thread, always the same.
func (f *Filler) Next() Place {
	p := f.next()
	p.r.k.await(p.r.empty.at.At(p.slot).addr(0), p.phase)
	return p
}

// Box is a copy from a tensor into a tile of a slot.
type Box struct {
	Tensor   TensorMap
	Coords   []Value // of the box's first element, innermost first
	Tile     int     // of the slot
	Row, Col int     // where in the tile the box begins: multiples of 8 and of a column block
}

// Fill has the copy engine bring boxes into the slot, and arrives.
func (p Place) Fill(policy Value, boxes ...Box) {
	k := p.r.k
	full := p.r.full.at.At(p.slot)
	bytes := 0
	for _, b := range boxes {
		bytes += boxBytes(b.Tensor.box, p.r.tiles[b.Tile].DType)
	}
	k.expect(full.addr(0), bytes)
	for _, b := range boxes {
		t := p.Tile(b.Tile)
		if b.Row%8 != 0 || b.Col%t.BlockCols() != 0 || b.Tensor.box[0] != t.BlockCols() ||
			b.Row+b.Tensor.box[1] > t.Rows || b.Col >= t.Cols {
			k.errorf("a box of %v at row %d, column %d does not lie in one column block of a tile of %d×%d", b.Tensor.box, b.Row, b.Col, t.Rows, t.Cols)
		}
		dst := t.address()
		at := ptx.Addr{Base: dst.op, Offset: int64(b.Col/t.BlockCols()*t.BlockBytes() + b.Row*t.Swizzle.Bytes())}
		k.copyBox(at, b.Tensor.address(), b.Coords[0], b.Coords[1:], full.addr(0), policy)
	}
}

// Finish arrives without bringing anything.
func (p Place) Finish() {
	p.r.k.emit("mbarrier.arrive.shared.b64", ptx.Sink{}, p.r.full.at.At(p.slot).addr(0))
}

// SetNotes leaves words for the readers, before Fill or Finish.
func (p Place) SetNotes(words ...Value) {
	if len(words) != p.r.words {
		p.r.k.errorf("%d notes: want %d", len(words), p.r.words)
		return
	}
	at := p.r.notes.At(p.slot.Mul(p.r.words))
	for i, w := range words {
		at.Store(i, w)
	}
}

// Reader is a reading warp's place in the ring.
type Reader struct{ ringCursor }

// Reader starts at the ring's beginning.
func (r *Ring) Reader() *Reader { return &Reader{r.cursor(0)} }

// Next returns the next slot once it is full, and moves on.
func (c *Reader) Next() Place {
	p := c.next()
	p.r.k.await(p.r.full.at.At(p.slot).addr(0), p.phase)
	return p
}

// Notes returns what the filler left. Run by a whole warp: one lane of it may
// release the slot after.
func (p Place) Notes() []Value {
	at := p.r.notes.At(p.slot.Mul(p.r.words))
	var words []Value
	for i := range p.r.words {
		words = append(words, at.Load(i))
	}
	p.r.k.SyncWarp() // all lanes have read before one speaks for them
	return words
}

// Tile returns the i-th tile of the slot.
func (p Place) Tile(i int) SharedTile {
	t := p.r.tiles[i]
	t.base = p.slot.Mul(p.r.bytes)
	return t
}

// Release gives the slot back by one arrival, in the threads in which speaker
// holds, when every reader they speak for has finished.
func (p Place) Release(speaker Value) {
	k := p.r.k
	k.If(speaker, func() {
		k.emit("mbarrier.arrive.shared.b64", ptx.Sink{}, p.r.empty.at.At(p.slot).addr(0))
	})
}
