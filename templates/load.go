package templates

import (
	"github.com/mlagen/mlagen/gen"
)

// loadPages keeps the ring filled with a part's pages, in the order in which
// the items ask for them. Run by one thread.
//
// Pages further ahead than the ring holds are brought into the L2 by the first
// row block, so that a slot, once free, is refilled at the L2's latency and not
// at the memory's. Table entries are read a page before they are needed.
func loadPages(k *gen.Kernel, s Spec, todo work, part, rowBlock gen.Value, ring *gen.Pipeline, kv gen.TensorMap, table gen.Pointer, tableStride gen.Scalar) {
	policy := k.EvictFirst()
	tiles := ring.Producer()
	prefetches := rowBlock.Eq(0)
	todo.each(part, func(it item) {
		pages := table.At(it.request.Extend().Mul(tableStride.Read()))
		last := it.end.Sub(1)
		// ahead[i] is the table entry of the page i further than the next.
		ahead := make([]*gen.Var, s.Prefetch+1)
		for i := range ahead {
			ahead[i] = k.Var(k.Int(0))
		}
		k.If(it.begin.Lt(it.end), func() {
			for i := range ahead {
				ahead[i].Set(pages.At(it.begin.Add(i).Min(last)).Load(0))
			}
		})
		k.WaitForPreviousGrid()
		k.For("page", it.begin, it.end, 1, func(t gen.Value) {
			page := k.Var(ahead[0].Value)
			for i := range s.Prefetch {
				ahead[i].Set(ahead[i+1].Value)
			}
			k.If(t.Add(s.Prefetch).Lt(last), func() { ahead[s.Prefetch].Set(pages.At(t).Load(s.Prefetch + 1)) })
			tiles.Load(kv, policy, k.Int(0), page.Value)
			if s.Prefetch > 0 {
				k.If(t.Add(s.Prefetch).Le(last).And(prefetches), func() {
					ring.Prefetch(kv, k.Int(0), ahead[s.Prefetch-1].Value)
				})
			}
		})
	})
}
