package gen

import (
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

// Pipeline is a ring of tiles in shared memory between one producing thread,
// which has the copy engine fill them, and consumers that read them.
type Pipeline struct {
	k      *Kernel
	tile   SharedTile // stage 0
	stages int
	parts  []Part   // in the order of their arrival
	full   *Barrier // [stages][parts], completed by the copies
	empty  *Barrier // [stages][parts], completed by the consumers
}

// Pipeline reserves a ring of so many tiles, which arrive part by part in the
// given order. The parts cover every column block once.
func (k *Kernel) Pipeline(name string, stages int, t Tile, parts ...Part) *Pipeline {
	k.checkTile(name, t)
	p := &Pipeline{k: k, stages: stages, parts: parts}
	p.tile = SharedTile{Tile: t, k: k, offset: k.alloc(stages*t.Bytes(), t.Swizzle.AtomBytes())}
	k.Comment("shared: %s at %d, %d stages of %dx%d %s, swizzle %d bytes",
		name, p.tile.offset, stages, t.Rows, t.Cols, t.DType.Name, t.Swizzle.Bytes())
	covered := make([]bool, t.Blocks())
	for _, part := range parts {
		for b := part.First; b < part.First+part.Count; b++ {
			if b < 0 || b >= len(covered) || covered[b] {
				k.errorf("pipeline %s: column block %d of %d is in no part's or in two parts' reach", name, b, len(covered))
				return p
			}
			covered[b] = true
		}
	}
	for b, c := range covered {
		if !c {
			k.errorf("pipeline %s: column block %d of %d is in no part", name, b, len(covered))
		}
	}
	p.full = k.Barrier(name+" full", stages*len(parts), 1)
	p.empty = k.Barrier(name+" empty", stages*len(parts), 1)
	p.empty.counts = make([]int, stages*len(parts))
	for i := range p.empty.counts {
		p.empty.counts[i] = parts[i%len(parts)].Arrivals
	}
	return p
}

// Storage returns the ring's first tile, for use while the ring is not.
func (p *Pipeline) Storage() SharedTile { return p.tile }

// cursor walks the ring: a stage and the parity of its current round.
type cursor struct {
	p     *Pipeline
	stage *Var
	phase *Var
}

func (p *Pipeline) cursor(phase int) cursor {
	return cursor{p, p.k.Var(p.k.Int(0)), p.k.Var(p.k.Int(phase))}
}

// slot returns the current stage and moves on.
func (c cursor) slot() Slot {
	p, k := c.p, c.p.k
	s := Slot{SharedTile: p.tile, p: p, phase: k.Var(c.phase.Value).Value}
	first := k.Int(0)
	if p.stages > 1 {
		s.SharedTile.base = c.stage.Mul(p.tile.Bytes())
		first = c.stage.Mul(len(p.parts))
	}
	s.full, s.empty = p.full.at.At(first), p.empty.at.At(first)
	next := c.stage.Add(1)
	wrapped := next.Ge(p.stages)
	c.stage.Set(k.Select(wrapped, k.Int(0), next))
	c.phase.Set(k.Select(wrapped, c.phase.Xor(1), c.phase.Value))
	return s
}

// Slot is a stage of a pipeline during one round.
type Slot struct {
	SharedTile
	p           *Pipeline
	phase       Value
	full, empty Region // the stage's barriers, one per part
}

// Producer is the filling side's place in the ring.
type Producer struct{ cursor }

// Producer starts at the ring's beginning, where nothing is to be awaited.
func (p *Pipeline) Producer() *Producer { return &Producer{p.cursor(1)} }

// Load has the copy engine fill the next stage from the tensor, each part as
// soon as it is free: column blocks are boxes along the innermost dimension,
// the other coordinates are given. Run by one thread.
func (pr *Producer) Load(t TensorMap, policy Value, coords ...Value) {
	p, k := pr.p, pr.p.k
	tile := p.tile
	if got, want := boxBytes(t.box, tile.DType), tile.BlockBytes(); got != want {
		k.errorf("a box of tensor %s has %d bytes: want %d, one column block of the tile", t.name, got, want)
	}
	slot := pr.slot()
	dst := slot.address()
	desc := t.address()
	for i, part := range p.parts {
		k.await(slot.empty.addr(i), slot.phase)
		bar := slot.full.addr(i)
		k.expect(bar, part.Count*tile.BlockBytes())
		for b := part.First; b < part.First+part.Count; b++ {
			k.copyBox(ptx.Addr{Base: dst.op, Offset: int64(b * tile.BlockBytes())}, desc, k.Int(b*tile.BlockCols()), coords, bar, policy)
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

// copyBox issues one tensor copy from global to shared memory.
func (k *Kernel) copyBox(dst ptx.Addr, desc ptx.Operand, c0 Value, rest []Value, bar ptx.Addr, policy Value) {
	coords := ptx.Vec{c0.op}
	for _, c := range rest {
		coords = append(coords, c.op)
	}
	op := "cp.async.bulk.tensor." + string(rune('0'+len(coords))) + "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
	k.emit(op, dst, ptx.Tensor{Map: desc, Coords: coords}, bar, policy.op)
}

// EvictFirst returns the cache policy for data that is read once.
func (k *Kernel) EvictFirst() Value {
	return k.apply(isa.B64, "createpolicy.fractional.L2::evict_first.b64", ptx.F32(1))
}

// Consumer is a reading side's place in the ring.
type Consumer struct{ cursor }

// Consumer starts at the ring's beginning.
func (p *Pipeline) Consumer() *Consumer { return &Consumer{p.cursor(0)} }

// Next returns the next stage's tile and moves on. Its parts are awaited by
// the multiply that first reads them, in the order of their arrival (see
// Kernel.Multiply), or by Await.
func (c *Consumer) Next() Slot {
	s := c.slot()
	s.pipe = &s
	return s
}

// Await waits until every part of the slot has arrived.
func (s Slot) Await() {
	for i := range s.p.parts {
		s.await(i)
	}
}

func (s Slot) await(part int) { s.p.k.await(s.full.addr(part), s.phase) }

// Release gives parts of the stage back to the producer, by one arrival each.
// Run by the threads in which speaker holds, when every reader they speak for
// has finished.
func (s Slot) Release(speaker Value, parts ...int) {
	k := s.p.k
	k.If(speaker, func() {
		for _, i := range parts {
			k.emit("mbarrier.arrive.shared.b64", ptx.Sink{}, s.empty.addr(i))
		}
	})
}
