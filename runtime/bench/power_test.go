package bench

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mlagen/mlagen/runtime"
)

// samples returns count samples, 20 ms apart, made by f of the seconds.
func samples(count int, f func(seconds float64) runtime.Reading) []sample {
	var s []sample
	for i := range count {
		at := time.Duration(i) * samplePeriod
		s = append(s, sample{at, f(at.Seconds())})
	}
	return s
}

func TestSummarise(t *testing.T) {
	none := math.NaN()
	approx := cmp.Options{cmpopts.EquateNaNs(), cmpopts.EquateApprox(0.03, 0)}
	for _, c := range []struct {
		name  string
		count int
		f     func(float64) runtime.Reading
		want  Power
	}{
		// The first half, at idle, does not count. The counter moves every 100 ms.
		{"settled", 61, func(at float64) runtime.Reading {
			r := runtime.Reading{Watts: 100, ClockMHz: 300, Joules: 100 * math.Floor(at*10) / 10}
			if at >= 0.59 {
				r = runtime.Reading{Watts: 690 + 20*math.Mod(math.Round(at/0.02), 2), ClockMHz: 1400, Joules: 60 + 680*math.Floor((at-0.6)*10+1e-6)/10}
			}
			return r
		}, Power{Watts: Range{700, 690, 710}, MHz: Range{1400, 1400, 1400}, Samples: 31, Drawn: 680, Counted: true}},
		{"no counter", 11, func(float64) runtime.Reading { return runtime.Reading{Watts: 300, ClockMHz: 1000, Joules: none} },
			Power{Watts: Range{300, 300, 300}, MHz: Range{1000, 1000, 1000}, Samples: 6, Drawn: 300}},
		{"a counter that hardly moves", 11, func(at float64) runtime.Reading {
			return runtime.Reading{Watts: 300, ClockMHz: 1000, Joules: 50 * math.Floor(at*10)}
		}, Power{Watts: Range{300, 300, 300}, MHz: Range{1000, 1000, 1000}, Samples: 6, Drawn: 300}},
		{"no power", 101, func(at float64) runtime.Reading {
			return runtime.Reading{Watts: none, ClockMHz: none, Joules: 250 * at}
		},
			Power{Watts: Range{none, none, none}, MHz: Range{none, none, none}, Samples: 51, Drawn: 250, Counted: true}},
		{"one sample", 1, func(float64) runtime.Reading { return runtime.Reading{Watts: 80, ClockMHz: 345, Joules: 7} },
			Power{Watts: Range{80, 80, 80}, MHz: Range{345, 345, 345}, Samples: 1, Drawn: 80}},
	} {
		if d := cmp.Diff(&c.want, summarise(samples(c.count, c.f)), approx); d != "" {
			t.Errorf("%s: (-want +got):\n%s", c.name, d)
		}
	}
	if summarise(nil) != nil {
		t.Error("nothing was summarised")
	}
}

func TestSampler(t *testing.T) {
	m := &hostMeter{begin: time.Now()}
	s := startSampler(m, time.Millisecond)
	time.Sleep(20 * time.Millisecond)
	got, err := s.end()
	reads := m.reads
	if err != nil || len(got) != reads || reads < 3 {
		t.Errorf("%d samples of %d reads, %v", len(got), reads, err)
	}
	for i := 1; i < len(got); i++ {
		if got[i].at <= got[i-1].at {
			t.Errorf("sample %d at %v, after %v", i, got[i].at, got[i-1].at)
		}
	}
	time.Sleep(5 * time.Millisecond)
	if m.reads != reads {
		t.Error("the meter is still read")
	}
	m.err = errors.New("lost")
	if _, err := startSampler(m, time.Millisecond).end(); err == nil {
		t.Error("a failed reading is lost")
	}
}

func TestSustainedRunsAreMetered(t *testing.T) {
	shape := Shape{Heads: fakeHeads, SQ: fakeSQ, Batch: 3, KV: 130}
	for _, c := range []struct {
		name  string
		meter func() (runtime.Meter, error)
		why   string
	}{
		{"no library", nil, "no meter here"},
		{"a meter that fails", func() (runtime.Meter, error) { return &hostMeter{err: errors.New("lost")}, nil }, "lost"},
		{"a meter", func() (runtime.Meter, error) { return &hostMeter{begin: time.Now()}, nil }, ""},
	} {
		d := newHostDriver()
		d.meter = c.meter
		b := newBench(t, d, Config{Replays: 1, Sustained: 0.004})
		r, err := b.Decode(shape)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		joules, why := r.JoulesPerMillionTokens(), b.MeterError()
		if c.why != "" {
			if r.Power != nil || !math.IsNaN(joules) || why == nil || !strings.Contains(why.Error(), c.why) {
				t.Errorf("%s: %+v, %v J, %v", c.name, r.Power, joules, why)
			}
		} else if want := r.Power.Drawn * 2 / 390; why != nil || r.Power.Watts.Mean != 500 || r.Power.MHz.Min != 1500 || joules != want {
			t.Errorf("%s: %+v, %v J, want %v, %v", c.name, r.Power, joules, want, why)
		}
		m, _ := b.meter.(*hostMeter)
		if err := b.Close(); err != nil || m != nil && !m.closed {
			t.Errorf("%s: %v; the meter is open: %v", c.name, err, m)
		}
	}

	// Nobody looks for a meter without a sustained run.
	d := newHostDriver()
	d.meter = func() (runtime.Meter, error) { t.Error("the meter was opened"); return nil, nil }
	b := newBench(t, d, Config{Replays: 1})
	if r, err := b.Decode(shape); err != nil || r.Power != nil || b.MeterError() != nil {
		t.Errorf("%+v, %v", r, err)
	}
}
