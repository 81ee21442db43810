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
