package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

const (
	// mergeWords is the size of an entry of the merge list: request, first
	// slot, number of slots, unused. Entry 0 holds the number of entries.
	mergeWords = 4

	combineWarps   = 8
	combineColumns = 128 // latent columns of a unit: 32 lanes of four
	combineUnroll  = 4   // partial rows that a warp has in flight
)

// decodeCombine merges the partial outputs of split requests: with LSEᵢ in
// base 2 and M their maximum,
//
//	out = Σ outᵢ·2^(LSEᵢ−M) / Σ 2^(LSEᵢ−M)     lse = M + log₂ Σ 2^(LSEᵢ−M)
//
// A unit of work is one row's run of 128 columns; a CTA's warps share its
// slots. The grid is as large as the machine, whatever the batch.
func decodeCombine(s Spec) (*gen.Output, error) {
	k := gen.NewKernel("decode_combine", s, s.options())
	merges := k.Pointer("merges", isa.S32)
	r := resultWriter(k, s)
	k.Threads(32 * combineWarps)
	columns := min(combineColumns, s.Latent)
	sums := k.SharedArray("sums", isa.F32, combineWarps*columns)

	k.WaitForPreviousGrid()
	k.AllowNextGrid()
	chunks := s.Latent / columns
	unitsPerRequest := s.Rows() * chunks
	units := merges.Load(0).Mul(unitsPerRequest)
	lane, warp := k.Lane(), k.Warp()
	k.For("unit", k.Block(), units, k.Blocks(), func(unit gen.Value) {
		e := merges.At(unit.Div(unitsPerRequest).Add(1).Mul(mergeWords)).LoadVector(0, mergeWords)
		request, first, count := e[0], e[1], e[2]
		inRequest := unit.Rem(unitsPerRequest)
		row, column := inRequest.Div(chunks), inRequest.Rem(chunks).Mul(columns)
		lses := r.partialLSE.At(first.Extend().Mul(s.Rows()).Add(row.Extend()))
		lseAt := func(i gen.Value) gen.Pointer { return lses.At(i.Extend().Mul(s.Rows())) }
		top := k.Var(k.NegInf())
		k.For("max", lane, count, 32, func(i gen.Value) { top.Set(top.Max(lseAt(i).Load(0))) })
		top.Set(finite(k, top.Reduce(gen.MaxOf, 1, 2, 4, 8, 16)))
		total := k.Var(k.Float(0))
		k.For("sum", lane, count, 32, func(i gen.Value) { total.Set(total.Add(lseAt(i).Load(0).Sub(top).Exp2())) })
		total.Set(total.Reduce(gen.SumOf, 1, 2, 4, 8, 16))

		var acc [4]*gen.Var
		for i := range acc {
			acc[i] = k.Var(k.Float(0))
		}
		active := lane.Lt(columns / 4)
		rows := r.partialOut.At(first.Extend().Mul(s.Rows()).Add(row.Extend()).Mul(s.Latent)).At(column).At(lane.Mul(4))
		k.For("slot", warp, count, combineWarps*combineUnroll, func(slot gen.Value) {
			var weight [combineUnroll]gen.Value
			var part [combineUnroll][]gen.Value
			for u := range combineUnroll {
				i := slot.Add(u * combineWarps)
				there := i.Lt(count)
				weight[u] = lseAt(i.Min(count.Sub(1))).Load(0).Sub(top).Exp2()
				part[u] = rows.At(i.Extend().Mul(s.Rows()*s.Latent)).LoadVectorIf(there.And(active), 0, 4)
			}
			for u := range combineUnroll {
				for i := range acc {
					acc[i].Set(part[u][i].MulAdd(weight[u], acc[i]))
				}
			}
		})
		k.If(active, func() {
			sums.At(warp.Mul(columns).Add(lane.Mul(4))).StoreVector(0, acc[0].Value, acc[1].Value, acc[2].Value, acc[3].Value)
		})
		k.SyncCTA()
		some := total.Gt(0.0)
		k.If(k.Thread().Lt(columns/2), func() {
			pair := k.Thread().Mul(2)
			mine := sums.At(pair)
			v := mine.LoadVector(0, 2)
			for w := 1; w < combineWarps; w++ {
				more := mine.LoadVector(w*columns, 2)
				v[0], v[1] = v[0].Add(more[0]), v[1].Add(more[1])
			}
			inverse := k.Select(some, total.Reciprocal(), k.Float(0))
			packed := k.Pack(s.dtype(), v[0].Mul(inverse), v[1].Mul(inverse))
			r.out.row(request, row).At(column.Shr(1).Add(k.Thread())).Store(0, packed)
		})
		k.If(k.Thread().Eq(0).And(column.Eq(0)), func() {
			lse := k.Select(some, top.Add(total.Log2()), k.NegInf())
			r.lse.At(request.Extend().Mul(s.Rows()).Add(row.Extend())).Store(0, lse.Mul(r.lseFactor.Read()))
		})
		k.SyncCTA() // the sums have been read
	})
	return k.Build()
}
