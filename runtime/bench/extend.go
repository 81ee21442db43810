package bench

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/mlagen/mlagen/runtime"
)

// ExtendShape is new tokens on cached prefixes to be timed: requests of equal
// lengths.
type ExtendShape struct {
	Heads     int
	Batch     int   // requests
	New       int   // new tokens of each, in the cache as well
	Prefix    int   // cached tokens before them
	Workspace int64 // bytes for what is expanded at a time
}

// String names the shape in messages.
func (s ExtendShape) String() string {
	return fmt.Sprintf("heads %d, batch %d, %d new on %d, %d bytes of workspace", s.Heads, s.Batch, s.New, s.Prefix, s.Workspace)
}

// keys is the tokens of a request.
func (s ExtendShape) keys() int { return s.New + s.Prefix }

// FLOP counts multiplications and additions: expanding every token, and both
// products over visible pairs.
func (s ExtendShape) FLOP() float64 {
	expand := ProductShape{UpProject, s.Heads, s.Batch * s.keys()}
	attend := PrefillShape{s.Heads, s.Batch, s.New, s.keys(), true}
	return expand.FLOP() + attend.FLOP()
}

// TFLOPS is the tera floating-point operations per second at so many
// microseconds per call.
func (s ExtendShape) TFLOPS(microseconds float64) float64 { return s.FLOP() / microseconds / 1e6 }

// extendRate and the two others are what extend is held against: so many FLOP
// per microsecond, a little more time than that takes, and so much for its
// launches.
const (
	extendRate    = 650e6
	extendShare   = 1.08
	extendLatency = 60
)

// Bound is the microseconds that a call is held against.
func (s ExtendShape) Bound() float64 { return extendShare*s.FLOP()/extendRate + extendLatency }

// ExtendResult is what was measured for a shape.
type ExtendResult struct {
	ExtendShape
	Chunk, Chunks  int
	WorkspaceBytes int64
	Microseconds   float64 // per call, the schedule computed beforehand; median of the bursts
	Spread         float64 // (slowest−fastest)/median of the bursts
	Calls          int     // per replay
	OutError       float64 // worst of the rows that were held against the reference
	LSEError       float64
	ScheduleMicros float64 // of the schedule kernel, which runs once per step

	// Per call, only with Config.Sustained.
	SustainedMicroseconds float64
	Power                 *Power
}

// extendCall is the device memory of a shape.
type extendCall struct {
	ExtendShape
	e        *runtime.Extend
	schedule runtime.ExtendScheduleArgs
	args     []runtime.ExtendArgs // calls take block tables and weights in turn
	tables   [][]int32
	weights  flat
}

// width is the entries of a request in a block table.
func (s ExtendShape) width() int64 { return pagesOf(int32(s.keys())) }

// Extend times a shape on the expand path. A result that the reference
// contradicts is an error.
func (b *Bench) Extend(s ExtendShape, product ProductReference) (r ExtendResult, err error) {
	r = ExtendResult{ExtendShape: s}
	m := &memory{drv: b.Driver}
	defer func() { err = errors.Join(err, m.free()) }()
	if err := b.timeExtend(&r, m, product); err != nil {
		return r, fmt.Errorf("%v: %w", s, err)
	}
	return r, nil
}

func (b *Bench) loadExtend(heads int) (*runtime.Extend, error) {
	source, ok := b.Source.(runtime.ExtendSource)
	if !ok {
		return nil, &LoadError{errors.New("the source has no kernels that extend")}
	}
	v, err := source.Extend(runtime.ExtendShape{Heads: heads, Latent: latent, Rope: rope, Nope: nope, Value: value, Page: pageTokens, DType: runtime.BF16})
	if err != nil {
		return nil, &LoadError{err}
	}
	e, err := runtime.LoadExtend(b.Driver, v)
	if err != nil {
		return nil, &LoadError{err}
	}
	b.compiled = append(b.compiled, e.Kernels()...)
	return e, nil
}

