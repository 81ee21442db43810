package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// decodeCTA is what the CTAs of both families of decode kernels have: the
// kernel's inputs and outputs and their place in the work.
type decodeCTA struct {
	k           *gen.Kernel
	s           Spec
	kv          gen.TensorMap
	queries     queries
	table       gen.Pointer
	tableStride gen.Scalar // elements from one request's row of the table to the next
	kvLen       gen.Pointer
	newTokens   gen.Scalar // of a request's newest tokens, those that the cache may not have yet when the kernel starts
	todo        work
	result      results

	// Set by begin.
	part               gen.Value // of the schedule
	rowBlock, firstRow gen.Value
}

// kvPromotion is the L2 promotion of the cache's tensor map in bytes. 256 would
// read up to 8 % slower (measured on an H200 before these kernels: 4.18 against
// 4.56 TB/s on random pages).
const kvPromotion = 128

// kvTensor declares the paged cache, of which a box is one column block of a tile.
func kvTensor(k *gen.Kernel, s Spec) gen.TensorMap {
	tile := s.kvTile()
	return k.Tensor("kv", tile.DType, []string{"column", "token", "page"}, append(tile.Box(), 1), tile.Swizzle, kvPromotion)
}

// newDecodeCTA declares the kernel's parameters.
func newDecodeCTA(k *gen.Kernel, s Spec) *decodeCTA {
	k.Cluster(s.Cluster)
	return &decodeCTA{
		k: k, s: s,
		kv:          kvTensor(k, s),
		queries:     queryReader(k, s),
		table:       k.Pointer("block_table", isa.S32),
		tableStride: k.Scalar("block_table_stride", isa.S64),
		kvLen:       k.Pointer("kv_len", isa.S32),
		newTokens:   k.Scalar("new_tokens", isa.S32),
		todo:        workReader(k),
		result:      resultWriter(k, s).pairs(),
	}
}

// longItem returns the pages of an item from which on two are loaded early and not one:
// fewer for a single row block of few rows and for two of many. Found by trying
// (golden/perf/decode.md).
func (s Spec) longItem() int {
	soon := 2
	if s.BlockH <= narrowBlockH {
		soon = 1
	}
	if s.RowBlocks() == soon {
		return 8
	}
	return 32
}

// earlyEnd returns the end of an item's pages that are loaded before the kernel
// ahead has ended: the first or the first two, as far as they were in the cache
// before the schedule was made. With 64 rows CTAs start late, and what they load early
// disturbs the merge ahead: none where there is one.
func (c *decodeCTA) earlyEnd(it item) gen.Value {
	k, s := c.k, c.s
	var ahead gen.Value
	if s.rowsOnM() {
		ahead = k.Select(it.combined(), k.Int(0), k.Int(2))
	} else {
		ahead = k.Select(it.end.Sub(it.begin).Ge(s.longItem()), k.Int(2), k.Int(1))
	}
	settled := c.kvLen.At(it.request).Load(0).Sub(c.newTokens.Read()).Shr(pageShift)
	return it.begin.Add(ahead).Min(settled)
}

// begin starts the kernel's body, once the tiles have their places in shared
// memory: small things behind them leave no gaps.
func (c *decodeCTA) begin() {
	k := c.k
	c.result.ticket = k.SharedArray("ticket", isa.S32, 1)
	k.AlignmentCheck()
	k.InitBarriers()
	k.AllowNextGrid()
	c.part = k.Block().Div(c.s.RowBlocks())
	c.rowBlock = k.Block().Rem(c.s.RowBlocks())
	c.firstRow = c.rowBlock.Mul(c.s.BlockH)
}

// policy is how pages stay in the L2 once a piece has read them: nobody wants them
// again, and where several row blocks read a page they do so side by side.
func (c *decodeCTA) policy() (p gen.Value) {
	if c.s.Evict != evictNormal {
		p = c.k.EvictFirst()
	}
	return p
}

// loadPages keeps the ring filled with the part's pages, in the order in which
// the items ask for them. A table entry is read while the copy engine is busy
// with the page before. A part without items may read ahead for others. Run by one
// warp, of which one lane loads.
//
// The schedule kernel lets no kernel start before it has ended. So what was written
// before it is there, however early kernels between it and this one let the next
// start.
func (c *decodeCTA) loadPages(ring *gen.Pipeline) {
	k := c.k
	load := func() {
		k.OneLane(func() {
			policy := c.policy()
			tiles := ring.Producer()
			c.todo.each(c.part, func(it item) {
				pages := c.pages(it)
				next := k.Var(k.Int(0))
				k.If(it.begin.Lt(it.end), func() { next.Set(pages.At(it.begin).Load(0)) })
				early := c.earlyEnd(it)
				k.For("page", it.begin, it.end, 1, func(t gen.Value) {
					k.If(t.Ge(early), k.WaitForPreviousGrid)
					page := k.Var(next.Value)
					k.If(t.Add(1).Lt(it.end), func() { next.Set(pages.At(t).Load(1)) })
					tiles.Load(c.kv, policy, k.Int(0), page.Value)
				})
			})
		})
	}
	how, ok := c.s.readAhead()
	if !ok {
		load()
		return
	}
	// Told apart at the beginning: behind the items it would cost up to 3 %.
	own := c.todo.item(c.part)
	k.IfElse(own.request.Eq(idle), func() { c.readAhead(how, own, ring) }, load)
}

// pages returns where the block table has the pages of an item's request.
func (c *decodeCTA) pages(it item) gen.Pointer {
	return c.table.At(it.request.Extend().Mul(c.tableStride.Read()))
}
