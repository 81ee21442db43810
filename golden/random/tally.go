package random

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/check"
)

// Tally counts outcomes by operation.
type Tally struct {
	Begin   time.Time
	Ops     map[string]Count
	Sampled int // cases that ran on an emulated device too
}

// Count is the outcomes of an operation's cases.
type Count struct {
	Passed, Failed, Skipped int
	Relations               int // that held beside
	Skip                    string
	// Near is how near a passing case came to its tolerance, at most 1.
	Near float64
}

func newTally() Tally { return Tally{Begin: time.Now(), Ops: map[string]Count{}} }

func (t Tally) clone() Tally {
	t.Ops = maps.Clone(t.Ops)
	return t
}

func (t *Tally) count(c *cases.Case, o check.Outcome) {
	n := t.Ops[c.Op]
	switch o.Status {
	case check.OK:
		n.Passed++
		n.Relations += len(c.Holds)
		for _, e := range [][2]float64{{o.Errors.Out, c.Tolerance.Out}, {o.Errors.LSE, c.Tolerance.LSE}} {
			n.Near = math.Max(n.Near, e[0]/e[1])
		}
	case check.Failed:
		n.Failed++
	case check.Skipped:
		n.Skipped++
		n.Skip = o.Reason
	}
	t.Ops[c.Op] = n
}

// Total is the sum over all operations.
func (t Tally) Total() (all Count) {
	for _, n := range t.Ops {
		all.Passed, all.Failed, all.Skipped, all.Relations = all.Passed+n.Passed, all.Failed+n.Failed, all.Skipped+n.Skipped, all.Relations+n.Relations
	}
	return all
}

// String is a line on all operations.
func (t Tally) String() string {
	n, since := t.Total(), time.Since(t.Begin)
	done := n.Passed + n.Failed + n.Skipped
	s := fmt.Sprintf("%d cases in %s, %.1f a second, %d passed (and %d relations), %d failed",
		done, since.Round(time.Second), float64(done)/since.Seconds(), n.Passed, n.Relations, n.Failed)
	if n.Skipped > 0 {
		s += fmt.Sprintf(", %d skipped", n.Skipped)
	}
	if t.Sampled > 0 {
		s += fmt.Sprintf(", %d on the emulator too", t.Sampled)
	}
	return s
}

// Details is a line for each operation.
func (t Tally) Details() string {
	var b strings.Builder
	for _, op := range slices.Sorted(maps.Keys(t.Ops)) {
		n := t.Ops[op]
		fmt.Fprintf(&b, "%-9s %6d passed, %d relations, %d failed, at most %.0f %% of a tolerance", op, n.Passed, n.Relations, n.Failed, 100*n.Near)
		if n.Skipped > 0 {
			fmt.Fprintf(&b, ", %d skipped: %s", n.Skipped, n.Skip)
		}
		b.WriteString("\n")
	}
	return b.String()
}
