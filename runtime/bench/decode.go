package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/mlagen/mlagen/runtime"
)

// Result is what was measured for a shape.
type Result struct {
	Shape
	Setting              // BlockH is what was chosen
	Microseconds float64 // per call, combine included; median of the bursts
	Spread       float64 // (slowest−fastest)/median of the bursts
	Calls        int     // per replay
	OutError     float64 // worst of the rows that were held against the reference
	LSEError     float64

	// Per call, only with Config.Sustained.
	BurstMicroseconds, SustainedMicroseconds float64
	Power                                    *Power // of the sustained run, nil where nothing measures it
}

// JoulesPerMillionTokens is the energy for a million tokens in the cache, each
// read once, in the sustained run; NaN where it was not measured.
func (r Result) JoulesPerMillionTokens() float64 {
	if r.Power == nil {
		return math.NaN()
	}
	return r.Power.Drawn * r.SustainedMicroseconds / float64(r.tokens()) // W × µs = µJ
}

// maxCalls bounds the calls of a replay; L2 is emptied between replays anyway.
const maxCalls = 512

// WrongError is a result that the reference contradicts, or that changes from
// replay to replay; such a shape has no time.
type WrongError struct{ Text string }

func (e *WrongError) Error() string { return "WRONG RESULT, no time: " + e.Text }

// calls returns how many calls a replay makes: enough that no page is read
// again before the L2 has turned over, and some four milliseconds.
func (b *Bench) calls(s Shape) int {
	cold := l2Turnover*b.l2()/(s.pages()*pageBytes) + 1
	return int(min(maxCalls, max(cold, min(256, int64(4000/s.guess())), 4)))
}

// l2 is the size of the device's L2 in bytes.
func (b *Bench) l2() int64 {
	if n := b.Driver.Attributes().L2Bytes; n > 0 {
		return n
	}
	return defaultL2
}

// guess is about how many microseconds a call takes.
func (s Shape) guess() float64 { return 8 + max(s.Bytes()/4e6, s.FLOP()/5e8) }

// call is the device memory of a shape.
type call struct {
	Shape
	lengths []int32
	tables  [][]int32 // one per call of a replay
	args    []runtime.DecodeArgs
	d       *runtime.Decode

	workspace runtime.Buffer // that may be used; one that is too small is not
}

// Decode times a shape with what the source chooses for it. A result that the
// reference contradicts is an error.
func (b *Bench) Decode(s Shape) (Result, error) {
	return b.DecodeWith(s, Setting{Splits: b.Splits})
}

// DecodeWith times a shape with a setting, as Decode does.
func (b *Bench) DecodeWith(s Shape, set Setting) (r Result, err error) {
	if set, err = b.resolved(s, set); err != nil {
		return r, fmt.Errorf("%v: %w", s, err)
	}
	r = Result{Shape: s, Setting: set}
	m := &memory{drv: b.Driver}
	defer func() { err = errors.Join(err, m.free()) }()
	c, err := b.place(s, set, m)
	if err != nil {
		return r, fmt.Errorf("%v: %w", s, err)
	}
	r.Calls, r.BlockH = len(c.args), c.d.Model().BlockH
	check, unchanged := watched("lse", func() ([]byte, error) {
		lse := make([]byte, 4*s.Batch*s.SQ*s.Heads)
		return lse, b.Driver.Download(lse, c.args[0].LSE.Ptr)
	}, func(lse []byte) (err error) {
		r.OutError, r.LSEError, err = b.verify(c, lse)
		return err
	})
	t, err := b.measure(r.Calls, func(i int) error { return c.d.Run(b.stream, c.args[i]) }, check, unchanged)
	r.Microseconds, r.Spread, r.BurstMicroseconds, r.SustainedMicroseconds, r.Power = t.median, t.spread, t.burst, t.sustained, t.power
	if err != nil {
		return r, fmt.Errorf("%v: %w", s, err)
	}
	return r, nil
}

