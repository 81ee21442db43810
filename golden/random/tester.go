package random

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/check"
	"github.com/mlagen/mlagen/ptx/emu"
	"github.com/mlagen/mlagen/runtime"
)

// Options say what is drawn and where it runs.
type Options struct {
	// Open opens a device for a group of cases, which closes it in the end.
	// Groups run side by side, see Share.
	Open   func(Group) (runtime.Driver, error)
	Source runtime.Source // of the kernels

	// Sample runs every so many-th case on an emulated device as well, which
	// OpenEmulated opens, for hazards; 0 = none.
	Sample       int
	OpenEmulated func(Group) (runtime.Driver, error)

	Seed     uint64
	Cases    int           // how many, 0 = until the time is over
	Duration time.Duration // how long at most, 0 = until all are done
	PerGroup int           // cases that share kernels
	Workers  int           // groups that run side by side
	Limits   Limits

	Failures string // directory for failing cases
	// Stall is how long a case may take before it counts as hanging, 0 = for ever.
	Stall time.Duration
	// Tries is how many cases a failing one may cost to shrink.
	Tries int

	// Every is how often hanging cases are looked for, 0 = every 5 seconds.
	// Progress, when not nil, is told as often how far the run is, and Found of
	// every failure.
	Every    time.Duration
	Progress func(Tally)
	Found    func(Failure)
}

// Failure is a case that failed, as small as it could be made.
type Failure struct {
	File   string
	Case   *cases.Case
	Reason string
	SMs    int // of the emulated device, 0 for another
	Seeds  int // schedules on it, from FirstSeed on
	First  uint64
}

// String tells the failure and how to see it again.
func (f Failure) String() string {
	again := f.File
	if f.SMs > 0 {
		again = fmt.Sprintf("-sms %d -seeds %d -seed %d %s", f.SMs, f.Seeds, f.First, f.File)
	}
	return fmt.Sprintf("FAIL %s: %s\n  again: mlagen check %s", f.Case.Name, f.Reason, again)
}

// tester is a run.
type tester struct {
	Options
	next  atomic.Int64 // group
	ended context.CancelFunc

	mu      sync.Mutex
	tally   Tally
	running map[int]inFlight // by worker
}

// inFlight is what a worker does.
type inFlight struct {
	c     *cases.Case
	since time.Time
}

// ErrLost is the error of a run whose device no longer works, or hangs.
var ErrLost = errors.New("the device is lost")

// Run draws and runs cases until all are done, the time is over or ctx is. The
// tally says what was found; the error, why the run could not go on.
func Run(ctx context.Context, o Options) (Tally, error) {
	t := &tester{Options: o, running: map[int]inFlight{}}
	t.tally = newTally()
	if o.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Duration)
		defer cancel()
	}
	ctx, t.ended = context.WithCancel(ctx)
	defer t.ended()

	failed := make(chan error, o.Workers)
	for w := range o.Workers {
		go func() { failed <- t.work(ctx, w) }()
	}
	if o.Every == 0 {
		o.Every = 5 * time.Second
	}
	tick := time.NewTicker(o.Every)
	defer tick.Stop()
	var errs []error
	for left := o.Workers; left > 0; {
		select {
		case err := <-failed:
			if left--; err != nil {
				errs = append(errs, err)
				t.ended()
			}
		case <-tick.C:
			if hanging := t.hanging(); len(hanging) > 0 {
				t.suspect(hanging, fmt.Sprintf("it did not end within %v", o.Stall))
				return t.now(), fmt.Errorf("%w: %d cases hang", ErrLost, len(hanging))
			}
			if o.Progress != nil {
				o.Progress(t.now())
			}
		}
	}
	return t.now(), errors.Join(errs...)
}

// now is the tally so far.
func (t *tester) now() Tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tally.clone()
}

// work runs groups until none is left.
func (t *tester) work(ctx context.Context, worker int) error {
	for ctx.Err() == nil {
		group := int(t.next.Add(1) - 1)
		first := group * t.PerGroup
		if t.Cases > 0 && first >= t.Cases {
			return nil
		}
		last := first + t.PerGroup
		if t.Cases > 0 {
			last = min(last, t.Cases)
		}
		if err := t.group(ctx, worker, DrawGroup(t.Seed, group, t.Limits), first, last); err != nil {
			return err
		}
	}
	return nil
}

// group runs the cases first to last−1.
func (t *tester) group(ctx context.Context, worker int, g Group, first, last int) (err error) {
	defer t.idle(worker)
	r, err := t.runner(t.Open, g)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close(), r.Driver.Close()) }()
	var sampled *check.Runner // opened when it is wanted
	defer func() {
		if sampled != nil {
			err = errors.Join(err, sampled.Close(), sampled.Driver.Close())
		}
	}()
	for number := first; number < last && ctx.Err() == nil; number++ {
		c := g.Draw(t.Seed, number, t.Limits)
		if err := t.one(ctx, worker, r, g, c, number); err != nil {
			return err
		}
		if t.Sample == 0 || number%t.Sample != 0 || cost(c, true) > mostSampled {
			continue
		}
		if sampled == nil {
			if sampled, err = t.runner(t.OpenEmulated, g); err != nil {
				return err
			}
		}
		if err := t.one(ctx, worker, sampled, g, c, number); err != nil {
			return err
		}
	}
	return nil
}

