package templates

import (
	"github.com/mlagen/mlagen/gen"
)

// prefillAttention is the work of a warpgroup that attends: 64 rows of an item
// after the other.
type prefillAttention struct {
	*prefillCTA
	group   gen.Value // the warpgroup
	speaker gen.Value // releases tiles for its warp
	begun   *gen.Var  // items
	scored  *gen.Var  // tiles whose scores were issued

	scores, out   gen.Accumulator
	softmax       *prefillSoftmax
	weights, next []*gen.Var // of the tile before, and of this one where registers have room for them beside its scores
}

// attend is the work of the attending warpgroups.
func (c *prefillCTA) attend() {
	k, s := c.k, c.s
	a := prefillAttention{
		prefillCTA: c, group: k.Warp().Broadcast(0).Shr(2), speaker: k.Lane().Eq(0), begun: k.Var(k.Int(0)), scored: k.Var(k.Int(0)),
		scores: k.Accumulator(s.BlockN), out: k.Accumulator(s.Value), softmax: newPrefillSoftmax(k, s, c.scale),
	}
	a.weights = a.softmax.weightRegisters()
	if s.roomForScores() {
		a.next = a.softmax.weightRegisters()
	}
	k.WaitForPreviousGrid()
	it := mailed(c.mail.Receive(k.Int(0)))
	kept := []*gen.Var{}
	for _, w := range it.mail(c.mailWords()) {
		kept = append(kept, k.Var(w))
	}
	it = mailed(valuesOf(kept))
	k.If(it.tiles.Ne(stop), func() {
		a.begin()
		k.Loop("item", func(leaveIf func(gen.Value)) {
			a.item(it)
			next := mailed(c.mail.Receive(a.begun.Value))
			leaveIf(next.tiles.Eq(stop))
			// The next item's first scores are computed while this one's result is
			// written.
			a.end(it)
			if s.looksAhead() {
				a.begin()
				k.WaitMultiply(1)
			} else {
				k.WaitMultiply(0)
				a.begin()
			}
			a.write(it, a.scored.Sub(2))
			for i, w := range next.mail(c.mailWords()) {
				kept[i].Set(w)
			}
		})
		a.end(it)
		k.WaitMultiply(0)
		a.write(it, a.scored.Sub(1))
	})
}

// begin issues the products of an item's first scores.
func (a *prefillAttention) begin() {
	queries := a.queries.Tile(a.begun.Mul(a.s.groups()).Add(a.group))
	queries.Await()
	a.score(queries)
	a.begun.Increase(1)
}

// score issues the products of the queries and the next tile of keys.
func (a *prefillAttention) score(queries gen.Slot) {
	keys := a.keys.Tile(a.scored.Value)
	a.k.Multiply(a.scores, queries.KMajor(), keys.KMajor(), 0, false)
	a.k.CommitMultiply()
	a.scored.Increase(1)
}

// accumulate issues the products of the weights and a tile of values.
func (a *prefillAttention) accumulate(values gen.Slot) {
	a.k.MultiplyFragment(a.out, valuesOf(a.weights), values.Columns(0, a.s.Value).Transposed())
	a.k.CommitMultiply()
}

// item attends to the tiles of an item, whose first scores have been issued, but
// for the last product: see end.
func (a *prefillAttention) item(it prefillItem) {
	k, s := a.k, a.s
	a.start(it)
	queries := a.queries.Tile(a.begun.Sub(1).Mul(s.groups()).Add(a.group))
	mask := prefillMask{k: k, s: s, seen: it.seen.Add(a.firstRow()), keys: it.keys}
	// take takes over the finished scores of tile t.
	take := func(t gen.Value) {
		a.keys.Tile(a.scored.Sub(1)).Release(a.speaker, 0)
		k.If(t.Eq(it.tiles.Sub(1)), func() { queries.Release(a.speaker, 0) })
		mask.hide(a.scores, t.Mul(s.BlockN))
	}
	k.WaitMultiply(0)
	take(k.Int(0))
	a.weighFirst()
	k.For("tile", 1, it.tiles, 1, func(t gen.Value) {
		before := a.values.Tile(a.scored.Sub(1))
		if s.looksAhead() {
			a.score(queries)
			before.Await()
			a.accumulate(before)
			k.WaitMultiply(1)
		} else {
			before.Await()
			a.accumulate(before)
			k.WaitMultiply(0)
			a.score(queries)
			k.WaitMultiply(0)
		}
		take(t)
		a.weigh(func() {
			k.WaitMultiply(0)
			before.Release(a.speaker, 0)
		})
	})
}

