package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/plan"
)

// ExtendShape is new tokens on cached prefixes to be timed: requests of equal
// lengths.
type ExtendShape struct {
	Heads     int
	Batch     int   // requests
	New       int   // new tokens of each, in the cache as well
	Prefix    int   // cached tokens before them
	Workspace int64 // bytes for what is expanded at a time
	Absorb    bool  // on the absorb path, which has no workspace of that kind
}

// String names the shape in messages.
func (s ExtendShape) String() string {
	if s.Absorb {
		return fmt.Sprintf("heads %d, batch %d, %d new on %d, absorbed", s.Heads, s.Batch, s.New, s.Prefix)
	}
	return fmt.Sprintf("heads %d, batch %d, %d new on %d, %d bytes of workspace", s.Heads, s.Batch, s.New, s.Prefix, s.Workspace)
}

// keys is the tokens of a request.
func (s ExtendShape) keys() int { return s.New + s.Prefix }

// FLOP counts multiplications and additions: expanding every token, or absorbing
// the new ones, and both products over visible pairs.
func (s ExtendShape) FLOP() float64 {
	if s.Absorb {
		return float64(s.Batch) * plan.DeepSeek(s.Heads).AbsorbFLOP(plan.Request{New: s.New, Prefix: s.Prefix})
	}
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
	layers   []runtime.LayerArgs  // on the absorb path
	tables   [][]int32
	weights  flat
}

// out is where the calls' output lies.
func (c *extendCall) out() *runtime.Tensor {
	if c.Absorb {
		return &c.layers[0].Out
	}
	return &c.args[0].Out
}

// width is the entries of a request in a block table.
func (s ExtendShape) width() int64 { return pagesOf(int32(s.keys())) }

