package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// columnSoftmax is the softmax of fragments whose columns are query rows and
// whose rows are keys: all four warps of a warpgroup, its team, have keys of
// every query row, and agree on the references.
type columnSoftmax struct {
	softmax
	team    gen.NamedBarrier
	scratch gen.Region // [warps of all teams][BlockH]
}

// columns returns a thread's columns of a fragment so wide: two of every eight.
func columns(width int) int { return width / 4 }

// columnOf returns which of a thread's columns element i of a fragment lies in.
func columnOf(i int) int { return i/4*2 + i%2 }

// columnStep returns where a thread's j-th column lies relative to its first.
func columnStep(j int) int { return j/2*8 + j%2 }

// elements returns the fragment elements of a thread's j-th column: rows r and r+8.
func elements(j int) [2]int {
	e := j/2*4 + j%2
	return [2]int{e, e + 2}
}

// columnScratch reserves what the warps of all teams tell each other in: a word
// per warp and query row.
func columnScratch(k *gen.Kernel, s Spec) gen.Region {
	return k.SharedArray("row maxima and sums", isa.F32, s.teamThreads()/32*s.BlockH)
}

func newColumnSoftmax(k *gen.Kernel, s Spec, scale gen.Scalar, team gen.NamedBarrier, scratch gen.Region) *columnSoftmax {
	return &columnSoftmax{newSoftmax(k, s, scale, columns(s.BlockH), columnOf), team, scratch}
}

// put leaves a value per column, the first lanes' for all, in so many words
// from at on.
func (c *columnSoftmax) put(at gen.Region, v []gen.Value) {
	at = at.At(c.k.FragmentColumn())
	for j := 0; j < len(v); j += 2 {
		at.StoreVector(columnStep(j), v[j], v[j+1])
	}
}

// get reads the thread's columns from the words from at on.
func (c *columnSoftmax) get(at gen.Region) []gen.Value {
	at = at.At(c.k.FragmentColumn())
	var v []gen.Value
	for j := 0; j < len(c.max); j += 2 {
		v = append(v, at.LoadVector(columnStep(j), 2)...)
	}
	return v
}

// together combines one value per column over the lanes that share the column
// and over the team, of which the first warp is given; it meets in it.
func (c *columnSoftmax) together(v []gen.Value, combine func(a, b gen.Value) gen.Value, first gen.Value) []gen.Value {
	k := c.k
	mine := make([]gen.Value, len(v))
	for j := range v {
		mine[j] = v[j].Reduce(combine, 4, 8, 16)
	}
	k.If(k.Lane().Lt(4), func() {
		c.put(c.scratch.At(k.Thread().Shr(5).Mul(c.s.BlockH)), mine)
	})
	c.team.Sync()
	all := c.scratch.At(first.Mul(c.s.BlockH))
	r := c.get(all)
	for w := 1; w < gen.Warpgroups(1); w++ {
		for j, x := range c.get(all.At(w * c.s.BlockH)) {
			r[j] = combine(r[j], x)
		}
	}
	return r
}

// lead raises the references where a score exceeds them by more than maxLag.
// Mostly none does, which every thread can tell of its own scores: the columns'
// maxima are only put together where one does. The team meets in it, after its
// multiplies of the scores have finished.
func (c *columnSoftmax) lead(s []gen.Value) rescale {
	k := c.k
	top := c.top(s)
	limit := c.limits()
	var all []gen.Value
	return c.move(c.team.Any(anyAbove(top, limit)), func(j int) gen.Value {
		if all == nil {
			all = c.together(top, gen.MaxOf, k.Warp().And(^3))
		}
		return k.Select(all[j].Gt(limit[j]), all[j], c.max[j].Value)
	})
}

// raise is lead for an output that follows at once. Where no reference is raised
// it takes no registers.
func (c *columnSoftmax) raise(s []gen.Value, out []gen.Accumulator) {
	k := c.k
	top := c.top(s)
	k.If(c.team.Any(anyAbove(top, c.limits())), func() {
		all := c.together(top, gen.MaxOf, k.Warp().And(^3))
		for j, limit := range c.limits() {
			reference := c.max[j]
			to := k.Select(all[j].Gt(limit), all[j], reference.Value)
			// With no key seen yet both are −∞ and the factor must not be NaN.
			factor := reference.Sub(finite(k, to)).Exp2()
			reference.Set(to)
			c.sum[j].Scale(factor)
			for _, o := range out {
				for i, e := range o.R {
					if c.index(i) == j {
						e.Scale(factor)
					}
				}
			}
		}
	})
}

// finish adds up the team's sums; it meets in it.
func (c *columnSoftmax) finish() softmaxState {
	k := c.k
	var sums []gen.Value
	for _, s := range c.sum {
		sums = append(sums, s.Value)
	}
	var st softmaxState
	for j, sum := range c.together(sums, gen.SumOf, k.Int(0)) {
		st.add(k, c.max[j].Value, sum)
	}
	return st
}

// unite puts the states of two teams that had different keys together, and says
// what this one's output must be multiplied by to be relative to the reference of
// both. Both meet in it.
func (c *columnSoftmax) unite(side gen.Value, references gen.Region, both gen.NamedBarrier) (factor []*gen.Var, st softmaxState) {
	k := c.k
	var sums, tops []gen.Value
	for j := range c.max {
		sums = append(sums, c.sum[j].Reduce(gen.SumOf, 4, 8, 16))
		tops = append(tops, c.max[j].Value)
	}
	k.If(k.Lane().Lt(4), func() {
		c.put(c.scratch.At(k.Thread().Shr(5).Mul(c.s.BlockH)), sums)
	})
	k.If(k.Thread().And(gen.WarpgroupThreads-1).Lt(4), func() {
		c.put(references.At(side.Mul(c.s.BlockH)), tops)
	})
	both.Sync()
	var sum, top [mostTeams][]gen.Value
	for team := range mostTeams {
		top[team] = c.get(references.At(team * c.s.BlockH))
		for w := range gen.Warpgroups(1) {
			for j, x := range c.get(c.scratch.At((gen.Warpgroups(team) + w) * c.s.BlockH)) {
				if w == 0 {
					sum[team] = append(sum[team], x)
				} else {
					sum[team][j] = sum[team][j].Add(x)
				}
			}
		}
	}
	for j := range c.max {
		reference := top[0][j].Max(top[1][j])
		var own, total gen.Value
		for team := range mostTeams {
			f := top[team][j].Sub(finite(k, reference)).Exp2() // 0 where the team saw no key
			if team == 0 {
				own, total = f, sum[team][j].Mul(f)
			} else {
				own, total = k.Select(side.Eq(0), own, f), total.Add(sum[team][j].Mul(f))
			}
		}
		factor = append(factor, k.Var(own))
		st.add(k, reference, total)
	}
	return factor, st
}