func (b *Bench) timeExtend(r *ExtendResult, m *memory, product ProductReference) (err error) {
	e, err := b.loadExtend(r.Heads)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	c, err := b.placeExtend(r.ExtendShape, e, m)
	if err != nil {
		return err
	}
	plan := c.schedule.Plan
	r.Chunk, r.Chunks, r.WorkspaceBytes, r.Calls = plan.Chunk, plan.Chunks, plan.WorkspaceBytes, len(c.args)
	if err := e.Schedule(b.stream, c.schedule); err != nil {
		return err
	}
	w, err := b.prepare(func() error {
		for _, a := range c.args {
			if err := e.Run(b.stream, a); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()

	// The first replay warms up and leaves outputs to be checked.
	if _, err := b.bursts(w, 1); err != nil {
		return err
	}
	lse, err := b.extendLSE(c)
	if err != nil {
		return err
	}
	if r.OutError, r.LSEError, err = b.verifyExtend(c, lse, product); err != nil {
		return err
	}
	times, err := b.bursts(w, max(1, b.Replays))
	if err != nil {
		return err
	}
	r.Microseconds, r.Spread = median(times)/float64(r.Calls), spread(times)
	if b.Sustained > 0 {
		_, sustained, power, err := b.sustain(w, b.Sustained)
		if err != nil {
			return err
		}
		r.SustainedMicroseconds, r.Power = sustained/float64(r.Calls), power
	}
	// Replays are bit-reproducible; a race is not.
	again, err := b.extendLSE(c)
	if err != nil {
		return err
	}
	if !bytes.Equal(lse, again) {
		return &WrongError{"the last replay's lse differs from the first's"}
	}
	return b.timeExtendSchedule(r, c)
}

func (b *Bench) timeExtendSchedule(r *ExtendResult, c *extendCall) (err error) {
	w, err := b.prepare(func() error {
		for range prefillScheduleCalls {
			if err := c.e.Schedule(b.stream, c.schedule); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	times, err := b.bursts(w, 3)
	r.ScheduleMicros = median(times) / prefillScheduleCalls
	return err
}

// extendCalls returns how many calls a replay makes: some eight milliseconds.
func (s ExtendShape) extendCalls() int {
	guess := 20 + s.FLOP()/6e8 // microseconds
	return max(2, min(64, int(8000/guess)))
}

// placeExtend allocates a shape's memory.
func (b *Bench) placeExtend(s ExtendShape, e *runtime.Extend, m *memory) (*extendCall, error) {
	c := &extendCall{ExtendShape: s, e: e, weights: flat{newBlock(weightRows, weightDeviation, seed+2)}}
	tokens, heads, batch := int64(s.Batch)*int64(s.New), int64(s.Heads), int64(s.Batch)
	plan, err := e.Plan(runtime.ExtendCapacity{Sequences: s.Batch, QueryTokens: int(tokens), KeyTokens: s.Batch * s.keys(), MostQueries: s.New}, 0, s.Workspace)
	if err != nil {
		return nil, err
	}
	width := s.width()
	if need := batch * width; need > b.pages {
		return nil, fmt.Errorf("a call reads %d pages and the pool has %d", need, b.pages)
	}
	cu, lengths := make([]int32, s.Batch+1), make([]int32, s.Batch)
	for i := range lengths {
		cu[i+1], lengths[i] = int32((i+1)*s.New), int32(s.keys())
	}
	cuQ, err := m.upload("cu_q", encodeInts(cu))
	if err != nil {
		return nil, err
	}
	kvLen, err := m.upload("kv_len", encodeInts(lengths))
	if err != nil {
		return nil, err
	}
	schedule, err := b.buffer(m, "schedule", plan.ScheduleBytes)
	if err != nil {
		return nil, err
	}
	workspace, err := b.buffer(m, "workspace", plan.WorkspaceBytes)
	if err != nil {
		return nil, err
	}
	c.schedule = runtime.ExtendScheduleArgs{
		Plan: plan, CuQ: runtime.Dense(cuQ, runtime.S32, batch+1), KVLen: runtime.Dense(kvLen, runtime.S32, batch), Causal: true, Buffer: schedule,
	}
	calls := s.extendCalls()
	var all []int32
	for range calls {
		table := b.table(lengths, width)
		c.tables = append(c.tables, table)
		all = append(all, table...)
	}
	tables, err := m.upload("block tables", encodeInts(all))
	if err != nil {
		return nil, err
	}
	weightBytes := heads * upColumns * latent * elementSize
	weights, err := m.alloc("weights", weightBytes)
	if err != nil {
		return nil, err
	}
	if err := c.weights.tile(b.Driver, b.stream, weights, weightBytes); err != nil {
		return nil, err
	}
	q, err := b.laid(m, "q", b.q, tokens*heads*keyColumns*elementSize)
	if err != nil {
		return nil, err
	}
	outBytes := tokens * heads * value * elementSize
	out, err := m.alloc("out", outBytes)
	if err != nil {
		return nil, err
	}
	lse, err := m.alloc("lse", tokens*heads*4)
	if err != nil {
		return nil, err
	}
	for ptr, size := range map[runtime.Ptr]int64{out: outBytes, lse: tokens * heads * 4} {
		if err := b.Driver.Fill(ptr, 0xff, size); err != nil {
			return nil, err
		}
	}
	for i := range calls {
		c.args = append(c.args, runtime.ExtendArgs{
			Plan: plan, Schedule: schedule, Workspace: workspace, Scale: softmaxScale,
			Q:          runtime.Dense(q, runtime.BF16, tokens, heads, keyColumns),
			KV:         runtime.Dense(b.pool, runtime.BF16, b.pages, pageTokens, record),
			BlockTable: runtime.Dense(tables+runtime.Ptr(int64(i)*batch*width*4), runtime.S32, batch, width),
			Weights:    runtime.Dense(weights, runtime.BF16, heads, upColumns, latent),
			Out:        runtime.Dense(out, runtime.BF16, tokens, heads, value),
			LSE:        runtime.Dense(lse, runtime.F32, tokens, heads),
		})
	}
	return c, nil
}

// extendLSE downloads the log-sum-exps of the last call.
func (b *Bench) extendLSE(c *extendCall) ([]byte, error) {
	lse := make([]byte, 4*c.Batch*c.New*c.Heads)
	return lse, b.Driver.Download(lse, c.args[0].LSE.Ptr)
}

// verifyExtend holds random rows of the last call against the reference, which
// takes the other path: it attends in latent space.
func (b *Bench) verifyExtend(c *extendCall, raw []byte, product ProductReference) (outError, lseError float64, err error) {
	lse := make([]float64, len(raw)/4)
	name := func(row int) string {
		token := row / c.Heads
		return fmt.Sprintf("request %d, new token %d, head %d", token/c.New, token%c.New, row%c.Heads)
	}
	for i := range lse {
		if lse[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))); math.IsNaN(lse[i]) || math.IsInf(lse[i], 0) {
			return 0, 0, &WrongError{fmt.Sprintf("%s: lse is %v", name(i), lse[i])}
		}
	}
	type check struct {
		row                         int
		out                         []byte
		outError, lseError, wantLSE float64
	}
	var checks []*check
	for left := float64(checkBudget); left > 0; {
		x := &check{row: b.random.IntN(len(lse)), out: make([]byte, value*elementSize)}
		left -= float64(c.keys()) * (record + latent)
		if err := b.Driver.Download(x.out, c.args[0].Out.Ptr+runtime.Ptr(x.row*value*elementSize)); err != nil {
			return 0, 0, err
		}
		checks = append(checks, x)
	}
	var wg sync.WaitGroup
	for _, x := range checks {
		wg.Go(func() {
			want, wantLSE := b.extendRow(c, x.row, product)
			x.wantLSE, x.outError, x.lseError = wantLSE, distance(want, x.out), math.Abs(lse[x.row]-wantLSE)
		})
	}
	wg.Wait()
	for _, x := range checks {
		if !(x.outError <= outTolerance) || !(x.lseError <= lseTolerance) { // NaN never passes
			return 0, 0, &WrongError{fmt.Sprintf("%s: out is off by %.2e of its norm (%.0e allowed), lse is %.6g and must be %.6g",
				name(x.row), x.outError, outTolerance, lse[x.row], x.wantLSE)}
		}
		outError, lseError = max(outError, x.outError), max(lseError, x.lseError)
	}
	return outError, lseError, nil
}

// extendRow is the reference's answer for a row of the last call.
func (b *Bench) extendRow(c *extendCall, row int, product ProductReference) ([]float64, float64) {
	token, head := row/c.Heads, row%c.Heads
	var weights [][]float32
	for i := range int64(upColumns) {
		weights = append(weights, c.weights.values((int64(head)*upColumns+i)*latent, latent))
	}
	table := c.tables[len(c.tables)-1][int64(token/c.New)*c.width():]
	attended, lse := b.Reference(Row{
		Q:    narrow(product(AbsorbQuery, weights, b.q.values(int64(row)*keyColumns, keyColumns))),
		Keys: c.Prefix + token%c.New + 1,
		Record: func(position int) []float32 {
			return b.record(table[position/pageTokens], position%pageTokens)
		},
		Latent: latent,
		Scale:  softmaxScale,
	})
	return product(AbsorbOutput, weights, narrow(attended)), lse
}

func narrow(x []float64) []float32 {
	n := make([]float32, len(x))
	for i, v := range x {
		n[i] = float32(v)
	}
	return n
}