// weigh turns a tile's scores into weights, most of it before finished, which
// waits until those of the tile before are no longer multiplied.
func (a *prefillAttention) weigh(finished func()) {
	k := a.k
	if a.next == nil { // scores give way to weights, so they are looked at before
		holds := a.softmax.check(a.scores)
		k.If(holds.Ne(0), func() { a.softmax.exponentiate(a.scores) })
		finished()
		k.IfElse(holds.Ne(0), func() { a.softmax.pack(a.scores, a.weights) }, func() { a.softmax.raise(a.scores, a.out, a.weights) })
		return
	}
	holds := a.softmax.weigh(a.scores, a.next)
	finished()
	k.If(holds.Eq(0), func() { a.softmax.raise(a.scores, a.out, a.next) })
	for i, w := range a.weights {
		w.Set(a.next[i])
	}
}

// end issues an item's last product.
func (a *prefillAttention) end(it prefillItem) {
	values := a.values.Tile(a.scored.Sub(1))
	values.Await()
	a.clearUnused(values, it.keys.Sub(it.tiles.Sub(1).Mul(a.s.BlockN)))
	a.accumulate(values)
}

// write writes an item's result, whose products are done, or its state; last is the
// index of its last tile.
func (a *prefillAttention) write(it prefillItem, last gen.Value) {
	a.values.Tile(last).Release(a.speaker, 0)
	a.finish(it)
}

// firstRow is the warpgroup's first row of an item.
func (a *prefillAttention) firstRow() gen.Value { return a.group.Mul(gen.AccumulatorRows) }

func valuesOf(vars []*gen.Var) []gen.Value {
	v := make([]gen.Value, len(vars))
	for i, x := range vars {
		v[i] = x.Value
	}
	return v
}

// clearUnused zeroes the rows of the last tile of values from row used on: they
// belong to the next sequence or to nobody. Their weights are 0, but 0 · NaN is
// NaN. Run by all attending warpgroups together.
func (c *prefillCTA) clearUnused(tile gen.Slot, used gen.Value) {
	k, s := c.k, c.s
	k.If(used.Lt(s.BlockN), func() {
		zero := k.Int(0)
		chunks := s.Value / chunkElems
		threads := s.groups() * gen.WarpgroupThreads
		inRow, row := k.Thread().Rem(chunks), k.Thread().Div(chunks)
		k.For("unused", used.Add(row), s.BlockN, threads/chunks, func(at gen.Value) {
			tile.Chunk(at, inRow).StoreVector(0, zero, zero, zero, zero)
		})
		k.FenceAsync()
		c.attending.Sync()
	})
}

// prefillMask says which keys a warpgroup's rows see: the r-th those below
// seen + r, and below keys.
type prefillMask struct {
	k    *gen.Kernel
	s    Spec
	seen gen.Value // by the warpgroup's first row
	keys gen.Value // of the sequence
}

// hide sets the scores of keys that a row does not see to −∞, in a tile that
// begins with key first. Only the last tiles hold such keys.
func (m prefillMask) hide(scores gen.Accumulator, first gen.Value) {
	k := m.k
	k.If(first.Add(m.s.BlockN).Gt(m.seen.Min(m.keys)), func() {
		var end [2]gen.Value // in the thread's columns
		for h := range end {
			end[h] = m.seen.Add(k.FragmentRow()).Add(8 * h).Min(m.keys).Sub(first).Sub(k.FragmentColumn())
		}
		for i, r := range scores.R {
			r.Choose(end[rowOf(i)].Gt(scores.ColumnStep(i)), k.NegInf())
		}
	})
}
