package tune

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

// fixed is an envelope of so many loads.
func fixed(batches, tokens []int) Envelope {
	return Envelope{SQ: []int{1}, Batches: batches, Tokens: tokens}
}

var wide = fixed([]int{1, 4, 16, 64, 128}, []int{1024, 4096, 32768})

// flat takes 100 µs whatever is chosen.
func flat(Load, Choice) float64 { return 100 }

func TestBudgetIsKeptAndUsed(t *testing.T) {
	better := func(_ Load, c Choice) float64 {
		if c.MergeBlocks == 132 || c.Splits == 1 {
			return 95
		}
		return 100
	}
	for _, c := range []struct {
		budget, loading, burst time.Duration
	}{
		{5 * time.Second, 100 * time.Millisecond, time.Millisecond}, {time.Second, 50 * time.Millisecond, time.Millisecond},
		{5 * time.Second, 900 * time.Millisecond, 5 * time.Millisecond}, {30 * time.Second, time.Second, 2 * time.Millisecond},
	} {
		w := newWorld(better)
		w.noise, w.loading, w.burst = 0.003, c.loading, c.burst
		choices, err := w.run(wide, c.budget)
		if err != nil {
			t.Fatal(err)
		}
		if share := choices.Spent / c.budget.Seconds(); share > 1.02 || share < 0.9 {
			t.Errorf("%v, kernels in %v, bursts of %v: spent %.3f s", c.budget, c.loading, c.burst, choices.Spent)
		}
		if w.open != 0 {
			t.Errorf("%d contests are open", w.open)
		}
		if g := choices.Gain(); c.burst == time.Millisecond && c.budget >= 5*time.Second && (g < 1.04 || g > 1.06) {
			t.Errorf("%v: gain %.4f, want about 1.05: %+v", c.budget, g, choices.Buckets)
		}
	}
}

func TestBudgetTooSmallForKernels(t *testing.T) {
	w := newWorld(flat)
	w.loading = 3 * time.Second // of the defaults, beyond what may be spent on loading
	choices, err := w.run(wide, 5*time.Second)
	if err != nil || choices.Spent > 5.1 {
		t.Fatalf("spent %v, %v", choices.Spent, err)
	}
	if len(w.loads) != 1 {
		t.Errorf("loaded %v; there was time for the default alone", w.loads)
	}
}

func TestNoBudgetTakesDefaults(t *testing.T) {
	cfg := newWorld(flat).config(wide, 0)
	cfg.Timer = nil
	c, err := Run(context.Background(), cfg)
	if err != nil || len(c.Buckets) != 15 || c.Gain() != 1 {
		t.Fatalf("%+v, %v", c, err)
	}
	for _, b := range c.Buckets {
		if b.Choice != (Choice{BlockH: 16}) || b.Choice != b.Default || b.Tried != 0 {
			t.Errorf("%+v", b)
		}
	}
}

// No choice is taken that is not faster, however often noise says otherwise.
func TestNoiseChoosesNothing(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(flat)
		w.noise = 0.01
		for range seed {
			w.random.NormFloat64()
		}
		c, err := w.run(wide, 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range c.Buckets {
			if b.Choice != b.Default {
				t.Errorf("seed %d: %v was chosen with gain %.4f after %d rounds; all take equally long", seed, b.Choice, b.Gain, b.Rounds)
			}
		}
	}
}

func TestFindsEachLoadsBest(t *testing.T) {
	w := newWorld(func(l Load, c Choice) float64 {
		us := 100.0
		switch {
		case l.Batch == 1 && c.BlockH == 8:
			us = 90
		case l.Batch == 64 && c.Splits == 2, l.Batch == 128 && c.Splits == 1:
			us = 97
		case c.BlockH == 64:
			us = 150
		}
		if c.Promotion == 64 {
			us *= 0.99
		}
		switch {
		case c.MergeBlocks == 264 && c.merges():
			us *= 0.98
		case c.MergeBlocks > 0 && c.merges():
			us *= 1.02
		}
		return us
	})
	w.noise = 0.002
	c, err := w.run(wide, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range c.Buckets {
		if b.Choice.Evict != "" || b.Choice.Promotion != 64 || b.Choice.merges() && b.Choice.MergeBlocks != 264 {
			t.Errorf("%v: %v; the merge's grid and promotion help, together as well", b.Load, b.Choice)
		}
		want := 100 * 0.98 * 0.99
		switch b.Batch {
		case 1:
			want *= 0.9
		case 64, 128: // without a merge
			want = 100 * 0.97 * 0.99
		}
		if got := w.script(b.Load, b.Choice); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v: %v takes %.2f; the best takes %.2f", b.Load, b.Choice, got, want)
		}
		if real := 100 / w.script(b.Load, b.Choice); math.Abs(b.Gain/real-1) > 0.005 {
			t.Errorf("%v: gain %.4f is reported, it is %.4f", b.Load, b.Gain, real)
		}
	}
}

