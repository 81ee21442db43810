package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

const (
	// minPiece is the shortest run of tiles that is worth a cut.
	minPiece = 2

	maxParts = scanThreads - 1

	// residentRequests is the largest batch whose lengths stay in shared memory.
	// They take most of it, as decode's tiles do, which also keeps the split
	// between shared memory and L1 as it is from one kernel to the next.
	residentRequests = 32 << 10
)

// pieceCost is what a piece of work costs beside its tiles (queries, write-out,
// merge), in tiles. An estimate from whole runs on an H200, where requests cut
// and whole differed by about so much; it was not fitted.
func (s Spec) pieceCost() int {
	switch {
	case s.PieceCost > 0:
		return s.PieceCost
	case s.rowsOnM():
		return 4
	}
	return 2
}

// maxPieceCost is the most that a spec may say.
const maxPieceCost = 16

// minAligned is the shortest aligned piece, in tiles: a wide row block's
// partial output costs as much as several tiles to write and merge.
func (s Spec) minAligned() int {
	switch {
	case s.BlockH <= narrowBlockH:
		return 1
	case s.BlockH <= swapBlockH:
		return 2
	}
	return 3
}

// scheduler deals requests to parts, in one CTA of 1024 threads and without a
// serial step. Requests lie end to end on a line; a part is the stretch between
// two boundaries, each a request and a tile of it.
//
//   - forced: every request is cut into the given number of even pieces, and
//     pieces are dealt out evenly; with one piece, whole requests;
//   - aligned: every part has at most one piece, requests are cut into even
//     pieces of at most L tiles, with the smallest L for which the parts suffice;
//     parts without one may read ahead (readahead.go);
//   - balanced: the line, on which a request is as long as its tiles plus
//     pieceCost, is cut into equal stretches.
//
// Aligned is taken where it costs at most a sixteenth more than balanced: it
// cuts less, and even pieces need no luck.
//
// What counts is the length of the chain from the lengths to the last store:
// lengths are read once, collectives have one barrier each, and what several
// threads must find out is guessed from a product and put right rather than
// searched for.
type scheduler struct {
	k                    *gen.Kernel
	s                    Spec
	kvLen                gen.Pointer
	first, items, merges gen.Pointer
	arrivals             gen.Pointer
	batch, parts         gen.Value
	byParts              gen.Divisor
	thread               gen.Value

	// Shared memory of whichever way is taken: a record for every part or
	// request, a pair of words for every boundary, a word for every part.
	records, pairs, words gen.Region
}

// recordWords is the size of a record.
const recordWords = 4

func decodeSchedule(s Spec) (*gen.Output, error) { return scheduleResident(s, residentRequests) }

// scheduleResident builds the scheduler with room for the lengths of so many
// requests, at least maxParts, in shared memory.
func scheduleResident(s Spec, requests int) (*gen.Output, error) {
	k := gen.NewKernel("decode_schedule", s, s.options())
	c := &scheduler{k: k, s: s}
	c.kvLen = k.Pointer("kv_len", isa.S32)
	c.first = k.Pointer("part_first", isa.S32)
	c.items = k.Pointer("items", isa.S32)
	c.merges = k.Pointer("merges", isa.S32)
	c.arrivals = k.Pointer("arrivals", isa.S32)
	batch, parts, splits := k.Scalar("batch", isa.U32), k.Scalar("parts", isa.U32), k.Scalar("splits", isa.U32)
	k.Threads(scanThreads)
	c.records = k.SharedArray("records", isa.S32, recordWords*scanThreads)
	c.pairs = k.SharedArray("boundaries", isa.S32, 2*(maxParts+3))
	c.words = k.SharedArray("words of parts", isa.S32, maxParts+1)
	near := newResidentLengths(c, requests)
	k.WaitForPreviousGrid()
	c.batch, c.parts, c.thread = batch.Read().As(isa.S32), parts.Read().As(isa.S32), k.Thread()
	forced := splits.Read().As(isa.S32)
	k.IfElse(forced.Gt(1), func() { c.dealPieces(forced) }, func() {
		k.IfElse(c.batch.Le(requests), func() { c.balance(near, forced) }, func() { c.balance(&distantLengths{c}, forced) })
	})
	// No AllowNextGrid: decode reads the schedule before it waits for the grid
	// before it, so it must not begin before this kernel has ended.
	return k.Build()
}

