package templates

import (
	"github.com/mlagen/mlagen/gen"
)

// Where an aligned schedule has fewer pieces than parts, and they are not all short, the
// parts without one read ahead: they bring pages that pieces will soon want into the
// L2. The memory then has all multiprocessors to feed and not only those that attend,
// who find one page in some fifty at hand. Blocks of up to 32 rows are faster for it,
// wider ones slower (golden/perf/decode.md). Forced pieces and cuts of the line have no
// readers: it was not measured there.
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
	// like the blocks that attend; with 24 and 32 rows these are slower for it.
	inFlight int
}

const (
	aheadBlockH = 32 // the widest row block that is faster for it
	paceUnit    = 4  // of pace, in a page
	// aheadLead is how many pages of a piece are left to itself at its beginning.
	aheadLead = 4
	// leastAhead is how long the longest piece must be, in pages, for anybody to read.
	leastAhead = 8
	// lastAhead: so many-th of the longest piece, at its end, is left to itself.
	lastAhead = 8
)

// readAhead returns how the spec's blocks read ahead, and whether they do. Found by
// trying (golden/perf/decode.md).
func (s Spec) readAhead() (readAhead, bool) {
	switch {
	case s.BlockH <= narrowBlockH:
		return readAhead{pace: 5, inFlight: 2}, true
	case s.BlockH <= aheadBlockH:
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

// readAhead is what the loading warp of a part without work does, whose item is own.
func (c *decodeCTA) readAhead(how readAhead, own item, ring *gen.Pipeline) {
	k, blocks := c.k, c.s.RowBlocks()
	pieces, tiles := own.begin, own.end
	number := k.Block().Sub(pieces.Mul(blocks))
	k.If(number.Lt(pieces), func() {
		r := aheadReader{decodeCTA: c, readAhead: how, first: number, end: tiles.Sub(tiles.Div(lastAhead))}
		r.readers = k.Blocks().Sub(pieces.Mul(blocks))
		r.turn = k.Divisor(k.Divisor(r.readers).Ceil(pieces.Sub(r.first)))
		load, finish := r.loader(ring)
		step := k.Var(k.Int(0))
		next := k.Var(r.page(k.Lane()))
		k.WaitForPreviousGrid()
		k.While("steps", func() gen.Value { _, offset := r.visit(step.Value); return offset.Lt(r.end) }, func() {
			pages := k.Var(next.Value).Value
			step.Increase(32)
			next.Set(r.page(step.Add(k.Lane())))
			k.For("step", 0, 32, 1, func(i gen.Value) {
				page := pages.FromLane(i)
				k.If(page.Ge(0), func() { k.OneLane(func() { load(page) }) })
			})
		})
		k.OneLane(finish)
	})
}

// aheadReader is the loading warp of a part that reads ahead.
type aheadReader struct {
	*decodeCTA
	readAhead
	first   gen.Value // of its pieces, and its number among the readers
	readers gen.Value // all of them: as far apart are its pieces
	turn    gen.Divisor
	end     gen.Value // the last page's offset in a piece, and one more
}

// visit returns which piece is visited at a step, and how far in it the page lies.
func (r aheadReader) visit(step gen.Value) (piece, offset gen.Value) {
	turns, n := r.turn.Split(step)
	return r.first.Add(n.Mul(r.readers)), step.Mul(r.pace).Div(paceUnit).Add(turns).Add(aheadLead)
}

// page returns which page is read at a step, −1 for none. Lanes ask for a step each:
// many answers are awaited at once.
func (r aheadReader) page(step gen.Value) gen.Value {
	k := r.k
	page := k.Var(k.Int(-1))
	piece, offset := r.visit(step)
	it := r.todo.item(piece)
	tile := it.begin.Add(offset)
	k.If(offset.Lt(r.end).And(tile.Lt(it.end)), func() { page.Set(r.pages(it).At(tile).Load(0)) })
	return page.Value
}

// loader returns what loads a page, which nobody looks at, and what awaits those that
// are still under way in the end. One lane runs them.
func (r aheadReader) loader(ring *gen.Pipeline) (load func(page gen.Value), finish func()) {
	k := r.k
	fill, arrived := ring.Producer(), ring.Consumer()
	await := func() { arrived.Next().Discard() }
	if r.inFlight == 1 {
		return func(page gen.Value) { r.bring(fill, page); await() }, func() {}
	}
	pending := k.Var(k.Int(0)) // whether a page has been asked for before
	awaitPending := func() { k.If(pending.Ne(0), await) }
	return func(page gen.Value) {
		r.bring(fill, page)
		awaitPending()
		pending.Set(1)
	}, awaitPending
}

// bring has the copy engine bring a page. It is evicted as other data and not first: it
// is to stay in the L2 until it is wanted.
func (r aheadReader) bring(fill *gen.Producer, page gen.Value) {
	fill.Load(r.kv, gen.Value{}, r.k.Int(0), page)
}
