package bench

import (
	"errors"
	"math"
	"time"

	"github.com/mlagen/mlagen/runtime"
)

// Power is what the device's meter showed in the second half of a sustained
// run, when clock and power have settled. What it did not tell is NaN.
type Power struct {
	Watts, MHz Range // of the samples; the clock is the multiprocessors'
	Samples    int

	// Drawn is the mean power in watts by the device's energy counter or, where
	// that is missing or ticked too seldom (Counted is false), by the samples.
	Drawn   float64
	Counted bool
}

// Range is what varies over samples.
type Range struct{ Mean, Min, Max float64 }

// samplePeriod is short beside the energy counter's steps (about 100 ms) and
// long beside a reading (2 ms).
const samplePeriod = 20 * time.Millisecond

// sample is a reading and when it was taken.
type sample struct {
	at time.Duration // since the run began
	runtime.Reading
}

// sampler reads a meter again and again beside other work.
type sampler struct {
	stop, done chan struct{}
	samples    []sample
	err        error
}

func startSampler(m runtime.Meter, period time.Duration) *sampler {
	s := &sampler{stop: make(chan struct{}), done: make(chan struct{})}
	begin := time.Now()
	go func() {
		defer close(s.done)
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			at := time.Since(begin)
			r, err := m.Read()
			if err != nil {
				s.err = err
				return
			}
			s.samples = append(s.samples, sample{at, r})
			select {
			case <-s.stop:
				return
			case <-tick.C:
			}
		}
	}()
	return s
}

// end stops sampling and returns the samples.
func (s *sampler) end() ([]sample, error) {
	close(s.stop)
	<-s.done
	return s.samples, s.err
}

// summarise returns what the second half of the samples shows, nil of none.
func summarise(samples []sample) *Power {
	if len(samples) == 0 {
		return nil
	}
	half := samples[len(samples)-1].at / 2
	for samples[0].at < half {
		samples = samples[1:]
	}
	p := &Power{Samples: len(samples)}
	p.Watts = rangeOf(samples, func(s sample) float64 { return s.Watts })
	p.MHz = rangeOf(samples, func(s sample) float64 { return s.ClockMHz })
	p.Drawn, p.Counted = countedWatts(samples)
	if !p.Counted {
		p.Drawn = p.Watts.Mean
	}
	return p
}

// rangeOf leaves out what is NaN.
func rangeOf(samples []sample, value func(sample) float64) Range {
	r := Range{0, math.Inf(1), math.Inf(-1)}
	n := 0.0
	for _, s := range samples {
		if v := value(s); !math.IsNaN(v) {
			r = Range{r.Mean + v, min(r.Min, v), max(r.Max, v)}
			n++
		}
	}
	if n == 0 {
		return Range{math.NaN(), math.NaN(), math.NaN()}
	}
	r.Mean /= n
	return r
}

// countedWatts is the mean power by the energy counter. The counter moves in
// steps, so it is taken from the first step to the last; a step happened
// between two samples. ok is false where these steps do not span at least half
// of the samples.
func countedWatts(samples []sample) (watts float64, ok bool) {
	type step struct{ at, joules float64 }
	var steps []step
	for i := 1; i < len(samples); i++ {
		before, after := samples[i-1], samples[i]
		if math.IsNaN(before.Joules) || math.IsNaN(after.Joules) {
			return 0, false
		}
		if after.Joules > before.Joules {
			steps = append(steps, step{(before.at + after.at).Seconds() / 2, after.Joules})
		}
	}
	if len(steps) < 2 {
		return 0, false
	}
	first, last := steps[0], steps[len(steps)-1]
	if whole := samples[len(samples)-1].at - samples[0].at; last.at-first.at < whole.Seconds()/2 {
		return 0, false
	}
	return (last.joules - first.joules) / (last.at - first.at), true
}

// openMeter opens the device's meter for sustained runs.
func (b *Bench) openMeter() {
	d, ok := b.Driver.(runtime.Metered)
	if !ok {
		b.meterErr = errors.New("the device has no meter")
		return
	}
	b.meter, b.meterErr = d.Meter()
}

// MeterError says why sustained runs have no Power, nil where they do.
func (b *Bench) MeterError() error { return b.meterErr }

// watch samples the device's power until the function that it returns is
// called. A meter that fails is not asked again.
func (b *Bench) watch() (end func() *Power) {
	if b.meter == nil || b.meterErr != nil {
		return func() *Power { return nil }
	}
	s := startSampler(b.meter, samplePeriod)
	return func() *Power {
		samples, err := s.end()
		if err != nil {
			b.meterErr = err
			return nil
		}
		return summarise(samples)
	}
}