// place allocates a shape's memory and computes its schedule.
func (b *Bench) place(s Shape, set Setting, m *memory) (*call, error) {
	if need := s.pages(); need > b.pages {
		return nil, fmt.Errorf("a call reads %d pages and the pool has %d", need, b.pages)
	}
	d, err := b.decode(s, set)
	if err != nil {
		return nil, err
	}
	c, err := b.placeTensors(s, b.calls(s), m)
	if err != nil {
		return nil, err
	}
	return c, b.plan(c, d, set, m)
}

// plan has calls run with kernels and a setting: it allocates what these need
// besides and computes the schedule.
func (b *Bench) plan(c *call, d *runtime.Decode, set Setting, m *memory) error {
	schedule, err := b.buffer(m, "schedule", d.ScheduleBytes(c.Batch, set.Splits))
	if err != nil {
		return err
	}
	workspace := c.workspace
	if need := d.WorkspaceBytes(c.Batch, set.Splits); workspace.Bytes < need {
		if workspace, err = b.buffer(m, "workspace", need); err != nil {
			return err
		}
	}
	c.d = d
	for i := range c.args {
		a := &c.args[i]
		a.Splits, a.Schedule, a.Workspace, a.Tuning = set.Splits, schedule, workspace, set.Tuning
	}
	return d.Schedule(b.stream, runtime.ScheduleArgs{Batch: c.Batch, Splits: set.Splits, KVLen: c.args[0].KVLen, Buffer: schedule})
}

// placeTensors allocates and fills what so many calls of a shape read and write,
// outputs set to NaN.
func (b *Bench) placeTensors(s Shape, n int, m *memory) (*call, error) {
	c := &call{Shape: s, lengths: s.Lengths()}
	batch, sq, heads := int64(s.Batch), int64(s.SQ), int64(s.Heads)
	rows := batch * sq * heads
	q, err := m.alloc("q", rows*recordBytes)
	if err != nil {
		return nil, err
	}
	if err := b.q.tile(b.Driver, b.stream, q, rows*recordBytes); err != nil {
		return nil, err
	}
	lengths, err := m.upload("kv_len", encodeInts(c.lengths))
	if err != nil {
		return nil, err
	}
	out, err := m.alloc("out", rows*latent*elementSize)
	if err != nil {
		return nil, err
	}
	lse, err := m.alloc("lse", rows*4)
	if err != nil {
		return nil, err
	}
	for ptr, size := range map[runtime.Ptr]int64{out: rows * latent * elementSize, lse: rows * 4} {
		if err := b.Driver.Fill(ptr, 0xff, size); err != nil {
			return nil, err
		}
	}
	kvLen := runtime.Dense(lengths, runtime.S32, batch)
	width := s.width()
	all := make([]int32, 0, int64(n)*batch*width)
	for range n {
		table := b.table(c.lengths, width)
		c.tables = append(c.tables, table)
		all = append(all, table...)
	}
	tables, err := m.upload("block tables", encodeInts(all))
	if err != nil {
		return nil, err
	}
	for i := range n {
		c.args = append(c.args, runtime.DecodeArgs{
			Batch:      s.Batch,
			Q:          runtime.Dense(q, runtime.BF16, batch, sq, heads, record),
			KV:         runtime.Dense(b.pool, runtime.BF16, b.pages, pageTokens, record),
			BlockTable: runtime.Dense(tables+runtime.Ptr(int64(i)*batch*width*4), runtime.S32, batch, width),
			KVLen:      kvLen,
			NewTokens:  b.newTokens(s),
			Out:        runtime.Dense(out, runtime.BF16, batch, sq, heads, latent),
			LSE:        runtime.Dense(lse, runtime.F32, batch, sq, heads),
			Scale:      softmaxScale,
		})
	}
	return c, nil
}

// newTokens is what calls promise of the cache, see runtime.DecodeArgs: as engines
// can, that nothing but the step's own tokens is new.
func (b *Bench) newTokens(s Shape) int {
	if b.Cautious {
		return 0
	}
	return s.SQ
}

func (b *Bench) buffer(m *memory, name string, size int64) (runtime.Buffer, error) {
	p, err := m.alloc(name, size)
	return runtime.Buffer{Ptr: p, Bytes: size}, err
}

