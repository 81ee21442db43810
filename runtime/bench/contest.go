package bench

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/mlagen/mlagen/runtime"
)

// Contest times several settings of one shape on the same data, a burst at a
// time, so that whoever compares them can take turns. Bursts are shorter than
// those of Decode: what drifts between them cancels in ratios of neighbours.
type Contest struct {
	b        *Bench
	shape    Shape
	inputs   *call
	m        *memory
	entries  []contestant
	from, to runtime.Event
	rows     []int64 // of the output, held against the first entry's
}

// contestant is a setting in a contest.
type contestant struct {
	work *work
	out  []byte // of the contest's rows, after its first burst
	lse  []byte
}

const (
	burstMicroseconds = 400 // of calls in a burst
	leastCalls        = 3   // of a burst
	contestTurnover   = 3   // times the L2 that a burst reads, up to maxCalls
	contestRows       = 32  // of an output that are compared
)

// ContestBytes is the size of the pool in which no page of a burst of the shape is
// read twice.
func ContestBytes(s Shape) int64 {
	return int64(s.contestCalls(burstMicroseconds)) * s.pages() * pageBytes
}

// contestCalls is the calls of a burst of about so many microseconds, which read
// more than the L2 holds where they are not fewer than usual.
func (s Shape) contestCalls(burst float64) int {
	n := max(leastCalls, int(burst/s.guess()))
	if burst >= burstMicroseconds {
		n = max(n, int((contestTurnover*defaultL2+s.pages()*pageBytes-1)/(s.pages()*pageBytes)))
	}
	return min(maxCalls, n)
}

// NewContest places a shape's data.
func (b *Bench) NewContest(s Shape) (_ *Contest, err error) {
	if need := s.pages(); need > b.pages {
		return nil, fmt.Errorf("%v: a call reads %d pages and the pool has %d", s, need, b.pages)
	}
	c := &Contest{b: b, shape: s, m: &memory{drv: b.Driver}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%v: %w", s, err), c.Close())
		}
	}()
	if c.from, err = b.Driver.NewEvent(); err != nil {
		return nil, err
	}
	if c.to, err = b.Driver.NewEvent(); err != nil {
		return nil, err
	}
	if c.inputs, err = b.placeTensors(s, s.contestCalls(cmp.Or(b.Burst, burstMicroseconds)), c.m); err != nil {
		return nil, err
	}
	// Partial results mean nothing from call to call: every setting leaves them in
	// the scratch memory.
	c.inputs.workspace = b.scratch
	all := int64(s.Batch) * int64(s.SQ) * int64(s.Heads)
	for range min(contestRows, all) {
		c.rows = append(c.rows, b.random.Int64N(all))
	}
	return c, nil
}

// Calls is the calls of a burst.
func (c *Contest) Calls() int { return len(c.inputs.args) }

