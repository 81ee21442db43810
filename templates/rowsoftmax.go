package templates

import (
	"github.com/mlagen/mlagen/gen"
)

// rowSoftmax is the softmax of fragments whose rows are query rows, shared by
// two warpgroups that take turns with the tiles: a row lies in the same four
// lanes of the same warp of both, and both scale what they hold relative to one
// reference maximum, which they tell each other.
type rowSoftmax struct{ softmax }

func newRowSoftmax(k *gen.Kernel, s Spec, scale gen.Scalar) *rowSoftmax {
	return &rowSoftmax{newSoftmax(k, s, scale, 2, rowOf)}
}

// rowOf returns which of a thread's two rows element i of a fragment lies in.
func rowOf(i int) int { return i >> 1 & 1 }

// follow takes over the references that the other warpgroup has left in shared
// memory.
func (c *rowSoftmax) follow(reference gen.Region) rescale {
	row := c.k.FragmentRow()
	next := [2]gen.Value{reference.At(row).Load(0), reference.At(row).Load(8)}
	return c.move(c.k.AnyInWarp(next[0].Ne(c.max[0]).Or(next[1].Ne(c.max[1]))), func(h int) gen.Value { return next[h] })
}

// lead raises the references where a score exceeds them by more than maxLag,
// and leaves them for the other warpgroup. Mostly none does, which every thread
// can tell of its own scores: the rows' maxima are only put together where one
// does.
func (c *rowSoftmax) lead(s []gen.Value, reference gen.Region) rescale {
	k := c.k
	top := c.top(s)
	limit := c.limits()
	change := c.move(k.AnyInWarp(anyAbove(top, limit)), func(h int) gen.Value {
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