// Extend times a shape, on the expand path unless it says otherwise. A result that the reference
// contradicts is an error.
func (b *Bench) Extend(s ExtendShape, product ProductReference) (r ExtendResult, err error) {
	r = ExtendResult{ExtendShape: s}
	m := &memory{drv: b.Driver}
	defer func() { err = errors.Join(err, m.free()) }()
	time := b.timeExtend
	if s.Absorb {
		time = b.timeAbsorbed
	}
	if err := time(&r, m, product); err != nil {
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
	check, unchanged := watched("lse", func() ([]byte, error) { return b.extendLSE(c) }, func(lse []byte) (err error) {
		r.OutError, r.LSEError, err = b.verifyExtend(c, lse, product)
		return err
	})
	t, err := b.measure(r.Calls, func(i int) error { return e.Run(b.stream, c.args[i]) }, check, unchanged)
	r.Microseconds, r.Spread, r.SustainedMicroseconds, r.Power = t.median, t.spread, t.sustained, t.power
	if err != nil {
		return err
	}
	r.ScheduleMicros, err = b.scheduleMicros(func(s runtime.Stream) error { return e.Schedule(s, c.schedule) })
	return err
}

// extendCalls returns how many calls a replay makes: some eight milliseconds.
func (s ExtendShape) extendCalls() int {
	guess := 20 + s.FLOP()/6e8 // microseconds
	return max(2, min(64, int(8000/guess)))
}

// extendInputs is what calls on either path have in device memory.
type extendInputs struct {
	cuQ, kvLen, q, kv, weights, out, lse runtime.Tensor
	tables                               []runtime.Tensor // of each call
}

// placeExtend allocates a shape's memory.
func (b *Bench) placeExtend(s ExtendShape, e *runtime.Extend, m *memory) (*extendCall, error) {
	c := &extendCall{ExtendShape: s, e: e}
	plan, err := e.Plan(runtime.ExtendCapacity{Sequences: s.Batch, QueryTokens: s.Batch * s.New, KeyTokens: s.Batch * s.keys(), MostQueries: s.New}, 0, s.Workspace)
	if err != nil {
		return nil, err
	}
	in, err := b.placeInputs(c, m)
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
	c.schedule = runtime.ExtendScheduleArgs{Plan: plan, CuQ: in.cuQ, KVLen: in.kvLen, Causal: true, Buffer: schedule}
	for _, table := range in.tables {
		c.args = append(c.args, runtime.ExtendArgs{
			Plan: plan, Schedule: schedule, Workspace: workspace, Scale: softmaxScale,
			Q: in.q, KV: in.kv, BlockTable: table, Weights: in.weights, Out: in.out, LSE: in.lse,
		})
	}
	return c, nil
}

// placeInputs allocates and fills what calls on either path take, outputs set to
// NaN; c keeps what they are checked with.
func (b *Bench) placeInputs(c *extendCall, m *memory) (in extendInputs, err error) {
	s := c.ExtendShape
	c.weights = flat{newBlock(weightRows, weightDeviation, seed+2)}
	tokens, heads, batch, width := int64(s.Batch)*int64(s.New), int64(s.Heads), int64(s.Batch), s.width()
	if need := batch * width; need > b.pages {
		return in, fmt.Errorf("a call reads %d pages and the pool has %d", need, b.pages)
	}
	cu, lengths := make([]int32, s.Batch+1), make([]int32, s.Batch)
	for i := range lengths {
		cu[i+1], lengths[i] = int32((i+1)*s.New), int32(s.keys())
	}
	var all []int32
	calls := s.extendCalls()
	for range calls {
		table := b.table(lengths, width)
		c.tables = append(c.tables, table)
		all = append(all, table...)
	}
	ints := func(name string, values []int32, to *runtime.Ptr) {
		if err == nil {
			*to, err = m.upload(name, encodeInts(values))
		}
	}
	memory := func(name string, size int64, to *runtime.Ptr) {
		if err == nil {
			*to, err = m.alloc(name, size)
		}
	}
	var cuQ, kvLen, tables, weights, out, lse runtime.Ptr
	weightBytes, outBytes := heads*upColumns*latent*elementSize, tokens*heads*value*elementSize
	ints("cu_q", cu, &cuQ)
	ints("kv_len", lengths, &kvLen)
	ints("block tables", all, &tables)
	memory("weights", weightBytes, &weights)
	memory("out", outBytes, &out)
	memory("lse", tokens*heads*4, &lse)
	if err != nil {
		return in, err
	}
	if err := c.weights.tile(b.Driver, b.stream, weights, weightBytes); err != nil {
		return in, err
	}
	q, err := b.laid(m, "q", b.q, tokens*heads*keyColumns*elementSize)
	if err != nil {
		return in, err
	}
	for ptr, size := range map[runtime.Ptr]int64{out: outBytes, lse: tokens * heads * 4} {
		if err := b.Driver.Fill(ptr, 0xff, size); err != nil {
			return in, err
		}
	}
	in = extendInputs{
		cuQ: runtime.Dense(cuQ, runtime.S32, batch+1), kvLen: runtime.Dense(kvLen, runtime.S32, batch),
		q: runtime.Dense(q, runtime.BF16, tokens, heads, keyColumns), kv: runtime.Dense(b.pool, runtime.BF16, b.pages, pageTokens, record),
		weights: runtime.Dense(weights, runtime.BF16, heads, upColumns, latent),
		out:     runtime.Dense(out, runtime.BF16, tokens, heads, value), lse: runtime.Dense(lse, runtime.F32, tokens, heads),
	}
	for i := range calls {
		in.tables = append(in.tables, runtime.Dense(tables+runtime.Ptr(int64(i)*batch*width*4), runtime.S32, batch, width))
	}
	return in, nil
}

// extendLSE downloads the log-sum-exps of the last call.
func (b *Bench) extendLSE(c *extendCall) ([]byte, error) {
	lse := make([]byte, 4*c.Batch*c.New*c.Heads)
	return lse, b.Driver.Download(lse, c.args[0].LSE.Ptr)
}

// verifyExtend holds random rows of the last call against the reference, which
// takes the other path: it attends in latent space.
func (b *Bench) verifyExtend(c *extendCall, raw []byte, product ProductReference) (outError, lseError float64, err error) {
	lse := make([]float64, len(raw)/4) // none where the path gives none
	rows := c.Batch * c.New * c.Heads
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
		x := &check{row: b.random.IntN(rows), out: make([]byte, value*elementSize)}
		left -= float64(c.keys()) * (record + latent)
		if err := b.Driver.Download(x.out, c.out().Ptr+runtime.Ptr(x.row*value*elementSize)); err != nil {
			return 0, 0, err
		}
		checks = append(checks, x)
	}
	var wg sync.WaitGroup
	for _, x := range checks {
		wg.Go(func() {
			want, wantLSE := b.extendRow(c, x.row, product)
			x.wantLSE, x.outError = wantLSE, distance(want, x.out)
			if len(lse) > 0 {
				x.lseError = math.Abs(lse[x.row] - wantLSE)
			}
		})
	}
	wg.Wait()
	for _, x := range checks {
		if !(x.outError <= outTolerance) || !(x.lseError <= lseTolerance) { // NaN never passes
			return 0, 0, &WrongError{fmt.Sprintf("%s: out is off by %.2e of its norm (%.0e allowed), lse by %.2e of %.6g",
				name(x.row), x.outError, outTolerance, x.lseError, x.wantLSE)}
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
