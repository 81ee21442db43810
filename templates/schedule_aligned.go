package templates

import (
	"github.com/mlagen/mlagen/gen"
)

// alignedPiece returns the tiles of an aligned piece, 0 where the line had
// better be cut evenly.
func (l *residentLengths) alignedPiece(sum, most, even gen.Value) gen.Value {
	c, k := l.c, l.c.k
	low := c.byParts.Ceil(sum).Max(c.s.minAligned())
	dear := even.Add(even.Shr(4)).Add(2) // the shortest that costs too much
	piece := l.smallestPiece(low, most.Max(low).Min(dear))
	return k.Select(piece.Lt(dear), piece, k.Int(0))
}

// smallestPiece returns the least L in [low, high] for which requests cut into
// ⌈tiles/L⌉ pieces are no more pieces than parts, and high where none is. Each
// round tries 32 lengths, one per warp; the first is as a rule the only one.
func (l *residentLengths) smallestPiece(low, high gen.Value) gen.Value {
	c, k := l.c, l.c.k
	lo, hi := k.Var(low), k.Var(high) // the answer lies in [lo, hi]
	k.While("round", func() gen.Value { return lo.Lt(hi) }, func() {
		step := hi.Sub(lo).Shr(5).Add(1)
		length := lo.Add(k.Warp().Mul(step)).Min(hi)
		byLength := k.Divisor(length)
		pieces := k.Var(k.Int(0))
		k.For("request", k.Lane(), c.batch, 32, func(i gen.Value) {
			pieces.Increase(byLength.Ceil(l.tiles(i)).Max(1))
		})
		enough := pieces.SumOfWarp().Le(c.parts)
		least := ofWarps(k, "lengths that suffice", k.Select(enough, length, hi.Value))[0].MinOfWarp()
		hi.Set(least)
		lo.Set(lo.Max(least.Sub(step).Add(1))) // the length tried before it fails
		k.SyncCTA()
	})
	return hi.Value
}

// align gives every part one piece of at most length tiles, or none: then it may read
// ahead for the others. There are no more pieces than parts, and a thread has a request
// first and then a part.
func (l *residentLengths) align(most, length gen.Value) {
	c, k := l.c, l.c.k
	byLength := k.Divisor(length)
	i := c.thread
	pieces := k.Select(i.Lt(c.batch), byLength.Ceil(l.own).Max(1), k.Int(0))
	// Pieces, requests that are cut, and those cut more than once, in one sum.
	own := pieces.Or(c.flag(pieces.Gt(1)).Shl(partField)).Or(c.flag(pieces.Gt(pairPieces)).Shl(2 * partField))
	upTo := own.InclusiveSum()
	before, total := sumOfWarps(k, ofWarps(k, "pieces by warp", upTo)[0])
	record := func(request gen.Value) gen.Region { return c.records.At(request.Mul(recordWords)) }
	k.If(i.Lt(c.batch), func() {
		record(i).StoreVector(0, before.Add(upTo).Sub(own), pieces, l.own, k.Int(0))
	})
	k.SyncCTA()

	part, all := c.thread, field(total, 0)
	k.If(part.Lt(all), func() {
		// Requests have a piece at least: a part's is not beyond the part's
		// number, and before it by no more than there are further pieces.
		low := part.Sub(all.Sub(c.batch)).Max(0)
		r := lastAtMost(k, low, part.Add(1).Min(c.batch), func(i gen.Value) gen.Value {
			return field(record(i).Load(0), 0).Le(part)
		})
		v := record(r).LoadVector(0, recordWords)
		sums, pieces, tiles := v[0], v[1], v[2]
		// A slot for every part, and one more for every request cut before.
		n, slot := part.Sub(field(sums, 0)), part.Add(field(sums, 1))
		c.storePiece(part, r, tiles, pieces, n, slot)
		k.If(pieces.Gt(1).And(n.Eq(0)), func() { c.claim(r, slot, pieces, field(sums, 2)) })
	})
	k.If(part.Ge(all).And(part.Lt(c.parts)), func() { c.storeReader(part, all, length) })
	k.If(part.Le(c.parts), func() { c.first.At(part).Store(0, c.parts) }) // no further items
	k.If(part.Eq(0), func() {
		longest := byLength.Ceil(most)
		c.merges.StoreVector(0, field(total, 2), k.Select(longest.Gt(1), longest, k.Int(0)))
	})
}
