package hopper

import "testing"

// mode is a dimension of a CuTe layout: an extent and the stride of a step.
type mode struct{ extent, stride int }

// layout evaluates ((a,b,…)):((s,t,…)) at a linear coordinate, the first mode
// fastest; the last one has no bound. It is how the manual writes the
// canonical layouts and CUTLASS the fragments, so tests can quote both.
func layout(x int, modes ...mode) int {
	at := 0
	for i, m := range modes {
		if i == len(modes)-1 {
			return at + x*m.stride
		}
		at += x % m.extent * m.stride
		x /= m.extent
	}
	return at
}

func TestLayoutEvaluator(t *testing.T) {
	// (4,8,4):(256,1,16) by hand: 37 = 1 + 4·1 + 32·1.
	if got := layout(37, mode{4, 256}, mode{8, 1}, mode{4, 16}); got != 256+1+16 {
		t.Fatalf("layout = %d, want 273", got)
	}
}
