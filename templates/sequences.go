package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// sequences are ragged runs of rows whose tiles CTAs share: sequence s has
// cu[s+1]−cu[s] rows, which lie from cu[s] on in the destination, and its first
// row is token first[s] of its source. A tile is BlockM tokens from a multiple
// of the page on, so that a tile is whole pages whatever token a sequence
// begins with. The number of tiles before each chunk of 32 sequences is added
// up at the kernel's start; within a chunk a warp adds up again.
type sequences struct {
	k     *gen.Kernel
	s     Spec
	cu    gen.Pointer
	first gen.Pointer
	flags gen.Scalar // which of them are given
	count gen.Scalar // sequences
	rows  gen.Scalar // rows of the destination
	table gen.Region // [chunks+1], of countTiles
}

const (
	chunkSequences = 32
	tableChunks    = 512

	cuGiven    = 1
	firstGiven = 2
)

func sequenceReader(k *gen.Kernel, s Spec) *sequences {
	return &sequences{
		k: k, s: s,
		cu:    k.Pointer("cu_seqlens", isa.S32),
		first: k.Pointer("first_token", isa.S32),
		flags: k.Scalar("given", isa.U32),
		count: k.Scalar("sequences", isa.S32),
		rows:  k.Scalar("rows", isa.S32),
	}
}

// rowRun is one sequence's place; rows is 0 for one beyond the last.
type rowRun struct{ start, rows, first gen.Value }

// read returns a sequence. Without lengths there is one, of all rows. Rows are
// never more than the destination has.
func (q *sequences) read(i gen.Value) rowRun {
	k := q.k
	flags := q.flags.Read()
	exists := i.Lt(q.count.Read())
	lengths := exists.And(flags.And(cuGiven).Ne(0))
	start := q.cu.At(i).LoadIf(lengths, 0, k.Int(0))
	all := k.Select(exists, q.rows.Read(), k.Int(0))
	end := q.cu.At(i).LoadIf(lengths, 1, all)
	first := q.first.At(i).LoadIf(exists.And(flags.And(firstGiven).Ne(0)), 0, k.Int(0))
	start = start.Max(0)
	return rowRun{start, end.Min(q.rows.Read()).Sub(start), first}
}

// tiles returns how many tiles a sequence has.
func (q *sequences) tiles(x rowRun) gen.Value {
	k := q.k
	n := x.rows.Add(x.lead(q.s)).Add(q.s.BlockM - 1).Div(q.s.BlockM)
	return k.Select(x.rows.Gt(0), n, k.Int(0))
}

// lead returns the tokens before the first in its page.
func (x rowRun) lead(s Spec) gen.Value { return x.first.And(s.Page - 1) }

// countTiles fills the table. Run by all warps of the CTA.
func (q *sequences) countTiles(warps int) {
	k := q.k
	q.table = k.SharedArray("tiles before chunks of sequences", isa.S32, tableChunks+1)
	chunks := q.chunks()
	k.For("chunk", k.Warp(), chunks, warps, func(c gen.Value) {
		n := q.tiles(q.read(c.Mul(chunkSequences).Add(k.Lane()))).Reduce(gen.SumOf, 1, 2, 4, 8, 16)
		k.If(k.Lane().Eq(0), func() { q.table.At(c).Store(0, n) })
	})
	k.SyncCTA()
	k.If(k.Warp().Broadcast(0).Eq(0), func() {
		before := k.Var(k.Int(0))
		k.For("chunks", 0, chunks, 32, func(base gen.Value) {
			c := base.Add(k.Lane())
			n := k.Var(k.Int(0))
			k.If(c.Lt(chunks), func() { n.Set(q.table.At(c).Load(0)) })
			sum := n.InclusiveSum()
			k.If(c.Lt(chunks), func() { q.table.At(c).Store(0, before.Add(sum).Sub(n)) })
			before.Set(before.Add(sum.Broadcast(31)))
		})
		k.If(k.Lane().Eq(0), func() { q.table.At(chunks).Store(0, before) })
	})
	k.SyncCTA()
}

func (q *sequences) chunks() gen.Value {
	return q.count.Read().Add(chunkSequences - 1).Div(chunkSequences)
}

// total returns the number of tiles.
func (q *sequences) total() gen.Value { return q.table.At(q.chunks()).Load(0) }

// rowTile is a tile of a sequence: its first token, a multiple of the page, the
// destination's row of that token, of which rows first to end−1 exist.
type rowTile struct {
	sequence, token gen.Value
	row             gen.Value // of the destination; may be negative where first is not 0
	first, end      gen.Value
}

// find returns tile t of all. Run by a whole warp.
func (q *sequences) find(t gen.Value) rowTile {
	k, s := q.k, q.s
	chunks := q.chunks()
	reached := k.Var(k.Int(0)) // chunks that begin at or before t
	k.For("chunks", k.Lane(), chunks, 32, func(c gen.Value) {
		reached.Set(reached.Add(k.Select(q.table.At(c).Load(0).Le(t), k.Int(1), k.Int(0))))
	})
	k.SyncWarp()
	chunk := reached.Reduce(gen.SumOf, 1, 2, 4, 8, 16).Sub(1)
	mine := chunk.Mul(chunkSequences).Add(k.Lane())
	x := q.read(mine)
	n := q.tiles(x)
	sum := n.InclusiveSum()
	inChunk := t.Sub(q.table.At(chunk).Load(0))
	before := k.Select(sum.Le(inChunk), k.Int(1), k.Int(0)).Reduce(gen.SumOf, 1, 2, 4, 8, 16)
	owner := func(v gen.Value) gen.Value { return v.FromLane(before) }
	tile := inChunk.Sub(owner(sum.Sub(n)))
	lead := owner(x.lead(s))
	offset := tile.Mul(s.BlockM).Sub(lead) // of the tile's first token from the sequence's
	rows := owner(x.rows)
	return rowTile{
		sequence: chunk.Mul(chunkSequences).Add(before),
		token:    owner(x.first).Add(offset),
		row:      owner(x.start).Add(offset),
		first:    k.Int(0).Sub(offset).Max(0),
		end:      rows.Sub(offset).Min(s.BlockM),
	}
}
