package check

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/cost"
	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/golden/oracle"
	"github.com/mlagen/mlagen/runtime"
)

// prefillCall is a prefill case in device memory.
type prefillCall struct {
	in       *cases.Prefill
	q, qRope buffer // qRope is the split query's second tensor
	up, rope buffer
	cuQ, cuK buffer
	schedule buffer
	out, lse buffer

	qRows, ropeRows rowLayout // of q, or of its two parts
	rows            rowLayout // of the output
}

func (call *prefillCall) size() int   { return call.in.Case.DType.Size() }
func (call *prefillCall) tokens() int { return int(call.in.CuQ[len(call.in.CuQ)-1]) }

// prefiller runs one call, as often as asked. It is the runtime's; tests put
// faulty ones in its place.
type prefiller interface {
	scheduleBytes() int64
	// run enqueues scheduling and attention.
	run(s runtime.Stream) error
}

// runPrefill runs a prefill case. A skip error says that the device cannot.
func (r *Runner) runPrefill(c *cases.Case) (outcome Outcome, err error) {
	if err := prefillLimits(c, r.Options); err != nil {
		return outcome, err
	}
	in, err := c.Prefill()
	if err != nil {
		return outcome, err
	}
	var first prefillResult
	err = r.schedules(func(i int) error {
		result, err := r.prefillOnce(in)
		if err != nil {
			return err
		}
		if i > 0 {
			return first.same(result, fmt.Sprintf("with seed %d", r.Seed))
		}
		first = result
		raw, err := result.gather()
		if err != nil {
			return err
		}
		out := c.DType.Decode(nil, raw)
		lse := dtype.F32.Decode(nil, result.lse)
		if r.Dump != "" {
			if err := dumpPrefill(filepath.Join(r.Dump, c.Name), in, out, lse); err != nil {
				return err
			}
		}
		outcome.Errors, err = compare(in.Oracle().Run(), out, lse, c.LSEBase == "2", c.Tolerance, result.call.describe)
		return err
	})
	var notes []string
	if c.Repeat > 1 {
		notes = append(notes, fmt.Sprintf("%d runs identical", c.Repeat))
	}
	if r.Seeds > 1 {
		notes = append(notes, fmt.Sprintf("%d schedules identical", r.Seeds))
	}
	outcome.Notes = strings.Join(notes, ", ")
	return outcome, err
}

// prefillLimits skips what the device cannot run.
func prefillLimits(c *cases.Case, o Options) error {
	if c.Graph != nil && !o.Driver.Attributes().GraphCapture {
		return skip(fmt.Sprintf("%s does not capture graphs", o.Driver.Name()))
	}
	model, pairs := cost.Model(c.Model), 0.0
	for i, keys := range c.KVLen {
		queries := c.QLen.All
		if c.QLen.Each != nil {
			queries = c.QLen.Each[i]
		}
		for j := range queries {
			pairs += float64(oracle.Visible(c.Causal, keys, queries, j))
		}
	}
	if work := pairs * model.ExpandPair(); o.MaxFLOP > 0 && work > o.MaxFLOP {
		return skip(fmt.Sprintf("%.1f GFLOP are too many for %s", work/1e9, o.Driver.Name()))
	}
	return nil
}

// prefillResult is the outcome of a call, as bytes.
type prefillResult struct {
	call     *prefillCall
	out, lse []byte
}

// same reports the first difference to other, which r had otherwise.
func (r prefillResult) same(other prefillResult, otherwise string) error {
	if at := differs(r.out, other.out); at >= 0 {
		return fmt.Errorf("out differs from that %s at byte %d, %s", otherwise, at, r.call.describe(r.call.rows.row(at/(r.call.rows.pitch()*r.call.size()))))
	}
	if at := differs(r.lse, other.lse); at >= 0 {
		return fmt.Errorf("lse differs from that %s, %s", otherwise, r.call.describe(at/4))
	}
	return nil
}

