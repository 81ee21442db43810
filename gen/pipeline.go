package gen

import (
	"slices"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Pipeline is a ring of tiles in shared memory between one producing thread,
// which has the copy engine fill them, and consumers that read them. A stage's
// column blocks may arrive in several parts, each with a barrier of its own,
// so that a consumer can begin with the first columns.
type Pipeline struct {
	k      *Kernel
	tile   SharedTile // stage 0
	stages int
	parts  int
	full   *Barrier // [stages][parts], completed by the copies
	empty  *Barrier // [stages], completed by the consumers
}

// Pipeline reserves a ring of stages tiles that arrive in the given number of
// parts and are released by consumers arrivals.
func (k *Kernel) Pipeline(name string, stages, parts, consumers int, t Tile) *Pipeline {
	k.checkTile(name, t)
	p := &Pipeline{k: k, stages: stages, parts: parts}
	p.tile = SharedTile{Tile: t, k: k, offset: k.alloc(stages*t.Bytes(), t.Swizzle.AtomBytes())}
	k.Comment("shared: %s at %d, %d stages of %dx%d %s, swizzle %d bytes",
		name, p.tile.offset, stages, t.Rows, t.Cols, t.DType.Name, t.Swizzle.Bytes())
	if parts < 1 || parts > t.Blocks() {
		k.errorf("pipeline %s has %d parts: want 1…%d, the tile's column blocks", name, parts, t.Blocks())
	}
	p.full = k.Barrier(name+" full", stages*parts, 1)
	p.empty = k.Barrier(name+" empty", stages, consumers)
	return p
}

// Storage returns stage 0's tile, for use while the ring is not.
func (p *Pipeline) Storage() SharedTile { return p.tile }

// partBlocks returns the first column block of each part, and the end.
func (p *Pipeline) partBlocks() []int {
	ends := make([]int, p.parts+1)
	for i := range ends {
		ends[i] = i * p.tile.Blocks() / p.parts
	}
	return ends
}

// cursor walks the ring: a stage and the parity of its current round.
type cursor struct {
	p     *Pipeline
	stage *Var
	phase *Var
}

func (p *Pipeline) cursor(phase int) cursor {
	return cursor{p, p.k.Var(p.k.Int(0)), p.k.Var(p.k.Int(phase))}
}

func (c cursor) tile() SharedTile {
	t := c.p.tile
	if c.p.stages > 1 {
		t.base = c.stage.Mul(t.Bytes())
	}
	return t
}

func (c cursor) advance() {
	k := c.p.k
	next := c.stage.Add(1)
	wrapped := next.Ge(c.p.stages)
	c.stage.Set(k.Select(wrapped, k.Int(0), next))
	c.phase.Set(k.Select(wrapped, c.phase.Xor(1), c.phase.Value))
}

// Producer is the filling side's place in the ring. On a fresh ring the first
// round of Acquire does not wait.
type Producer struct{ cursor }

// Producer starts at the ring's beginning.
func (p *Pipeline) Producer() *Producer { return &Producer{p.cursor(1)} }

// Load waits until the next stage is free and has the copy engine fill it from
// the tensor: the tile's column blocks are boxes along the innermost dimension,
// the other coordinates are given. Run by one thread.
func (pr *Producer) Load(t TensorMap, policy Value, coords ...Value) {
	p, k := pr.p, pr.p.k
	tile := p.tile
	if want := tile.BlockBytes(); boxBytes(t.box, tile.DType) != want {
		k.errorf("a box of tensor %s has %d bytes: want %d, one column block of the tile", t.name, boxBytes(t.box, tile.DType), want)
	}
	p.empty.Wait(pr.stage, pr.phase.Value)
	ends := p.partBlocks()
	full := p.full.at.At(pr.stage.Mul(p.parts))
	dst := pr.tile().address()
	desc := t.address()
	for part := range p.parts {
		bar := full.addr(part)
		k.expect(bar, (ends[part+1]-ends[part])*tile.BlockBytes())
		for b := ends[part]; b < ends[part+1]; b++ {
			k.copyBox(ptx.Addr{Base: dst.op, Offset: int64(b * tile.BlockBytes())}, desc, k.Int(b*tile.BlockCols()), coords, bar, policy)
		}
	}
	pr.advance()
}

func boxBytes(box []int, d DType) int {
	n := d.Bytes()
	for _, b := range box {
		n *= b
	}
	return n
}

// copyBox issues one tensor copy global → shared.
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

// Next returns the current stage's tile. Its parts are awaited by the multiply
// that first reads them (see Kernel.Multiply).
func (c *Consumer) Next() SharedTile {
	t := c.tile()
	p, k := c.p, c.p.k
	full := p.full.at.At(c.stage.Mul(p.parts))
	ends := p.partBlocks()
	t.arrive = func(block int) bool {
		part, begins := slices.BinarySearch(ends[:p.parts], block)
		if begins {
			k.await(full.addr(part), c.phase.Value)
		}
		return begins
	}
	return t
}

// Release gives the current stage back to the producer and moves on. The
// calling thread must know that every reader it speaks for has finished.
func (c *Consumer) Release(speaker Value) {
	c.p.k.If(speaker, func() { c.p.empty.Arrive(c.stage) })
	c.advance()
}

// Await waits until every part of a pipeline's tile has arrived.
func (s SharedTile) Await() {
	for b := range s.Blocks() {
		s.arrive(b)
	}
}
