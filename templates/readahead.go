package templates

import (
	"github.com/mlagen/mlagen/gen"
)

// Where requests are cut into fewer pieces than there are parts, the parts without
// one read ahead: they bring pages that pieces will soon want into the L2. The memory
// then has all multiprocessors to feed and not only those that attend, who find one
// page in some thirty at hand. That is for blocks that wait for memory; wider ones
// are slower with it (golden/perf/decode.md).
//
// A reader has pieces of its own, every so-many-th, and visits them in turn, at each
// step a page further on. It goes by their likely progress, which it cannot see: too
// early is harmless, but what a piece has already read is read in vain, and nobody
// may end after the pieces.
type readAhead struct {
	// pace is how far it goes on at a step, in quarters of a page; at the end of a
	// turn a page more, for every piece has found one by then.
	pace int
	// inFlight is how many pages it awaits at a time, 1 or 2. With two it is served
	// like the blocks that attend; those of many rows suffer from it.
	inFlight int
}

const (
	paceUnit = 4
	// aheadLead is how many pages of a piece are left to itself at its beginning.
	aheadLead = 4
	// leastAhead is the shortest piece, in pages, for which anybody reads.
	leastAhead = 8
	// lastAhead is the share of a piece, from its end, that is left to itself.
	lastAhead = 8
)

// readAhead returns how the spec's blocks read ahead, and whether they do. Found by
// trying (golden/perf/decode.md).
func (s Spec) readAhead() (readAhead, bool) {
	switch {
	case s.BlockH <= narrowBlockH:
		return readAhead{pace: 5, inFlight: 2}, true
	case s.BlockH <= besideBlockH:
		return readAhead{pace: 7, inFlight: 1}, true
	}
	return readAhead{}, false
}

// storeReader writes the item of a part without work, which reads ahead for so many
// pieces of at most so many tiles, if they are worth it.
func (c *scheduler) storeReader(part, pieces, tiles gen.Value) {
	k := c.k
	if _, ok := c.s.readAhead(); !ok {
		c.storeIdle(part)
		return
	}
	some := tiles.Ge(leastAhead)
	c.store(part, k.Int(idle), k.Select(some, pieces, k.Int(0)), k.Select(some, tiles, k.Int(0)), k.Int(whole))
}

// readAhead is what the loading warp of a part without work does.
func (c *decodeCTA) readAhead(ring *gen.Pipeline) {
	k := c.k
	how, ok := c.s.readAhead()
	if !ok {
		return
	}
	blocks := c.s.RowBlocks()
	own := c.todo.item(c.part)
	pieces, tiles := own.begin, own.end
	first := k.Block().Sub(pieces.Mul(blocks)) // the reader's number, and its first piece
	k.If(own.request.Eq(idle).And(first.Lt(pieces)), func() {
		readers := k.Blocks().Sub(pieces.Mul(blocks))
		turn := k.Divisor(k.Divisor(readers).Ceil(pieces.Sub(first)))
		visit := func(step gen.Value) (piece, offset gen.Value) {
			turns, n := turn.Split(step)
			return first.Add(n.Mul(readers)), step.Mul(how.pace).Div(paceUnit).Add(turns).Add(aheadLead)
		}
		end := tiles.Sub(tiles.Div(lastAhead))
		// A lane for a step: many pages' numbers are awaited at once.
		pageOf := func(step gen.Value) gen.Value {
			page := k.Var(k.Int(-1))
			piece, offset := visit(step)
			it := c.todo.item(piece)
			tile := it.begin.Add(offset)
			k.If(offset.Lt(end).And(tile.Lt(it.end)), func() { page.Set(c.pages(it).At(tile).Load(0)) })
			return page.Value
		}
		fill, arrived, pending := ring.Producer(), ring.Consumer(), k.Var(k.Int(0))
		read := func(page gen.Value) {
			// Evicted as other data, and not first: it is to stay until it is wanted.
			fill.Load(c.kv, gen.Value{}, k.Int(0), page)
			if how.inFlight > 1 {
				k.If(pending.Gt(0), func() { arrived.Next().Discard() })
				pending.Set(1)
				return
			}
			arrived.Next().Discard()
		}
		step := k.Var(k.Int(0))
		next := k.Var(pageOf(k.Lane()))
		k.WaitForPreviousGrid()
		k.While("steps", func() gen.Value { _, offset := visit(step.Value); return offset.Lt(end) }, func() {
			page := k.Var(next.Value).Value
			step.Increase(32)
			next.Set(pageOf(step.Add(k.Lane())))
			k.For("step", 0, 32, 1, func(i gen.Value) {
				p := page.FromLane(i)
				k.If(p.Ge(0), func() { k.OneLane(func() { read(p) }) })
			})
		})
		if how.inFlight > 1 {
			k.OneLane(func() { k.If(pending.Gt(0), func() { arrived.Next().Discard() }) })
		}
	})
}
