package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// maxLag is how far (in powers of two) a row's scores may exceed the maximum
// they are taken relative to before the output is rescaled: weights stay below
// 2⁸, which f32 sums and 16-bit weights hold without loss.
const maxLag = 8

// columnSoftmax is the online softmax of score fragments whose columns are
// query rows and whose rows are tokens. A thread keeps, for each of its
// columns, the reference maximum, equal in all threads that share the column,
// and its own tokens' share of the sum.
type columnSoftmax struct {
	k       *gen.Kernel
	s       Spec
	scale   gen.Scalar
	team    gen.NamedBarrier
	scratch gen.Region // [4 warps][BlockH]
	max     []*gen.Var
	sum     []*gen.Var
}

// columns returns a thread's columns of a BlockH-wide fragment: two of every eight.
func (c *columnSoftmax) columns() int { return c.s.BlockH / 4 }

// columnStep returns where a thread's j-th column lies relative to its first.
func columnStep(j int) int { return j/2*8 + j%2 }

// elements returns the fragment elements of a thread's j-th column: rows r and r+8.
func elements(j int) [2]int {
	e := j/2*4 + j%2
	return [2]int{e, e + 2}
}

func newColumnSoftmax(k *gen.Kernel, s Spec, team gen.NamedBarrier) *columnSoftmax {
	c := &columnSoftmax{k: k, s: s, team: team}
	c.scale = k.Scalar("scale_log2", isa.F32)
	c.scratch = k.SharedArray("row maxima", isa.F32, 4*s.BlockH)
	for range c.columns() {
		c.max = append(c.max, k.Var(k.NegInf()))
		c.sum = append(c.sum, k.Var(k.Float(0)))
	}
	return c
}

// reset begins a new request.
func (c *columnSoftmax) reset() {
	for j := range c.max {
		c.max[j].Set(c.k.NegInf())
		c.sum[j].Set(0.0)
	}
}

// acrossWarps combines one value per column over the four warps.
func (c *columnSoftmax) acrossWarps(v []gen.Value, combine func(a, b gen.Value) gen.Value) []gen.Value {
	k := c.k
	warp := k.Thread().Shr(5)
	k.If(k.Lane().Lt(4), func() {
		mine := c.scratch.At(warp.Mul(c.s.BlockH).Add(k.FragmentColumn()))
		for j := 0; j < len(v); j += 2 {
			mine.StoreVector(columnStep(j), v[j], v[j+1])
		}
	})
	c.team.Sync()
	all := c.scratch.At(k.FragmentColumn())
	r := make([]gen.Value, len(v))
	for j := 0; j < len(v); j += 2 {
		for w := range 4 {
			pair := all.LoadVector(w*c.s.BlockH+columnStep(j), 2)
			for i := range 2 {
				if w == 0 {
					r[j+i] = pair[i]
				} else {
					r[j+i] = combine(r[j+i], pair[i])
				}
			}
		}
	}
	return r
}

// update takes in one tile's scores (tokens × rows, −∞ where hidden), rescales
// the output where a maximum has outgrown its reference, and returns the
// tile's weights, packed in pairs of columns as StoreTransposed wants them.
// Every thread of the team passes a barrier in here, after its multiplies of
// the scores have finished.
func (c *columnSoftmax) update(scores gen.Accumulator, out []gen.Accumulator) []gen.Value {
	k := c.k
	scale := c.scale.Read()
	n := c.columns()
	s := make([]gen.Value, len(scores.R))
	for i, r := range scores.R {
		s[i] = r.Mul(scale)
	}
	top := make([]gen.Value, n)
	for j := range top {
		e := elements(j)
		top[j] = s[e[0]].Max(s[e[1]]).Reduce(gen.MaxOf, 4, 8, 16)
	}
	top = c.acrossWarps(top, gen.MaxOf)

	grown := make([]gen.Value, n)
	for j := range top {
		grown[j] = top[j].Gt(c.max[j].Add(float64(maxLag)))
	}
	anyGrown := grown[0]
	for _, g := range grown[1:] {
		anyGrown = anyGrown.Or(g)
	}
	k.If(k.AnyInWarp(anyGrown), func() {
		for j := range top {
			next := k.Select(grown[j], top[j], c.max[j].Value)
			// With no key seen yet both are −∞ and the factor must not be NaN.
			factor := c.max[j].Sub(finite(k, next)).Exp2()
			c.max[j].Set(next)
			c.sum[j].Scale(factor)
			for _, o := range out {
				for _, e := range elements(j) {
					o.R[e].Scale(factor)
				}
			}
		}
	})
	p := make([]gen.Value, len(s))
	for j := range n {
		reference := finite(k, c.max[j].Value)
		for _, e := range elements(j) {
			// Subtracting rounded products, never fused, gives exactly 0 at the
			// reference, however large the scores.
			p[e] = s[e].Sub(reference).Exp2()
			c.sum[j].Increase(p[e])
		}
	}
	packed := make([]gen.Value, 0, len(p)/2)
	for i := 0; i < len(p); i += 2 {
		packed = append(packed, k.Pack(c.s.dtype(), p[i], p[i+1]))
	}
	return packed
}

// finite replaces −∞ by 0, so that −∞ − finite(−∞) is −∞ and not NaN.
func finite(k *gen.Kernel, v gen.Value) gen.Value {
	return k.Select(v.Eq(k.NegInf()), k.Float(0), v)
}

// softmaxState is the result of a finished row block, one value for each query
// row of the thread.
type softmaxState struct {
	inverse []*gen.Var // 1/Σp, 0 where no key was visible
	lse     []*gen.Var // log₂ Σ 2^score, −∞ where no key was visible
}

// add appends a row's result: its reference maximum and the sum relative to it.
func (st *softmaxState) add(k *gen.Kernel, reference, sum gen.Value) {
	some := sum.Gt(0.0)
	st.inverse = append(st.inverse, k.Var(k.Select(some, sum.Reciprocal(), k.Float(0))))
	st.lse = append(st.lse, k.Var(k.Select(some, reference.Add(sum.Log2()), k.NegInf())))
}

// finish reduces the sums over the team.
func (c *columnSoftmax) finish() softmaxState {
	k := c.k
	sums := make([]gen.Value, c.columns())
	for j := range sums {
		sums[j] = c.sum[j].Reduce(gen.SumOf, 4, 8, 16)
	}
	sums = c.acrossWarps(sums, gen.SumOf)
	var st softmaxState
	for j, sum := range sums {
		st.add(k, c.max[j].Value, sum)
	}
	return st
}
