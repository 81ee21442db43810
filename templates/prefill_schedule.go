package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

const (
	// sortedBlocks is how many blocks the schedule sorts. Of more, a sequence's
	// blocks still come longest first, and that there are many evens out the rest.
	sortedBlocks = 1 << 14
	mostTiles    = 1<<17 - 1 // told apart by the sort
	sortedLast   = 1<<31 - 1

	// sectionBytes is what the keys and values of a section of heads may take in
	// the L2, something more than half of an H200's.
	sectionBytes = 32 << 20
)

// prefillScheduler lists blocks of query tokens in the order in which they are
// to be attended (see prefillWork), in one CTA. Query tokens past the last
// sequence are one more, without keys, so that every output is written.
type prefillScheduler struct {
	k                      *gen.Kernel
	s                      Spec
	cuQ, cuK               gen.Pointer
	head, before, blocks   gen.Pointer // before: blocks of the sequences before, [sequences+2]
	sequences              gen.Value
	queryTokens, keyTokens gen.Value // that there is room for
	causal, mostBlocks     gen.Value
	thread                 gen.Value
	order                  gen.Region // [sortedBlocks]
}

func prefillSchedule(s Spec) (*gen.Output, error) {
	k := gen.NewKernel("expand_schedule", s, s.options())
	c := prefillScheduler{k: k, s: s}
	c.cuQ, c.cuK = k.Pointer("cu_q", isa.S32), k.Pointer("cu_k", isa.S32)
	c.head, c.before, c.blocks = k.Pointer("work_head", isa.S32), k.Pointer("work_before", isa.S32), k.Pointer("work_blocks", isa.S32)
	sequences, queries, keys := k.Scalar("sequences", isa.U32), k.Scalar("query_tokens", isa.U32), k.Scalar("key_tokens", isa.U32)
	causal, most := k.Scalar("causal", isa.U32), k.Scalar("most_blocks", isa.U32)
	k.Threads(scanThreads)
	c.order = k.SharedArray("order", isa.S32, sortedBlocks)
	k.WaitForPreviousGrid()
	read := func(s gen.Scalar) gen.Value { return s.Read().As(isa.S32) }
	c.sequences, c.queryTokens, c.keyTokens = read(sequences), read(queries), read(keys)
	c.causal, c.mostBlocks, c.thread = read(causal), read(most), k.Thread()

	blocks, shared := c.count()
	blocks = blocks.Min(c.mostBlocks) // more only where the lengths contradict each other
	k.If(c.thread.Eq(0), func() {
		c.head.StoreVector(headBlocks, blocks, s.section(k, shared))
		c.head.Store(headNext, 0)
	})
	k.IfElse(blocks.Le(sortedBlocks), func() {
		longestFirst(k, c.thread, c.order, blocks, func(i gen.Value) gen.Value { return c.block(i).tiles })
		c.list(blocks, func(i gen.Value) gen.Value { return c.order.At(i).Load(0).And(sortedBlocks - 1) })
	}, func() {
		c.list(blocks, func(i gen.Value) gen.Value { return i })
	})
	// No AllowNextGrid: attention reads the list before it waits for the grid
	// before it, so it must not begin before this kernel has ended.
	return k.Build()
}

// sequence is where a sequence lies.
type sequence struct{ query, queries, key, keys gen.Value }

// at returns sequence i, cut to the tokens that there is room for; after the
// last comes the one of query tokens that belong to none.
func (c prefillScheduler) at(i gen.Value) sequence {
	k := c.k
	query, end := k.Var(c.cuQ.At(i).Load(0)), k.Var(c.queryTokens)
	key, keyEnd := k.Var(k.Int(0)), k.Var(k.Int(0))
	k.If(i.Lt(c.sequences), func() {
		end.Set(c.cuQ.At(i).Load(1))
		key.Set(c.cuK.At(i).Load(0))
		keyEnd.Set(c.cuK.At(i).Load(1))
	})
	cut := func(v *gen.Var, most gen.Value) gen.Value { return v.Max(0).Min(most) }
	q, n := cut(query, c.queryTokens), cut(key, c.keyTokens)
	return sequence{q, cut(end, c.queryTokens).Sub(q).Max(0), n, cut(keyEnd, c.keyTokens).Sub(n).Max(0)}
}

// blocksOf returns the blocks of a sequence.
func (c prefillScheduler) blocksOf(q sequence) gen.Value {
	return q.queries.Add(c.s.BlockM - 1).Div(c.s.BlockM)
}

