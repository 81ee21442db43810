package check

import (
	"fmt"
	"math"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/oracle"
)

// Errors are the distances of a result from the reference.
type Errors struct {
	Out float64 // worst over rows of ‖row−ref‖/‖ref‖
	LSE float64 // worst absolute difference
}

// compare measures out and lse, row by row, against the reference, whose lse is
// natural; base2 says that lse is not. describe names a row. The first row
// that breaks a rule or misses the tolerance is the error.
func compare(ref oracle.Result, out, lse []float32, base2 bool, tol cases.Tolerance, describe func(row int) string) (Errors, error) {
	var worst Errors
	var first error
	fail := func(row int, format string, args ...any) {
		if first == nil {
			first = fmt.Errorf("%s: %s", describe(row), fmt.Sprintf(format, args...))
		}
	}
	for i := range ref.LSE {
		want := ref.LSE[i]
		if base2 {
			want /= math.Ln2
		}
		e, err := rowError(ref.Row(i), out[i*ref.Width:(i+1)*ref.Width])
		worst.Out = math.Max(worst.Out, e)
		switch {
		case err != nil:
			fail(i, "%v", err)
		case e > tol.Out:
			fail(i, "out is off by %.2e of its norm, more than %.0e", e, tol.Out)
		}

		got := float64(lse[i])
		switch d := math.Abs(got - want); {
		case math.IsInf(want, -1) && math.IsInf(got, -1):
		case math.IsInf(want, -1):
			fail(i, "lse is %v and must be -Inf: the row has no key", got)
		case math.IsNaN(got) || math.IsInf(got, 0):
			fail(i, "lse is %v and must be %.6g", got, want)
		default:
			worst.LSE = math.Max(worst.LSE, d)
			if d > tol.LSE {
				fail(i, "lse is %.7g and must be %.7g, off by %.2e, more than %.0e", got, want, d, tol.LSE)
			}
		}
	}
	return worst, first
}

// rowError is ‖got−want‖/‖want‖; a zero row must be matched exactly.
func rowError(want []float64, got []float32) (float64, error) {
	var diff, norm float64
	for j, g := range got {
		v := float64(g)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return 0, fmt.Errorf("out[%d] is %v and must be %.6g", j, v, want[j])
		}
		diff += (v - want[j]) * (v - want[j])
		norm += want[j] * want[j]
	}
	if norm == 0 {
		if diff != 0 {
			return 0, fmt.Errorf("out must be zero and has norm %.3g", math.Sqrt(diff))
		}
		return 0, nil
	}
	return math.Sqrt(diff / norm), nil
}

// Compare measures dense rows of out and natural lse against a reference. The
// first row that breaks a rule or misses the tolerance is the error.
func Compare(ref oracle.Result, out, lse []float32, tol cases.Tolerance, describe func(row int) string) (Errors, error) {
	return compare(ref, out, lse, false, tol, describe)
}