// Twice the same, within noise.
func TestReproducible(t *testing.T) {
	run := func(seed int) *Choices {
		w := newWorld(func(l Load, c Choice) float64 {
			if c.MergeBlocks == 132 && l.Batch < 64 {
				return 96
			}
			return 100
		})
		w.noise = 0.003
		for range seed {
			w.random.NormFloat64()
		}
		c, err := w.run(wide, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	a, b := run(0), run(7)
	for i := range a.Buckets {
		if x, y := a.Buckets[i], b.Buckets[i]; x.Choice.MergeBlocks != y.Choice.MergeBlocks || math.Abs(x.Gain-y.Gain) > 0.01 {
			t.Errorf("%v: once %v (%.4f), then %v (%.4f)", x.Load, x.Choice, x.Gain, y.Choice, y.Gain)
		}
	}
}

// The card slows down by a fifth while it is measured: ratios of neighbours do
// not see it.
func TestDriftCancels(t *testing.T) {
	w := newWorld(nil)
	w.script = func(_ Load, c Choice) float64 { return 100 * (1 + 0.2*float64(w.bursts)/3000) }
	w.noise = 0.002
	c, err := w.run(wide, 4*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range c.Buckets {
		if b.Choice != b.Default {
			t.Errorf("%v: %v with gain %.4f", b.Load, b.Choice, b.Gain)
		}
	}
}

func TestInterruptionKeepsWhatWasConfirmed(t *testing.T) {
	better := func(_ Load, c Choice) float64 {
		if c.MergeBlocks == 132 || c.Splits == 1 {
			return 90
		}
		return 100
	}
	for _, at := range []int{1, 200, 2600} {
		w := newWorld(better)
		ctx, cancel := context.WithCancel(context.Background())
		w.after = func(n int) {
			if n == at {
				cancel()
			}
		}
		c, err := Run(ctx, w.config(wide, 5*time.Second))
		if err != nil || !c.Interrupted || len(c.Buckets) != 15 || w.open != 0 {
			t.Fatalf("at %d: %+v, %v, %d open", at, c, err, w.open)
		}
		if w.bursts != at {
			t.Errorf("%d bursts after the interrupt", w.bursts-at)
		}
		if _, err := Read(strings.NewReader(mustText(t, c))); err != nil {
			t.Error(err)
		}
		if chosen := c.Gain() > 1.05; chosen != (at == 2600) {
			t.Errorf("interrupted at %d bursts the gain is %.3f", at, c.Gain())
		}
		cancel()
	}
}

func TestDeviceFailureEndsTheRun(t *testing.T) {
	w := newWorld(flat)
	broken := errors.New("the device is gone")
	w.fail = func(n int) error {
		if n > 50 {
			return broken
		}
		return nil
	}
	c, err := w.run(wide, time.Second)
	if !errors.Is(err, broken) || c == nil || len(c.Buckets) != 15 || w.open != 0 {
		t.Errorf("%+v, %v, %d open", c, err, w.open)
	}
}

// A choice that gives another result, or that cannot be loaded, is out, however
// fast.
func TestWrongAndUnbuiltAreOut(t *testing.T) {
	w := newWorld(func(_ Load, c Choice) float64 {
		if c.BlockH != 16 || c.Promotion != 0 {
			return 10
		}
		return 100
	})
	w.wrong = func(c Choice) bool { return c.BlockH != 16 }
	w.unbuilt = func(c Choice) bool { return c.Promotion != 0 }
	c, err := w.run(wide, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range c.Buckets {
		if b.Choice.BlockH != 16 || b.Choice.Promotion != 0 {
			t.Errorf("%v: %v", b.Load, b.Choice)
		}
	}
}

func TestInvariantHasOneCut(t *testing.T) {
	w := newWorld(func(l Load, c Choice) float64 {
		if c.MergeBlocks == 264 && l.Batch == 4 || c.Splits == 1 || c.BlockH == 8 {
			return 50
		}
		return 100
	})
	cfg := w.config(Envelope{SQ: []int{1, 2}, Batches: []int{1, 4, 8}, Tokens: []int{4096}}, 3*time.Second)
	cfg.Invariant = true
	c, err := Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range c.Buckets {
		if b.Choice.BlockH != 16 || b.Choice.Splits != 132/8 {
			t.Errorf("%v: %v", b.Load, b.Choice)
		}
		if (b.Choice.MergeBlocks == 264) != (b.Batch == 4) {
			t.Errorf("%v: %v; what changes no bit follows the load", b.Load, b.Choice)
		}
	}
	if got, ok := c.Lookup(Load{SQ: 1, Batch: 1000, Tokens: 7}); !ok || got != (Choice{BlockH: 16, Splits: 16}) {
		t.Errorf("a load that no bucket is near gets %v, %v", got, ok)
	}
}

func TestConfigIsChecked(t *testing.T) {
	good := newWorld(flat).config(wide, time.Second)
	for want, change := range map[string]func(*Config){
		"source was nil": func(c *Config) { c.Source = nil },
		"budget was -1s": func(c *Config) { c.Budget = -time.Second },
		"timer was nil":  func(c *Config) { c.Timer = nil },
		"model was":      func(c *Config) { c.Model.Latent = 256 },
		"model.heads":    func(c *Config) { c.Model.Heads = 1 << 15; c.Model = DeepSeek(1 << 15) },
		"0 loads":        func(c *Config) { c.Envelope = Envelope{} },
		"batch was -3":   func(c *Config) { c.Envelope.Loads = []Load{{1, -3, 5, false}} },
	} {
		cfg := good
		change(&cfg)
		if _, err := Run(context.Background(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
