package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

const (
	// minPiece is the shortest run of tiles that is worth a cut.
	minPiece = 2

	maxParts = scanThreads - 1
)

// pieceCost is what a piece of work costs beside its tiles (queries, write-out,
// merge), in tiles. An estimate from whole runs on an H200, where requests cut
// and whole differed by about so much; it was not fitted.
func (s Spec) pieceCost() int {
	if s.rowsOnM() {
		return 4
	}
	return 2
}

// minAligned is the shortest aligned piece, in tiles: a wide row block's
// partial output costs as much as several tiles to write and merge.
func (s Spec) minAligned() int {
	switch {
	case s.BlockH <= 16:
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
//   - balanced: the line, on which a request is as long as its tiles plus
//     pieceCost, is cut into equal stretches.
//
// Aligned is taken where it costs at most a sixteenth more than balanced: it
// cuts less, and even pieces need no luck.
type scheduler struct {
	k                    *gen.Kernel
	s                    Spec
	kvLen                gen.Pointer
	first, items, merges gen.Pointer
	batch, parts         gen.Value
	thread               gen.Value
	sum, most, even      *gen.Var // see measure
	scan                 blockScan
	request, tile        gen.Region // boundaries of the parts, [parts+1]
	heads, cuts, shared  gen.Region // prefix counts over the parts, see countParts
	arrivals             gen.Pointer
}

func decodeSchedule(s Spec) (*gen.Output, error) {
	k := gen.NewKernel("decode_schedule", s, s.options())
	c := scheduler{k: k, s: s}
	c.kvLen = k.Pointer("kv_len", isa.S32)
	c.first = k.Pointer("part_first", isa.S32)
	c.items = k.Pointer("items", isa.S32)
	c.merges = k.Pointer("merges", isa.S32)
	c.arrivals = k.Pointer("arrivals", isa.S32)
	batch, parts, splits := k.Scalar("batch", isa.U32), k.Scalar("parts", isa.U32), k.Scalar("splits", isa.U32)
	k.Threads(scanThreads)
	c.scan = newBlockScan(k)
	c.request = k.SharedArray("boundary requests", isa.S32, maxParts+1)
	c.tile = k.SharedArray("boundary tiles", isa.S32, maxParts+1)
	c.heads = k.SharedArray("parts that begin a request", isa.S32, maxParts+1)
	c.cuts = k.SharedArray("requests cut", isa.S32, maxParts+1)
	c.shared = k.SharedArray("requests cut more than once", isa.S32, maxParts+1)
	k.WaitForPreviousGrid()
	c.batch, c.parts, c.thread = batch.Read().As(isa.S32), parts.Read().As(isa.S32), k.Thread()
	c.sum, c.most, c.even = k.Var(k.Int(0)), k.Var(k.Int(0)), k.Var(k.Int(0))
	forced := k.Var(splits.Read().As(isa.S32))
	k.If(forced.Eq(0), func() {
		c.measure()
		// Whole requests, so many to a part, unless cutting gains something.
		k.If(c.batch.Gt(c.parts), func() {
			whole := ceilDiv(c.batch, c.parts).Mul(c.most.Add(c.s.pieceCost()))
			k.If(whole.Le(c.even.Add(2*s.pieceCost())), func() { forced.Set(1) })
		})
	})
	k.IfElse(forced.Gt(0), func() { c.deal(forced.Value) }, func() {
		c.place()
		c.countParts()
		c.emit()
	})
	// No AllowNextGrid: decode reads the schedule before it waits for the grid
	// before it, so it must not begin before this kernel has ended.
	return k.Build()
}

// tiles returns a request's tiles.
func (c scheduler) tiles(request gen.Value) gen.Value {
	return c.kvLen.At(request).Load(0).Max(0).Add(c.s.BlockN - 1).Div(c.s.BlockN)
}

// ceilDiv returns ⌈a/b⌉.
func ceilDiv(a, b gen.Value) gen.Value { return a.Add(b.Sub(1)).Div(b) }

// store writes an item.
func (c scheduler) store(at, request, begin, end, slot gen.Value) {
	c.items.At(at.Mul(itemWords)).StoreVector(0, request, begin, end, slot)
}

// prefix writes the running sums of size(tiles) over all requests to the
// items' memory, which is free until emit, as [batch+1] words, and returns the
// total.
func (c scheduler) prefix(size func(tiles gen.Value) gen.Value) gen.Value {
	k := c.k
	carry := k.Var(k.Int(0))
	k.For("prefix", 0, c.batch, scanThreads, func(base gen.Value) {
		i := base.Add(c.thread)
		v := k.Var(k.Int(0))
		k.If(i.Lt(c.batch), func() { v.Set(size(c.tiles(i))) })
		sum, total := c.scan.inclusive(v.Value)
		k.If(i.Lt(c.batch), func() { c.items.At(i).Store(1, carry.Add(sum)) })
		carry.Set(carry.Add(total))
	})
	k.If(c.thread.Eq(0), func() { c.items.Store(0, 0) })
	k.SyncCTA()
	return carry.Value
}

// measure finds the sum of the requests' tiles, the longest request, and a
// part's share of the line.
func (c *scheduler) measure() {
	k := c.k
	sum, most := k.Var(k.Int(0)), k.Var(k.Int(0))
	k.For("request", c.thread, c.batch, scanThreads, func(i gen.Value) {
		t := c.tiles(i)
		sum.Increase(t)
		most.Set(most.Max(t))
	})
	c.sum.Set(c.scan.combined(sum.Value, gen.SumOf))
	c.most.Set(c.scan.combined(most.Value, gen.MaxOf))
	c.even.Set(ceilDiv(c.sum.Add(c.batch.Mul(c.s.pieceCost())), c.parts))
}

// place computes the parts' boundaries.
func (c scheduler) place() {
	k := c.k
	sum, most, even := c.sum, c.most, c.even
	// piece is the tiles of an aligned piece, 0 where the line is cut evenly.
	piece := k.Var(k.Int(0))
	k.If(c.batch.Le(c.parts), func() {
		low := ceilDiv(sum.Value, c.parts).Max(c.s.minAligned())
		least := c.smallestPiece(low, most.Max(low))
		k.If(least.Le(even.Add(even.Shr(4)).Add(1)), func() { piece.Set(least) })
	})

	aligned := piece.Gt(0)
	divisor := piece.Max(1)
	total := c.prefix(func(tiles gen.Value) gen.Value {
		return k.Select(aligned, ceilDiv(tiles, divisor).Max(1), tiles.Add(c.s.pieceCost()))
	})
	p := c.thread
	k.If(p.Le(c.parts), func() {
		share := k.Select(aligned, k.Int(1), even.Value)
		at := p.Mul(share)
		request, tile := k.Var(c.batch), k.Var(k.Int(0))
		k.If(p.Lt(c.parts).And(at.Lt(total)), func() {
			i := lastAtMost(k, k.Int(0), c.batch, func(i gen.Value) gen.Value { return c.items.At(i).Load(0).Le(at) })
			request.Set(i)
			line := c.items.At(i)
			begin := line.Load(0)
			into, tiles := at.Sub(begin), c.tiles(i)
			k.IfElse(aligned, func() {
				tile.Set(tiles.Mul(into).Div(line.Load(1).Sub(begin)))
			}, func() {
				tile.Set(into.Sub(c.s.pieceCost()).Max(0))
				tile.Set(k.Select(tile.Lt(minPiece), k.Int(0), tile.Value))
				k.If(tile.Gt(0).And(tiles.Sub(tile).Lt(minPiece)), func() {
					request.Set(i.Add(1))
					tile.Set(0)
				})
			})
		})
		c.request.At(p).Store(0, request)
		c.tile.At(p).Store(0, tile)
	})
	k.SyncCTA()
}

// smallestPiece returns the least L in [low, high] for which requests cut into
// ⌈tiles/L⌉ pieces are no more pieces than parts. Each round tries 32 lengths,
// one per warp.
func (c scheduler) smallestPiece(low, high gen.Value) gen.Value {
	k := c.k
	lo, hi := k.Var(low), k.Var(high) // the answer lies in [lo, hi], and hi suffices
	warp, lane := k.Warp(), k.Lane()
	k.While("round", func() gen.Value { return lo.Lt(hi) }, func() {
		step := hi.Sub(lo).Shr(5).Add(1)
		length := lo.Add(warp.Mul(step)).Min(hi)
		pieces := k.Var(k.Int(0))
		k.For("request", lane, c.batch, 32, func(i gen.Value) {
			pieces.Set(pieces.Add(ceilDiv(c.tiles(i), length).Max(1)))
		})
		pieces.Set(pieces.Reduce(gen.SumOf, 1, 2, 4, 8, 16))
		enough := pieces.Le(c.parts)
		// The least length tried that suffices, and the greatest that does not.
		least := c.scan.combined(k.Select(enough, length, hi.Value), minOf)
		failed := c.scan.combined(k.Select(enough, lo.Sub(1), length), gen.MaxOf)
		hi.Set(least)
		lo.Set(failed.Add(1))
	})
	return hi.Value
}

func minOf(a, b gen.Value) gen.Value { return a.Min(b) }

// boundary returns boundary p.
func (c scheduler) boundary(p gen.Value, plus int) (request, tile gen.Value) {
	return c.request.At(p).Load(plus), c.tile.At(p).Load(plus)
}

// isCut reports whether boundary p+plus cuts the request.
func (c scheduler) isCut(request, p gen.Value, plus int) gen.Value {
	r, t := c.boundary(p, plus)
	return r.Eq(request).And(t.Gt(0))
}

// countParts counts, over the parts up to and including each, those that begin
// with a request's first tile (heads), the requests that are cut (cuts), and
// those cut more than once (shared).
func (c scheduler) countParts() {
	k := c.k
	p := c.thread
	head, cut, again := k.Var(k.Int(0)), k.Var(k.Int(0)), k.Var(k.Int(0))
	k.If(p.Lt(c.parts), func() {
		r, t := c.boundary(p, 0)
		nextR, nextT := c.boundary(p, 1)
		empty := r.Eq(nextR).And(t.Eq(nextT))
		k.If(t.Eq(0).And(empty.Not()), func() { head.Set(1) })
		k.If(t.Gt(0), func() {
			// The first boundary is at tile 0, so there is one before this one,
			// and one more before that if it is a cut as well.
			before := c.isCut(r, p, -1)
			k.IfElse(before, func() {
				k.If(c.isCut(r, p, -2).Not(), func() { again.Set(1) })
			}, func() { cut.Set(1) })
		})
	})
	heads, _ := c.scan.inclusive(head.Value)
	cuts, _ := c.scan.inclusive(cut.Value)
	shared, merges := c.scan.inclusive(again.Value)
	k.If(p.Le(c.parts), func() {
		c.heads.At(p).Store(0, heads)
		c.cuts.At(p).Store(0, cuts)
		c.shared.At(p).Store(0, shared)
		// Further items before part p: the requests begun before it, less those
		// that are first in their part.
		r, t := c.boundary(p, 0)
		begun := r.Add(k.Select(t.Gt(0), k.Int(1), k.Int(0)))
		c.first.At(p).Store(0, c.parts.Add(begun).Sub(heads.Sub(head)))
	})
	k.If(p.Eq(0), func() { c.merges.Store(0, merges) })
	k.SyncCTA()
}

// mergeListed notes the longest merge beside their number.
func (c scheduler) mergeListed(longest gen.Value) {
	k := c.k
	longest = c.scan.combined(longest, gen.MaxOf)
	k.If(c.thread.Eq(0), func() { c.merges.Store(1, longest) })
}

// clearArrivals resets the arrival counts of a pair.
func (c scheduler) clearArrivals(slot gen.Value) {
	blocks := c.s.RowBlocks()
	c.k.For("row_block", 0, blocks, 1, func(b gen.Value) {
		c.arrivals.At(slot.Mul(blocks).Add(b)).Store(0, 0)
	})
}

// emit writes the items and the merge list. A cut request's pieces lie in
// consecutive parts; the slot of the piece in part q is q plus the number of
// requests cut before, so slots of a request are consecutive too.
func (c scheduler) emit() {
	k := c.k
	q := c.thread
	k.If(q.Lt(c.parts), func() {
		r, t := c.boundary(q, 0)
		nextR, nextT := c.boundary(q, 1)
		k.IfElse(t.Gt(0), func() { // the part goes on with a request begun before
			end := k.Var(nextT)
			destination := k.Var(q.Add(c.cuts.At(q).Load(0)).Sub(1))
			k.If(nextR.Ne(r), func() {
				end.Set(c.tiles(r))
				k.If(c.isCut(r, q, -1).Not(), func() { destination.Set(destination.Or(pairedBit | secondBit)) })
			})
			c.store(q, r, t, end.Value, destination.Value)
		}, func() {
			k.If(r.Eq(nextR).And(t.Eq(nextT)), func() {
				c.store(q, k.Int(idle), k.Int(0), k.Int(0), k.Int(whole))
			})
		})
	})
	longest := k.Var(k.Int(0))
	k.For("request", c.thread, c.batch, scanThreads, func(i gen.Value) {
		begins := lastAtMost(k, k.Int(0), c.parts, func(p gen.Value) gen.Value {
			r, t := c.boundary(p, 0)
			return r.Lt(i).Or(r.Eq(i).And(t.Eq(0)))
		})
		// A later boundary with this request is one that cuts it: where a part
		// begins with its first tile, that part is begins itself.
		ends := lastAtMost(k, begins, c.parts, func(p gen.Value) gen.Value {
			r, _ := c.boundary(p, 0)
			return r.Le(i)
		})
		r, t := c.boundary(begins, 0)
		heads, cuts, shared := c.heads.At(begins).Load(0), c.cuts.At(begins).Load(0), c.shared.At(begins).Load(0)
		at := k.Select(r.Eq(i).And(t.Eq(0)), begins, c.parts.Add(i).Sub(heads))
		end, destination := k.Var(k.Int(0)), k.Var(k.Int(whole))
		k.IfElse(ends.Gt(begins), func() {
			_, cutAt := c.boundary(begins, 1)
			end.Set(cutAt)
			slot := begins.Add(cuts)
			pieces := ends.Sub(begins).Add(1)
			longest.Set(longest.Max(pieces))
			c.claim(i, slot, pieces, shared, destination)
		}, func() { end.Set(c.tiles(i)) })
		c.store(at, i, k.Int(0), end.Value, destination.Value)
	})
	c.mergeListed(longest.Value)
}

// claim sets the destination of a cut request's first piece and prepares its
// merge: by the pair itself, or as entry number rank of the merge list.
func (c scheduler) claim(request, slot, pieces, rank gen.Value, destination *gen.Var) {
	k := c.k
	k.IfElse(pieces.Eq(pairPieces), func() {
		destination.Set(slot.Or(pairedBit))
		c.clearArrivals(slot)
	}, func() {
		destination.Set(slot)
		c.merges.At(rank.Add(1).Mul(mergeWords)).StoreVector(0, request, slot, pieces, k.Int(0))
	})
}

// deal cuts every request into n even pieces (fewer where it has fewer tiles)
// and deals the pieces out evenly. A piece's slot is its number.
func (c scheduler) deal(n gen.Value) {
	k := c.k
	pieces := func(tiles gen.Value) gen.Value { return n.Min(tiles).Max(1) }
	sum := k.Var(k.Int(0))
	k.For("request", c.thread, c.batch, scanThreads, func(i gen.Value) { sum.Increase(pieces(c.tiles(i))) })
	total := c.scan.combined(sum.Value, gen.SumOf)
	scarce := total.Lt(c.parts) // some parts have nothing
	// begin is the first piece of part p.
	begin := func(p gen.Value) gen.Value {
		even := p.MulWide(total).Div64(c.parts)
		return k.Select(scarce, p.Min(total), even)
	}
	p := c.thread
	k.If(p.Le(c.parts), func() {
		further := k.Select(scarce, k.Int(0), begin(p).Sub(p))
		c.first.At(p).Store(0, c.parts.Add(further))
		k.If(p.Lt(c.parts).And(p.Ge(total)), func() {
			c.store(p, k.Int(idle), k.Int(0), k.Int(0), k.Int(whole))
		})
	})
	carry, merged := k.Var(k.Int(0)), k.Var(k.Int(0))
	k.For("base", 0, c.batch, scanThreads, func(base gen.Value) {
		i := base.Add(c.thread)
		count, tiles := k.Var(k.Int(0)), k.Var(k.Int(0))
		k.If(i.Lt(c.batch), func() {
			tiles.Set(c.tiles(i))
			count.Set(pieces(tiles.Value))
		})
		many := k.Select(count.Gt(pairPieces), k.Int(1), k.Int(0))
		sum, all := c.scan.inclusive(count.Value)
		rank, listed := c.scan.inclusive(many)
		firstPiece := carry.Add(sum).Sub(count)
		destination := k.Var(k.Int(whole))
		k.If(count.Gt(1), func() {
			c.claim(i, firstPiece, count.Value, merged.Add(rank).Sub(1), destination)
		})
		k.For("piece", 0, count.Value, 1, func(j gen.Value) {
			v := firstPiece.Add(j)
			// The part that piece v falls into, and whether it is its first.
			owner := v.Add(1).MulWide(c.parts).Sub(k.Const(isa.S64, 1)).Div64(total)
			at := k.Select(begin(owner).Eq(v), owner, c.parts.Add(v).Sub(owner).Sub(1))
			at = k.Select(scarce, v, at)
			c.store(at, i, tiles.Mul(j).Div(count), tiles.Mul(j.Add(1)).Div(count), destination.Value)
			// The next piece's slot, and its mark if it is a pair's second.
			k.If(destination.Ge(0), func() {
				destination.Increase(1)
				k.If(destination.Ge(pairedBit), func() { destination.Set(destination.Or(secondBit)) })
			})
		})
		carry.Set(carry.Add(all))
		merged.Set(merged.Add(listed))
	})
	k.If(p.Eq(0), func() {
		// Not the longest merge that there is: how a request is merged must not
		// depend on the others.
		c.merges.StoreVector(0, merged.Value, n)
	})
}