// balance deals out whole requests where one piece of each is forced, and
// otherwise finds what is best.
func (c *scheduler) balance(l batchLengths, forced gen.Value) {
	k := c.k
	sum, most := l.measure()
	even := c.byParts.Ceil(sum.Add(c.batch.Mul(c.s.pieceCost()))) // a part's share of the line
	whole := k.Var(forced)
	k.If(c.batch.Gt(c.parts), func() {
		// Whole requests, so many to a part, unless cutting gains something.
		cost := c.byParts.Ceil(c.batch).Mul(most.Add(c.s.pieceCost()))
		k.If(cost.Le(even.Add(2*c.s.pieceCost())), func() { whole.Set(1) })
	})
	k.IfElse(whole.Gt(0), func() { c.dealWhole(l) }, func() {
		near, ok := l.(*residentLengths)
		if !ok { // there are more requests than parts
			c.cutLine(l, even)
			return
		}
		piece := k.Var(k.Int(0))
		k.If(c.batch.Le(c.parts), func() { piece.Set(near.alignedPiece(sum, most, even)) })
		k.IfElse(piece.Gt(0), func() { near.align(most, piece.Value) }, func() { c.cutLine(near, even) })
	})
}

// flag returns 1 where p holds and 0 elsewhere.
func (c *scheduler) flag(p gen.Value) gen.Value { return c.k.Select(p, c.k.Int(1), c.k.Int(0)) }

// store writes an item.
func (c *scheduler) store(at, request, begin, end, slot gen.Value) {
	c.items.At(at.Mul(itemWords)).StoreVector(0, request, begin, end, slot)
}

// storeIdle writes the item of a part without work.
func (c *scheduler) storeIdle(part gen.Value) {
	c.store(part, c.k.Int(idle), c.k.Int(0), c.k.Int(0), c.k.Int(whole))
}

// storePiece writes piece number n of a request that is cut evenly, or not at
// all.
func (c *scheduler) storePiece(at, request, tiles, pieces, n, slot gen.Value) {
	by := c.k.Divisor(pieces)
	destination := c.k.Select(pieces.Gt(1), c.destination(slot, pieces, n), c.k.Int(whole))
	c.store(at, request, by.Floor(tiles.Mul(n)), by.Floor(tiles.Mul(n.Add(1))), destination)
}

// destination returns where piece number n of a cut request leaves its result:
// its slot, and where there are two pieces, which it is.
func (c *scheduler) destination(slot, pieces, n gen.Value) gen.Value {
	mark := c.k.Select(n.Eq(0), c.k.Int(pairedBit), c.k.Int(pairedBit|secondBit))
	return slot.Or(c.k.Select(pieces.Eq(pairPieces), mark, c.k.Int(0)))
}

// claim prepares the merge of a cut request, whose first piece has the given
// slot: by the pair itself, or as entry number rank of the merge list.
func (c *scheduler) claim(request, slot, pieces, rank gen.Value) {
	k := c.k
	k.IfElse(pieces.Eq(pairPieces), func() { c.clearArrivals(slot) }, func() {
		c.merges.At(rank.Add(1).Mul(mergeWords)).StoreVector(0, request, slot, pieces, k.Int(0))
	})
}

// clearArrivals resets the arrival counts of a pair.
func (c *scheduler) clearArrivals(slot gen.Value) {
	blocks := c.s.RowBlocks()
	c.k.For("row_block", 0, blocks, 1, func(b gen.Value) {
		c.arrivals.At(slot.Mul(blocks).Add(b)).Store(0, 0)
	})
}