// gather returns the output as dense rows, after looking at what was written.
func (r prefillResult) gather() ([]byte, error) {
	if err := lseWritten(r.lse, r.call.describe); err != nil {
		return nil, err
	}
	return r.call.rows.gather(r.call.in.Case, r.out, r.call.describe)
}

// prefillOnce runs the case in fresh memory, under the device's schedule.
func (r *Runner) prefillOnce(in *cases.Prefill) (result prefillResult, err error) {
	m := &memory{driver: r.Driver}
	defer func() { err = errors.Join(err, m.free()) }()
	call, err := placePrefill(in, m)
	if err != nil {
		return result, err
	}
	result, err = r.executePrefill(call, m)
	if err != nil {
		return result, err
	}
	return result, call.inputsIntact(m)
}

// placePrefill allocates and fills the call's buffers but for the schedule.
func placePrefill(in *cases.Prefill, m *memory) (*prefillCall, error) {
	c := in.Case
	call := &prefillCall{in: in}
	model := c.Model
	call.rows, call.qRows = outRows(c, call.tokens(), model.Value), queryRows(c, call.tokens(), model.Nope+model.Rope)
	if c.Layout.Q == "split" {
		call.qRows, call.ropeRows = queryRows(c, call.tokens(), model.Nope), queryRows(c, call.tokens(), model.Rope)
	}
	var err error
	for _, i := range call.inputs() {
		if err == nil {
			*i.to, err = m.upload(i.name, i.data)
		}
	}
	if err == nil && in.CaptureCuK != nil {
		err = m.driver.Upload(call.cuK.ptr, encodeInts(in.CaptureCuK))
	}
	if err != nil {
		return nil, err
	}
	if call.out, err = m.guard("out", int64(call.rows.elements()*call.size())); err != nil {
		return nil, err
	}
	call.lse, err = m.guard("lse", int64(call.tokens()*c.Model.Heads*4))
	return call, err
}

// prefillInput is an input of a call and where it lies.
type prefillInput struct {
	to   *buffer
	name string
	data []byte
}

func (call *prefillCall) inputs() []prefillInput {
	in, t := call.in, call.in.Case.DType
	inputs := []prefillInput{
		{&call.up, "kv_up", t.Encode(nil, in.Up)}, {&call.rope, "k_rope", t.Encode(nil, in.KRope)},
		{&call.cuQ, "cu_q", encodeInts(in.CuQ)}, {&call.cuK, "cu_k", encodeInts(in.CuK)},
	}
	if in.Case.Layout.Q == "split" {
		nope, rope := in.SplitQ()
		return append(inputs, prefillInput{&call.q, "q_nope", t.Encode(nil, call.qRows.spread(nope))}, prefillInput{&call.qRope, "q_rope", t.Encode(nil, call.ropeRows.spread(rope))})
	}
	return append(inputs, prefillInput{&call.q, "q", t.Encode(nil, call.qRows.spread(in.Q))})
}

// inputsIntact reports an input that the run changed.
func (call *prefillCall) inputsIntact(m *memory) error {
	for _, i := range call.inputs() {
		got, err := m.download(*i.to)
		if err != nil {
			return err
		}
		if at := differs(i.data, got); at >= 0 {
			return fmt.Errorf("the run changed its input %s at byte %d", i.name, at)
		}
	}
	return nil
}

