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
	k     *Kernel
	slots int
	tiles []SharedTile // of slot 0
	bytes int          // of a slot
	notes Region       // [slots][words]
	words int
	ctas  int      // of a cluster that fill it together, see Share
	full  *Barrier // [slots], completed by the fillers and their copies
	empty *Barrier // [slots], completed by the readers
}

// RingShape is a ring to reserve.
type RingShape struct {
	Name  string
	Slots int
	// Fillers and Readers are the arrivals that a slot takes before it is full
	// and before it is empty: the calls of Fill or Finish, and of Release.
	Fillers, Readers int
	Words            int // 32-bit notes of a slot
	Tiles            []Tile
}

// Ring reserves a ring of so many slots, as Rings does.
func (k *Kernel) Ring(name string, slots, fillers, readers, words int, tiles ...Tile) *Ring {
	return k.Rings(RingShape{name, slots, fillers, readers, words, tiles})[0]
}

// Rings reserves several rings whose slots lie one after another, so that none
// are lost to alignment between them.
func (k *Kernel) Rings(shapes ...RingShape) (rings []*Ring) {
	for i := range shapes {
		rings = append(rings, k.ringSlots(&shapes[i]))
	}
	for i, r := range rings {
		s := &shapes[i]
		r.full = k.Barrier(s.Name+" full", s.Slots, s.Fillers)
		r.empty = k.Barrier(s.Name+" empty", s.Slots, s.Readers)
		if s.Words > 0 {
			r.notes = k.SharedArray(s.Name+" notes", isa.S32, s.Slots*s.Words)
		}
	}
	return rings
}

// ringSlots reserves a ring's slots.
func (k *Kernel) ringSlots(s *RingShape) *Ring {
	if s.Slots < 1 || len(s.Tiles) == 0 {
		k.errorf("ring %s has %d slots of %d tiles: want at least one of either", s.Name, s.Slots, len(s.Tiles))
		s.Slots, s.Tiles = 1, []Tile{{DType: BF16, Rows: 8, Cols: 8}} // go on, to find further mistakes
	}
	r := &Ring{k: k, slots: s.Slots, words: s.Words, ctas: 1}
	align := 0
	for _, t := range s.Tiles {
		k.checkTile(s.Name, t)
		align = max(align, t.Swizzle.AtomBytes())
	}
	offset := 0
	for _, t := range s.Tiles {
		r.tiles = append(r.tiles, SharedTile{Tile: t, k: k, offset: offset})
		offset = (offset + t.Bytes() + align - 1) / align * align
	}
	r.bytes = offset
	base := k.alloc(s.Slots*r.bytes, align)
	for i := range r.tiles {
		t := &r.tiles[i]
		t.offset += base
		k.Comment("shared: %s at %d, tile %d of %d slots of %d bytes, %dx%d %s, swizzle %d bytes",
			s.Name, t.offset, i, s.Slots, r.bytes, t.Rows, t.Cols, t.DType.Name, t.Swizzle.Bytes())
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
	Further  Value   // rows, a multiple of 8, to add to Row; zero Value: none
}

// Fill has the copy engine bring boxes into the slot, and arrives.
func (p Place) Fill(policy Value, boxes ...Box) {
	k := p.r.k
	full := p.r.full.at.At(p.slot)
	k.expect(full.addr(0), p.boxBytes(boxes))
	for _, b := range boxes {
		k.copyBox(p.boxAddress(b), b.Tensor.address(), b.Coords[0], b.Coords[1:], full.addr(0), policy)
	}
}

// boxBytes returns what boxes bring.
func (p Place) boxBytes(boxes []Box) int {
	bytes := 0
	for _, b := range boxes {
		bytes += boxBytes(b.Tensor.box, p.r.tiles[b.Tile].DType)
	}
	return bytes
}

// boxAddress returns where in shared memory a box goes.
func (p Place) boxAddress(b Box) ptx.Addr {
	k, t := p.r.k, p.Tile(b.Tile)
	if b.Row%8 != 0 || b.Col%t.BlockCols() != 0 || b.Tensor.box[0] != t.BlockCols() ||
		b.Row+b.Tensor.box[1] > t.Rows || b.Col >= t.Cols {
		k.errorf("a box of %v at row %d, column %d does not lie in one column block of a tile of %d×%d", b.Tensor.box, b.Row, b.Col, t.Rows, t.Cols)
	}
	dst := t.address()
	if b.Further.op != nil {
		dst = dst.Add(b.Further.Mul(t.Swizzle.Bytes()))
	}
	return ptx.Addr{Base: dst.op, Offset: int64(b.Col/t.BlockCols()*t.BlockBytes() + b.Row*t.Swizzle.Bytes())}
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

// Skip passes over so many slots, which others read. They must have done so
// before the next slot is awaited: a slot is known by the parity of its round
// only (see Turns).
func (c *Reader) Skip(n int) {
	k, slots := c.r.k, c.r.slots
	following := c.slot.Add(n % slots)
	over := following.Ge(slots)
	c.slot.Set(k.Select(over, following.Sub(slots), following))
	if n/slots%2 != 0 {
		over = over.Not()
	}
	c.phase.Set(k.Select(over, c.phase.Xor(1), c.phase.Value))
}

// Rewind goes back, where p holds, by as many slots as the ring has: what has
// been read and not released is read again.
func (c *Reader) Rewind(p Value) {
	c.phase.Set(c.r.k.Select(p, c.phase.Xor(1), c.phase.Value))
}

// Tile returns the i-th tile of the slot.
func (p Place) Tile(i int) SharedTile {
	t := p.r.tiles[i]
	t.base = p.slot.Mul(p.r.bytes)
	return t
}

// Release gives the slot back by one arrival, in the threads in which speaker
// holds, when every reader they speak for has finished. Where CTAs share the
// ring, speakers are lanes 0 to n−1 of a warp, one for each CTA.
func (p Place) Release(speaker Value) {
	k := p.r.k
	k.If(speaker, func() { k.arrive(p.r.ctas, p.r.empty.at.At(p.slot)) })
}
