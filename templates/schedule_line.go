package templates

import (
	"github.com/mlagen/mlagen/gen"
)

// partField is the bits that hold a number of parts: three fit one word.
const partField = 10

// field returns number n of a word's counts.
func field(word gen.Value, n int) gen.Value { return word.Shr(n * partField).And(1<<partField - 1) }

// boundary is where a part begins.
type boundary struct{ request, tile gen.Value }

// cutsInto reports whether it cuts the request.
func (b boundary) cutsInto(request gen.Value) gen.Value {
	return b.request.Eq(request).And(b.tile.Gt(0))
}

// begun returns how many requests begin before it.
func (b boundary) begun(c *scheduler) gen.Value { return b.request.Add(c.flag(b.tile.Gt(0))) }

// stretch is a part of the line, one to a thread. Those beyond the last part
// are empty.
type stretch struct {
	begin, end boundary
	goesOn     gen.Value // it begins with a tile that is not its request's first
	firstCut   gen.Value // its beginning cuts a request for the first time
	secondCut  gen.Value // … for the second time
	opens      gen.Value // it begins with a request's first tile
	// Of the parts up to and including it.
	heads  gen.Value // parts that open with a request
	cuts   gen.Value // requests that are cut
	merges gen.Value // requests that are cut more than once
}

// partTable is what requests must know of the parts.
type partTable struct{ records gen.Region }

// A record has the first request that begins after the part, the request that
// the next part begins in, the request whose first tile the part begins with
// or −1, and what makes a further request's number that of its item.
// firstIn returns the first request that begins in part p > 0 or after it.
func (t partTable) firstIn(p gen.Value) gen.Value {
	return t.records.At(p.Mul(recordWords)).Load(-recordWords)
}

// cutLine gives every part an equal stretch of the line.
func (c *scheduler) cutLine(l batchLengths, even gen.Value) {
	k, p := c.k, c.thread
	line := l.line(even)
	part, allMerges := c.count(c.stretchOf(line, even))
	table, lastCuts := partTable{c.records}, c.words
	further := c.parts.Sub(part.heads)
	k.If(p.Le(c.parts), func() {
		// Further items before the part: the requests begun before it, less those
		// that are first in their part.
		c.first.At(p).Store(0, c.parts.Add(part.begin.begun(c)).Sub(part.heads.Sub(c.flag(part.opens))))
	})
	k.If(p.Lt(c.parts), func() {
		opened := k.Select(part.begin.tile.Eq(0), part.begin.request, k.Int(-1))
		table.records.At(p.Mul(recordWords)).StoreVector(0, part.end.begun(c), part.end.request, opened, further)
		k.If(part.goesOn.And(part.end.request.Ne(part.begin.request)), func() { lastCuts.At(part.cuts).Store(-1, p) })
	})
	k.SyncCTA()
	longest := k.Var(k.Int(0))
	k.If(p.Lt(c.parts), func() { c.storePart(line, part, further, lastCuts, longest) })
	k.For("request", p, c.batch, scanThreads, func(i gen.Value) { c.storeUncut(line, table, i) })
	most := ofWarps(k, "longest merge by warp", longest.MaxOfWarp())[0].MaxOfWarp()
	k.If(p.Eq(0), func() { c.merges.StoreVector(0, allMerges, most) })
}

// boundaryAt returns where the line is cut at a multiple of its even part.
func (c *scheduler) boundaryAt(line line, even gen.Value) boundary {
	k, p := c.k, c.thread
	request, tile := k.Var(c.batch), k.Var(k.Int(0))
	at := p.Mul(even)
	k.If(p.Lt(c.parts).And(at.Lt(line.position(c.batch))), func() {
		i := lastAtMost(k, k.Int(0), c.batch, func(i gen.Value) gen.Value { return line.position(i).Le(at) })
		request.Set(i)
		// No piece is shorter than minPiece.
		tile.Set(at.Sub(line.position(i)).Sub(c.s.pieceCost()))
		k.If(tile.Lt(minPiece), func() { tile.Set(0) })
		k.If(tile.Gt(0).And(line.tiles(i).Sub(tile).Lt(minPiece)), func() {
			request.Set(i.Add(1))
			tile.Set(0)
		})
	})
	return boundary{request.Value, tile.Value}
}

