package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// The schedule is a list of items, each a run of one request's KV tiles. Part
// p's first item stands at items[p], so that it can be read at once; its
// further items are items[first[p]] … items[first[p+1]−1].

// itemWords is the size of an item: request, first tile, end tile, and the
// slot for a partial result or −1 when the item is the whole request.
const itemWords = 4

// idle is the request of a part without work.
const idle = -1

// item is one piece of work.
type item struct{ request, begin, end, slot gen.Value }

// whole reports whether the item covers its request.
func (it item) whole() gen.Value { return it.slot.Lt(0) }

// work reads the schedule.
type work struct {
	k            *gen.Kernel
	first, items gen.Pointer
}

// workReader declares the schedule's parameters.
func workReader(k *gen.Kernel) work {
	return work{k, k.Pointer("part_first", isa.S32), k.Pointer("items", isa.S32)}
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
		it := item{request: v[0], begin: v[1], end: v[2], slot: v[3]}
		leaveIf(it.request.Eq(idle))
		body(it)
		leaveIf(next.Ge(end))
		at.Set(next.Value)
		next.Set(next.Add(1))
	})
}