// mostSampled is how many seconds a case may take on the emulator to be run there
// as well.
const mostSampled = 3

// runner opens a device for a group.
func (t *tester) runner(open func(Group) (runtime.Driver, error), g Group) (*check.Runner, error) {
	driver, err := open(g)
	if err != nil {
		return nil, err
	}
	o := check.Options{Driver: driver, Source: t.Source}
	if e, ok := driver.(interface{ Reports() []*emu.Report }); ok {
		o.Hazards = true
		o.Inspect = func(uint64) error { return doubts(e.Reports()) }
	}
	return check.New(o), nil
}

// one runs a case, and looks into it where it fails.
func (t *tester) one(ctx context.Context, worker int, r *check.Runner, g Group, c *cases.Case, number int) error {
	r.Seeds, r.Seed = 1, 0
	if r.Hazards { // a device that a seed drives
		r.Seed = uint64(number)
		if number%4 == 0 {
			r.Seeds = 3
		}
	}
	t.busy(worker, c)
	outcome := r.Case(c)
	t.count(c, outcome, r.Hazards && t.Sample > 0)
	if outcome.Status != check.Failed {
		return nil
	}
	return t.failed(ctx, worker, r, g, c, outcome.Reason, number)
}

// doubts is an error where an observer has found or doubted anything: what a
// launch does not fail for.
func doubts(reports []*emu.Report) error {
	for _, r := range reports {
		for _, h := range r.Hazards {
			return fmt.Errorf("%s: %v", r.Kernel, h)
		}
	}
	return nil
}

func (t *tester) busy(worker int, c *cases.Case) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running[worker] = inFlight{c, time.Now()}
}

func (t *tester) idle(worker int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.running, worker)
}

func (t *tester) count(c *cases.Case, o check.Outcome, sampled bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if sampled {
		t.tally.Sampled++
	}
	if !sampled || o.Status == check.Failed {
		t.tally.count(c, o)
	}
}

// hanging returns the cases that have been running for too long.
func (t *tester) hanging() (hanging []*cases.Case) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.running {
		if t.Stall > 0 && time.Since(f.since) > t.Stall {
			hanging = append(hanging, f.c)
		}
	}
	return hanging
}

// failed writes a failing case down, shrinks it and writes the result.
func (t *tester) failed(ctx context.Context, worker int, r *check.Runner, g Group, c *cases.Case, reason string, number int) error {
	f := Failure{Case: c, Reason: reason, Seeds: r.Seeds, First: r.Seed}
	if r.Hazards {
		f.SMs = g.SMs
	}
	f.File = filepath.Join(t.Failures, fmt.Sprintf("failure-%d-%d.json", t.Seed, number))
	if err := f.write(); err != nil {
		return err
	}
	if err := works(r.Driver); err != nil {
		return t.lost(err)
	}
	least, err := Shrink(c, t.Tries, func(x *cases.Case) (bool, error) {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		t.busy(worker, x)
		r.Seed = f.First
		o := r.Case(x)
		if o.Status != check.Failed {
			return false, nil
		}
		f.Reason = o.Reason
		return true, works(r.Driver)
	})
	f.Case = least
	if err := f.write(); err != nil {
		return err
	}
	if t.Found != nil {
		t.Found(f)
	}
	if err != nil && ctx.Err() == nil {
		return t.lost(err)
	}
	return nil
}

// write writes the case, ready to be run again and to be added to the others.
func (f *Failure) write() error {
	c := *f.Case
	c.Name = strings.TrimSuffix(filepath.Base(f.File), ".json")
	c.Why, _, _ = strings.Cut(f.Reason, "\n")
	f.Case = &c
	return os.WriteFile(f.File, c.Format(), 0o666)
}

// works makes sure that the device still takes and gives bytes: after some
// errors it never does.
func works(d runtime.Driver) error {
	p, err := d.Alloc("probe", 4)
	if err != nil {
		return err
	}
	b := []byte{1, 2, 3, 4}
	return errors.Join(d.Upload(p, b), d.Download(b, p), d.Free(p))
}

// lost ends a run whose device no longer works; any of the cases that were
// running may be why.
func (t *tester) lost(err error) error {
	t.mu.Lock()
	var all []*cases.Case
	for _, f := range t.running {
		all = append(all, f.c)
	}
	t.mu.Unlock()
	t.suspect(all, err.Error())
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// suspect writes down cases that may have cost the device.
func (t *tester) suspect(all []*cases.Case, reason string) {
	for _, c := range all {
		f := Failure{Case: c, Reason: "suspect: " + reason, File: filepath.Join(t.Failures, "suspect-"+c.Name+".json")}
		if err := f.write(); err != nil {
			f.Reason += ": " + err.Error()
		}
		if t.Found != nil {
			t.Found(f)
		}
	}
}

// Share lets groups use one device side by side.
func Share(d runtime.Driver) func(Group) (runtime.Driver, error) {
	s := &shared{driver: d}
	return func(Group) (runtime.Driver, error) {
		if c, ok := d.(runtime.Compiler); ok {
			return compiling{s.handle(), c}, nil
		}
		return s.handle(), nil
	}
}
