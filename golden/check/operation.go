package check

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/runtime"
)

// operation is a call in device memory that can be made again and again.
type operation struct {
	outputs []output
	launch  func(runtime.Stream) error
}

// output is a buffer that the operation writes.
type output struct {
	buffer
	// before sets what lies in it before a run.
	before func() error
}

// execute makes the call as often as the case repeats it, from a graph where it
// asks for one, checking the guard zones and that the bits agree. It returns the
// outputs' bytes.
func (r *Runner) execute(c *cases.Case, m *memory, op operation) (results [][]byte, err error) {
	s, err := m.driver.NewStream()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Destroy()) }()
	launch := func() error { return op.launch(s) }
	if c.Graph != nil {
		g, failed := capture(s, launch)
		if failed != nil {
			return nil, failed
		}
		defer func() { err = errors.Join(err, g.Destroy()) }()
		launch = func() error { return s.Replay(g) }
	}
	for i := range c.Repeat {
		for _, o := range op.outputs {
			if err := o.before(); err != nil {
				return nil, err
			}
		}
		if err := launch(); err != nil {
			return nil, err
		}
		if err := s.Synchronize(); err != nil {
			return nil, err
		}
		if err := m.checkGuards(); err != nil {
			return nil, err
		}
		for j, o := range op.outputs {
			b, err := m.download(o.buffer)
			if err != nil {
				return nil, err
			}
			if i == 0 {
				results = append(results, b)
			} else if at := differs(results[j], b); at >= 0 {
				return nil, fmt.Errorf("run %d: %s differs from that of run 1 at byte %d", i+1, o.name, at)
			}
		}
	}
	return results, nil
}

// underSchedules runs once under every schedule of the options, in memory of
// its own; all must give the same bytes. judge looks at the first.
func (r *Runner) underSchedules(c *cases.Case, once func(*memory) ([][]byte, error), judge func([][]byte) (Outcome, error)) (outcome Outcome, err error) {
	if c.Graph != nil && !r.Driver.Attributes().GraphCapture {
		return outcome, skip(fmt.Sprintf("%s does not capture graphs", r.Driver.Name()))
	}
	var first [][]byte
	err = r.schedules(func(i int) (err error) {
		m := &memory{driver: r.Driver}
		defer func() { err = errors.Join(err, m.free()) }()
		results, err := once(m)
		if err != nil {
			return err
		}
		if i == 0 {
			first = results
			outcome, err = judge(results)
			return err
		}
		for j := range results {
			if at := differs(first[j], results[j]); at >= 0 {
				return fmt.Errorf("output %d differs from that with seed %d at byte %d", j+1, r.Options.Seed, at)
			}
		}
		return nil
	})
	var notes []string
	if outcome.Notes != "" {
		notes = append(notes, outcome.Notes)
	}
	if c.Repeat > 1 {
		notes = append(notes, fmt.Sprintf("%d runs identical", c.Repeat))
	}
	if r.Seeds > 1 {
		notes = append(notes, fmt.Sprintf("%d schedules identical", r.Seeds))
	}
	outcome.Notes = strings.Join(notes, ", ")
	return outcome, err
}

// poison sets a buffer of t to what the case wants in outputs before a run.
func poison(c *cases.Case, m *memory, b buffer, t dtype.Type) error {
	if b.size == 0 {
		return nil
	}
	if c.Fill.Out == "nan" {
		return m.driver.Fill(b.ptr, 0xff, b.size)
	}
	filler, err := cases.ParseFill(c.Fill.Out)
	if err != nil {
		return err
	}
	values := make([]float32, b.size/int64(t.Size()))
	filler(rand.New(rand.NewPCG(c.Seed, 0)), values)
	return m.driver.Upload(b.ptr, t.Encode(nil, values))
}
