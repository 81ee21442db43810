package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// extendScheduler cuts the keys of all sequences into chunks and lists, for
// each chunk, its tokens for the up-projection and the blocks of query tokens
// that see one of them. One CTA does one chunk.
//
// Sequences lie end to end on a line, each filled up to whole tiles of keys;
// a chunk is a stretch of that line, a multiple of tiles long. So a sequence is
// cut between tiles counted from its own beginning, and what is added up in
// which order depends on it alone. In the chunk's own rows there are no gaps.
//
// A block is in the chunk if its last query sees a key there. Blocks that see
// no key at all, and query tokens past the last sequence, are in the first
// chunk, for every output must be written.
type extendScheduler struct {
	k *gen.Kernel
	s Spec

	cuQ, kvLen             gen.Pointer
	cuK, first             gen.Pointer // of this chunk: rows of its tokens [sequences+1], first token of each [sequences]
	head, before, blocks   gen.Pointer // of this chunk, as in prefillScheduler
	sequences, queryTokens gen.Value
	mostBlocks, mostStates gen.Value
	causal                 gen.Value
	chunk                  gen.Value // tokens
	thread                 gen.Value
	begin                  *gen.Var // where the chunk begins on the line
	order                  gen.Region
}

func extendSchedule(s Spec) (*gen.Output, error) {
	k := gen.NewKernel("extend_schedule", s, s.options())
	c := extendScheduler{k: k, s: s}
	c.cuQ, c.kvLen = k.Pointer("cu_q", isa.S32), k.Pointer("kv_len", isa.S32)
	base := k.Pointer("chunks", isa.S32)
	at := map[string]gen.Scalar{}
	for _, name := range []string{"chunk_bytes", "cu_k", "first_token", "work_before", "work_blocks"} {
		at[name] = k.Scalar(name, isa.S64)
	}
	sizes := map[string]gen.Scalar{}
	for _, name := range []string{"chunk", "sequences", "query_tokens", "causal", "most_blocks", "most_states"} {
		sizes[name] = k.Scalar(name, isa.S32)
	}
	k.Threads(scanThreads)
	c.order = k.SharedArray("order", isa.S32, sortedBlocks)
	k.WaitForPreviousGrid()
	c.head = base.Bytes(k.Block().Extend().Mul(at["chunk_bytes"].Read()))
	c.cuK, c.first = c.head.Bytes(at["cu_k"].Read()), c.head.Bytes(at["first_token"].Read())
	c.before, c.blocks = c.head.Bytes(at["work_before"].Read()), c.head.Bytes(at["work_blocks"].Read())
	c.chunk, c.sequences, c.queryTokens = sizes["chunk"].Read(), sizes["sequences"].Read(), sizes["query_tokens"].Read()
	c.causal, c.mostBlocks, c.mostStates = sizes["causal"].Read(), sizes["most_blocks"].Read(), sizes["most_states"].Read()
	c.thread = k.Thread()
	c.begin = k.Var(k.Block().Mul(c.chunk))

	blocks, shared := c.count()
	k.TrapIf(blocks.Gt(c.mostBlocks)) // cu_q falls somewhere
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
	// No AllowNextGrid: the up-projection reads its ranges, and attention the
	// list, before they wait for the grid before them.
	return k.Build()
}

// extendSequence is a sequence and the part of its keys that is in the chunk.
type extendSequence struct {
	query, queries gen.Value
	keys           gen.Value // of the whole sequence
	first, end     gen.Value // tokens in the chunk
	blocks         gen.Value // of query tokens
	unseeing       gen.Value // blocks that see no key at all, the first ones
	seeing         gen.Value // the first block that sees one in the chunk; blocks where none does
}

// at returns sequence i, whose keys begin at line; after the last comes the one
// of query tokens that belong to none, without keys.
func (c extendScheduler) at(i, line gen.Value) extendSequence {
	k, m := c.k, c.s.BlockM
	query, end, keys := k.Var(c.cuQ.At(i).Load(0)), k.Var(c.queryTokens), k.Var(k.Int(0))
	k.If(i.Lt(c.sequences), func() {
		length := c.kvLen.At(i).Load(0)
		keys.Set(length.Max(0))
		// A sequence of negative length is left out, its query tokens with it.
		end.Set(k.Select(length.Lt(0), query.Value, c.cuQ.At(i).Load(1)))
	})
	q := extendSequence{query: query.Max(0).Min(c.queryTokens), keys: keys.Value}
	q.queries = end.Max(0).Min(c.queryTokens).Sub(q.query).Max(0)
	q.blocks = q.queries.Add(m - 1).Div(m)
	within := func(v gen.Value) gen.Value { return v.Sub(line).Max(0).Min(q.keys) }
	q.first, q.end = within(c.begin.Value), within(c.begin.Add(c.chunk))
	// Block b's last query sees the first keys − queries + min((b+1)·m, queries)
	// keys, or all.
	sees := func(key gen.Value) gen.Value { // the first block that sees more than so many keys
		reach := key.Sub(q.keys).Add(q.queries).Max(0).Div(m)
		return k.Select(key.Lt(q.keys), k.Select(c.causal.Ne(0), reach, k.Int(0)), q.blocks).Min(q.blocks)
	}
	q.unseeing = sees(k.Int(0))
	q.seeing = k.Select(q.end.Gt(q.first), sees(q.first), q.blocks)
	return q
}

// listed returns how many of a sequence's blocks are in the chunk.
func (c extendScheduler) listed(q extendSequence) gen.Value {
	k := c.k
	return q.blocks.Sub(q.seeing).Add(k.Select(k.Block().Eq(0), q.unseeing, k.Int(0)))
}

