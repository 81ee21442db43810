package bench

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/runtime"
)

var contestShape = Shape{Heads: fakeHeads, SQ: fakeSQ, Batch: 3, KV: 100}

func newContest(t *testing.T, d *hostDriver) *Contest {
	t.Helper()
	b := newBench(t, d, Config{Burst: 24})
	c, err := b.NewContest(contestShape)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestContestTakesTurns(t *testing.T) {
	d := newHostDriver()
	c := newContest(t, d)
	live := d.live
	for i, set := range []Setting{{BlockH: 8}, {BlockH: 16}, {BlockH: 8, Splits: 2}, {BlockH: 8, Evict: "normal", Tuning: runtime.DecodeTuning{MergeBlocks: 3, Promotion: 64}}} {
		if entry, err := c.Enter(set); err != nil || entry != i {
			t.Fatalf("%+v: entry %d, %v", set, entry, err)
		}
	}
	if c.Calls() != leastCalls {
		t.Errorf("%d calls", c.Calls())
	}
	// A launch takes a microsecond; two forced pieces need no merge.
	for entry, want := range []float64{2, 2, 1, 2, 2} {
		if us, err := c.Burst(entry % 4); err != nil || us != want {
			t.Errorf("entry %d: %v µs a call, %v; want %v", entry, us, err, want)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if d.live >= live {
		t.Errorf("%d allocations live after closing, %d before", d.live, live)
	}
}

func TestContestRefusesAnotherResult(t *testing.T) {
	for name, spoil := range map[string]func(out, lse []byte){
		"out is off": func(out, _ []byte) {
			for i := range out {
				out[i] ^= 0x40
			}
		},
		"lse is": func(_, lse []byte) { binary.LittleEndian.PutUint32(lse[8:], math.Float32bits(3)) },
		"lse is NaN": func(_, lse []byte) {
			binary.LittleEndian.PutUint32(lse[8:], math.Float32bits(float32(math.NaN())))
		},
	} {
		d := newHostDriver()
		c := newContest(t, d)
		if _, err := c.Enter(Setting{BlockH: 8}); err != nil {
			t.Fatal(err)
		}
		d.spoil = spoil
		var wrong *WrongError
		if _, err := c.Enter(Setting{BlockH: 16}); !errors.As(err, &wrong) || !strings.Contains(err.Error(), name) {
			t.Errorf("want a WrongError with %q, got %v", name, err)
		}
		d.spoil = nil
		if entry, err := c.Enter(Setting{BlockH: 16}); err != nil || entry != 1 {
			t.Errorf("after one that was refused: entry %d, %v", entry, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestContestRefusesWhatCannotBeLoaded(t *testing.T) {
	c := newContest(t, newHostDriver())
	var load *LoadError
	if _, err := c.Enter(Setting{BlockH: 64}); !errors.As(err, &load) {
		t.Errorf("got %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestContestNeedsThePool(t *testing.T) {
	b := newBench(t, newHostDriver(), Config{})
	if _, err := b.NewContest(Shape{Heads: fakeHeads, SQ: fakeSQ, Batch: 1000, KV: 4096}); err == nil || !strings.Contains(err.Error(), "pool has") {
		t.Errorf("got %v", err)
	}
}

func TestLoadKernelsOnce(t *testing.T) {
	b := newBench(t, newHostDriver(), Config{})
	one, other := b.shape(contestShape, Setting{BlockH: 8}), b.shape(contestShape, Setting{BlockH: 16})
	if err := b.Load([]runtime.DecodeShape{one, one, other}); err != nil {
		t.Fatal(err)
	}
	first := b.Loaded(one)
	if first == nil || b.Loaded(other) == nil || len(b.Compiled()) != 6 {
		t.Fatalf("%v, %v, %d kernels", first, b.Loaded(other), len(b.Compiled()))
	}
	if err := b.Load([]runtime.DecodeShape{other, one}); err != nil || b.Loaded(one) != first || len(b.Compiled()) != 6 {
		t.Errorf("loaded anew: %v", err)
	}
	var load *LoadError
	if err := b.Load(slices.Concat([]runtime.DecodeShape{one}, []runtime.DecodeShape{b.shape(contestShape, Setting{BlockH: 64})})); !errors.As(err, &load) {
		t.Errorf("got %v", err)
	}
}