// Enter adds a setting, loading its kernels on first use, and returns its number.
// A setting that gives another result than the first is a WrongError, one whose
// kernels cannot be had a LoadError; it has no number then.
func (c *Contest) Enter(set Setting) (entry int, err error) {
	d, err := c.b.load(c.b.shape(c.shape, set))
	if err != nil {
		return 0, fmt.Errorf("%v: %w", c.shape, err)
	}
	own := *c.inputs
	own.args = slices.Clone(c.inputs.args)
	if err := c.b.plan(&own, d, set, c.m); err != nil {
		return 0, fmt.Errorf("%v: %w", c.shape, err)
	}
	w, err := c.b.prepare(func() error {
		for _, a := range own.args {
			if err := d.Run(c.b.stream, a); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("%v: %w", c.shape, err)
	}
	c.entries = append(c.entries, contestant{work: w})
	entry = len(c.entries) - 1
	err = c.warm(&c.entries[entry])
	if entry > 0 && err == nil {
		err = c.agree(&c.entries[entry])
	}
	if err != nil {
		c.entries = c.entries[:entry]
		return 0, fmt.Errorf("%v: %w", c.shape, errors.Join(err, w.close()))
	}
	return entry, nil
}

// once runs work behind one fill, some 0.2 ms in which the host enqueues the rest,
// and a run that is not timed: a fill leaves the L2 full of what has to be written
// to memory yet, which in so short a burst costs several percent, and not every
// setting the same. The run before reads other pages than what the timed one
// begins with, and as many as the L2 holds several times.
func (c *Contest) once(w *work) (float64, error) { return c.b.once(w, 1, 1, c.from, c.to) }

// warm runs an entry once and keeps what it leaves, on outputs set to NaN: what it
// does not write must not pass for its result.
func (c *Contest) warm(e *contestant) error {
	a := &c.inputs.args[0]
	rows := int64(c.shape.Batch) * int64(c.shape.SQ) * int64(c.shape.Heads)
	const rowBytes = latent * elementSize
	if err := errors.Join(c.b.Driver.Fill(a.Out.Ptr, 0xff, rows*rowBytes), c.b.Driver.Fill(a.LSE.Ptr, 0xff, rows*4)); err != nil {
		return err
	}
	if _, err := c.once(e.work); err != nil {
		return err
	}
	e.lse = make([]byte, 4*rows)
	if err := c.b.Driver.Download(e.lse, a.LSE.Ptr); err != nil {
		return err
	}
	e.out = make([]byte, len(c.rows)*rowBytes)
	for i, row := range c.rows {
		if err := c.b.Driver.Download(e.out[i*rowBytes:(i+1)*rowBytes], a.Out.Ptr+runtime.Ptr(row*rowBytes)); err != nil {
			return err
		}
	}
	return nil
}

// agree holds an entry's results against the first's: both may be off by what a
// checked row may.
func (c *Contest) agree(e *contestant) error {
	first := &c.entries[0]
	lse := func(raw []byte, i int) float64 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
	}
	for i := range len(e.lse) / 4 {
		got, want := lse(e.lse, i), lse(first.lse, i)
		if got != want && !(math.Abs(got-want) <= 2*lseTolerance) { // NaN never passes
			return &WrongError{fmt.Sprintf("row %d: lse is %.6g and was %.6g with the default", i, got, want)}
		}
	}
	const rowBytes = latent * elementSize
	want := make([]float64, latent)
	for i, row := range c.rows {
		was := first.out[i*rowBytes : (i+1)*rowBytes]
		for j := range want {
			want[j] = float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(was[2*j:])) << 16))
		}
		if off := distance(want, e.out[i*rowBytes:(i+1)*rowBytes]); !(off <= 2*outTolerance) {
			return &WrongError{fmt.Sprintf("row %d: out is off by %.2e of the default's norm (%.0e allowed)", row, off, 2*outTolerance)}
		}
	}
	return nil
}

// Same reports whether an entry's log-sum-exps and the rows of its output that are
// compared are the first's to the bit.
func (c *Contest) Same(entry int) bool {
	a, b := &c.entries[0], &c.entries[entry]
	return bytes.Equal(a.out, b.out) && bytes.Equal(a.lse, b.lse)
}

// Burst runs an entry's calls on a cold L2 and returns the microseconds of one.
// It rests half as long as the calls took, so that the card's power limit hardly
// comes into it.
func (c *Contest) Burst(entry int) (float64, error) {
	t, err := c.once(c.entries[entry].work)
	if err != nil {
		return 0, fmt.Errorf("%v: %w", c.shape, err)
	}
	time.Sleep(min(maxRest, time.Duration(t/2)*time.Microsecond))
	return t / float64(c.Calls()), nil
}

// Close frees the contest's memory and graphs; kernels stay loaded.
func (c *Contest) Close() error {
	var errs []error
	for _, e := range c.entries {
		errs = append(errs, e.work.close())
	}
	for _, e := range []runtime.Event{c.from, c.to} {
		if e != nil {
			errs = append(errs, e.Destroy())
		}
	}
	return errors.Join(append(errs, c.m.free())...)
}
