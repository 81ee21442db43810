package bench

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestScheduleIsTimedAlone(t *testing.T) {
	for _, s := range []Shape{
		{Heads: fakeHeads, SQ: fakeSQ, Batch: 1, KV: 1}, {Heads: fakeHeads, SQ: fakeSQ, Batch: 200, KV: 4096}, {Heads: fakeHeads, SQ: fakeSQ, Batch: 300, KV: 777, Varlen: true},
	} {
		d := newHostDriver()
		b := newBench(t, d, Config{Replays: 3})
		r, err := b.Schedule(s, Setting{})
		if err != nil {
			t.Errorf("%v: %v", s, err)
			continue
		}
		if math.Abs(r.Microseconds-1) > 1e-9 || r.Spread != 0 || r.Pieces != s.Batch || r.Parts != 2 || r.BlockH == 0 {
			t.Errorf("%v: %+v", s, r)
		}
		if slices.ContainsFunc(d.launched, func(name string) bool { return name != "decode_schedule" }) || len(d.launched) != 4*r.Calls {
			t.Errorf("%v: %d launches, or not of the schedule alone", s, len(d.launched))
		}
		if err := b.Close(); err != nil || d.live != 0 {
			t.Errorf("%v: %d buffers left, %v", s, d.live, err)
		}
	}
}

func TestWrongSchedulesAreNotTimed(t *testing.T) {
	d := newHostDriver()
	d.miss = 1
	b := newBench(t, d, Config{Replays: 1})
	_, err := b.Schedule(Shape{Heads: fakeHeads, SQ: fakeSQ, Batch: 5, KV: 100}, Setting{})
	var wrong *WrongError
	if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "request 4") || !strings.Contains(err.Error(), "batch 5") {
		t.Error(err)
	}
}

func TestSettings(t *testing.T) {
	d := newHostDriver()
	b := newBench(t, d, Config{Replays: 1, Splits: 3})
	shape := Shape{Heads: fakeHeads, SQ: fakeSQ, Batch: 1, KV: 100}
	r, err := b.Decode(shape) // little work
	if err != nil || r.BlockH != 16 || r.Splits != 3 {
		t.Errorf("%+v, %v", r.Setting, err)
	}
	for _, c := range []struct {
		set    Setting
		blockH int
	}{
		{Setting{}, 16}, {Setting{AnyLoad: true, Splits: 2}, 8}, {Setting{BlockH: 8}, 8},
	} {
		if r, err = b.DecodeWith(shape, c.set); err != nil || r.BlockH != c.blockH || r.Splits != c.set.Splits {
			t.Errorf("%+v: %+v, %v", c.set, r.Setting, err)
		}
	}
	var load *LoadError
	if _, err = b.DecodeWith(shape, Setting{BlockH: 64}); !errors.As(err, &load) {
		t.Error(err)
	}
}
