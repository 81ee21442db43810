package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mlagen/mlagen/runtime"
)

// DefaultBudget is what tuning takes unless it is told otherwise.
const DefaultBudget = 5 * time.Second

// Config says what is tuned and how long that may take.
type Config struct {
	Source   Source
	Timer    Timer // nil with a budget of 0
	Card     Card
	Model    Model
	Tool     string // generator of the kernels; see Choices.Fits
	Envelope Envelope
	// Budget is the time that may pass, loading included; 0 takes the source's
	// defaults without measuring. What remains when all is measured goes into
	// further rounds.
	Budget time.Duration
	Start  time.Time // when the budget began; zero = at the call
	// Invariant keeps one row block and one number of forced pieces for all loads
	// with so many query tokens, the source's for the largest, and tunes only what
	// changes no bit: a request's result then depends on no other.
	Invariant bool
	Progress  func(Progress) // may be nil

	now func() time.Time // nil = time.Now
}

// Progress is how far tuning has come.
type Progress struct {
	Phase     string // "load", "search" or "confirm"
	Load      Load   // that is being searched
	Done      int    // loads searched
	Loads     int
	Spent, Of time.Duration
}

const (
	loadShare    = 0.4 // of the budget may pass before no further kernels are loaded
	confirmShare = 0.3 // of what is then left is for looking at candidates again
	endShare     = 0.03
	confirmRound = 2    // rounds of a load before the next one's turn
	mostRatios   = 4096 // of a finalist; time beyond that is not used
)

// Run tunes. Where ctx ends early or the budget does, loads that were not reached
// keep their defaults; that is no error. An error of the device ends the run; the
// choices then hold what was confirmed before and may be nil.
func Run(ctx context.Context, cfg Config) (*Choices, error) {
	if cfg.now == nil {
		cfg.now = time.Now
	}
	if cfg.Start.IsZero() {
		cfg.Start = cfg.now()
	}
	loads, err := cfg.check()
	if err != nil {
		return nil, fmt.Errorf("tune: %w", err)
	}
	t := &tuner{Config: cfg, clock: clock{ctx, cfg.now}, loads: loads, sms: max(1, cfg.Card.SMs)}
	for _, l := range loads {
		if cfg.Invariant {
			t.defaults = append(t.defaults, capacity(cfg.Source, cfg.Model, loads, l.SQ, t.sms))
		} else {
			t.defaults = append(t.defaults, defaults(cfg.Source, cfg.Model, l, t.sms))
		}
	}
	if cfg.Budget > 0 {
		err = t.measure()
	}
	for _, m := range t.matches {
		if m != nil {
			err = errors.Join(err, m.contest.Close())
		}
	}
	choices := t.choices()
	if err != nil {
		return choices, fmt.Errorf("tune: %w", err)
	}
	return choices, nil
}

func (cfg *Config) check() ([]Load, error) {
	switch {
	case cfg.Source == nil:
		return nil, errors.New("source was nil, must make the kernels")
	case cfg.Budget < 0:
		return nil, fmt.Errorf("budget was %v, must be 0 or more", cfg.Budget)
	case cfg.Budget > 0 && cfg.Timer == nil:
		return nil, errors.New("timer was nil, must measure where there is a budget")
	case cfg.Budget > 0 && cfg.Model != DeepSeek(cfg.Model.Heads):
		return nil, fmt.Errorf("model was %+v; what is timed is %+v", cfg.Model, DeepSeek(cfg.Model.Heads))
	}
	loads, err := cfg.Envelope.Buckets()
	if err != nil {
		return nil, err
	}
	for _, l := range loads {
		if n := cfg.Model.Heads; n < 1 || n > mostSQ/l.SQ {
			return nil, fmt.Errorf("model.heads was %d, must be 1 to %d with s_q %d", n, mostSQ/l.SQ, l.SQ)
		}
	}
	return loads, nil
}

// tuner is a run.
type tuner struct {
	Config
	clock    clock
	sms      int
	loads    []Load
	defaults []Choice
	matches  []*match // by load; nil where none was reached
}

func (t *tuner) at(share float64) time.Time {
	return t.Start.Add(time.Duration(share * float64(t.Budget)))
}

func (t *tuner) progress(phase string, done int) {
	if t.Progress == nil {
		return
	}
	p := Progress{Phase: phase, Done: done, Loads: len(t.loads), Spent: t.now().Sub(t.Start), Of: t.Budget}
	if done < len(t.loads) {
		p.Load = t.loads[done]
	}
	t.Progress(p)
}

