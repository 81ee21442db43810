package oracle

import "math"

// Merge combines partial states over disjoint sets of keys into the state
// over their union: outputs weighted by exp(lse), renormalised. An empty state
// (−Inf) contributes nothing whatever its output holds, and empty states merge
// to an empty one.
func Merge(states ...Result) Result {
	if len(states) == 0 {
		return Result{}
	}
	r := newResult(len(states[0].LSE), states[0].Width)
	for i := range r.LSE {
		top := math.Inf(-1)
		for _, s := range states {
			top = math.Max(top, s.LSE[i])
		}
		if math.IsInf(top, -1) {
			r.LSE[i] = top
			continue
		}
		sum := 0.0
		for _, s := range states {
			sum += math.Exp(s.LSE[i] - top)
		}
		for _, s := range states {
			if weight := math.Exp(s.LSE[i]-top) / sum; weight > 0 {
				accumulate(r.Row(i), weight, s.Row(i))
			}
		}
		r.LSE[i] = top + math.Log(sum)
	}
	return r
}
