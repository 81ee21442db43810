package tune

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/bench"
)

// Timer measures on a device.
type Timer interface {
	// Whole reports of each of the kernels whether loading it now compiles a whole
	// program (see runtime.WholeProgram): the driver compiles one after another.
	Whole([]runtime.DecodeShape) []bool
	// Load loads kernels, side by side where the driver can. Those that cannot be
	// loaded are left out; Contest.Enter says why.
	Load([]runtime.DecodeShape) error
	// Contest prepares to time a load.
	Contest(Load) (Contest, error)
}

// Contest times choices for one load in turns.
type Contest interface {
	// Enter adds a choice and returns its number. A *bench.LoadError or a
	// *bench.WrongError concerns the choice alone.
	Enter(Choice) (int, error)
	// Burst runs a choice's calls on a cold L2 and returns the microseconds of one.
	Burst(entry int) (float64, error)
	Close() error
}

// entrant is a choice in a contest.
type entrant struct {
	Choice
	entry  int
	ratios []float64 // its time ÷ the default's in the same round
	times  []float64
}

// ratio is the median of the ratios, 1 without any.
func (e *entrant) ratio() float64 {
	if len(e.ratios) == 0 {
		return 1
	}
	return median(e.ratios)
}

// match is the contest for one load.
type match struct {
	load     Load
	contest  Contest
	def      *entrant  // the default, entry 0
	searched []float64 // the default's times before it met the finalist
	finalist *entrant  // nil where nothing looks better
	tried    int
	flip     bool // the next round runs backwards
	burst    time.Duration
	refused  []error
}

// clock tells the time and when to stop.
type clock struct {
	ctx context.Context
	now func() time.Time
}

// left reports whether something that takes d ends before a deadline, and nobody
// has interrupted.
func (c clock) left(deadline time.Time, d time.Duration) bool {
	return c.ctx.Err() == nil && c.now().Add(d).Before(deadline)
}

// enter adds a choice; nil, without an error, where only it is at fault.
func (m *match) enter(c Choice) (*entrant, error) {
	entry, err := m.contest.Enter(c)
	var load *bench.LoadError
	var wrong *bench.WrongError
	switch {
	case errors.As(err, &load), errors.As(err, &wrong):
		m.refused = append(m.refused, err)
		return nil, nil
	case err != nil:
		return nil, err
	}
	m.tried++
	return &entrant{Choice: c, entry: entry}, nil
}

// round runs the default and the entrants once each, every other time in reverse
// order, so that what drifts cancels. It reports false where the time is up.
func (m *match) round(c clock, deadline time.Time, entrants []*entrant) (bool, error) {
	order := append([]*entrant{m.def}, entrants...)
	if !c.left(deadline, time.Duration(len(order))*m.burst) {
		return false, nil
	}
	if m.flip {
		slices.Reverse(order)
	}
	m.flip = !m.flip
	begin := c.now()
	times := make(map[*entrant]float64, len(order))
	for _, e := range order {
		if c.ctx.Err() != nil {
			return false, nil
		}
		t, err := m.contest.Burst(e.entry)
		if err != nil {
			return false, err
		}
		times[e] = t
	}
	m.burst = c.now().Sub(begin) / time.Duration(len(order))
	base := times[m.def]
	for e, t := range times {
		e.times = append(e.times, t)
		if e != m.def && base > 0 {
			e.ratios = append(e.ratios, t/base)
		}
	}
	return true, nil
}

// rounds runs so many rounds, or as many as there is time for.
func (m *match) rounds(c clock, deadline time.Time, n int, entrants []*entrant) error {
	if len(entrants) == 0 {
		return nil
	}
	for range n {
		if ok, err := m.round(c, deadline, entrants); !ok || err != nil {
			return err
		}
	}
	return nil
}

// best sorts entrants by their ratios and returns the first n.
func best(entrants []*entrant, n int) []*entrant {
	sorted := slices.Clone(entrants)
	slices.SortStableFunc(sorted, func(a, b *entrant) int {
		switch x, y := a.ratio(), b.ratio(); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	return sorted[:min(n, len(sorted))]
}

func median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	n := len(s)
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// noise is about the standard error of the median of x, from the median of the
// distances to it: single outliers do not count.
func noise(x []float64) float64 {
	m := median(x)
	off := make([]float64, len(x))
	for i, v := range x {
		off[i] = math.Abs(v - m)
	}
	const deviation, medianError = 1.4826, 1.2533 // of a normal distribution
	return deviation * medianError * median(off) / math.Sqrt(float64(len(x)))
}
