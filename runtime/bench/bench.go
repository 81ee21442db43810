// Package bench times kernels on a device as servers run them: random data,
// scattered pages, a cold cache (block tables that rotate through a pool far
// larger than the L2), the schedule computed beforehand, and a captured graph
// of many calls that is replayed in short bursts. Every shape is held against
// a reference before its time is reported.
package bench

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/mlagen/mlagen/runtime"
)

// Config says what is timed and how.
type Config struct {
	Driver    runtime.Driver
	Source    runtime.Source  // of the decode kernels
	Stream    runtime.Variant // the kernel that measures read bandwidth
	Reference Reference

	// PoolBytes is the size of the pool of pages; 0 takes 60 % of the device's
	// memory, at most 20 GB.
	PoolBytes int64
	Replays   int     // of which the median is reported
	Cautious  bool    // decode promises nothing of the cache; otherwise that only the step's tokens are new
	Splits    int     // forced pieces per request in Decode, 0 = the planner decides
	Sustained float64 // seconds of replay without pause, 0 = none
	Rows      int64   // of random data that the pool repeats, 0 = 58,243, 64 MiB; fewer are sooner made
	Burst     float64 // about the microseconds of a contest's burst, 0 = 400
}

// Setting is what may be chosen for a shape.
type Setting struct {
	// BlockH is the packed query rows per CTA; 0 leaves them to the source.
	BlockH int
	// AnyLoad has the source choose BlockH without knowing the load, so that
	// the choice, like a forced split, is the same for every batch.
	AnyLoad bool
	// Splits is the forced pieces per request; 0 lets the planner decide, and
	// FromCapacity the source, together with BlockH, as for an engine that is
	// built for the shape's batch and longest request.
	Splits int

	// What is tuned besides; see runtime.DecodeShape and runtime.DecodeTuning.
	Evict     string
	Cluster   int
	Teams     int
	PieceCost int
	Tuning    runtime.DecodeTuning
}

// FromCapacity is a Setting.Splits.
const FromCapacity = -1

// resolved puts numbers in the place of FromCapacity.
func (b *Bench) resolved(s Shape, set Setting) (Setting, error) {
	if set.Splits != FromCapacity {
		return set, nil
	}
	c, ok := b.Source.(runtime.Chooser)
	if !ok {
		return set, &LoadError{errors.New("the source does not know how many pieces suit a capacity")}
	}
	shape, sms := b.shape(s, set), b.Driver.Attributes().SMs
	if shape.BlockH == 0 {
		shape.BlockH = c.BlockH(shape, s.Batch, s.KV, sms)
	}
	set.BlockH, set.Splits = shape.BlockH, c.Splits(shape, s.Batch, s.KV, sms)
	return set, nil
}

// shape is what a shape's kernels are generated for.
func (b *Bench) shape(s Shape, set Setting) runtime.DecodeShape {
	return runtime.DecodeShape{Heads: s.Heads, SQ: s.SQ, Latent: latent, Rope: rope, Page: pageTokens, DType: runtime.BF16,
		BlockH: set.BlockH, Evict: set.Evict, Cluster: set.Cluster, Teams: set.Teams, PieceCost: set.PieceCost}
}

// LoadError is a failure to make or load a shape's kernels. The device is none
// the worse for it.
type LoadError struct{ Err error }

func (e *LoadError) Error() string { return e.Err.Error() }
func (e *LoadError) Unwrap() error { return e.Err }

// Reference computes one row of a decode in higher precision.
type Reference func(Row) (out []float64, lse float64)

// Row is one query against the tokens it sees.
type Row struct {
	Q      []float32 // latent and rope
	Keys   int
	Record func(position int) []float32 // latent and rope
	Latent int
	Scale  float64
}

const (
	// l2Turnover is how many times the L2's size passes through it before a
	// page is read again.
	l2Turnover   = 4
	defaultL2    = 60 << 20
	maxPoolBytes = 20_000_000_000

	// scratchBytes is memory that is overwritten before each burst: it empties
	// the L2 and keeps the device busy while the host enqueues the burst, so
	// that no launch latency is timed.
	scratchBytes = 512 << 20
	scratchFills = 4

	// Rows of the random blocks, prime, so that no two pages of a block and no
	// two queries of a batch are alike.
	kvBlockRows = 58_243 // 64 MiB
	qBlockRows  = 7_283

	seed = 1
)

