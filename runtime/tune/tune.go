package tune

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
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
	defaultShare = 0.8 // of the budget may pass before no further default's kernels are begun with
	confirmShare = 0.3 // of what is then left is for looking at candidates again
	endShare     = 0.03
	confirmRound = 2    // rounds of a load before the next one's turn
	mostRatios   = 4096 // of a finalist; time beyond that is not used

	// Of the time for searching:
	loadedShare = 0.35 // at most for what needs no further kernel, where others could be loaded
	apartShare  = 0.6  // of what is then left may pass before no kernels that compile apart are begun with
	wholeShare  = 0.45 // at most for compiling whole programs
	lastShare   = 0.2  // for searching with them
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
	for _, s := range t.searches {
		if s != nil {
			err = errors.Join(err, s.contest.Close())
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
	clock      clock
	sms        int
	loads      []Load
	defaults   []Choice
	structures [][]Choice // by load: row blocks and cuts to try
	searches   []*search  // by load; nil where none was reached
	stock      *stock
	record     *experience
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

// measure loads, searches and confirms. The defaults' kernels come first, for they
// are needed anyway; then what can be tried without further kernels, what with
// kernels that compile side by side, and whole programs, a second or two each, if
// there is time for them. Nothing is compiled while something is timed.
func (t *tuner) measure() error {
	t.stock, t.record = newStock(t.Timer, t.now), newExperience()
	t.structures, t.searches = make([][]Choice, len(t.loads)), make([]*search, len(t.loads))
	if !t.Invariant {
		for i, l := range t.loads {
			t.structures[i] = structures(t.Source, t.Model, l, t.defaults[i], t.sms)
		}
	}
	t.progress("load", 0)
	if err := t.loadDefaults(); err != nil {
		return err
	}
	begin, end := t.now(), t.at(1-endShare)
	last := between(begin, end, 1-confirmShare)
	apart, whole := t.stock.split(t.wishes(t.ready).sorted())
	if most := between(begin, last, wholeShare).Sub(begin) / max(1, t.stock.whole); len(whole) > int(most) {
		whole = whole[:max(0, most)]
	}
	others := last // when searching without whole programs ends
	if n := time.Duration(len(whole)); n > 0 {
		others = between(begin, last, 1-lastShare).Add(-n * t.stock.whole)
	}
	first := others
	if t.clock.left(between(begin, others, apartShare), t.stock.together) && len(apart) > 0 {
		first = between(begin, others, loadedShare)
	}

	if err := t.search(first); err != nil {
		return err
	}
	for limit := between(t.now(), others, apartShare); len(apart) > 0 && t.clock.left(limit, t.stock.together); {
		n := min(len(apart), loadTogether)
		if err := t.stock.load(apart[:n]); err != nil {
			return err
		}
		apart = apart[n:]
	}
	if err := t.search(others); err != nil {
		return err
	}
	for _, s := range whole {
		if !t.clock.left(between(begin, last, 1-lastShare/2), t.stock.whole) {
			break
		}
		t.progress("load", len(t.loads))
		if err := t.stock.load(nil, s); err != nil {
			return err
		}
	}
	if err := t.search(last); err != nil {
		return err
	}
	return t.confirm(end)
}

// between returns when a share of the time from begin to end has passed.
func between(begin, end time.Time, share float64) time.Time {
	return begin.Add(time.Duration(share * float64(end.Sub(begin))))
}

// search has every load try what it can with the kernels that are loaded, until a
// deadline.
func (t *tuner) search(deadline time.Time) error {
	var todo []int
	for i := range t.loads {
		if s := t.searches[i]; t.ready(i) && (s == nil || s.more(t.structures[i])) {
			todo = append(todo, i)
		}
	}
	for n, i := range todo {
		now := t.now()
		slice := deadline.Sub(now) / time.Duration(len(todo)-n)
		if !t.clock.left(deadline, 0) {
			break
		}
		t.progress("search", i)
		if t.searches[i] == nil {
			if err := t.open(i); err != nil {
				return err
			}
		}
		if err := t.searches[i].run(t.structures[i], now.Add(slice)); err != nil {
			return err
		}
	}
	return nil
}

// open prepares a load's search with its default.
func (t *tuner) open(i int) error {
	l := t.loads[i]
	c, err := t.Timer.Contest(l)
	if err != nil {
		return err
	}
	entry, err := c.Enter(t.defaults[i])
	if err != nil {
		return errors.Join(err, c.Close())
	}
	t.searches[i] = &search{
		match: &match{load: l, contest: c, def: &entrant{Choice: t.defaults[i], entry: entry}},
		clock: t.clock, record: t.record, entered: map[Choice]bool{t.defaults[i]: true},
		variations: func(c Choice) []variation { return variations(t.Model, l, c, t.sms) },
		loaded:     func(c Choice) bool { return t.stock.has[t.Model.shape(l.SQ, c)] },
	}
	return nil
}

// confirm times candidates against their defaults anew, load after load and again,
// until the time is up.
func (t *tuner) confirm(end time.Time) error {
	t.progress("confirm", len(t.loads))
	var open []*match
	for _, s := range t.searches {
		if s != nil && s.finalist != nil {
			s.searched, s.def.times = s.def.times, nil // they are to be of the same minutes as the finalist's
			open = append(open, s.match)
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
		if t.searches != nil && t.searches[i] != nil {
			b = t.searches[i].bucket()
		}
		c.Buckets = append(c.Buckets, b)
	}
	c.Spent = t.now().Sub(t.Start).Seconds()
	c.Interrupted = t.clock.ctx.Err() != nil
	return c
}
