package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// The schedule is a list of items, each a run of one request's KV tiles. Part
// p's first item stands at items[p], so that it can be read at once; its
// further items are items[first[p]] … items[first[p+1]−1].

// itemWords is the size of an item: request, first tile, end tile, and the
// destination.
const itemWords = 4

// idle is the request of a part without work. In place of its tiles such an item has
// the number of pieces for which the part reads ahead, n, and the tiles of the longest
// of them. They are items 0 … n−1, the first ones of parts 0 … n−1.
const idle = -1

// The destination is whole where the item covers its request. Otherwise it is
// the slot for a partial result; with paired set the request has two pieces,
// of which the one that finishes last merges both, the first of them in slot s
// and the second, marked so, in slot s+1. Without it decodeCombine merges.
const (
	whole      = -1
	pairedBit  = 1 << 30
	secondBit  = 1 << 29
	maxSlots   = secondBit
	pairPieces = 2
)

// item is one piece of work.
type item struct{ request, begin, end, destination gen.Value }

// whole reports whether the item covers its request.
func (it item) whole() gen.Value { return it.destination.Lt(0) }

// paired reports whether the item is one of two pieces.
func (it item) paired() gen.Value {
	return it.destination.Ge(pairedBit)
}

// combined reports whether decodeCombine merges the item.
func (it item) combined() gen.Value {
	return it.destination.Ge(0).And(it.destination.Lt(pairedBit))
}

// slot returns the item's slot, where it is not whole.
func (it item) slot() gen.Value { return it.destination.And(maxSlots - 1) }

// second returns 1 for the second piece of a pair and 0 for the first.
func (it item) second() gen.Value { return it.destination.Shr(29).And(1) }

// work reads the schedule.
type work struct {
	k            *gen.Kernel
	first, items gen.Pointer
}

// workReader declares the schedule's parameters.
func workReader(k *gen.Kernel) work {
	return work{k, k.Pointer("part_first", isa.S32), k.Pointer("items", isa.S32)}
}

// item reads an item.
func (w work) item(at gen.Value) item {
	v := w.items.At(at.Mul(itemWords)).LoadVector(0, itemWords)
	return item{request: v[0], begin: v[1], end: v[2], destination: v[3]}
}

// overlapped runs through a part's items like each, in three steps, of which an item's
// last is done after the next one's first:
//
//	fetch 0  attend 0  fetch 1  deliver 0  attend 1  fetch 2  deliver 1  …
func (w work) overlapped(part gen.Value, fetch, attend, deliver func(item)) {
	k := w.k
	items := w.items.Read()
	bounds := w.first.At(part)
	next, end := k.Var(bounds.Load(0)), bounds.Load(1)
	var now, before heldItem
	for i, v := range items.At(part.Mul(itemWords)).LoadVector(0, itemWords) {
		now[i], before[i] = k.Var(v), k.Var(k.Int(idle))
	}
	more := k.Var(k.Select(now.item().request.Eq(idle), k.Int(0), k.Int(1)))
	attended := k.Var(k.Int(0))
	k.Loop("item", func(leaveIf func(gen.Value)) {
		k.If(more.Ne(0), func() { fetch(now.item()) })
		k.If(attended.Ne(0), func() { deliver(before.item()) })
		leaveIf(more.Eq(0))
		attend(now.item())
		for i, v := range now {
			before[i].Set(v.Value)
		}
		attended.Set(1)
		more.Set(k.Select(next.Lt(end), k.Int(1), k.Int(0)))
		k.If(more.Ne(0), func() {
			for i, v := range items.At(next.Mul(itemWords)).LoadVector(0, itemWords) {
				now[i].Set(v)
			}
			next.Set(next.Add(1))
		})
	})
}

// heldItem is an item in registers of its own.
type heldItem [itemWords]*gen.Var

func (h heldItem) item() item {
	return item{request: h[0].Value, begin: h[1].Value, end: h[2].Value, destination: h[3].Value}
}

// each runs body for every item of a part.
func (w work) each(part gen.Value, body func(item)) {
	k := w.k
	items := w.items.Read()
	bounds := w.first.At(part)
	next, end := k.Var(bounds.Load(0)), bounds.Load(1)
	at := k.Var(part)
	k.Loop("item", func(leaveIf func(gen.Value)) {
		v := items.At(at.Mul(itemWords)).LoadVector(0, itemWords)
		it := item{request: v[0], begin: v[1], end: v[2], destination: v[3]}
		leaveIf(it.request.Eq(idle))
		body(it)
		leaveIf(next.Ge(end))
		at.Set(next.Value)
		next.Set(next.Add(1))
	})
}
