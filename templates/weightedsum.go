package templates

import (
	"github.com/mlagen/mlagen/gen"
)

// weightedSum is a sum of weighted partial vectors: for the vector's two rows
// the maximum LSE and the sum of weights relative to it, and the elements.
type weightedSum struct {
	rowIndex   func(e int) int
	top, total [2]*gen.Var
	acc        []*gen.Var
}

func (st weightedSum) save(to gen.Region) {
	to.StoreVector(0, st.top[0].Value, st.top[1].Value, st.total[0].Value, st.total[1].Value)
	for e := 0; e < len(st.acc); e += 4 {
		to.StoreVector(4+e, st.acc[e].Value, st.acc[e+1].Value, st.acc[e+2].Value, st.acc[e+3].Value)
	}
}

// raise takes the state to a maximum of at least top.
func (st weightedSum) raise(k *gen.Kernel, row int, top gen.Value) (reference gen.Value) {
	next := st.top[row].Max(top)
	reference = finite(k, next)
	factor := st.top[row].Sub(reference).Exp2()
	st.top[row].Set(next)
	st.total[row].Scale(factor)
	for e, a := range st.acc {
		if st.rowIndex(e) == row {
			a.Scale(factor)
		}
	}
	return reference
}

// merge adds a saved state.
func (st weightedSum) merge(k *gen.Kernel, from gen.Region) {
	head := from.LoadVector(0, 4)
	var acc []gen.Value
	for e := 0; e < len(st.acc); e += 4 {
		acc = append(acc, from.LoadVector(4+e, 4)...)
	}
	for row := range 2 {
		weight := head[row].Sub(st.raise(k, row, head[row])).Exp2()
		st.total[row].Set(head[2+row].MulAdd(weight, st.total[row]))
		for e, a := range st.acc {
			if st.rowIndex(e) == row {
				a.Set(acc[e].MulAdd(weight, a))
			}
		}
	}
}
