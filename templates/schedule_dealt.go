package templates

import (
	"github.com/mlagen/mlagen/gen"
)

// dealing deals pieces out evenly: part p gets those from ⌊p·total/parts⌋ on,
// or piece p where some parts have nothing.
type dealing struct {
	c      *scheduler
	begins gen.Region // the parts' first pieces, [parts+1]
	scale  gen.Value  // parts per piece, ×2³², or a little less
}

// deal begins to deal: it writes where the parts' further items lie, and the
// items of parts without any.
func (c *scheduler) deal(total gen.Value) dealing {
	k := c.k
	d := dealing{c: c, begins: c.words}
	scarce := total.Lt(c.parts)
	p := c.thread
	k.If(p.Le(c.parts), func() {
		each := c.byParts.Floor(total)
		over := c.byParts.Floor(p.Mul(total.Sub(each.Mul(c.parts))))
		begin := k.Select(scarce, p.Min(total), p.Mul(each).Add(over))
		d.begins.At(p).Store(0, begin)
		c.first.At(p).Store(0, c.parts.Add(k.Select(scarce, k.Int(0), begin.Sub(p))))
		k.If(p.Lt(c.parts).And(p.Ge(total)), func() { c.storeIdle(p) })
	})
	// Less than the quotient by more than the roundings to f32 can add.
	const scale = (1 << 32) * (1 - 0x1p-20)
	share := c.parts.ToFloat().Mul(total.Max(1).ToFloat().Reciprocal()).Min(1.0)
	d.scale = share.Mul(scale).ToUnsigned()
	k.SyncCTA()
	return d
}

// place returns which item a piece is.
func (d dealing) place(piece gen.Value) gen.Value {
	k := d.c.k
	part := k.Var(piece.MulHigh(d.scale))
	k.While("part", func() gen.Value { return d.begins.At(part).Load(1).Le(piece) }, func() { part.Increase(1) })
	further := d.c.parts.Add(piece).Sub(part).Sub(1)
	return k.Select(d.begins.At(part).Load(0).Eq(piece), part.Value, further)
}

// dealWhole deals out whole requests.
func (c *scheduler) dealWhole(l batchLengths) {
	k := c.k
	d := c.deal(c.batch)
	k.For("request", c.thread, c.batch, scanThreads, func(i gen.Value) {
		c.store(d.place(i), i, k.Int(0), l.tiles(i), k.Int(whole))
	})
	k.If(c.thread.Eq(0), func() { c.merges.StoreVector(0, k.Int(0), k.Int(1)) })
}

// dealPieces cuts every request into n even pieces (fewer where it has fewer
// tiles) and deals the pieces out. A piece's slot is its number.
func (c *scheduler) dealPieces(n gen.Value) {
	k := c.k
	c.byParts = k.Divisor(c.parts)
	piecesOf := func(tiles gen.Value) gen.Value { return n.Min(tiles).Max(1) }
	sum := k.Var(k.Int(0))
	c.eachLength(c.thread, func(_, tiles, there gen.Value) { sum.Increase(k.Select(there, piecesOf(tiles), k.Int(0))) })
	d := c.deal(ofWarps(k, "pieces by warp", sum.SumOfWarp())[0].SumOfWarp())

	// So many requests at a time, whose pieces are then dealt to the threads.
	record := func(i gen.Value) gen.Region { return c.records.At(i.Mul(recordWords)) }
	done, merged := k.Var(k.Int(0)), k.Var(k.Int(0))
	k.For("requests", 0, c.batch, scanThreads, func(base gen.Value) {
		i := base.Add(c.thread)
		tiles, pieces := k.Var(k.Int(0)), k.Var(k.Int(0))
		k.If(i.Lt(c.batch), func() {
			tiles.Set(c.tilesOf(c.kvLen.At(i).Load(0)))
			pieces.Set(piecesOf(tiles.Value))
		})
		many := c.flag(pieces.Gt(pairPieces))
		upTo, manyUpTo := pieces.InclusiveSum(), many.InclusiveSum()
		w := ofWarps(k, "pieces and merges by warp", upTo, manyUpTo)
		before, all := sumOfWarps(k, w[0])
		manyBefore, manyAll := sumOfWarps(k, w[1])
		record(c.thread).StoreVector(0,
			done.Add(before).Add(upTo).Sub(pieces), pieces.Value, tiles.Value, merged.Add(manyBefore).Add(manyUpTo).Sub(many))
		k.SyncCTA()
		here := c.batch.Sub(base).Min(scanThreads)
		k.For("piece", done.Add(c.thread), done.Add(all), scanThreads, func(v gen.Value) {
			r := lastAtMost(k, k.Int(0), here, func(i gen.Value) gen.Value { return record(i).Load(0).Le(v) })
			w := record(r).LoadVector(0, recordWords)
			first, pieces, tiles, rank := w[0], w[1], w[2], w[3]
			n := v.Sub(first)
			c.storePiece(d.place(v), base.Add(r), tiles, pieces, n, v)
			k.If(pieces.Gt(1).And(n.Eq(0)), func() { c.claim(base.Add(r), first, pieces, rank) })
		})
		done.Increase(all)
		merged.Increase(manyAll)
		k.SyncCTA()
	})
	k.If(c.thread.Eq(0), func() {
		// Not the longest merge that there is: how a request is merged must not
		// depend on the others.
		c.merges.StoreVector(0, merged.Value, n)
	})
}
