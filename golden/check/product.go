package check

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/runtime"
)

// load returns what a case before loaded under key, or loads it.
func load[T io.Closer](r *Runner, key any, make func() (T, error)) (T, error) {
	if x, ok := r.loaded[key]; ok {
		return x.(T), nil
	}
	x, err := make()
	if err == nil {
		r.loaded[key] = x
	}
	return x, err
}

// unload closes what load returned.
func (r *Runner) unload() error {
	var errs []error
	for key, x := range r.loaded {
		errs = append(errs, x.Close())
		delete(r.loaded, key)
	}
	return errors.Join(errs...)
}

// rowsOut is an output in device memory: rows of width elements, stride apart,
// of which the first written are to be written.
type rowsOut struct {
	buffer
	rows, width, stride int
	written             int
}

// placeRows allocates an output of [tokens][heads] rows.
func placeRows(m *memory, c *cases.Case, name string, rows, written, width, gap int) (rowsOut, error) {
	o := rowsOut{rows: rows, width: width, stride: width + gap, written: written}
	var err error
	o.buffer, err = m.guard(name, int64(rows*o.stride*c.DType.Size()))
	return o, err
}

// outGapOf returns the elements after each row of the case's outputs.
func outGapOf(c *cases.Case) int {
	if c.Layout.Out == "padded" {
		return outGap
	}
	return 0
}

// poison sets every byte, gaps included, to 0xff, a NaN.
func (o rowsOut) poison(m *memory) error { return m.driver.Fill(o.ptr, 0xff, o.size) }

// read returns the written rows without their gaps, and makes sure that all
// else holds the poison and that every written element was.
func (o rowsOut) read(m *memory, c *cases.Case) ([]byte, error) {
	data, err := m.download(o.buffer)
	if err != nil {
		return nil, err
	}
	size := c.DType.Size()
	var values []byte
	for row := range o.rows {
		at := row * o.stride * size
		for i := range o.stride {
			poisoned := true
			for b := range size {
				poisoned = poisoned && data[at+i*size+b] == 0xff
			}
			switch meant := row < o.written && i < o.width; {
			case meant && poisoned:
				return nil, fmt.Errorf("%s: element %d of row %d was not written", o.name, i, row)
			case !meant && !poisoned:
				return nil, fmt.Errorf("%s: element %d past row %d of %d was written", o.name, i, row, o.written)
			}
		}
		if row < o.written {
			values = append(values, data[at:at+o.width*size]...)
		}
	}
	return values, nil
}

// differRows compares rows with the oracle's and returns the worst distance.
func differRows(c *cases.Case, name string, data []byte, rows int, want func(row int) []float64) (float64, error) {
	values := c.DType.Decode(nil, data)
	if rows == 0 {
		return 0, nil
	}
	width, worst := len(values)/rows, 0.0
	for row := range rows {
		e, err := rowError(want(row), values[row*width:(row+1)*width])
		if err == nil && e > c.Tolerance.Out {
			err = fmt.Errorf("off by %.2e of its norm, more than %.0e", e, c.Tolerance.Out)
		}
		if err != nil {
			return worst, fmt.Errorf("%s, row %d, head %d: %w", name, row/c.Model.Heads, row%c.Model.Heads, err)
		}
		worst = math.Max(worst, e)
	}
	return worst, nil
}

// input is a buffer that a run must leave as it was.
type input struct {
	buffer
	want []byte
}

// inputs uploads tensors and remembers them.
type inputs struct {
	m   *memory
	all []input
	err error
}

func (i *inputs) upload(name string, data []byte) runtime.Ptr {
	if i.err != nil {
		return 0
	}
	var b buffer
	b, i.err = i.m.upload(name, data)
	i.all = append(i.all, input{b, data})
	return b.ptr
}

// values uploads a tensor of the case's type.
func (i *inputs) values(c *cases.Case, name string, values []float32) runtime.Ptr {
	return i.upload(name, c.DType.Encode(nil, values))
}

func (i *inputs) intact() error {
	for _, x := range i.all {
		got, err := i.m.download(x.buffer)
		if err != nil {
			return err
		}
		if at := differs(x.want, got); at >= 0 {
			return fmt.Errorf("the run changed its input %s at byte %d", x.name, at)
		}
	}
	return nil
}

// productLimits skips what the device cannot run in reasonable time.
func productLimits(c *cases.Case, o Options, tokens int) error {
	m := c.Model
	work := 2 * float64(tokens) * float64(m.Heads) * float64(m.Nope+m.Value) * float64(m.Latent)
	if o.MaxFLOP > 0 && work > o.MaxFLOP {
		return skip(fmt.Sprintf("%.1f GFLOP are too many for %s", work/1e9, o.Driver.Name()))
	}
	return nil
}

// once runs calls on a fresh stream as often as the case repeats them, with
// poisoned outputs, and returns what result reads, which must be the same
// every time.
func (r *Runner) once(c *cases.Case, m *memory, outs []rowsOut, prepare, launch func(s runtime.Stream) error) (results [][]byte, err error) {
	s, err := m.driver.NewStream()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Destroy()) }()
	if c.Graph != nil {
		g, failed := capture(s, func() error { return launch(s) })
		if failed != nil {
			return nil, failed
		}
		defer func() { err = errors.Join(err, g.Destroy()) }()
		if err := prepare(s); err != nil {
			return nil, err
		}
		launch = func(s runtime.Stream) error { return s.Replay(g) }
	}
	for run := range c.Repeat {
		for _, o := range outs {
			if err := o.poison(m); err != nil {
				return nil, err
			}
		}
		if err := launch(s); err != nil {
			return nil, err
		}
		if err := s.Synchronize(); err != nil {
			return nil, err
		}
		if err := m.checkGuards(); err != nil {
			return nil, err
		}
		for i, o := range outs {
			data, err := o.read(m, c)
			if err != nil {
				return nil, err
			}
			if run == 0 {
				results = append(results, data)
			} else if at := differs(results[i], data); at >= 0 {
				return nil, fmt.Errorf("run %d: %s differs from that of run 1 at byte %d", run+1, o.name, at)
			}
		}
	}
	return results, nil
}

// overSchedules runs a case under every schedule; all must give the same.
func (r *Runner) overSchedules(c *cases.Case, run func() ([][]byte, error), judge func(results [][]byte) (float64, error)) (outcome Outcome, err error) {
	var first [][]byte
	err = r.schedules(func(i int) error {
		results, err := run()
		if err != nil {
			return err
		}
		if i == 0 {
			first = results
			outcome.Errors.Out, err = judge(results)
			return err
		}
		for j := range first {
			if at := differs(first[j], results[j]); at >= 0 {
				return fmt.Errorf("result %d differs from that with another seed at byte %d", j, at)
			}
		}
		return nil
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
