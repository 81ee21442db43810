package gen

import (
	"math/bits"
	"slices"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Part is a run of a tile's column blocks that arrives and is given back as a
// whole: it has a barrier of its own for either, so that a consumer can begin
// with the first columns and free some before others.
type Part struct {
	First, Count int // column blocks
	Arrivals     int // calls of Release that give the part back
}

// Pipeline is a ring in shared memory that tiles pass through, between one
// producing thread, which has the copy engine fill it, and consumers that read
// it. Parts of one size take the ring's slots one after another, so that its
// capacity need not be whole tiles; parts of several sizes have a place in
// whole stages.
type Pipeline struct {
	k     *Kernel
	tile  SharedTile // its place is the ring's
	parts []Part     // in the order of their arrival
	slots int        // parts that the ring holds
	full  *Barrier   // [slots], completed by the copies
	empty *Barrier   // [slots], completed by the consumers
}

// Pipeline reserves a ring of so many slots, a part of a tile each, which
// arrive in the given order. The parts cover every column block once.
func (k *Kernel) Pipeline(name string, slots int, t Tile, parts ...Part) *Pipeline {
	k.checkTile(name, t)
	if !k.checkParts(name, t, parts) {
		parts = []Part{{Count: t.Blocks(), Arrivals: 1}} // go on, to find further mistakes
	}
	p := &Pipeline{k: k, slots: slots, parts: parts}
	p.tile = SharedTile{Tile: t, k: k}
	if slots < len(parts) || !p.uniform() && slots%len(parts) != 0 {
		k.errorf("pipeline %s has %d slots: want at least %d, and whole tiles where parts differ in size", name, slots, len(parts))
		slots = len(parts)
		p.slots = slots
	}
	bytes := slots / len(parts) * t.Bytes()
	if p.uniform() {
		bytes = slots * p.partBytes()
	}
	p.tile.offset = k.alloc(bytes, t.Swizzle.AtomBytes())
	k.Comment("shared: %s at %d, %d parts of %dx%d %s in %d bytes, swizzle %d bytes",
		name, p.tile.offset, slots, t.Rows, t.Cols, t.DType.Name, bytes, t.Swizzle.Bytes())
	p.full = k.Barrier(name+" full", slots, 1)
	p.empty = k.Barrier(name+" empty", slots, 1)
	p.empty.counts = make([]int, slots)
	for i := range p.empty.counts {
		p.empty.counts[i] = parts[i%len(parts)].Arrivals
	}
	return p
}

// checkParts reports whether the parts cover each of the tile's blocks once.
func (k *Kernel) checkParts(name string, t Tile, parts []Part) bool {
	covered := make([]bool, t.Blocks())
	for _, part := range parts {
		if part.Count < 1 {
			k.errorf("pipeline %s: a part has %d column blocks", name, part.Count)
			return false
		}
		for b := part.First; b < part.First+part.Count; b++ {
			if b < 0 || b >= len(covered) || covered[b] {
				k.errorf("pipeline %s: column block %d is in two parts or not among the tile's %d", name, b, len(covered))
				return false
			}
			covered[b] = true
		}
	}
	if b := slices.Index(covered, false); b >= 0 {
		k.errorf("pipeline %s: column block %d of %d is in no part", name, b, len(covered))
		return false
	}
	return true
}

// uniform reports whether all parts are alike.
func (p *Pipeline) uniform() bool {
	for _, part := range p.parts {
		if part.Count != p.parts[0].Count || part.Arrivals != p.parts[0].Arrivals {
			return false
		}
	}
	return true
}

// partBytes returns the size of a part, where all have one.
func (p *Pipeline) partBytes() int { return p.parts[0].Count * p.tile.BlockBytes() }

// cursor walks the ring: the place of the next tile and the parity of its
// round. Where the ring holds whole tiles the place counts tiles, otherwise it
// is the slot of the tile's first part.
type cursor struct {
	p     *Pipeline
	place *Var
	phase *Var
}

func (p *Pipeline) cursor(phase int) cursor {
	return cursor{p, p.k.Var(p.k.Int(0)), p.k.Var(p.k.Int(phase))}
}

// Slot is the place of a tile in the ring.
type Slot struct {
	SharedTile
	p     *Pipeline
	parts []slotPart
}

// slotPart is the place of one part.
type slotPart struct {
	base        Value // byte offset in the ring
	phase       Value
	full, empty Region
}

// whole reports whether the ring holds whole tiles.
func (p *Pipeline) whole() bool { return p.slots%len(p.parts) == 0 }

// next returns the next tile's place and moves on.
func (c cursor) next() Slot {
	k := c.p.k
	place, phase := k.Var(c.place.Value).Value, k.Var(c.phase.Value).Value
	s := c.p.slot(place, phase, c.phase.Value)
	next, parity := c.p.wrap(place.Add(c.p.step()), c.phase.Value)
	c.place.Set(next)
	c.phase.Set(parity)
	return s
}

// step returns how many places a tile takes.
func (p *Pipeline) step() int {
	if p.whole() {
		return 1
	}
	return len(p.parts)
}

// wrap takes a place past the ring's end to the next round.
func (p *Pipeline) wrap(place, phase Value) (Value, Value) {
	k, places := p.k, p.slots
	if p.whole() {
		places /= len(p.parts)
	}
	over := place.Ge(places)
	return k.Select(over, place.Sub(places), place), k.Select(over, phase.Xor(1), phase)
}

// slot returns the tile at a place, in a round of the given parity; parts that
// wrap are in the one after current's.
func (p *Pipeline) slot(place, phase, current Value) Slot {
	s := Slot{SharedTile: p.tile, p: p}
	first := place
	if p.whole() {
		first = place.Mul(len(p.parts))
	}
	for i, part := range p.parts {
		at := slotPart{phase: phase}
		slot := first.Add(i)
		switch {
		case !p.uniform():
			at.base = place.Mul(p.tile.Bytes()).Add(part.First * p.tile.BlockBytes())
		case i > 0 && !p.whole(): // a tile may wrap within
			slot, at.phase = p.wrap(slot, current)
			fallthrough
		default:
			at.base = slot.Mul(p.partBytes())
		}
		at.full, at.empty = p.full.at.At(slot), p.empty.at.At(slot)
		s.parts = append(s.parts, at)
		s.segments = append(s.segments, segment{part.First, part.Count, at.base})
	}
	slices.SortFunc(s.segments, func(a, b segment) int { return a.first - b.first })
	if s.contiguous() {
		s.SharedTile.base, s.SharedTile.segments = s.segments[0].base, nil
	}
	return s
}

// contiguous reports whether a tile always lies in one run.
func (s Slot) contiguous() bool { return s.p.whole() && s.ordered() }

// ordered reports whether the parts arrive in the order in which they lie, or
// lie in whole stages.
func (s Slot) ordered() bool {
	if !s.p.uniform() {
		return true
	}
	return slices.IsSortedFunc(s.p.parts, func(a, b Part) int { return a.First - b.First })
}

// Producer is the filling side's place in the ring.
type Producer struct{ cursor }

// Producer starts at the ring's beginning, where nothing is to be awaited.
func (p *Pipeline) Producer() *Producer { return &Producer{p.cursor(1)} }

// Load has the copy engine fill the next tile's place from the tensor, each
// part as soon as its slot is free: column blocks are boxes along the innermost
// dimension, the other coordinates are given. Run by one thread.
func (pr *Producer) Load(t TensorMap, policy Value, coords ...Value) {
	p, k := pr.p, pr.p.k
	tile := p.tile
	if got, want := boxBytes(t.box, tile.DType), tile.BlockBytes(); got != want {
		k.errorf("a box of tensor %s has %d bytes: want %d, one column block of the tile", t.name, got, want)
	}
	slot := pr.next()
	ring := k.sharedBase().Add(tile.offset)
	desc := t.address()
	for i, part := range p.parts {
		at := slot.parts[i]
		k.await(at.empty.addr(0), at.phase)
		k.expect(at.full.addr(0), part.Count*tile.BlockBytes())
		dst := ring.Add(at.base)
		for b := range part.Count {
			k.copyBox(ptx.Addr{Base: dst.op, Offset: int64(b * tile.BlockBytes())}, desc, k.Int((part.First+b)*tile.BlockCols()), coords, at.full.addr(0), policy)
		}
	}
}

func boxBytes(box []int, d DType) int {
	n := d.Bytes()
	for _, b := range box {
		n *= b
	}
	return n
}

// copyBox issues one tensor copy from global to shared memory; without a
// policy, caching is the hardware's business.
func (k *Kernel) copyBox(dst ptx.Addr, desc ptx.Operand, c0 Value, rest []Value, bar ptx.Addr, policy Value) {
	coords := ptx.Vec{c0.op}
	for _, c := range rest {
		coords = append(coords, c.op)
	}
	op := "cp.async.bulk.tensor." + string(rune('0'+len(coords))) + "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
	if policy.op == nil {
		k.emit(op, dst, ptx.Tensor{Map: desc, Coords: coords}, bar)
		return
	}
	k.emit(op+".L2::cache_hint", dst, ptx.Tensor{Map: desc, Coords: coords}, bar, policy.op)
}

// EvictFirst returns the cache policy for data that is read once.
func (k *Kernel) EvictFirst() Value {
	return k.apply(isa.B64, "createpolicy.fractional.L2::evict_first.b64", ptx.F32(1))
}

// Consumer is a reading side's place in the ring.
type Consumer struct{ cursor }

// Consumer starts at the ring's beginning.
func (p *Pipeline) Consumer() *Consumer { return &Consumer{p.cursor(0)} }

// Tile returns the place of the tile of the given index, counted from the ring's
// beginning, for readers that count tiles themselves: one count may serve
// several rings, and several readers may have tiles of their own in one ring. The
// ring must hold whole tiles.
func (p *Pipeline) Tile(index Value) Slot {
	if !p.whole() {
		p.k.errorf("the %d slots of the ring are no whole tiles of %d", p.slots, len(p.parts))
		return p.Consumer().Next()
	}
	place, parity := p.k.round(index, p.slots/len(p.parts))
	s := p.slot(place, parity, parity)
	s.pipe = &s
	return s
}

// round returns the place of the index-th user of a ring, and its round's parity.
func (k *Kernel) round(index Value, places int) (place, parity Value) {
	if places&(places-1) == 0 {
		return index.And(places - 1), index.Shr(bits.TrailingZeros(uint(places))).And(1)
	}
	rounds := index.Div(places)
	return index.Sub(rounds.Mul(places)), rounds.And(1)
}

// Next returns the next tile's place and moves on. Its parts are awaited by
// the multiply that first reads them, in the order of their arrival (see
// Kernel.Multiply), or by Await.
func (c *Consumer) Next() Slot {
	s := c.next()
	s.pipe = &s
	return s
}

// Await waits until every part of the slot has arrived.
func (s Slot) Await() {
	for i := range s.p.parts {
		s.await(i)
	}
}

func (s Slot) await(part int) {
	s.p.k.await(s.parts[part].full.addr(0), s.parts[part].phase)
}

// Release gives parts of the tile back to the producer, by one arrival each. Run by
// the threads in which speaker holds, when every reader they speak for has finished.
func (s Slot) Release(speaker Value, parts ...int) {
	k := s.p.k
	for _, i := range parts {
		if i < 0 || i >= len(s.parts) {
			k.errorf("part %d of a tile of %d", i, len(s.parts))
			return
		}
	}
	k.If(speaker, func() {
		for _, i := range parts {
			k.arrive(1, s.parts[i].empty)
		}
	})
}

// ReleaseAll is Release of every part.
func (s Slot) ReleaseAll(speaker Value) {
	var all []int
	for i := range s.parts {
		all = append(all, i)
	}
	s.Release(speaker, all...)
}

// Discard waits for the tile and gives it back in all its readers' stead. Run by one
// thread.
func (s Slot) Discard() {
	k := s.p.k
	for i, part := range s.p.parts {
		s.await(i)
		k.emit("mbarrier.arrive.shared.b64", ptx.Sink{}, s.parts[i].empty.addr(0), ptx.Imm(part.Arrivals))
	}
}