// stretchOf returns the thread's part.
func (c *scheduler) stretchOf(line line, even gen.Value) stretch {
	k, p := c.k, c.thread
	// Boundary p has place p+2: two that cut nothing stand before the first.
	begin := c.boundaryAt(line, even)
	k.If(p.Le(c.parts), func() { c.pairs.At(p.Mul(2)).StoreVector(4, begin.request, begin.tile) })
	k.If(p.Lt(2), func() { c.pairs.At(p.Mul(2)).StoreVector(0, k.Int(-1), k.Int(0)) })
	k.SyncCTA()
	at := c.pairs.At(p.Min(c.parts.Sub(1)).Mul(2))
	load := func(n int) boundary { v := at.LoadVector(2*n, 2); return boundary{v[0], v[1]} }
	end, last, other := load(3), load(1), load(0)
	here := p.Lt(c.parts)
	empty := begin.request.Eq(end.request).And(begin.tile.Eq(end.tile))
	s := stretch{begin: begin, end: end, goesOn: here.And(begin.tile.Gt(0)), opens: here.And(begin.tile.Eq(0)).And(empty.Not())}
	again := last.cutsInto(begin.request)
	s.firstCut = s.goesOn.And(again.Not())
	s.secondCut = s.goesOn.And(again).And(other.cutsInto(begin.request).Not())
	return s
}

// count counts over the parts, and returns the merges of all.
func (c *scheduler) count(s stretch) (stretch, gen.Value) {
	k := c.k
	var upTo, ofWarp gen.Value
	for n, p := range []gen.Value{s.opens, s.firstCut, s.secondCut} {
		lanes, all := k.CountInWarp(p)
		if n == 0 {
			upTo, ofWarp = lanes, all
			continue
		}
		upTo, ofWarp = upTo.Or(lanes.Shl(n*partField)), ofWarp.Or(all.Shl(n*partField))
	}
	before, total := sumOfWarps(k, ofWarps(k, "counts of parts by warp", ofWarp)[0])
	upTo = upTo.Add(before)
	s.heads, s.cuts, s.merges = field(upTo, 0), field(upTo, 1), field(upTo, 2)
	return s, field(total, 2)
}

// storePart writes the items of requests that the part's boundaries cut, or
// that it is idle. A cut request's pieces lie in consecutive parts; the slot
// of the piece in part p is p plus the number of requests cut before, so slots
// of a request are consecutive too.
func (c *scheduler) storePart(line line, part stretch, further gen.Value, lastCuts gen.Region, longest *gen.Var) {
	k, p := c.k, c.thread
	r, next := part.begin.request, part.end.request
	k.IfElse(part.goesOn, func() {
		end, mark := k.Var(part.end.tile), k.Var(k.Int(0))
		k.If(next.Ne(r), func() {
			end.Set(line.tiles(r))
			mark.Set(k.Select(part.firstCut, k.Int(pairedBit|secondBit), k.Int(0)))
		})
		c.store(p, r, part.begin.tile, end.Value, p.Add(part.cuts).Sub(1).Or(mark))
	}, func() {
		k.If(part.opens.Not(), func() { c.storeIdle(p) })
	})
	// A request that begins here and that the next boundary cuts.
	k.If(part.end.tile.Gt(0).And(part.begin.begun(c).Le(next)), func() {
		slot := p.Add(part.cuts)
		pieces := lastCuts.At(part.cuts).Load(0).Sub(p).Add(1)
		at := k.Select(next.Eq(r), p, further.Add(next))
		c.store(at, next, k.Int(0), part.end.tile, c.destination(slot, pieces, k.Int(0)))
		c.claim(next, slot, pieces, part.merges)
		longest.Set(pieces)
	})
}

// storeUncut writes the item of request i, unless it is cut.
func (c *scheduler) storeUncut(line line, table partTable, i gen.Value) {
	k := c.k
	part := k.Var(line.partBefore(i, table))
	var record []gen.Value // of the part that the request begins in, in the end
	k.While("part", func() gen.Value {
		record = table.records.At(part.Mul(recordWords)).LoadVector(0, recordWords)
		return record[0].Le(i)
	}, func() { part.Increase(1) })
	k.If(record[1].Gt(i), func() {
		at := k.Select(record[2].Eq(i), part.Value, record[3].Add(i))
		c.store(at, i, k.Int(0), line.tiles(i), k.Int(whole))
	})
}
