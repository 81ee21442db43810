package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

const (
	// mergeWords is the size of an entry of the merge list: request, first
	// slot, number of slots, unused. Entry 0 holds the number of entries and the
	// largest number of slots among them.
	mergeWords = 4

	combineWarps   = 8
	combineColumns = 128 // latent columns of a unit: 32 lanes of four
	combineUnroll  = 4   // partial rows that a warp has in flight
	warpSlots      = 8   // up to so many slots, a warp merges a unit alone
)

// combiner merges the partial outputs of requests cut into three pieces or
// more: with LSEᵢ in base 2 and M their maximum,
//
//	out = Σ outᵢ·2^(LSEᵢ−M) / Σ 2^(LSEᵢ−M)     lse = M + log₂ Σ 2^(LSEᵢ−M)
//
// A unit of work is one row's run of 128 columns. Where no request has many
// slots a warp does a unit; otherwise a CTA's warps share the unit's slots.
// The grid is as large as the machine, whatever the batch.
type combiner struct {
	k       *gen.Kernel
	s       Spec
	r       results
	merges  gen.Pointer
	lane    gen.Value
	columns int // of a unit
}

func decodeCombine(s Spec) (*gen.Output, error) {
	k := gen.NewKernel("decode_combine", s, s.options())
	c := combiner{k: k, s: s, merges: k.Pointer("merges", isa.S32), columns: min(combineColumns, s.Latent)}
	c.r = resultWriter(k, s)
	k.Threads(32 * combineWarps)
	sums := k.SharedArray("sums", isa.F32, combineWarps*c.columns)
	k.AllowNextGrid()
	c.lane = k.Lane()
	head := c.merges.LoadVector(0, 2)
	units := head[0].Mul(c.unitsPerRequest())
	warp := k.Warp()
	k.IfElse(head[1].Le(warpSlots), func() {
		c.each(units, k.Block().Mul(combineWarps).Add(warp), k.Blocks().Mul(combineWarps), func(u unit) {
			acc := c.accumulate(u, k.Int(0), 1, warpSlots)
			c.scale(acc, u)
			k.If(c.active(), func() { c.store(u, acc) })
		})
	}, func() {
		c.each(units, k.Block(), k.Blocks(), func(u unit) {
			acc := c.accumulate(u, warp, combineWarps, combineUnroll)
			k.If(c.active(), func() {
				sums.At(warp.Mul(c.columns).Add(c.lane.Mul(4))).StoreVector(0, acc[0].Value, acc[1].Value, acc[2].Value, acc[3].Value)
			})
			k.SyncCTA()
			k.If(warp.Eq(0).And(c.active()), func() {
				mine := sums.At(c.lane.Mul(4))
				for w := 1; w < combineWarps; w++ {
					for i, x := range mine.LoadVector(w*c.columns, 4) {
						acc[i].Increase(x)
					}
				}
				c.scale(acc, u)
				c.store(u, acc)
			})
			k.SyncCTA() // the sums have been read
		})
	})
	// Also with nothing to merge: who waits for this kernel waits for decode.
	k.WaitForPreviousGrid()
	return k.Build()
}

// unit is a run of a row's columns and what is known of its slots.
type unit struct {
	request, row, column gen.Value
	count                gen.Value   // slots
	lses                 gen.Pointer // of the first slot; the next is PaddedRows further
	parts                gen.Pointer // the lane's columns in the first slot
	top, total           *gen.Var    // M and Σ 2^(LSEᵢ−M)
}

func (c combiner) unitsPerRequest() int { return c.s.Rows() * c.s.Latent / c.columns }

// active reports whether the lane has columns.
func (c combiner) active() gen.Value { return c.lane.Lt(c.columns / 4) }

