package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/mlagen/mlagen/runtime"
)

// The heads that are timed: DeepSeek's keys of 128 + 64 columns and values of
// 128.
const (
	nope       = 128
	value      = 128
	keyColumns = nope + rope
	upColumns  = nope + value
)

// PrefillShape is one prefill call to be timed: sequences of equal lengths.
type PrefillShape struct {
	Heads  int
	Batch  int  // sequences
	Q, KV  int  // tokens of a sequence
	Causal bool // the queries are the sequence's last tokens
}

// String names the shape in messages.
func (s PrefillShape) String() string {
	c := "non-causal"
	if s.Causal {
		c = "causal"
	}
	return fmt.Sprintf("heads %d, batch %d, queries %d, keys %d, %s", s.Heads, s.Batch, s.Q, s.KV, c)
}

// visible is the number of keys that query j of a sequence sees.
func (s PrefillShape) visible(j int) int {
	if !s.Causal {
		return s.KV
	}
	return max(0, s.KV-s.Q+1+j)
}

// FLOP counts the multiplications and additions of both products, over visible
// pairs only.
func (s PrefillShape) FLOP() float64 {
	pairs := 0.0
	for j := range s.Q {
		pairs += float64(s.visible(j))
	}
	return 2 * (keyColumns + value) * pairs * float64(s.Batch*s.Heads)
}

// TFLOPS is the tera floating-point operations per second over visible pairs at
// so many microseconds per call.
func (s PrefillShape) TFLOPS(microseconds float64) float64 { return s.FLOP() / microseconds / 1e6 }

// The bytes of a call's tensors.
func (s PrefillShape) rows() int64      { return int64(s.Batch) * int64(s.Q) * int64(s.Heads) }
func (s PrefillShape) qBytes() int64    { return s.rows() * keyColumns * elementSize }
func (s PrefillShape) outBytes() int64  { return s.rows() * value * elementSize }
func (s PrefillShape) keyTokens() int64 { return int64(s.Batch) * int64(s.KV) }
func (s PrefillShape) upBytes() int64 {
	return s.keyTokens() * int64(s.Heads) * upColumns * elementSize
}
func (s PrefillShape) ropeBytes() int64 { return s.keyTokens() * rope * elementSize }

// PrefillResult is what was measured for a shape.
type PrefillResult struct {
	PrefillShape
	BlockM, BlockN int
	Microseconds   float64 // per call, the schedule computed beforehand; median of the bursts
	Spread         float64 // (slowest−fastest)/median of the bursts
	Calls          int     // per replay
	OutError       float64 // worst of the rows that were held against the reference
	LSEError       float64
	ScheduleMicros float64 // of the schedule kernel, which runs once per step

	// Per call, only with Config.Sustained.
	BurstMicroseconds, SustainedMicroseconds float64
	Power                                    *Power // of the sustained run, nil where nothing measures it
}

// prefillCall is the device memory of a shape. Calls take its sets of tensors in
// turn, so that no call finds the inputs of the one before in the L2.
type prefillCall struct {
	PrefillShape
	p        *runtime.Prefill
	keys     block // what kv_up and k_rope are laid from
	schedule runtime.PrefillScheduleArgs
	sets     []runtime.PrefillArgs
}

// Prefill times a shape. A result that the reference contradicts is an error.
func (b *Bench) Prefill(s PrefillShape) (r PrefillResult, err error) {
	r = PrefillResult{PrefillShape: s}
	m := &memory{drv: b.Driver}
	defer func() { err = errors.Join(err, m.free()) }()
	if err := b.timePrefill(&r, m); err != nil {
		return r, fmt.Errorf("%v: %w", s, err)
	}
	return r, nil
}

// prefill returns the kernels for a number of heads, loading them on first use.
func (b *Bench) prefill(heads int) (*runtime.Prefill, error) {
	if p := b.prefills[heads]; p != nil {
		return p, nil
	}
	source, ok := b.Source.(runtime.PrefillSource)
	if !ok {
		return nil, &LoadError{errors.New("the source has no prefill kernels")}
	}
	v, err := source.Prefill(runtime.PrefillShape{Heads: heads, Nope: nope, Rope: rope, Value: value, DType: runtime.BF16})
	if err != nil {
		return nil, &LoadError{err}
	}
	p, err := runtime.LoadPrefill(b.Driver, v)
	if err != nil {
		return nil, &LoadError{err}
	}
	b.prefills[heads] = p
	b.compiled = append(b.compiled, p.Kernels()...)
	return p, nil
}

