package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// maxLag is how far (in powers of two) a row's scores may exceed the maximum
// they are taken relative to before the output is rescaled: weights stay below
// 2⁸, which f32 sums and 16-bit weights hold without loss.
const maxLag = 8

// softmax is the online softmax of one warpgroup's score fragments, whichever
// way round they lie. A thread keeps, for each of its query rows, the reference
// maximum, equal in all threads that share the row, and its own keys' share of
// the sum.
type softmax struct {
	k     *gen.Kernel
	s     Spec
	scale gen.Scalar
	index func(element int) int // of a fragment → which of the thread's rows it belongs to
	max   []*gen.Var
	sum   []*gen.Var
}

func newSoftmax(k *gen.Kernel, s Spec, scale gen.Scalar, rows int, index func(int) int) softmax {
	c := softmax{k: k, s: s, scale: scale, index: index}
	for range rows {
		c.max = append(c.max, k.Var(k.NegInf()))
		c.sum = append(c.sum, k.Var(k.Float(0)))
	}
	return c
}

// scoreScale declares what scores are multiplied by to be powers of two.
func scoreScale(k *gen.Kernel) gen.Scalar { return k.Scalar("scale_log2", isa.F32) }

// reset begins a new request.
func (c *softmax) reset() {
	for j := range c.max {
		c.max[j].Set(c.k.NegInf())
		c.sum[j].Set(0.0)
	}
}

// scaled returns the scores in powers of two.
func (c *softmax) scaled(scores gen.Accumulator) []gen.Value {
	scale := c.scale.Read()
	s := make([]gen.Value, len(scores.R))
	for i, r := range scores.R {
		s[i] = r.Mul(scale)
	}
	return s
}

// top returns the largest score of each of the thread's rows among those that
// the thread holds.
func (c *softmax) top(s []gen.Value) []gen.Value {
	top := make([]gen.Value, len(c.max))
	seen := make([]bool, len(c.max))
	for i, v := range s {
		j := c.index(i)
		if seen[j] {
			v = top[j].Max(v)
		}
		top[j], seen[j] = v, true
	}
	return top
}

// limits returns the scores above which the references must be raised.
func (c *softmax) limits() []gen.Value {
	limit := make([]gen.Value, len(c.max))
	for j, m := range c.max {
		limit[j] = m.Add(float64(maxLag))
	}
	return limit
}

// anyAbove reports whether one of the thread's values is greater than its limit.
func anyAbove(v, limit []gen.Value) gen.Value {
	above := v[0].Gt(limit[0])
	for j := 1; j < len(v); j++ {
		above = above.Or(v[j].Gt(limit[j]))
	}
	return above
}

// rescale is a change of the references that accumulators have yet to follow.
type rescale struct {
	any    gen.Value  // in some row of the warp
	factor []*gen.Var // of each of a thread's rows
	index  func(int) int
}

// move changes the references of the thread's rows to next where any holds,
// which whole warps agree on.
func (c *softmax) move(any gen.Value, next func(j int) gen.Value) rescale {
	k := c.k
	r := rescale{any: any, index: c.index}
	for range c.max {
		r.factor = append(r.factor, k.Var(k.Float(1)))
	}
	k.If(r.any, func() {
		for j := range r.factor {
			to := next(j)
			// With no key seen yet both are −∞ and the factor must not be NaN.
			r.factor[j].Set(c.max[j].Sub(finite(k, to)).Exp2())
			c.max[j].Set(to)
			c.sum[j].Scale(r.factor[j].Value)
		}
	})
	return r
}

// where is the change of accumulators that hold zeros unless p holds.
func (r rescale) where(p gen.Value) rescale {
	r.any = r.any.And(p)
	return r
}

// apply scales the accumulators to the new references.
func (r rescale) apply(k *gen.Kernel, out []gen.Accumulator) {
	k.If(r.any, func() {
		for _, o := range out {
			for i, e := range o.R {
				e.Scale(r.factor[r.index(i)].Value)
			}
		}
	})
}

// weights returns the tile's weights relative to the references, packed in
// pairs, and adds them to the sums.
func (c *softmax) weights(s []gen.Value) []gen.Value {
	k := c.k
	reference := make([]gen.Value, len(c.max))
	for j, m := range c.max {
		reference[j] = finite(k, m.Value)
	}
	packed := make([]gen.Value, 0, len(s)/2)
	for i := 0; i < len(s); i += 2 {
		a, b := c.index(i), c.index(i+1)
		// Subtracting rounded products, never fused, gives exactly 0 at the
		// reference, however large the scores.
		p, q := s[i].Sub(reference[a]).Exp2(), s[i+1].Sub(reference[b]).Exp2()
		if a == b {
			c.sum[a].Increase(p.Add(q))
		} else {
			c.sum[a].Increase(p)
			c.sum[b].Increase(q)
		}
		packed = append(packed, k.Pack(c.s.dtype(), p, q))
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

// newSoftmaxState returns a state for so many rows that is yet to be set.
func newSoftmaxState(k *gen.Kernel, rows int) (st softmaxState) {
	for range rows {
		st.inverse = append(st.inverse, k.Var(k.Float(0)))
		st.lse = append(st.lse, k.Var(k.Float(0)))
	}
	return st
}

// set takes over the values of another.
func (st softmaxState) set(from softmaxState) {
	for j := range st.lse {
		st.inverse[j].Set(from.inverse[j].Value)
		st.lse[j].Set(from.lse[j].Value)
	}
}

// add appends a row's result: its reference maximum and the sum relative to it.
func (st *softmaxState) add(k *gen.Kernel, reference, sum gen.Value) {
	some := sum.Gt(0.0)
	st.inverse = append(st.inverse, k.Var(k.Select(some, sum.Reciprocal(), k.Float(0))))
	st.lse = append(st.lse, k.Var(k.Select(some, reference.Add(sum.Log2()), k.NegInf())))
}
