package tune

import (
	"context"
	"testing"
	"time"

	"github.com/mlagen/mlagen/runtime"
)

// wideSource takes row blocks of 64, whole programs, for every load.
type wideSource struct{ fakeSource }

func (wideSource) BlockH(runtime.DecodeShape, int, int, int) int { return 64 }

// wideLoads are loads of 128 heads with one, two and four query tokens.
var wideLoads = Envelope{SQ: []int{1, 2, 4}, Batches: []int{1, 4, 16}, Tokens: []int{1024, 16384}}

// runWide tunes 128 heads, all of whose defaults are whole programs.
func (w *world) runWide(t *testing.T, e Envelope, budget time.Duration) *Choices {
	t.Helper()
	cfg := w.config(e, budget)
	cfg.Source, cfg.Model = wideSource{}, DeepSeek(128)
	c, err := Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Three defaults of 1.7 s do not fit 5 s: two are loaded and leave time for what
// compiles beside them, the third's loads are not timed.
func TestWholeDefaultsLeaveTimeForOthers(t *testing.T) {
	w := newWorld(func(l Load, c Choice) float64 {
		if c.BlockH == 16 && l.Batch == 1 && l.Tokens == 1024 {
			return 90
		}
		return 100
	})
	w.noise, w.whole, w.loading = 0.002, 1700*time.Millisecond, 300*time.Millisecond
	c := w.runWide(t, wideLoads, 5*time.Second)
	if c.Spent > 5.1 || c.Spent < 4.5 {
		t.Errorf("spent %.3f s of 5", c.Spent)
	}
	for _, b := range c.Buckets {
		if timed := b.DefaultUS > 0; timed != (b.SQ < 4) {
			t.Errorf("%v: timed %v", b.Load, timed)
		}
		if b.SQ < 4 && (b.Choice.BlockH == 16) != (b.Batch == 1 && b.Tokens == 1024) {
			t.Errorf("%v: %v after %d were tried", b.Load, b.Choice, b.Tried)
		}
		if b.SQ == 4 && (b.Choice != b.Default || b.Tried > 0) {
			t.Errorf("%v: %v", b.Load, b.Choice)
		}
	}
}

// However long programs take, the budget ends it: what was not begun is left.
func TestBudgetIsKeptWithWholePrograms(t *testing.T) {
	for _, whole := range []time.Duration{50 * time.Millisecond, 600 * time.Millisecond, 1700 * time.Millisecond, 2900 * time.Millisecond} {
		for _, budget := range []time.Duration{3 * time.Second, 5 * time.Second, 8 * time.Second, 30 * time.Second} {
			w := newWorld(flat)
			w.noise, w.whole, w.loading = 0.003, whole, min(whole, 400*time.Millisecond)
			c := w.runWide(t, wideLoads, budget)
			if share := c.Spent / budget.Seconds(); share > 1.1 || share < 0.9 {
				t.Errorf("%v with programs of %v: spent %.3f s", budget, whole, c.Spent)
			}
			if w.open != 0 || c.Gain() != 1 {
				t.Errorf("%v with programs of %v: %d contests are open, gain %.4f", budget, whole, w.open, c.Gain())
			}
		}
	}
}

// A program that takes more than the whole budget, which nobody can know before,
// leaves all loads with their default, untimed.
func TestDefaultBeyondBudget(t *testing.T) {
	w := newWorld(flat)
	w.whole = 3 * time.Second
	c := w.runWide(t, wideLoads, 2*time.Second)
	if len(w.calls) != 1 || len(w.calls[0].whole) != 1 || w.bursts != 0 {
		t.Errorf("%d calls %v, %d bursts", len(w.calls), w.calls, w.bursts)
	}
	for _, b := range c.Buckets {
		if b.Choice != b.Default || b.DefaultUS != 0 {
			t.Errorf("%+v", b)
		}
	}
}

// What needs no further kernel is timed first, then what compiles side by side, and
// whole programs last, one by one.
func TestOrderOfLoading(t *testing.T) {
	w := newWorld(flat)
	w.whole, w.loading = 1700*time.Millisecond, 300*time.Millisecond
	e := Envelope{SQ: []int{1, 4}, Batches: []int{1, 16}, Tokens: []int{4096, 32768}}
	if _, err := w.run(e, 30*time.Second); err != nil { // defaults of 16, and 64 rows with s_q 4
		t.Fatal(err)
	}
	if first := w.calls[0]; len(first.whole) != 0 || len(first.apart) != 2 || first.bursts != 0 {
		t.Errorf("first %+v, want both defaults", first)
	}
	wholes := 0
	for i, c := range w.calls[1:] {
		if c.bursts == 0 {
			t.Errorf("call %d: %+v: nothing was timed before", i+1, c)
		}
		if wholes += len(c.whole); len(c.whole) > 1 || wholes > 0 && len(c.apart) > 0 {
			t.Errorf("call %d: %+v: whole programs are to be the last, one by one", i+1, c)
		}
	}
	brief := newWorld(flat)
	brief.whole, brief.loading = w.whole, w.loading
	if c, err := brief.run(e, 5*time.Second); err != nil || c.Spent > 5.5 {
		t.Fatalf("spent %.3f s, %v", c.Spent, err)
	}
	for _, c := range brief.calls {
		if len(c.whole) > 0 {
			t.Errorf("%+v: a program takes more of 5 s than contests can spare", c)
		}
	}
	last := w.calls[len(w.calls)-1]
	tried := map[int]bool{}
	for _, x := range w.entered {
		tried[x.BlockH] = true
	}
	if wholes == 0 || last.bursts == w.bursts || !tried[8] || !tried[64] {
		t.Errorf("%d whole programs, %d of %d bursts before the last, row blocks %v", wholes, last.bursts, w.bursts, tried)
	}
}

// Of more than two row blocks pairs are tried where few requests are long, and cost a
// program each.
func TestPairsWhereTheyCanWin(t *testing.T) {
	w := newWorld(flat)
	w.whole, w.loading = 1500*time.Millisecond, 300*time.Millisecond
	w.runWide(t, Envelope{SQ: []int{1, 2}, Batches: []int{1, 32, 64}, Tokens: []int{8192, 16384}}, 30*time.Second)
	paired := map[Load]bool{}
	for _, x := range w.entered {
		if x.Cluster == 2 {
			paired[x.Load] = true
		}
		if x.Evict != "" {
			t.Errorf("%v: %v", x.Load, x.Choice)
		}
	}
	if len(paired) != 2 || !paired[Load{2, 1, 16384, false}] || !paired[Load{2, 32, 16384, false}] {
		t.Errorf("pairs were tried for %v", paired)
	}
}