// softmaxScale is 1/sqrt(128+64), DeepSeek's without extras.
const softmaxScale = 0.07216878364870323

// Bench holds the pool and the kernels that the shapes share.
type Bench struct {
	Config
	stream  runtime.Stream
	pool    runtime.Ptr
	pages   int64
	scratch runtime.Buffer
	kv, q   block
	order   []int32 // every page once, scattered
	next    int64   // index into order of the page to be used next
	random  *rand.Rand
	kernels
	prefills map[int]*runtime.Prefill // by heads
	compiled []*runtime.Kernel
	meter    runtime.Meter // nil where there is none, or no run needs it
	meterErr error
}

// New allocates the pool and fills it with random records.
func New(c Config) (_ *Bench, err error) {
	b := &Bench{Config: c, kernels: newKernels(), prefills: map[int]*runtime.Prefill{}, random: rand.New(rand.NewPCG(seed, 0))}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	size := c.PoolBytes
	if size == 0 {
		size = min(maxPoolBytes, c.Driver.Attributes().MemoryBytes/10*6)
	}
	if b.pages = size / pageBytes; b.pages < 1 {
		return nil, fmt.Errorf("a pool of %d bytes holds no page of %d", size, pageBytes)
	}
	if c.Sustained > 0 {
		b.openMeter()
	}
	if b.stream, err = c.Driver.NewStream(); err != nil {
		return nil, err
	}
	if b.pool, err = c.Driver.Alloc("kv", b.pages*pageBytes); err != nil {
		return nil, err
	}
	b.scratch.Bytes = min(scratchBytes, b.Pool())
	if b.scratch.Ptr, err = c.Driver.Alloc("scratch", b.scratch.Bytes); err != nil {
		return nil, err
	}
	b.kv, b.q = newBlock(min(cmp.Or(c.Rows, kvBlockRows), b.pages*pageTokens), 0.25, seed), newBlock(qBlockRows, 1, seed+1)
	if err := b.kv.tile(c.Driver, b.stream, b.pool, b.pages*pageBytes); err != nil {
		return nil, err
	}
	b.order = make([]int32, b.pages)
	for i, p := range b.random.Perm(int(b.pages)) {
		b.order[i] = int32(p)
	}
	return b, nil
}

// Close unloads the kernels and frees the pool.
func (b *Bench) Close() error {
	var errs []error
	for _, d := range b.decodes {
		errs = append(errs, d.Close())
	}
	for _, p := range b.prefills {
		errs = append(errs, p.Close())
	}
	if b.meter != nil {
		errs = append(errs, b.meter.Close())
	}
	if b.stream != nil {
		errs = append(errs, b.stream.Destroy())
	}
	for _, p := range []runtime.Ptr{b.pool, b.scratch.Ptr} {
		if p != 0 {
			errs = append(errs, b.Driver.Free(p))
		}
	}
	return errors.Join(errs...)
}

// Pool is the size of the pool in bytes.
func (b *Bench) Pool() int64 { return b.pages * pageBytes }

// Compiled returns the kernels loaded so far, for their compile times.
func (b *Bench) Compiled() []*runtime.Kernel { return b.compiled }

// take returns the next n pages of the scattered order.
func (b *Bench) take(n int64) []int32 {
	pages := make([]int32, n)
	for i := range pages {
		pages[i] = b.order[(b.next+int64(i))%b.pages]
	}
	b.next = (b.next + n) % b.pages
	return pages
}

// record returns the contents of a slot of a page.
func (b *Bench) record(page int32, slot int) []float32 {
	return b.kv.row(int64(page)*pageTokens + int64(slot))
}

// memory frees what a measurement allocated.
type memory struct {
	drv  runtime.Driver
	ptrs []runtime.Ptr
}

func (m *memory) alloc(name string, size int64) (runtime.Ptr, error) {
	p, err := m.drv.Alloc(name, size)
	if err == nil {
		m.ptrs = append(m.ptrs, p)
	}
	return p, err
}

func (m *memory) upload(name string, data []byte) (runtime.Ptr, error) {
	p, err := m.alloc(name, int64(len(data)))
	if err != nil {
		return p, err
	}
	return p, m.drv.Upload(p, data)
}

func (m *memory) free() error {
	var errs []error
	for _, p := range m.ptrs {
		errs = append(errs, m.drv.Free(p))
	}
	return errors.Join(errs...)
}
