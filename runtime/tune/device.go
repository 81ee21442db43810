package tune

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/bench"
)

// OnDevice tunes on a driver's device, on synthetic caches: random data, scattered
// pages that are not in the L2, calls in a captured graph. cfg's Timer, Card and
// Tool are the device's and the kernels'. The device should have nothing else to
// do; memory for the pool of pages is freed in the end.
//
// A device that keeps no time, such as the emulator, is refused.
func OnDevice(ctx context.Context, drv runtime.Driver, cfg Config) (*Choices, error) {
	if cfg.now == nil {
		cfg.now = time.Now
	}
	if cfg.Start.IsZero() {
		cfg.Start = cfg.now()
	}
	cfg.Card = CardOf(drv)
	if cfg.Source == nil {
		return nil, errors.New("tune: source was nil, must make the kernels")
	}
	loads, err := cfg.Envelope.Buckets()
	if err != nil {
		return nil, fmt.Errorf("tune: %w", err)
	}
	v, err := cfg.Source.Decode(cfg.Model.shape(loads[0].SQ, Choice{}))
	if err != nil {
		return nil, fmt.Errorf("tune: %w", err)
	}
	if v.Decode.Manifest != nil {
		cfg.Tool = v.Decode.Manifest.Tool
	}
	if cfg.Budget == 0 {
		return Run(ctx, cfg)
	}
	if err := keepsTime(drv); err != nil {
		return nil, fmt.Errorf("tune: %w", err)
	}
	pool := int64(leastPool)
	for _, l := range loads {
		pool = max(pool, bench.ContestBytes(shapeOf(cfg.Model.Heads, l)))
	}
	if most := drv.Attributes().MemoryBytes / 10 * 6; most > 0 {
		pool = min(pool, most)
	}
	b, err := bench.New(bench.Config{Driver: drv, Source: cfg.Source, PoolBytes: pool, Rows: dataRows})
	if err != nil {
		return nil, fmt.Errorf("tune: %w", err)
	}
	t := &deviceTimer{bench: b, heads: cfg.Model.Heads}
	cfg.Timer = t
	c, err := Run(ctx, cfg)
	if c != nil {
		t.describe(c)
	}
	err = errors.Join(err, b.Close())
	if c != nil {
		c.Spent = cfg.now().Sub(cfg.Start).Seconds()
	}
	return c, err
}

const (
	leastPool = 2 << 30 // bytes of the smallest pool of pages
	dataRows  = 7_283   // of random data, 8 MiB: nothing is held against an oracle
)

// keepsTime tries whether the device's events tell a time.
func keepsTime(drv runtime.Driver) (err error) {
	s, err := drv.NewStream()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Destroy()) }()
	const size = 1 << 20
	p, err := drv.Alloc("clock", size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drv.Free(p)) }()
	var events [2]runtime.Event
	for i := range events {
		if events[i], err = drv.NewEvent(); err != nil {
			return fmt.Errorf("%s keeps no time: %w", drv.Name(), err)
		}
		defer func() { err = errors.Join(err, events[i].Destroy()) }()
	}
	err = errors.Join(s.Record(events[0]), s.FillAsync(p, 0, size), s.Record(events[1]), s.Synchronize())
	if err != nil {
		return err
	}
	t, err := events[1].Since(events[0])
	if err != nil || !(t > 0) {
		return errors.Join(fmt.Errorf("%s keeps no time: what a choice takes can only be measured on a GPU; a budget of 0 takes the defaults", drv.Name()), err)
	}
	return nil
}

// deviceTimer measures with package bench.
type deviceTimer struct {
	bench *bench.Bench
	heads int
}

// shapeOf is a load as package bench has it.
func shapeOf(heads int, l Load) bench.Shape {
	return bench.Shape{Heads: heads, SQ: l.SQ, Batch: l.Batch, KV: l.Tokens, Varlen: l.Ragged}
}

// Whole implements Timer.
func (t *deviceTimer) Whole(shapes []runtime.DecodeShape) []bool { return t.bench.Whole(shapes) }

// Load implements Timer. Where something cannot be loaded, what stood beside it is
// tried without it.
func (t *deviceTimer) Load(shapes []runtime.DecodeShape) error {
	err := t.bench.Load(shapes)
	var load *bench.LoadError
	switch {
	case !errors.As(err, &load):
		return err
	case len(shapes) < 2:
		return nil // who enters with it is told
	}
	half := len(shapes) / 2
	return errors.Join(t.Load(shapes[:half]), t.Load(shapes[half:]))
}

// Contest implements Timer.
func (t *deviceTimer) Contest(l Load) (Contest, error) {
	c, err := t.bench.NewContest(shapeOf(t.heads, l))
	if err != nil {
		return nil, err
	}
	return deviceContest{c}, nil
}

type deviceContest struct{ *bench.Contest }

// Enter implements Contest.
func (c deviceContest) Enter(choice Choice) (int, error) { return c.Contest.Enter(choice.setting()) }

// describe notes which kernels choices run, and who made them.
func (t *deviceTimer) describe(c *Choices) {
	for i := range c.Buckets {
		b := &c.Buckets[i]
		s := c.Model.shape(b.SQ, b.Choice)
		d := t.bench.Loaded(s)
		if d == nil {
			continue
		}
		var manifests []*manifest.Manifest
		for _, k := range d.Kernels() {
			manifests = append(manifests, k.Manifest)
		}
		if id := identify(s, manifests...); !slices.Contains(c.Kernels, id) {
			c.Kernels = append(c.Kernels, id)
		}
	}
}