// count writes the running count of blocks to before, and returns it together
// with the keys of sequences whose blocks share them.
func (c prefillScheduler) count() (blocks, shared gen.Value) {
	k := c.k
	carry, keys := k.Var(k.Int(0)), k.Var(k.Int(0))
	all := c.sequences.Add(1)
	k.For("count", 0, all, scanThreads, func(base gen.Value) {
		i := base.Add(c.thread)
		n, own := k.Var(k.Int(0)), k.Var(k.Int(0))
		k.If(i.Lt(all), func() {
			q := c.at(i)
			n.Set(c.blocksOf(q))
			own.Set(k.Select(n.Gt(1), q.keys, k.Int(0)))
		})
		sum := n.InclusiveSum()
		found := ofWarps(k, "blocks and keys of the warps", sum, own.SumOfWarp())
		before, total := sumOfWarps(k, found[0])
		k.If(i.Lt(all), func() { c.before.At(i).Store(1, carry.Add(before).Add(sum)) })
		carry.Set(carry.Add(total))
		keys.Set(keys.Add(found[1].SumOfWarp()))
		k.SyncCTA() // what the warps found has been read
	})
	k.If(c.thread.Eq(0), func() { c.before.Store(0, 0) })
	k.SyncCTA()
	return carry.Value, keys.Value
}

// section returns how many heads are attended side by side, all sections alike.
func (s Spec) section(k *gen.Kernel, sharedKeys gen.Value) gen.Value {
	perKey := (s.Nope + s.Value) * s.dtype().Bytes()
	fit := k.Int(sectionBytes / perKey).Div(sharedKeys.Max(1)).Max(1).Min(s.Heads)
	sections := ceilDiv(k.Int(s.Heads), fit)
	return ceilDiv(k.Int(s.Heads), sections)
}

// ceilDiv returns ⌈a/b⌉.
func ceilDiv(a, b gen.Value) gen.Value { return a.Add(b.Sub(1)).Div(b) }

// block is a block of query tokens of a sequence.
type block struct {
	sequence
	first, rows gen.Value // query tokens
	seen, tiles gen.Value
}

// block returns the block of the given number, a sequence's blocks counted from
// its end on: the last sees most keys.
func (c prefillScheduler) block(number gen.Value) block {
	k, s := c.k, c.s
	i := lastAtMost(k, k.Int(0), c.sequences.Add(1), func(i gen.Value) gen.Value { return c.before.At(i).Load(0).Le(number) })
	q := c.at(i)
	fromEnd := number.Sub(c.before.At(i).Load(0))
	first := c.blocksOf(q).Sub(1).Sub(fromEnd).Mul(s.BlockM)
	rows := q.queries.Sub(first).Min(s.BlockM)
	seen := k.Var(q.keys)
	k.If(c.causal.Ne(0), func() { seen.Set(q.keys.Sub(q.queries).Add(first).Add(1)) })
	most := seen.Add(rows).Sub(1).Min(q.keys).Max(0)
	return block{q, first, rows, seen.Value, most.Add(s.BlockN - 1).Div(s.BlockN)}
}

// longestFirst orders blocks by their tiles, most first, in shared memory:
// bitonic, by keys that hold the tiles and, where they are alike, the block's
// number, which is in the low bits. Run by all threads of the CTA.
func longestFirst(k *gen.Kernel, thread gen.Value, order gen.Region, blocks gen.Value, tiles func(i gen.Value) gen.Value) {
	size := k.Var(k.Int(2))
	k.While("size", func() gen.Value { return size.Lt(blocks) }, func() { size.Set(size.Shl(1)) })
	k.For("key", thread, size.Value, scanThreads, func(i gen.Value) {
		key := k.Var(k.Int(sortedLast))
		k.If(i.Lt(blocks), func() {
			fewer := k.Int(mostTiles).Sub(tiles(i).Min(mostTiles))
			key.Set(fewer.Mul(sortedBlocks).Or(i))
		})
		order.At(i).Store(0, key)
	})
	k.SyncCTA()
	run := k.Var(k.Int(2))
	k.While("run", func() gen.Value { return run.Le(size.Value) }, func() {
		apart := k.Var(run.Shr(1))
		k.While("apart", func() gen.Value { return apart.Gt(0) }, func() {
			k.For("pair", thread, size.Shr(1), scanThreads, func(i gen.Value) {
				within := i.And(apart.Sub(1))
				low := i.Sub(within).Shl(1).Add(within)
				high := low.Add(apart.Value)
				a, b := order.At(low).Load(0), order.At(high).Load(0)
				up := low.And(run.Value).Eq(0)
				order.At(low).Store(0, k.Select(up, a.Min(b), a.Max(b)))
				order.At(high).Store(0, k.Select(up, a.Max(b), a.Min(b)))
			})
			k.SyncCTA()
			apart.Set(apart.Shr(1))
		})
		run.Set(run.Shl(1))
	})
}

// list writes the blocks, of which number gives the i-th.
func (c prefillScheduler) list(blocks gen.Value, number func(i gen.Value) gen.Value) {
	k := c.k
	k.For("block", c.thread, blocks, scanThreads, func(i gen.Value) {
		b := c.block(number(i))
		to := c.blocks.At(i.Mul(blockWords))
		to.StoreVector(0, b.query.Add(b.first), b.rows, b.key, b.keys)
		to.StoreVector(vectorWords, b.seen, b.tiles, k.Int(0), k.Int(0))
	})
}