func (b *Bench) timePrefill(r *PrefillResult, m *memory) (err error) {
	p, err := b.prefill(r.Heads)
	if err != nil {
		return err
	}
	r.BlockM, r.BlockN = p.Model().BlockM, p.Model().BlockN
	c, err := b.placePrefill(r.PrefillShape, p, m)
	if err != nil {
		return err
	}
	if err := p.Schedule(b.stream, c.schedule); err != nil {
		return err
	}
	r.Calls = b.prefillCalls(c)
	check, unchanged := watched("lse", func() ([]byte, error) { return b.prefillLSE(c) }, func(lse []byte) (err error) {
		r.OutError, r.LSEError, err = b.verifyPrefill(c, lse)
		return err
	})
	t, err := b.measure(r.Calls, func(i int) error { return p.Run(b.stream, c.sets[i%len(c.sets)]) }, check, unchanged)
	r.Microseconds, r.Spread, r.BurstMicroseconds, r.SustainedMicroseconds, r.Power = t.median, t.spread, t.burst, t.sustained, t.power
	if err != nil {
		return err
	}
	r.ScheduleMicros, err = b.scheduleMicros(func(s runtime.Stream) error { return p.Schedule(s, c.schedule) })
	return err
}

// prefillCalls returns how many calls a replay makes: every set of tensors
// twice, and some four milliseconds.
func (b *Bench) prefillCalls(c *prefillCall) int {
	guess := 8 + c.FLOP()/6e8 // microseconds
	return int(min(maxCalls, max(int64(2*len(c.sets)), int64(4000/guess), 4)))
}

// keyBlockRows is the size of the block of random keys and values, prime.
const keyBlockRows = 7_309

// placePrefill allocates a shape's memory.
func (b *Bench) placePrefill(s PrefillShape, p *runtime.Prefill, m *memory) (*prefillCall, error) {
	c := &prefillCall{PrefillShape: s, p: p, keys: newBlock(keyBlockRows, 1, seed+2)}
	queries, keys := make([]int32, s.Batch+1), make([]int32, s.Batch+1)
	for i := range queries {
		queries[i], keys[i] = int32(i*s.Q), int32(i*s.KV)
	}
	cuQ, err := m.upload("cu_q", encodeInts(queries))
	if err != nil {
		return nil, err
	}
	cuK, err := m.upload("cu_k", encodeInts(keys))
	if err != nil {
		return nil, err
	}
	tokens, keyTokens, heads := int64(s.Batch)*int64(s.Q), s.keyTokens(), int64(s.Heads)
	schedule, err := b.buffer(m, "schedule", p.ScheduleBytes(s.Batch, int(tokens)))
	if err != nil {
		return nil, err
	}
	c.schedule = runtime.PrefillScheduleArgs{
		Sequences: s.Batch, QueryTokens: int(tokens), KeyTokens: int(keyTokens), Causal: s.Causal,
		CuQ: runtime.Dense(cuQ, runtime.S32, int64(s.Batch)+1), CuK: runtime.Dense(cuK, runtime.S32, int64(s.Batch)+1), Buffer: schedule,
	}
	l2 := b.Driver.Attributes().L2Bytes
	if l2 <= 0 {
		l2 = defaultL2
	}
	n := l2Turnover*l2/(s.qBytes()+s.upBytes()+s.ropeBytes()) + 2
	for range n {
		q, err := b.laid(m, "q", b.q, s.qBytes())
		if err != nil {
			return nil, err
		}
		up, err := b.laid(m, "kv_up", c.keys, s.upBytes())
		if err != nil {
			return nil, err
		}
		kRope, err := b.laid(m, "k_rope", c.keys, s.ropeBytes())
		if err != nil {
			return nil, err
		}
		out, err := m.alloc("out", s.outBytes())
		if err != nil {
			return nil, err
		}
		lse, err := m.alloc("lse", s.rows()*4)
		if err != nil {
			return nil, err
		}
		for ptr, size := range map[runtime.Ptr]int64{out: s.outBytes(), lse: s.rows() * 4} {
			if err := b.Driver.Fill(ptr, 0xff, size); err != nil {
				return nil, err
			}
		}
		c.sets = append(c.sets, runtime.PrefillArgs{
			Sequences: s.Batch, Schedule: schedule, Scale: softmaxScale,
			Q:     runtime.Dense(q, runtime.BF16, tokens, heads, keyColumns),
			KVUp:  runtime.Dense(up, runtime.BF16, keyTokens, heads, upColumns),
			KRope: runtime.Dense(kRope, runtime.BF16, keyTokens, rope),
			Out:   runtime.Dense(out, runtime.BF16, tokens, heads, value),
			LSE:   runtime.Dense(lse, runtime.F32, tokens, heads),
		})
	}
	return c, nil
}

