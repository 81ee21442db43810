package tune

import (
	"slices"
	"time"
)

const (
	firstRounds  = 2     // of all structures
	secondRounds = 3     // of the better half
	variedRounds = 4     // of variations
	helpful      = 0.997 // variations that take less than so much of the time are tried together
	tie          = 1.003 // times that differ by less are taken for equal
	promising    = 0.998 // what takes less than so much of the default's is looked at again in the end
)

// search finds what looks best for a load: first among row blocks and cuts, by
// halves, then among variations of the best. What it finds is only a candidate:
// of many, the best looks better than it is.
type search struct {
	*match
	clock      clock
	variations func(Choice) []variation // that can be loaded
	record     *experience

	begin, end time.Time
	field      []*entrant // that may become the finalist
}

// share is when a share of the search's time has passed.
func (s *search) share(f float64) time.Time {
	return s.begin.Add(time.Duration(f * float64(s.end.Sub(s.begin))))
}

// run searches until a deadline at the latest.
func (s *search) run(structures []Choice, deadline time.Time) error {
	s.begin, s.end = s.clock.now(), deadline
	base, err := s.structure(structures)
	if err == nil {
		err = s.vary(base)
	}
	if err != nil {
		return err
	}
	if lead := s.lead(); lead != nil && lead.ratio() < promising {
		s.finalist = &entrant{Choice: lead.Choice, entry: lead.entry} // without the ratios that made it so
	}
	return nil
}

// lead returns the best of the field, nil where it is empty: of those that are as
// fast as any but for a tie, the one that differs least from the default.
func (s *search) lead() (lead *entrant) {
	for _, e := range best(s.field, len(s.field)) {
		if lead == nil || e.ratio() <= tie*best(s.field, 1)[0].ratio() && e.differs(s.def.Choice) < lead.differs(s.def.Choice) {
			lead = e
		}
	}
	return lead
}

// structure times row blocks and cuts and returns the best, which may be the
// default.
func (s *search) structure(structures []Choice) (*entrant, error) {
	for _, c := range structures {
		if len(s.field) > 0 && !s.clock.left(s.share(0.2), 0) {
			break
		}
		if err := s.add(c, &s.field); err != nil {
			return nil, err
		}
	}
	if err := s.rounds(s.clock, s.share(0.45), firstRounds, s.field); err != nil {
		return nil, err
	}
	s.field = best(s.field, max(2, len(s.field)/2))
	if err := s.rounds(s.clock, s.share(0.6), secondRounds, s.field); err != nil {
		return nil, err
	}
	if lead := s.lead(); lead != nil && lead.ratio() < promising {
		return lead, nil
	}
	return s.def, nil
}

// add has a choice enter, into a list of those that did.
func (s *search) add(c Choice, to *[]*entrant) error {
	e, err := s.enter(c)
	if e != nil {
		*to = append(*to, e)
	}
	return err
}

// vary times variations of a choice one by one, and then those together that
// helped.
func (s *search) vary(base *entrant) error {
	var varied []*entrant
	var changes []variation // that made them
	for _, v := range s.record.order(s.variations(base.Choice)) {
		if len(varied) > 0 && !s.clock.left(s.share(0.7), 0) {
			break
		}
		next, n := base.Choice, len(varied)
		v.apply(&next)
		if err := s.add(next, &varied); err != nil {
			return err
		}
		if len(varied) > n {
			changes = append(changes, v)
		}
	}
	timed := varied
	if base != s.def {
		timed = append([]*entrant{base}, varied...)
	}
	if err := s.rounds(s.clock, s.share(0.9), variedRounds, timed); err != nil {
		return err
	}
	s.field = append(s.field, varied...)

	together, helped := base.Choice, map[string]bool{} // one value of each field, the best
	for _, e := range best(varied, len(varied)) {
		v := changes[slices.Index(varied, e)]
		gain := e.ratio() / base.ratio()
		s.record.add(v.name, gain)
		if gain < helpful && !helped[v.field] {
			v.apply(&together)
			helped[v.field] = true
		}
	}
	if len(helped) < 2 || !s.clock.left(s.end, 0) {
		return nil
	}
	rivals := best(s.field, 1)
	if err := s.add(together, &rivals); err != nil {
		return err
	}
	s.field = append(s.field, rivals[1:]...)
	return s.rounds(s.clock, s.end, variedRounds, rivals)
}

// experience is what variations gave, over loads: what helped elsewhere is tried
// first where time is short.
type experience struct {
	sum   map[string]float64
	count map[string]int
}

func newExperience() *experience { return &experience{map[string]float64{}, map[string]int{}} }

func (x *experience) add(name string, ratio float64) {
	x.sum[name] += ratio
	x.count[name]++
}

// order sorts variations by what they gave, those without a record first.
func (x *experience) order(all []variation) []variation {
	mean := func(v variation) float64 {
		if n := x.count[v.name]; n > 0 {
			return x.sum[v.name] / float64(n)
		}
		return 0
	}
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b variation) int {
		switch p, q := mean(a), mean(b); {
		case p < q:
			return -1
		case p > q:
			return 1
		}
		return 0
	})
	return sorted
}

const (
	// A choice is taken where the median of fresh ratios to the default is below 1
	// by more than margin and by more than so many times its noise.
	margin     = 0.005
	sigmas     = 4
	leastPairs = 6
)

// confirm decides about the finalist by what was measured since it was found.
func (m *match) confirm() bool {
	f := m.finalist
	if f == nil || len(f.ratios) < leastPairs {
		return false
	}
	r := f.ratio()
	return r < 1-margin && r < 1-sigmas*noise(f.ratios)
}

// bucket is the match's outcome.
func (m *match) bucket() Bucket {
	b := Bucket{Load: m.load, Default: m.def.Choice, Choice: m.def.Choice, Gain: 1, Tried: m.tried}
	if len(m.def.times) > 0 {
		b.DefaultUS = median(m.def.times)
		b.ChosenUS = b.DefaultUS
	}
	if m.confirm() {
		f := m.finalist
		b.Choice, b.ChosenUS, b.Gain, b.Rounds = f.Choice, median(f.times), 1/f.ratio(), len(f.ratios)
	}
	return b
}
