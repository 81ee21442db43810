package check

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/cost"
	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/golden/oracle"
	"github.com/mlagen/mlagen/runtime"
)

// decodeCall is a decode case in device memory.
type decodeCall struct {
	in       *cases.Decode
	q, qRope buffer // qRope is the split query's second tensor
	kv       buffer
	table    buffer
	kvLen    buffer
	out, lse buffer

	qRows, ropeRows rowLayout // of q, or of its two parts
	rows            rowLayout // of the output
}

// decoder runs one call, as often as asked. It is the runtime's; tests put
// faulty ones in its place.
type decoder interface {
	// sizes are the bytes of the schedule and the workspace.
	sizes() (schedule, workspace int64)
	// run enqueues scheduling and decode.
	run(s runtime.Stream, schedule, workspace buffer) error
}

func (call *decodeCall) batch() int { return len(call.in.KVLen) }

// invariantSplits is how often a request is cut when its bits must not depend
// on its batch mates and the case does not say.
const invariantSplits = 4

func (call *decodeCall) splits() int {
	if c := call.in.Case; c.Splits > 0 || !c.BatchInvariant {
		return c.Splits
	}
	return invariantSplits
}

// runDecode runs a decode case. A skip error says that the device cannot.
func (r *Runner) runDecode(c *cases.Case) (outcome Outcome, err error) {
	if err := decodeLimits(c, r.Options); err != nil {
		return outcome, err
	}
	in, err := c.Decode()
	if err != nil {
		return outcome, err
	}
	var first decodeResult
	err = r.schedules(func(i int) error {
		result, err := r.decodeOnce(in)
		if err != nil {
			return err
		}
		if i > 0 {
			return first.same(result, fmt.Sprintf("with seed %d", r.Seed))
		}
		first = result
		out, err := result.gather()
		if err != nil {
			return err
		}
		outValues := c.DType.Decode(nil, out)
		lseValues := dtype.F32.Decode(nil, result.lse)
		if r.Dump != "" {
			if err := dumpDecode(filepath.Join(r.Dump, c.Name), result.call, outValues, lseValues); err != nil {
				return err
			}
		}
		outcome.Errors, err = compare(in.Oracle().Run(), outValues, lseValues, c.LSEBase == "2", c.Tolerance, result.call.describe)
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

// decodeResult is the outcome of a call, as bytes.
type decodeResult struct {
	call     *decodeCall
	out, lse []byte
}

// same reports the first difference to other, which r had otherwise.
func (r decodeResult) same(other decodeResult, otherwise string) error {
	if at := differs(r.out, other.out); at >= 0 {
		return fmt.Errorf("out differs from that %s at byte %d, %s", otherwise, at, r.call.describe(r.call.rows.row(at/(r.call.rows.pitch()*r.call.size()))))
	}
	if at := differs(r.lse, other.lse); at >= 0 {
		return fmt.Errorf("lse differs from that %s, %s", otherwise, r.call.describe(at/4))
	}
	return nil
}

// gather returns the output as dense rows, after looking at what was written.
func (r decodeResult) gather() ([]byte, error) {
	if err := lseWritten(r.lse, r.call.describe); err != nil {
		return nil, err
	}
	return r.call.rows.gather(r.call.in.Case, r.out, r.call.describe)
}

// decodeOnce runs the case in fresh memory, under the device's schedule.
func (r *Runner) decodeOnce(in *cases.Decode) (result decodeResult, err error) {
	m := &memory{driver: r.Driver}
	defer func() { err = errors.Join(err, m.free()) }()
	kv, err := placePool(in, m)
	if err != nil {
		return result, err
	}
	if result.call, err = placeDecode(in, kv, m); err != nil {
		return result, err
	}
	if result.out, result.lse, err = r.executeDecode(result.call, m); err != nil {
		return result, err
	}
	if err := inputsIntact(result.call, m); err != nil {
		return result, err
	}
	if in.Case.BatchInvariant {
		return result, r.aloneIsSame(result.call, m, result.out, result.lse)
	}
	return result, nil
}

// poolFits skips what the device has no memory, or no graphs, for.
func poolFits(c *cases.Case, o Options) error {
	a := o.Driver.Attributes()
	if c.Graph != nil && !a.GraphCapture {
		return skip(fmt.Sprintf("%s does not capture graphs", o.Driver.Name()))
	}
	pool := c.Pages.Pool
	if pool == 0 {
		pool = c.Pages.Base + 3
		for _, n := range c.KVLen {
			pool += int64(n/c.PageSize + 1)
		}
	}
	if need := pool * c.PageStride() * int64(c.DType.Size()); a.MemoryBytes > 0 && need > a.MemoryBytes/10*9 {
		return skip(fmt.Sprintf("a pool of %.1f GB does not fit into %s's %.1f GB", float64(need)/1e9, o.Driver.Name(), float64(a.MemoryBytes)/1e9))
	}
	return nil
}

// decodeLimits skips what the device cannot run.
func decodeLimits(c *cases.Case, o Options) error {
	if err := poolFits(c, o); err != nil {
		return err
	}
	qLen, _ := c.QLen.Uniform()
	if qLen > 1 && !c.Causal {
		return skip("decode of several query tokens is causal")
	}
	model, tokens := cost.Model(c.Model), 0.0
	for _, n := range c.KVLen {
		tokens += float64(n)
	}
	if work := model.DecodeFLOP(tokens * float64(qLen)); o.MaxFLOP > 0 && work > o.MaxFLOP {
		return skip(fmt.Sprintf("%.1f GFLOP are too many for %s", work/1e9, o.Driver.Name()))
	}
	return nil
}

// executeDecode runs the call as often as the case repeats it, checking the
// guard zones and that the bits agree, and returns the outputs' bytes.
func (r *Runner) executeDecode(call *decodeCall, m *memory) (out, lse []byte, err error) {
	d, err := r.open(call)
	if err != nil {
		return nil, nil, err
	}
	scheduleBytes, workspaceBytes := d.sizes()
	schedule, err := m.guard("schedule", scheduleBytes)
	if err != nil {
		return nil, nil, err
	}
	workspace, err := m.guard("workspace", workspaceBytes)
	if err != nil {
		return nil, nil, err
	}
	s, err := m.driver.NewStream()
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, s.Destroy()) }()
	launch := func() error { return d.run(s, schedule, workspace) }
	if call.in.Case.Graph != nil {
		g, failed := capture(s, launch)
		if failed != nil {
			return nil, nil, failed
		}
		defer func() { err = errors.Join(err, g.Destroy()) }()
		if call.kvLen.size > 0 {
			if err := m.driver.Upload(call.kvLen.ptr, encodeInts(call.in.KVLen)); err != nil {
				return nil, nil, err
			}
		}
		launch = func() error { return s.Replay(g) }
	}

	var first decodeResult
	for i := range call.in.Case.Repeat {
		poisoned := []buffer{call.lse}
		if !r.Hazards {
			poisoned = append(poisoned, schedule, workspace)
		}
		for _, b := range poisoned {
			if err := m.driver.Fill(b.ptr, 0xff, b.size); err != nil {
				return nil, nil, err
			}
		}
		if err := poisonOut(call, m); err != nil {
			return nil, nil, err
		}
		if err := launch(); err != nil {
			return nil, nil, err
		}
		if err := s.Synchronize(); err != nil {
			return nil, nil, err
		}
		if err := m.checkGuards(); err != nil {
			return nil, nil, err
		}
		result := decodeResult{call: call}
		if result.out, err = m.download(call.out); err != nil {
			return nil, nil, err
		}
		if result.lse, err = m.download(call.lse); err != nil {
			return nil, nil, err
		}
		if i == 0 {
			first = result
		} else if err := first.same(result, "of run 1"); err != nil {
			return nil, nil, fmt.Errorf("run %d: %w", i+1, err)
		}
	}
	return first.out, first.lse, nil
}

func capture(s runtime.Stream, launch func() error) (runtime.Graph, error) {
	if err := s.BeginCapture(); err != nil {
		return nil, err
	}
	failed := launch()
	g, err := s.EndCapture() // whatever was launched: a stream must not stay capturing
	if failed != nil && err == nil {
		err = g.Destroy()
	}
	if err = errors.Join(failed, err); err != nil {
		return nil, err
	}
	return g, nil
}

// aloneIsSame runs each request as a batch of its own and compares the bits
// with those it had among the others.
func (r *Runner) aloneIsSame(call *decodeCall, m *memory, out, lse []byte) error {
	dense, err := decodeResult{call, out, lse}.gather()
	if err != nil {
		return err
	}
	for i := range call.in.KVLen {
		alone, err := placeDecode(call.in.Alone(i), call.kv, m)
		if err != nil {
			return err
		}
		o, l, err := r.executeDecode(alone, m)
		if err != nil {
			return fmt.Errorf("request %d alone: %w", i, err)
		}
		if o, err = (decodeResult{alone, o, l}).gather(); err != nil {
			return err
		}
		if at := differs(o, dense[i*len(o):(i+1)*len(o)]); at >= 0 {
			return fmt.Errorf("request %d alone has another out, from byte %d on", i, at)
		}
		if at := differs(l, lse[i*len(l):(i+1)*len(l)]); at >= 0 {
			return fmt.Errorf("request %d alone has another lse, from byte %d on", i, at)
		}
	}
	return nil
}

func (call *decodeCall) size() int { return call.in.Case.DType.Size() }

// describe names a row of the outputs.
func (call *decodeCall) describe(row int) string {
	heads, qLen := call.in.Case.Model.Heads, call.in.QLen
	request := row / (heads * qLen)
	token := row / heads % qLen
	return fmt.Sprintf("request %d (kv_len %d), query token %d, head %d (sees %d keys)", request, call.in.KVLen[request], token, row%heads,
		oracle.Visible(call.in.Case.Causal, int(call.in.KVLen[request]), qLen, token))
}

// differs returns the first byte at which a and b differ, or −1.
func differs(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

func encodeInts(x []int32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return b
}
