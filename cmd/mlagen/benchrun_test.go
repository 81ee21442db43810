package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/runtime/bench"
)

// fakeBench answers with a time per row block, or an error.
type fakeBench struct {
	us    map[int]float64 // by row block
	fails map[int]error
	asked []bench.Setting
}

const fakeChoice = 16

func (f *fakeBench) Bandwidth() (float64, error) { return 4.5, nil }

func (f *fakeBench) Decode(s bench.Shape) (bench.Result, error) {
	return f.DecodeWith(s, bench.Setting{})
}

func (f *fakeBench) DecodeWith(s bench.Shape, set bench.Setting) (bench.Result, error) {
	f.asked = append(f.asked, set)
	if set.BlockH == 0 {
		set.BlockH = fakeChoice
	}
	return bench.Result{Shape: s, Setting: set, Microseconds: f.us[set.BlockH]}, f.fails[set.BlockH]
}

func (f *fakeBench) Schedule(s bench.Shape, set bench.Setting) (bench.ScheduleResult, error) {
	f.asked = append(f.asked, set)
	return bench.ScheduleResult{Shape: s, Setting: set, Microseconds: 3}, f.fails[0]
}

func TestBenchRun(t *testing.T) {
	shape := bench.Anchor{Shape: bench.Shape{Heads: 20, SQ: 2, Batch: 1, KV: 64}}
	wrong, load, lost := &bench.WrongError{Text: "off by one"}, &bench.LoadError{Err: errors.New("spills")}, errors.New("device lost")
	for _, c := range []struct {
		name   string
		flags  benchFlags
		fails  map[int]error
		asked  int
		blocks []int // of the variants
		wrong  int
		rows   int
		says   string
		err    error
	}{
		{name: "chosen", asked: 1, rows: 1},
		{name: "invariant", flags: benchFlags{invariant: 8}, asked: 2, rows: 1},
		{name: "all", flags: benchFlags{variant: "all"}, asked: 3, rows: 1, blocks: []int{8, 16, 24}},
		{name: "all, one wrong, one not loaded", flags: benchFlags{variant: "all"}, fails: map[int]error{8: fmt.Errorf("x: %w", wrong), 24: load},
			asked: 3, rows: 1, blocks: []int{16}, wrong: 1, says: "row block 8: x: WRONG RESULT, no time: off by one"},
		{name: "the chosen one is wrong", flags: benchFlags{variant: "all"}, fails: map[int]error{16: wrong}, asked: 1, wrong: 1, says: "off by one"},
		{name: "the chosen one is not loaded", fails: map[int]error{16: load}, asked: 1, err: load},
		{name: "the device is lost", flags: benchFlags{variant: "all"}, fails: map[int]error{24: lost}, asked: 3, rows: 1, blocks: []int{8, 16}, err: lost},
	} {
		f := &fakeBench{us: map[int]float64{8: 9, 16: 10, 24: 11}, fails: c.fails}
		var stderr bytes.Buffer
		r := benchRun{flags: &c.flags, bench: f, blocks: func(heads, sq int) []int { return []int{8, 24} }, stderr: &stderr}
		var report benchReport
		err := r.decodes(&report, []bench.Anchor{shape}, progress{})
		if !errors.Is(err, c.err) || len(f.asked) != c.asked || len(report.rows) != c.rows || r.wrong != c.wrong || !strings.Contains(stderr.String(), c.says) {
			t.Errorf("%s: %v; asked %+v, %d rows, %d wrong, said %q", c.name, err, f.asked, len(report.rows), r.wrong, stderr.String())
			continue
		}
		if c.rows == 0 {
			continue
		}
		var blocks []int
		for _, v := range report.rows[0].variants {
			blocks = append(blocks, v.BlockH)
		}
		if d := cmp.Diff(c.blocks, blocks); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
		if n := c.flags.invariant; n > 0 {
			if v := report.rows[0].invariant; v == nil || !v.AnyLoad || v.Splits != n {
				t.Errorf("%s: %+v", c.name, v)
			}
		}
	}

	f := &fakeBench{}
	r := benchRun{flags: &benchFlags{splits: 4}, bench: f, stderr: &bytes.Buffer{}}
	var report benchReport
	if err := r.schedules(&report, []bench.Anchor{shape, shape}, progress{}); err != nil || len(report.schedules) != 2 || f.asked[1].Splits != 4 {
		t.Errorf("%v, %+v", err, report.schedules)
	}
}