// each runs body for units first, first+step, …
func (c combiner) each(units, first, step gen.Value, body func(unit)) {
	k, s := c.k, c.s
	k.For("unit", first, units, step, func(i gen.Value) {
		per, chunks := c.unitsPerRequest(), s.Latent/c.columns
		e := c.merges.At(i.Div(per).Add(1).Mul(mergeWords)).LoadVector(0, mergeWords)
		inRequest := i.Rem(per)
		u := unit{request: e[0], count: e[2], row: inRequest.Div(chunks), column: inRequest.Rem(chunks).Mul(c.columns)}
		row := e[1].Extend().Mul(s.PaddedRows()).Add(u.row.Extend())
		u.lses = c.r.partialLSE.At(row)
		u.parts = c.r.partialOut.At(row.Mul(s.Latent)).At(u.column).At(c.lane.Mul(4))
		k.WaitForPreviousGrid()
		u.top, u.total = k.Var(k.NegInf()), k.Var(k.Float(0))
		body(u)
	})
}

// lse reads a slot's LSE.
func (c combiner) lse(u unit, slot gen.Value) gen.Value {
	return u.lses.At(slot.Extend().Mul(c.s.PaddedRows())).Load(0)
}

// accumulate adds up the weighted slots first, first+step, …, and sets the
// unit's maximum and total. The first partial rows are under way while the
// weights are computed.
func (c combiner) accumulate(u unit, first gen.Value, step, unroll int) [4]*gen.Var {
	k := c.k
	load := func(slot gen.Value) (parts [][]gen.Value) {
		for i := range unroll {
			at := slot.Add(i * step)
			there := at.Lt(u.count).And(c.active())
			parts = append(parts, u.parts.At(at.Extend().Mul(c.s.PaddedRows()*c.s.Latent)).LoadVectorIf(there, 0, 4))
		}
		return parts
	}
	early := load(first)
	k.For("max", c.lane, u.count, 32, func(i gen.Value) { u.top.Set(u.top.Max(c.lse(u, i))) })
	u.top.Set(finite(k, u.top.Reduce(gen.MaxOf, 1, 2, 4, 8, 16)))
	k.For("sum", c.lane, u.count, 32, func(i gen.Value) { u.total.Increase(c.lse(u, i).Sub(u.top).Exp2()) })
	u.total.Set(u.total.Reduce(gen.SumOf, 1, 2, 4, 8, 16))
	var acc [4]*gen.Var
	for i := range acc {
		acc[i] = k.Var(k.Float(0))
	}
	add := func(slot gen.Value, parts [][]gen.Value) {
		for i, part := range parts {
			at := slot.Add(i * step).Min(u.count.Sub(1)) // a slot that is not there has zeros
			weight := c.lse(u, at).Sub(u.top).Exp2()
			for j, x := range part {
				acc[j].Set(x.MulAdd(weight, acc[j]))
			}
		}
	}
	add(first, early)
	k.For("slot", first.Add(step*unroll), u.count, step*unroll, func(slot gen.Value) { add(slot, load(slot)) })
	return acc
}

// scale divides the sums by the total.
func (c combiner) scale(acc [4]*gen.Var, u unit) {
	k := c.k
	inverse := k.Select(u.total.Gt(0.0), u.total.Reciprocal(), k.Float(0))
	for _, a := range acc {
		a.Scale(inverse)
	}
}

// store writes the lane's four columns, and the row's LSE once.
func (c combiner) store(u unit, acc [4]*gen.Var) {
	k, s := c.k, c.s
	lo, hi := k.Pack(s.dtype(), acc[0].Value, acc[1].Value), k.Pack(s.dtype(), acc[2].Value, acc[3].Value)
	c.r.out.of(u.request).row(u.row).At(u.column.Shr(1)).At(c.lane.Mul(2)).StoreVector(0, lo, hi)
	k.If(c.lane.Eq(0).And(u.column.Eq(0)), func() {
		lse := k.Select(u.total.Gt(0.0), u.top.Add(u.total.Log2()), k.NegInf())
		c.r.lse.At(u.request.Extend().Mul(s.Rows()).Add(u.row.Extend())).Store(0, lse.Mul(c.r.lseFactor.Read()))
	})
}