// executePrefill runs the call as often as the case repeats it, checking the
// guard zones and that the bits agree, and returns the outputs.
func (r *Runner) executePrefill(call *prefillCall, m *memory) (first prefillResult, err error) {
	p, err := r.openPrefills(call)
	if err != nil {
		return first, err
	}
	if call.schedule, err = m.guard("schedule", p.scheduleBytes()); err != nil {
		return first, err
	}
	s, err := m.driver.NewStream()
	if err != nil {
		return first, err
	}
	defer func() { err = errors.Join(err, s.Destroy()) }()
	launch := func() error { return p.run(s) }
	if call.in.Case.Graph != nil {
		g, failed := capture(s, launch)
		if failed != nil {
			return first, failed
		}
		defer func() { err = errors.Join(err, g.Destroy()) }()
		if err := m.driver.Upload(call.cuK.ptr, encodeInts(call.in.CuK)); err != nil {
			return first, err
		}
		launch = func() error { return s.Replay(g) }
	}
	for i := range call.in.Case.Repeat {
		poisoned := []buffer{call.lse}
		if !r.Hazards {
			poisoned = append(poisoned, call.schedule)
		}
		for _, b := range poisoned {
			if err := m.driver.Fill(b.ptr, 0xff, b.size); err != nil {
				return first, err
			}
		}
		if err := call.poisonOut(m); err != nil {
			return first, err
		}
		if err := launch(); err != nil {
			return first, err
		}
		if err := s.Synchronize(); err != nil {
			return first, err
		}
		if err := m.checkGuards(); err != nil {
			return first, err
		}
		result := prefillResult{call: call}
		if result.out, err = m.download(call.out); err != nil {
			return first, err
		}
		if result.lse, err = m.download(call.lse); err != nil {
			return first, err
		}
		if i == 0 {
			first = result
		} else if err := first.same(result, "of run 1"); err != nil {
			return first, fmt.Errorf("run %d: %w", i+1, err)
		}
	}
	return first, nil
}

// poisonOut fills the output, gaps included, as the case says.
func (call *prefillCall) poisonOut(m *memory) error {
	c := call.in.Case
	if c.Fill.Out == "nan" || call.out.size == 0 {
		return m.driver.Fill(call.out.ptr, 0xff, call.out.size)
	}
	filler, err := cases.ParseFill(c.Fill.Out)
	if err != nil {
		return err
	}
	values := make([]float32, call.out.size/int64(call.size()))
	filler(rand.New(rand.NewPCG(c.Seed, 0)), values)
	return m.driver.Upload(call.out.ptr, c.DType.Encode(nil, values))
}

// describe names a row of the outputs.
func (call *prefillCall) describe(row int) string {
	in, heads := call.in, call.in.Case.Model.Heads
	token := row / heads
	sequence := 0
	for int(in.CuQ[sequence+1]) <= token {
		sequence++
	}
	queries, keys := int(in.CuQ[sequence+1]-in.CuQ[sequence]), int(in.CuK[sequence+1]-in.CuK[sequence])
	j := token - int(in.CuQ[sequence])
	return fmt.Sprintf("sequence %d (%d queries, %d keys), query %d, head %d (sees %d keys)", sequence, queries, keys, j, row%heads,
		oracle.Visible(in.Case.Causal, keys, queries, j))
}

// dumpPrefill writes a prefill case's inputs and outputs for other programs.
func dumpPrefill(dir string, in *cases.Prefill, out, lse []float32) error {
	m, tokens := in.Case.Model, int(in.CuQ[len(in.CuQ)-1])
	keys := int(in.CuK[len(in.CuK)-1])
	rope := make([]float32, 0, keys*m.Rope)
	for i := range keys {
		rope = append(rope, in.KRope[i*in.RopeStride:][:m.Rope]...)
	}
	up := m.Nope + m.Value
	for _, a := range []struct {
		name  string
		shape []int
		data  []float32
	}{
		{"q", []int{tokens, m.Heads, m.Nope + m.Rope}, in.Q},
		{"kv_up", []int{keys, m.Heads, up}, in.Up[:keys*m.Heads*up]},
		{"k_rope", []int{keys, m.Rope}, rope},
		{"out", []int{tokens, m.Heads, m.Value}, out},
		{"lse", []int{tokens, m.Heads}, lse},
	} {
		if err := writeNPY(filepath.Join(dir, a.name+".npy"), a.shape, a.data); err != nil {
			return err
		}
	}
	if err := writeNPY(filepath.Join(dir, "cu_q.npy"), []int{len(in.CuQ)}, in.CuQ); err != nil {
		return err
	}
	return writeNPY(filepath.Join(dir, "cu_k.npy"), []int{len(in.CuK)}, in.CuK)
}
