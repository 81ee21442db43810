package templates

import (
	"github.com/mlagen/mlagen/gen"
)

// loadPages keeps the ring filled with a part's pages, in the order in which
// the items ask for them. A table entry is read while the copy engine is busy
// with the page before. Run by one thread.
func loadPages(k *gen.Kernel, todo work, part gen.Value, ring *gen.Pipeline, kv gen.TensorMap, table gen.Pointer, tableStride gen.Scalar) {
	policy := k.EvictFirst()
	tiles := ring.Producer()
	todo.each(part, func(it item) {
		pages := table.At(it.request.Extend().Mul(tableStride.Read()))
		next := k.Var(k.Int(0))
		k.If(it.begin.Lt(it.end), func() { next.Set(pages.At(it.begin).Load(0)) })
		k.WaitForPreviousGrid()
		k.For("page", it.begin, it.end, 1, func(t gen.Value) {
			page := k.Var(next.Value)
			k.If(t.Add(1).Lt(it.end), func() { next.Set(pages.At(t).Load(1)) })
			tiles.Load(kv, policy, k.Int(0), page.Value)
		})
	})
}
