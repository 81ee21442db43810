package verify

// maxRounds ends a search for a fixed point that does not come to one.
const maxRounds = 100

// fixedPoint follows states of type S along the control flow until none
// changes, and then once more to report. out holds the state at each block's
// end, nil as long as none is known; in joins what comes into a block, nil for
// nothing; walk carries a state through a block. Without a fixed point nothing
// is reported, and fixedPoint returns false.
func fixedPoint[S any](g *graph, out []*S, in func(b int) *S, walk func(b int, s *S, report bool), equal func(x, y *S) bool) bool {
	for round, changed := 0, true; changed; round++ {
		if round == maxRounds {
			return false
		}
		changed = false
		for _, b := range g.order {
			s := in(b)
			if s == nil {
				continue
			}
			walk(b, s, false)
			if out[b] == nil || !equal(out[b], s) {
				out[b], changed = s, true
			}
		}
	}
	for _, b := range g.order {
		if s := in(b); s != nil {
			walk(b, s, true)
		}
	}
	return true
}

// unfollowed reports that nothing is known about a kernel: that is no pass.
func (c *kernelChecker) unfollowed(rule string) {
	c.report(nil, rule, "the kernel's control flow could not be followed in %d rounds", maxRounds)
}