// measure loads, searches and confirms.
func (t *tuner) measure() error {
	structured := make([][]Choice, len(t.loads))
	if !t.Invariant {
		for i, l := range t.loads {
			structured[i] = structures(t.Source, t.Model, l, t.defaults[i], t.sms)
		}
	}
	t.progress("load", 0)
	loaded, err := t.load(structured)
	if err != nil {
		return err
	}
	for i, l := range t.loads {
		structured[i] = slices.DeleteFunc(structured[i], func(c Choice) bool { return !loaded[t.Model.shape(l.SQ, c)] })
	}

	begin, end := t.now(), t.at(1-endShare)
	searchEnd := end.Add(-time.Duration(confirmShare * float64(end.Sub(begin))))
	record := newExperience()
	t.matches = make([]*match, len(t.loads))
	for i := range t.loads {
		now := t.now()
		slice := searchEnd.Sub(now) / time.Duration(len(t.loads)-i)
		if !t.clock.left(searchEnd, 0) {
			break
		}
		t.progress("search", i)
		m, err := t.open(i)
		if err != nil {
			return err
		}
		t.matches[i] = m
		s := search{match: m, clock: t.clock, record: record, variations: func(c Choice) []variation {
			return slices.DeleteFunc(variations(t.Model, m.load.SQ, c, t.sms), func(v variation) bool {
				next := c
				v.apply(&next)
				return !loaded[t.Model.shape(m.load.SQ, next)]
			})
		}}
		if err := s.run(structured[i], now.Add(slice)); err != nil {
			return err
		}
	}
	return t.confirm(end)
}

// load loads the kernels of the defaults, which must be there, and then others, in
// the order in which loads want them, as long as there is time.
func (t *tuner) load(structured [][]Choice) (map[runtime.DecodeShape]bool, error) {
	loaded, wanted := map[runtime.DecodeShape]bool{}, map[runtime.DecodeShape]float64{}
	var first, others []runtime.DecodeShape
	for i, l := range t.loads {
		if s := t.Model.shape(l.SQ, t.defaults[i]); !loaded[s] {
			loaded[s] = true
			first = append(first, s)
		}
	}
	want := func(s runtime.DecodeShape, weight float64) {
		if loaded[s] {
			return
		}
		if wanted[s] == 0 {
			others = append(others, s)
		}
		wanted[s] += weight
	}
	for i, l := range t.loads {
		varied := func(c Choice, weight float64) {
			for _, v := range variations(t.Model, l.SQ, c, t.sms) {
				next := c
				v.apply(&next)
				want(t.Model.shape(l.SQ, next), weight)
			}
		}
		varied(t.defaults[i], 0.5)
		for n, c := range structured[i] {
			want(t.Model.shape(l.SQ, c), 1/float64(1+n))
			varied(c, 0.1/float64(1+n))
		}
	}
	slices.SortStableFunc(others, func(a, b runtime.DecodeShape) int { return cmp.Compare(wanted[b], wanted[a]) })
	if err := t.Timer.Load(first); err != nil {
		return nil, err
	}
	for took := time.Duration(0); len(others) > 0 && t.clock.left(t.at(loadShare), took); {
		n := min(len(others), loadTogether)
		begin := t.now()
		if err := t.Timer.Load(others[:n]); err != nil {
			return nil, err
		}
		for _, s := range others[:n] {
			loaded[s] = true
		}
		others, took = others[n:], t.now().Sub(begin)
	}
	return loaded, nil
}

// loadTogether is how many choices' kernels are loaded side by side.
const loadTogether = 6

// open prepares a load's contest with its default.
func (t *tuner) open(i int) (*match, error) {
	c, err := t.Timer.Contest(t.loads[i])
	if err != nil {
		return nil, err
	}
	entry, err := c.Enter(t.defaults[i])
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &match{load: t.loads[i], contest: c, def: &entrant{Choice: t.defaults[i], entry: entry}}, nil
}

// confirm times candidates against their defaults anew, load after load and again,
// until the time is up.
func (t *tuner) confirm(end time.Time) error {
	t.progress("confirm", len(t.loads))
	var open []*match
	for _, m := range t.matches {
		if m != nil && m.finalist != nil {
			m.def.times = nil // of the same minutes as the finalist's
			open = append(open, m)
		}
	}
	for len(open) > 0 {
		at := t.now()
		for _, m := range open {
			for range confirmRound {
				if ok, err := m.round(t.clock, end, []*entrant{m.finalist}); err != nil || !ok {
					return err
				}
			}
		}
		open = slices.DeleteFunc(open, func(m *match) bool { return len(m.finalist.ratios) >= mostRatios })
		if !t.now().After(at) { // a clock that stands
			return errors.New("time does not pass")
		}
	}
	return nil
}

// choices is what was found.
func (t *tuner) choices() *Choices {
	c := &Choices{Schema: Schema, Tool: t.Tool, Card: t.Card, Model: t.Model, Invariant: t.Invariant, Budget: t.Budget.Seconds()}
	for i, l := range t.loads {
		b := Bucket{Load: l, Default: t.defaults[i], Choice: t.defaults[i], Gain: 1}
		if t.matches != nil && t.matches[i] != nil {
			b = t.matches[i].bucket()
		}
		c.Buckets = append(c.Buckets, b)
	}
	c.Spent = t.now().Sub(t.Start).Seconds()
	c.Interrupted = t.clock.ctx.Err() != nil
	return c
}
