package templates

import (
	"github.com/mlagen/mlagen/gen"
)

// rowSoftmax is the online softmax of score fragments whose rows are query
// rows, shared by two warpgroups that take turns with the tiles: a row lies in
// the same lanes of the same warp of both, and both scale what they hold
// relative to one reference maximum, which they tell each other.
type rowSoftmax struct {
	k     *gen.Kernel
	s     Spec
	scale gen.Scalar
	max   [2]*gen.Var // of a thread's rows r and r+8: the reference maximum
	sum   [2]*gen.Var // the thread's own share of the sum
}

func newRowSoftmax(k *gen.Kernel, s Spec, scale gen.Scalar) *rowSoftmax {
	c := &rowSoftmax{k: k, s: s, scale: scale}
	for h := range c.max {
		c.max[h] = k.Var(k.NegInf())
		c.sum[h] = k.Var(k.Float(0))
	}
	return c
}

// reset begins a new request.
func (c *rowSoftmax) reset() {
	for h := range c.max {
		c.max[h].Set(c.k.NegInf())
		c.sum[h].Set(0.0)
	}
}

// rowOf returns which of a thread's two rows element i of a fragment lies in.
func rowOf(i int) int { return i >> 1 & 1 }

// scaled returns the scores in powers of two.
func (c *rowSoftmax) scaled(scores gen.Accumulator) []gen.Value {
	scale := c.scale.Read()
	s := make([]gen.Value, len(scores.R))
	for i, r := range scores.R {
		s[i] = r.Mul(scale)
	}
	return s
}

// top returns the largest score of each of the thread's rows among those that
// the thread holds.
func (c *rowSoftmax) top(s []gen.Value) [2]gen.Value {
	var top [2]gen.Value
	for i, v := range s {
		h := rowOf(i)
		if i < 4 && i%2 == 0 {
			top[h] = v
		} else {
			top[h] = top[h].Max(v)
		}
	}
	return top
}

// follow takes over the reference that the other warpgroup has left in shared
// memory.
func (c *rowSoftmax) follow(reference gen.Region) rescale {
	row := c.k.FragmentRow()
	next := [2]gen.Value{reference.At(row).Load(0), reference.At(row).Load(8)}
	return c.move(next[0].Ne(c.max[0]).Or(next[1].Ne(c.max[1])), func(h int) gen.Value { return next[h] })
}

// lead raises the reference where a score exceeds it by more than maxLag, and
// leaves it for the other warpgroup. Mostly none does, which every thread can
// tell of its own scores: the rows' maxima are only put together where one does.
func (c *rowSoftmax) lead(s []gen.Value, reference gen.Region) rescale {
	k := c.k
	top := c.top(s)
	limit := [2]gen.Value{c.max[0].Add(float64(maxLag)), c.max[1].Add(float64(maxLag))}
	change := c.move(top[0].Gt(limit[0]).Or(top[1].Gt(limit[1])), func(h int) gen.Value {
		row := top[h].Reduce(gen.MaxOf, 1, 2)
		return k.Select(row.Gt(limit[h]), row, c.max[h].Value)
	})
	k.If(k.Lane().And(3).Eq(0), func() {
		at := reference.At(k.FragmentRow())
		at.Store(0, c.max[0])
		at.Store(8, c.max[1])
	})
	return change
}

// rescale is a change of the reference that an accumulator has yet to follow.
type rescale struct {
	any    gen.Value   // in some row of the warp
	factor [2]*gen.Var // of a thread's rows r and r+8
}

// move changes the reference of the thread's row h to next(h) where a thread of
// the warp wants a change.
func (c *rowSoftmax) move(wanted gen.Value, next func(h int) gen.Value) rescale {
	k := c.k
	r := rescale{any: k.AnyInWarp(wanted)}
	for h := range r.factor {
		r.factor[h] = k.Var(k.Float(1))
	}
	k.If(r.any, func() {
		for h := range r.factor {
			to := next(h)
			// With no key seen yet both are −∞ and the factor must not be NaN.
			r.factor[h].Set(c.max[h].Sub(finite(k, to)).Exp2())
			c.max[h].Set(to)
			c.sum[h].Scale(r.factor[h].Value)
		}
	})
	return r
}

// apply scales the accumulator to the new reference.
func (r rescale) apply(k *gen.Kernel, out gen.Accumulator) {
	k.If(r.any, func() {
		for i, e := range out.R {
			e.Scale(r.factor[rowOf(i)].Value)
		}
	})
}

// weights returns the tile's weights relative to the reference, packed in
// pairs of columns, and adds them to the sums.
func (c *rowSoftmax) weights(s []gen.Value) []gen.Value {
	k := c.k
	reference := [2]gen.Value{finite(k, c.max[0].Value), finite(k, c.max[1].Value)}
	packed := make([]gen.Value, 0, len(s)/2)
	for i := 0; i < len(s); i += 2 {
		h := rowOf(i)
		// Subtracting rounded products, never fused, gives exactly 0 at the
		// reference, however large the scores.
		p, q := s[i].Sub(reference[h]).Exp2(), s[i+1].Sub(reference[h]).Exp2()
		c.sum[h].Increase(p.Add(q))
		packed = append(packed, k.Pack(c.s.dtype(), p, q))
	}
	return packed
}

// finish adds up both warpgroups' sums through shared memory, [2][64] floats,
// and returns one value per row of the thread. Both warpgroups meet in it.
func (c *rowSoftmax) finish(sums gen.Region, group gen.Value, both gen.NamedBarrier) softmaxState {
	k := c.k
	row := k.FragmentRow()
	var own [2]gen.Value
	for h := range own {
		own[h] = c.sum[h].Reduce(gen.SumOf, 1, 2)
	}
	k.If(k.Lane().And(3).Eq(0), func() {
		mine := sums.At(group.Mul(seesawBlockH).Add(row))
		mine.Store(0, own[0])
		mine.Store(8, own[1])
	})
	both.Sync()
	var st softmaxState
	all := sums.At(row)
	for h := range own {
		st.add(k, c.max[h].Value, all.Load(8*h).Add(all.Load(seesawBlockH+8*h)))
	}
	return st
}

// rowSumWords is the size of finish's scratch: a word per row and warpgroup.
const rowSumWords = 2 * seesawBlockH

// referenceWords is the size of one warpgroup's references for the other: a
// word per row.
const referenceWords = seesawBlockH