// table returns a block table over the next pages of the pool; entries past a
// request's end are −1.
func (b *Bench) table(lengths []int32, width int64) []int32 {
	table := make([]int32, int64(len(lengths))*width)
	for i, n := range lengths {
		row := table[int64(i)*width : int64(i+1)*width]
		used := copy(row, b.take(pagesOf(n)))
		for j := used; j < len(row); j++ {
			row[j] = -1
		}
	}
	return table
}

// What a checked row may be off by.
const (
	outTolerance = 5e-3
	lseTolerance = 1e-3
)

// checkBudget bounds the multiply-adds of checking one shape against the
// reference, some tenths of a second of one core; at least one row is checked.
const checkBudget = 64 << 20

// verify holds random rows of the last call's output against the reference,
// and makes sure that every row of raw, its log-sum-exps, is finite where it
// sees a key.
func (b *Bench) verify(c *call, raw []byte) (outError, lseError float64, err error) {
	lse := make([]float64, len(raw)/4)
	for i := range lse {
		lse[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
		request, token, head := i/(c.SQ*c.Heads), i/c.Heads%c.SQ, i%c.Heads
		sees := c.visible(int(c.lengths[request]), token) > 0
		if math.IsNaN(lse[i]) || math.IsInf(lse[i], 1) || math.IsInf(lse[i], -1) == sees {
			return 0, 0, &WrongError{fmt.Sprintf("request %d, query token %d, head %d: lse is %v", request, token, head, lse[i])}
		}
	}
	last := len(c.args) - 1
	return b.verifyRows(c, c.tables[last], lse, c.args[last].Out.Ptr)
}

// verifyRows holds random rows against the reference.
func (b *Bench) verifyRows(c *call, table []int32, lse []float64, out runtime.Ptr) (outError, lseError float64, err error) {
	type check struct {
		row, request, token, head, keys int
		out                             []byte
		outError, lseError, wantLSE     float64
	}
	var checks []*check
	for left := float64(checkBudget); left > 0; {
		row := b.random.IntN(len(lse))
		x := &check{row: row, request: row / (c.SQ * c.Heads), token: row / c.Heads % c.SQ, head: row % c.Heads, out: make([]byte, latent*elementSize)}
		x.keys = c.visible(int(c.lengths[x.request]), x.token)
		left -= float64(x.keys+64) * (record + latent)
		if err := b.Driver.Download(x.out, out+runtime.Ptr(row*latent*elementSize)); err != nil {
			return 0, 0, err
		}
		checks = append(checks, x)
	}
	var wg sync.WaitGroup
	for _, x := range checks {
		wg.Go(func() {
			want, wantLSE := b.Reference(Row{
				Q:    b.q.row(int64(x.row)),
				Keys: x.keys,
				Record: func(position int) []float32 {
					return b.record(table[int64(x.request)*c.width()+int64(position/pageTokens)], position%pageTokens)
				},
				Latent: latent,
				Scale:  softmaxScale,
			})
			x.wantLSE, x.outError = wantLSE, distance(want, x.out)
			if x.keys > 0 {
				x.lseError = math.Abs(lse[x.row] - wantLSE)
			}
		})
	}
	wg.Wait()
	for _, x := range checks {
		if !(x.outError <= outTolerance) || !(x.lseError <= lseTolerance) { // NaN never passes
			return 0, 0, &WrongError{fmt.Sprintf("request %d of %d tokens, query token %d, head %d: out is off by %.2e of its norm (%.0e allowed), lse is %.6g and must be %.6g",
				x.request, c.lengths[x.request], x.token, x.head, x.outError, outTolerance, lse[x.row], x.wantLSE)}
		}
		outError, lseError = max(outError, x.outError), max(lseError, x.lseError)
	}
	return outError, lseError, nil
}

// distance is ‖got−want‖/‖want‖; of a zero row ‖got‖.
func distance(want []float64, got []byte) float64 {
	var diff, norm float64
	for i, w := range want {
		g := float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(got[2*i:])) << 16))
		diff += (g - w) * (g - w)
		norm += w * w
	}
	if norm == 0 {
		norm = 1
	}
	return math.Sqrt(diff / norm)
}
