package templates

import (
	"github.com/mlagen/mlagen/gen"
)

// A lane's elements are written in pairs, neighbouring latent columns of a row:
// one word. With rows on wgmma's M a lane has both elements of pair p, of its first
// row or of its second. With rows on N pair p is a column of both rows, of which
// lanes four apart hold neighbours: the lower one writes the first row's, the upper
// the second's.

// halfRows is how far a lane's two fragment rows are apart: with rows on N the latent
// columns of a quad.
const halfRows = 8

// wordPlace is where a lane writes a word.
type wordPlace struct {
	at    gen.Pointer
	there gen.Value // whether the row exists
}

// savedWords is the size of a lane's sums in shared memory.
func (c combiner) savedWords() int { return 4 + c.elems() }

// pairs returns how many a lane has.
func (c combiner) pairs() int { return c.elems() / 2 }

// rowsOfPair returns of how many rows a lane's pair is before lanes exchange.
func (c combiner) rowsOfPair() int {
	if c.s.rowsOnM() {
		return 1
	}
	return 2
}

// upper reports whether the lane is the upper one of two that exchange columns.
func (c combiner) upper() gen.Value { return c.lane.And(4 * c.split).Ne(0) }

// place returns where pair p goes.
func (c combiner) place(u unit, p, never gen.Value) wordPlace {
	k := c.k
	row, latent := u.row, u.latent.Add(p.Shr(1).Mul(c.quadStep()))
	if c.s.rowsOnM() {
		row = row.Add(p.And(1).Mul(c.rowStep()))
	} else {
		row = k.Select(c.upper(), row.Add(1), row)
		latent = k.Select(c.upper(), latent.Sub(1), latent).Add(p.And(1).Mul(halfRows))
	}
	return wordPlace{c.r.out.of(u.request).row(row).At(latent.Shr(1)).Settle(never), row.Lt(c.s.Rows())}
}

// places returns where pairs go that follow each other in constant steps: one of
// each row that a lane writes.
func (c combiner) places(u unit, never gen.Value) (to []wordPlace) {
	for p := range 2 / c.rowsOfPair() {
		to = append(to, c.place(u, c.k.Int(p), never))
	}
	return to
}

// pack returns the word that the lane writes of a pair.
func (c combiner) pack(x, y gen.Value) gen.Value {
	k := c.k
	if !c.s.rowsOnM() {
		upper := c.upper()
		theirs := k.Select(upper, x, y).Butterfly(4 * c.split)
		x, y = k.Select(upper, theirs, x), k.Select(upper, y, theirs)
	}
	return k.Pack(c.s.dtype(), x, y)
}

// store writes a unit's output, and the LSE of rows whose first column it has.
func (c combiner) store(u unit, st weightedSum, to []wordPlace) {
	k := c.k
	var inverse, lse [2]gen.Value
	for row := range 2 {
		inverse[row], lse[row] = finished(k, st.top[row].Value, st.total[row].Value)
	}
	for p := range c.pairs() {
		x := func(e int) gen.Value { return st.acc[e].Mul(inverse[c.rowIndex(e)]) }
		word := c.pack(x(2*p), x(2*p+1))
		place, further := to[0], p/2*c.quadStep()+p%2*halfRows
		if c.s.rowsOnM() {
			place, further = to[p%2], p/2*c.quadStep()
		}
		k.If(place.there, func() { place.at.Store(further/2, word) })
	}
	k.If(u.latent.Eq(0), func() {
		for row := range 2 {
			c.storeLSE(u, k.Int(row*c.rowStep()), lse[row])
		}
	})
}

// finished returns what sums must be multiplied by, and the LSE.
func finished(k *gen.Kernel, top, total gen.Value) (inverse, lse gen.Value) {
	some := total.Gt(0.0)
	return k.Select(some, total.Reciprocal(), k.Float(0)), k.Select(some, top.Add(total.Log2()), k.NegInf())
}

// storeLSE writes the LSE of the unit's row that is so much further than its first.
func (c combiner) storeLSE(u unit, further, lse gen.Value) {
	row := u.row.Add(further)
	c.k.If(row.Lt(c.s.Rows()), func() {
		c.r.lse.Stride(u.request, c.s.Rows()).At(row).Store(0, lse.Mul(c.r.lseFactor.Read()))
	})
}

// gather adds up the sums of a group of warps and writes the result: each of the
// first of them a pair. All warps meet in it.
func (c combiner) gather(u unit, st weightedSum, to wordPlace, group, warp gen.Value, warps int) {
	k := c.k
	saved := func(w gen.Value) gen.Region {
		return c.states.At(group.Mul(warps).Add(w).Mul(32).Add(c.lane).Mul(c.savedWords()))
	}
	st.save(saved(warp))
	k.SyncCTA()
	k.If(warp.Lt(c.pairs()), func() { c.storePair(u, saved(k.Int(0)), to, warp, warps) })
	k.SyncCTA() // the sums have been read before the next unit's are saved
}

// storePair writes pair p of the sums that so many warps saved, and the LSE of its
// rows where it is their first. A pair of one row needs that row's states only.
func (c combiner) storePair(u unit, saved gen.Region, to wordPlace, p gen.Value, warps int) {
	k := c.k
	rows := c.rowsOfPair()
	var tops, totals [2][]gen.Value // of the pair's rows
	var elems [2][]gen.Value
	ofPair, second := saved.At(p.Mul(2)), p.And(1).Ne(0)
	for w := range warps {
		further := w * 32 * c.savedWords()
		head, pair := saved.LoadVector(further, 4), ofPair.LoadVector(further+4, 2)
		if rows == 1 {
			head[0], head[2] = k.Select(second, head[1], head[0]), k.Select(second, head[3], head[2])
		}
		for i := range 2 {
			tops[i], totals[i], elems[i] = append(tops[i], head[i]), append(totals[i], head[2+i]), append(elems[i], pair[i])
		}
	}
	var x, lse [2]gen.Value
	for row := range rows {
		top := tops[row][0]
		for _, t := range tops[row][1:] {
			top = top.Max(t)
		}
		reference := finite(k, top)
		var weights []gen.Value
		for _, t := range tops[row] {
			weights = append(weights, t.Sub(reference).Exp2())
		}
		var inverse gen.Value
		inverse, lse[row] = finished(k, top, weighted(totals[row], weights))
		for e := row; e < 2; e += rows {
			x[e] = weighted(elems[e], weights).Mul(inverse)
		}
	}
	word := c.pack(x[0], x[1])
	k.If(to.there, func() { to.at.Store(0, word) })
	k.If(u.latent.Eq(0).And(p.Lt(2/rows)), func() {
		if rows == 1 {
			c.storeLSE(u, p.Mul(c.rowStep()), lse[0])
			return
		}
		for row := range rows {
			c.storeLSE(u, k.Int(row*c.rowStep()), lse[row])
		}
	})
}

// weighted returns the sum of weighted values.
func weighted(values, weights []gen.Value) gen.Value {
	sum := values[0].Mul(weights[0])
	for i, w := range weights[1:] {
		sum = values[i+1].MulAdd(w, sum)
	}
	return sum
}