// laid allocates a tensor that is laid from a block.
func (b *Bench) laid(m *memory, name string, from block, size int64) (runtime.Ptr, error) {
	p, err := m.alloc(name, size)
	if err != nil {
		return p, err
	}
	return p, from.tile(b.Driver, b.stream, p, size)
}

// values returns count elements of a tensor that was laid from a block, from
// element first on.
func (b block) values(first int64, count int) []float32 {
	v := make([]float32, count)
	for i := range v {
		at := (first + int64(i)) * elementSize % int64(len(b.data))
		v[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(b.data[at:])) << 16)
	}
	return v
}

// prefillLSE downloads the log-sum-exps of the first set.
func (b *Bench) prefillLSE(c *prefillCall) ([]byte, error) {
	lse := make([]byte, 4*c.rows())
	return lse, b.Driver.Download(lse, c.sets[0].LSE.Ptr)
}

// verifyPrefill holds random rows of the first set against the reference, and
// makes sure that every log-sum-exp is finite where its row sees a key.
func (b *Bench) verifyPrefill(c *prefillCall, raw []byte) (outError, lseError float64, err error) {
	lse := make([]float64, len(raw)/4)
	name := func(row int) string {
		token := row / c.Heads
		return fmt.Sprintf("sequence %d, query %d, head %d", token/c.Q, token%c.Q, row%c.Heads)
	}
	for i := range lse {
		lse[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
		sees := c.visible(i/c.Heads%c.Q) > 0
		if math.IsNaN(lse[i]) || math.IsInf(lse[i], 1) || math.IsInf(lse[i], -1) == sees {
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
		left -= float64(c.visible(x.row/c.Heads%c.Q)+64) * (keyColumns + value)
		if err := b.Driver.Download(x.out, c.sets[0].Out.Ptr+runtime.Ptr(x.row*value*elementSize)); err != nil {
			return 0, 0, err
		}
		checks = append(checks, x)
	}
	var wg sync.WaitGroup
	for _, x := range checks {
		wg.Go(func() {
			keys := c.visible(x.row / c.Heads % c.Q)
			want, wantLSE := b.prefillRow(c, x.row, keys)
			x.wantLSE, x.outError = wantLSE, distance(want, x.out)
			if keys > 0 {
				x.lseError = math.Abs(lse[x.row] - wantLSE)
			}
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

// prefillRow is the reference's answer for a row. A row of prefill is one of
// decode whose record is the value and then the key, and whose query is zero
// where the value lies.
func (b *Bench) prefillRow(c *prefillCall, row, keys int) ([]float64, float64) {
	token, head := row/c.Heads, row%c.Heads
	firstKey := token / c.Q * c.KV
	return b.Reference(Row{
		Q:    append(make([]float32, value), b.q.values(int64(row)*keyColumns, keyColumns)...),
		Keys: keys,
		Record: func(position int) []float32 {
			up := c.keys.values((int64(firstKey+position)*int64(c.Heads)+int64(head))*upColumns, upColumns)
			record := append(append(make([]float32, 0, value+keyColumns), up[nope:]...), up[:nope]...)
			return append(record, c.keys.values(int64(firstKey+position)*rope, rope)...)
		},
		Latent: value,
		Scale:  softmaxScale,
	})
}
