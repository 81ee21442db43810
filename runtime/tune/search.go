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
// halves, then among variations of the best. It goes on where it stopped when
// further kernels are there. What it finds is only a candidate: of many, the best
// looks better than it is.
type search struct {
	*match
	clock      clock
	variations func(Choice) []variation
	loaded     func(Choice) bool
	record     *experience

	begin, end time.Time
	entered    map[Choice]bool // what was tried, with or without success
	plain      []*entrant      // row blocks and cuts that did best, unvaried
	field      []*entrant      // that may become the finalist
	base       *entrant        // of the variations below
	varied     []*entrant
	changes    []variation // that made them
}

// share is when a share of the search's time has passed.
func (s *search) share(f float64) time.Time {
	return s.begin.Add(time.Duration(f * float64(s.end.Sub(s.begin))))
}

// pending returns what was not tried yet of choices whose kernels are loaded.
func (s *search) pending(choices []Choice) (left []Choice) {
	for _, c := range choices {
		if !s.entered[c] && s.loaded(c) {
			left = append(left, c)
		}
	}
	return left
}

// pendingVariations likewise returns variations of a choice.
func (s *search) pendingVariations(c Choice) []variation {
	return slices.DeleteFunc(s.variations(c), func(v variation) bool {
		next := c
		v.apply(&next)
		return s.entered[next] || !s.loaded(next)
	})
}

// more reports whether there is something to try.
func (s *search) more(structures []Choice) bool {
	return len(s.pending(structures)) > 0 || len(s.pendingVariations(s.best(s.plain).Choice)) > 0
}

// run tries what of row blocks and cuts is loaded and was not tried, and variations
// of the best, until a deadline at the latest.
func (s *search) run(structures []Choice, deadline time.Time) error {
	s.begin, s.end = s.clock.now(), deadline
	err := s.structure(s.pending(structures))
	if err == nil {
		err = s.vary(s.best(s.plain))
	}
	if err == nil && len(s.def.times) == 0 { // there is nothing to try
		_, err = s.round(s.clock, s.end, nil)
	}
	if err != nil {
		return err
	}
	s.finalist = nil
	if lead := s.best(s.field); lead != s.def {
		s.finalist = &entrant{Choice: lead.Choice, entry: lead.entry} // without the ratios that made it so
	}
	return nil
}

// best returns the lead of a field where it is promising, otherwise the default.
func (s *search) best(field []*entrant) *entrant {
	if lead := s.lead(field); lead != nil && lead.ratio() < promising {
		return lead
	}
	return s.def
}

// lead returns the best of a field, nil where it is empty: of those that are as
// fast as any but for a tie, the one that differs least from the default.
func (s *search) lead(field []*entrant) (lead *entrant) {
	for _, e := range best(field, len(field)) {
		if lead == nil || e.ratio() <= tie*best(field, 1)[0].ratio() && e.differs(s.def.Choice) < lead.differs(s.def.Choice) {
			lead = e
		}
	}
	return lead
}

// structure times row blocks and cuts, and the best so far with them.
func (s *search) structure(choices []Choice) error {
	var fresh []*entrant
	for _, c := range choices {
		if len(fresh) > 0 && !s.clock.left(s.share(0.2), 0) {
			break
		}
		if err := s.add(c, &fresh); err != nil {
			return err
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	rivals := append(best(s.plain, 1), fresh...)
	if err := s.rounds(s.clock, s.share(0.45), firstRounds, rivals); err != nil {
		return err
	}
	rivals = best(rivals, max(2, len(rivals)/2))
	if err := s.rounds(s.clock, s.share(0.6), secondRounds, rivals); err != nil {
		return err
	}
	for _, e := range rivals {
		if !slices.Contains(s.plain, e) {
			s.plain, s.field = append(s.plain, e), append(s.field, e)
		}
	}
	return nil
}

// add has a choice enter, into a list of those that did.
func (s *search) add(c Choice, to *[]*entrant) error {
	s.entered[c] = true
	e, err := s.enter(c)
	if e != nil {
		*to = append(*to, e)
	}
	return err
}

// vary times variations of a choice one by one, and then those together that
// helped.
func (s *search) vary(base *entrant) error {
	if base != s.base {
		s.base, s.varied, s.changes = base, nil, nil
	}
	known := len(s.varied)
	for _, v := range s.record.order(s.pendingVariations(base.Choice)) {
		if len(s.varied) > known && !s.clock.left(s.share(0.7), 0) {
			break
		}
		next, n := base.Choice, len(s.varied)
		v.apply(&next)
		if err := s.add(next, &s.varied); err != nil {
			return err
		}
		if len(s.varied) > n {
			s.changes = append(s.changes, v)
		}
	}
	fresh := s.varied[known:]
	if len(fresh) == 0 {
		return nil
	}
	timed := slices.Clone(fresh)
	if base != s.def {
		timed = append(timed, base)
	}
	if err := s.rounds(s.clock, s.share(0.9), variedRounds, timed); err != nil {
		return err
	}
	s.field = append(s.field, fresh...)

	together, helped := base.Choice, map[string]bool{} // one value of each field, the best
	for _, e := range best(s.varied, len(s.varied)) {
		v := s.changes[slices.Index(s.varied, e)]
		gain := e.ratio() / base.ratio()
		if slices.Contains(fresh, e) {
			s.record.add(v.name, gain)
		}
		if gain < helpful && !helped[v.field] {
			v.apply(&together)
			helped[v.field] = true
		}
	}
	if len(helped) < 2 || s.entered[together] || !s.loaded(together) || !s.clock.left(s.end, 0) {
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
	times := m.def.times
	if len(times) == 0 {
		times = m.searched
	}
	if len(times) > 0 {
		b.DefaultUS = median(times)
		b.ChosenUS = b.DefaultUS
	}
	if m.confirm() {
		f := m.finalist
		b.Choice, b.ChosenUS, b.Gain, b.Rounds = f.Choice, median(f.times), 1/f.ratio(), len(f.ratios)
	}
	return b
}