// filled is a sequence's length on the line.
func (c extendScheduler) filled(keys gen.Value) gen.Value {
	return keys.Add(c.s.BlockN - 1).Div(c.s.BlockN).Mul(c.s.BlockN)
}

// count writes where the chunk's tokens are, and the running count of blocks
// and where sequences begin on the line to before. It returns the count and the
// keys that several blocks share.
func (c extendScheduler) count() (blocks, shared gen.Value) {
	k := c.k
	line, rows := k.Var(k.Int(0)), k.Var(k.Int(0))
	carry, keys := k.Var(k.Int(0)), k.Var(k.Int(0))
	all := c.sequences.Add(1)
	room := k.Blocks().Mul(c.chunk)
	k.For("count", 0, all, scanThreads, func(base gen.Value) {
		i := base.Add(c.thread)
		length := k.Var(k.Int(0))
		k.If(i.Lt(c.sequences), func() {
			tokens := c.kvLen.At(i).Load(0).Max(0)
			k.TrapIf(tokens.Gt(room))
			length.Set(c.filled(tokens))
		})
		through, total := runningSum(k, "lengths of the warps", length.Value)
		// The first sum to pass the room has not wrapped yet, but to below 0.
		reached := line.Add(through)
		k.TrapIf(reached.Lt(0).Or(reached.Gt(room)))
		start := reached.Sub(length.Value)
		line.Set(line.Add(total))

		n, tokens, own := k.Var(k.Int(0)), k.Var(k.Int(0)), k.Var(k.Int(0))
		k.If(i.Lt(all), func() {
			q := c.at(i, start)
			n.Set(c.listed(q))
			tokens.Set(q.end.Sub(q.first))
			own.Set(k.Select(n.Gt(1), tokens.Value, k.Int(0)))
			c.before.At(i.Shl(1)).Store(3, start)
			k.If(i.Lt(c.sequences), func() { c.first.At(i).Store(0, q.first) })
		})
		through, total = runningSum(k, "tokens of the warps", tokens.Value)
		k.If(i.Lt(c.sequences), func() { c.cuK.At(i).Store(1, rows.Add(through)) })
		rows.Set(rows.Add(total))
		through, total = runningSum(k, "blocks of the warps", n.Value)
		k.If(i.Lt(all), func() { c.before.At(i.Shl(1)).Store(2, carry.Add(through)) })
		carry.Set(carry.Add(total))
		keys.Set(keys.Add(ofWarps(k, "keys of the warps", own.SumOfWarp())[0].SumOfWarp()))
		k.SyncCTA() // what the warps found has been read
	})
	k.If(c.thread.Eq(0), func() {
		c.before.Store(0, 0)
		c.cuK.Store(0, 0)
	})
	k.SyncCTA()
	return carry.Value, keys.Value
}

// extendBlock is a block of query tokens of a sequence in the chunk.
type extendBlock struct {
	extendSequence
	number, firstQuery, rows gen.Value
	seen, reach, tiles       gen.Value // reach: keys that its last query sees
	row                      gen.Value // where the sequence's tokens are in the chunk
}

// block returns the block of the given number, a sequence's blocks counted from
// its end on: the last sees most keys.
func (c extendScheduler) block(number gen.Value) extendBlock {
	k, s := c.k, c.s
	i := lastAtMost(k, k.Int(0), c.sequences.Add(1), func(i gen.Value) gen.Value { return c.before.At(i.Shl(1)).Load(0).Le(number) })
	q := c.at(i, c.before.At(i.Shl(1)).Load(3))
	fromEnd := number.Sub(c.before.At(i.Shl(1)).Load(0))
	seeing := q.blocks.Sub(q.seeing)
	b := extendBlock{extendSequence: q}
	// In the first chunk those without any key come after those with.
	b.number = k.Select(fromEnd.Lt(seeing), q.blocks, q.unseeing.Add(seeing)).Sub(1).Sub(fromEnd)
	b.firstQuery = b.number.Mul(s.BlockM)
	b.rows = q.queries.Sub(b.firstQuery).Min(s.BlockM)
	seen := k.Var(q.keys)
	k.If(c.causal.Ne(0), func() { seen.Set(q.keys.Sub(q.queries).Add(b.firstQuery).Add(1)) })
	b.reach = seen.Add(b.rows).Sub(1).Min(q.keys)
	b.seen = seen.Sub(q.first)
	b.tiles = b.reach.Min(q.end).Sub(q.first).Max(0).Add(s.BlockN - 1).Div(s.BlockN)
	b.row = c.cuK.At(i.Min(c.sequences.Sub(1)).Max(0)).Load(0)
	return b
}

// list writes the blocks, of which number gives the i-th.
func (c extendScheduler) list(blocks gen.Value, number func(i gen.Value) gen.Value) {
	k := c.k
	k.For("block", c.thread, blocks, scanThreads, func(i gen.Value) {
		b := c.block(number(i))
		some := b.tiles.Gt(0)
		place := func(carried gen.Value) gen.Value { return k.Select(some.And(carried), b.number, k.Int(-1)) }
		from, to := place(b.first.Gt(0)), place(b.reach.Gt(b.end))
		k.TrapIf(from.Max(to).Ge(c.mostStates))
		at := c.blocks.At(i.Mul(blockWords))
		at.StoreVector(0, b.query.Add(b.firstQuery), b.rows, b.row, b.end.Sub(b.first))
		at.StoreVector(vectorWords, b.seen, b.tiles, from, to)
	})
}
