package templates

import (
	"math"

	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// prefillSoftmax is the online softmax of a warpgroup that has rows of its own
// and all of their keys. It looks for no maximum as a rule: weights are taken
// relative to a reference, an earlier score of the row, and only when their sum
// shows that the scores have outgrown it is the reference raised and the tile
// weighted again.
//
// Scores are as they come out of the product; scale turns them into powers of
// two in the multiply-add that also subtracts the reference. Its rounding is the
// same for all scores of a row, and cancels, as long as the reference is small;
// rows with a large one, and rows without a key so far, are careful: there the
// reference is subtracted before the scale is applied, so that the weight at the
// reference is exactly 1, be the scores 10¹².
type prefillSoftmax struct {
	k     *gen.Kernel
	s     Spec
	scale gen.Value
	// Of a thread's rows r and r+8:
	top [2]*gen.Var // the reference, −∞ before the first key
	sum [2]*gen.Var // the thread's own share of the sum
	// careful is not 0 where a row of the warp must be weighted carefully.
	careful *gen.Var
	// limit is what shows that a row has outgrown its reference when it is
	// exceeded; +∞ for rows past the item's last. What lies there belongs to other
	// sequences, and must not decide how the warp's rows are weighted.
	limit [2]*gen.Var
}

const (
	// mostSum is the largest sum of a thread's weights of a row and tile before
	// the reference is raised. Weights below it are no subject to loss: fp16 ends
	// at 2¹⁶, and f32 sums have room for 2¹¹⁴ of them.
	mostSum = 1 << 14
	// mostLag is how far, in powers of two, a score may exceed the reference before
	// it is raised, where that is told by the largest score.
	mostLag = 8
	// mostReference is the largest reference, in powers of two, that the product
	// may be rounded with: by less than 2⁻¹².
	mostReference = 1 << 12
)

func newPrefillSoftmax(k *gen.Kernel, s Spec, scale gen.Scalar) *prefillSoftmax {
	c := &prefillSoftmax{k: k, s: s, scale: scale.Read(), careful: k.Var(k.Int(1))}
	for h := range c.top {
		c.top[h], c.sum[h] = k.Var(k.NegInf()), k.Var(k.Float(0))
		c.limit[h] = k.Var(k.Float(0))
	}
	return c
}

// bound says how many of the warpgroup's rows exist.
func (c *prefillSoftmax) bound(rows gen.Value) {
	limit := mostSum
	if !c.s.roomForScores() {
		limit = mostLag
	}
	for h := range c.limit {
		exists := c.k.FragmentRow().Add(8 * h).Lt(rows)
		c.limit[h].Set(c.k.Select(exists, c.k.Float(float64(limit)), c.k.Float(math.Inf(1))))
	}
}

// exists reports whether the thread's row h does.
func (c *prefillSoftmax) exists(h int) gen.Value { return c.limit[h].Value.Lt(c.k.Float(math.Inf(1))) }

// reset begins new rows.
func (c *prefillSoftmax) reset() {
	for h := range c.top {
		c.top[h].Set(c.k.NegInf())
		c.sum[h].Set(0.0)
	}
	c.careful.Set(1)
}

// weigh puts a tile's weights into packed and returns whether they hold: a
// value that is not 0 where no row has outgrown its reference. Without it
// raise must follow.
func (c *prefillSoftmax) weigh(scores gen.Accumulator, packed []*gen.Var) (holds gen.Value) {
	k := c.k
	held := k.Var(k.Int(0))
	k.If(c.careful.Eq(0), func() {
		var sum [2]*gen.Var
		after := c.after()
		for h := range sum {
			sum[h] = k.Var(k.Float(0))
		}
		for i := 0; i < len(scores.R); i += 2 {
			h := rowOf(i)
			p := scores.R[i].MulAdd(c.scale, after[h]).Exp2()
			q := scores.R[i+1].MulAdd(c.scale, after[h]).Exp2()
			sum[h].Increase(p.Add(q))
			packed[i/2].Set(k.Pack(c.s.dtype(), p, q))
		}
		over := k.AnyInWarp(sum[0].Gt(c.limit[0].Value).Or(sum[1].Gt(c.limit[1].Value)))
		k.If(over.Not(), func() {
			for h := range sum {
				c.sum[h].Increase(sum[h].Value)
			}
			held.Set(1)
		})
	})
	return held.Value
}

// check returns whether a tile's scores can be weighted relative to the rows'
// references: a value that is not 0 where no row has outgrown its own. Without
// it raise must follow, otherwise exponentiate and pack.
func (c *prefillSoftmax) check(scores gen.Accumulator) (holds gen.Value) {
	k := c.k
	held := k.Var(k.Int(0))
	k.If(c.careful.Eq(0), func() {
		top := c.largest(scores)
		var over [2]gen.Value
		for h := range over {
			over[h] = top[h].Sub(c.top[h].Value).Mul(c.scale).Gt(c.limit[h].Value)
		}
		held.Set(k.Select(k.AnyInWarp(over[0].Or(over[1])), k.Int(0), k.Int(1)))
	})
	return held.Value
}

// exponentiate turns scores into weights where they are.
func (c *prefillSoftmax) exponentiate(scores gen.Accumulator) {
	after := c.after()
	for i := 0; i < len(scores.R); i += 2 {
		h := rowOf(i)
		p, q := scores.R[i], scores.R[i+1]
		p.Set(p.MulAdd(c.scale, after[h]).Exp2())
		q.Set(q.MulAdd(c.scale, after[h]).Exp2())
		c.sum[h].Increase(p.Add(q.Value))
	}
}

// pack packs the weights that exponentiate has left.
func (c *prefillSoftmax) pack(weights gen.Accumulator, packed []*gen.Var) {
	for i := range packed {
		packed[i].Set(c.k.Pack(c.s.dtype(), weights.R[2*i].Value, weights.R[2*i+1].Value))
	}
}

// after returns what is added to the scaled scores of the thread's rows.
func (c *prefillSoftmax) after() (after [2]gen.Value) {
	for h := range after {
		after[h] = c.k.Float(0).Sub(c.top[h].Mul(c.scale))
	}
	return after
}

// largest returns the largest score of each of the thread's rows among those
// that the thread holds.
func (c *prefillSoftmax) largest(scores gen.Accumulator) (top [2]gen.Value) {
	for i, r := range scores.R {
		h := rowOf(i)
		if i < 4 && i%2 == 0 {
			top[h] = r.Value
		} else {
			top[h] = top[h].Max(r.Value)
		}
	}
	return top
}

// raise raises the references to the largest scores, scales the output, whose
// products must be finished, to them, and puts the tile's weights into packed.
func (c *prefillSoftmax) raise(scores, out gen.Accumulator, packed []*gen.Var) {
	k := c.k
	top := c.largest(scores)
	// before is subtracted from a score before it is scaled, after added then: one
	// of the two is 0.
	var factor, careful, before, after [2]gen.Value
	for h := range top {
		next := top[h].Reduce(gen.MaxOf, 1, 2).Max(c.top[h].Value)
		// With no key seen yet both are −∞ and the factor must not be NaN.
		factor[h] = c.top[h].Sub(finite(k, next)).Mul(c.scale).Exp2()
		c.top[h].Set(next)
		c.sum[h].Scale(factor[h])
		var power gen.Value
		power, careful[h] = c.reference(next)
		before[h] = k.Select(careful[h], finite(k, next), k.Float(0))
		after[h] = k.Select(careful[h], k.Float(0), k.Float(0).Sub(power))
	}
	for i, r := range out.R {
		r.Scale(factor[rowOf(i)])
	}
	c.beCareful(careful)
	for i := 0; i < len(scores.R); i += 2 {
		h := rowOf(i)
		p := scores.R[i].Sub(before[h]).MulAdd(c.scale, after[h]).Exp2()
		q := scores.R[i+1].Sub(before[h]).MulAdd(c.scale, after[h]).Exp2()
		c.sum[h].Increase(p.Add(q))
		packed[i/2].Set(k.Pack(c.s.dtype(), p, q))
	}
}

// reference returns a row's reference in powers of two, and whether its weights
// must be computed carefully.
func (c *prefillSoftmax) reference(top gen.Value) (power, careful gen.Value) {
	power = top.Mul(c.scale)
	// True for −∞ and for NaN, too.
	return power, power.Max(c.k.Float(0).Sub(power)).Lt(float64(mostReference)).Not()
}

// beCareful notes whether a row of the warp must be weighted carefully.
func (c *prefillSoftmax) beCareful(rows [2]gen.Value) {
	k := c.k
	c.careful.Set(k.Select(k.AnyInWarp(rows[0].And(c.exists(0)).Or(rows[1].And(c.exists(1)))), k.Int(1), k.Int(0)))
}

// resume goes on with rows whose references and sums were set.
func (c *prefillSoftmax) resume() {
	var careful [2]gen.Value
	for h := range careful {
		_, careful[h] = c.reference(c.top[h].Value)
	}
	c.beCareful(careful)
}

// finish returns one value per row of the thread.
func (c *prefillSoftmax) finish() softmaxState {
	k := c.k
	var st softmaxState
	for h := range c.sum {
		st.add(k, finite(k, c.top[h].Value).Mul(c.scale), c.sum[h].Reduce(gen.SumOf, 1, 2))
	}
	return st
}

// weightRegisters declares a tile's packed weights.
func (c *prefillSoftmax) weightRegisters() []*gen.Var {
	w := make([]*gen.Var, c.s.BlockN/4)
	for i := range w {
		w[i] = c.k.Var(c.k.Const(isa.B32, 0))
	}
	return w
}
