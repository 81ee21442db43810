package bench

import (
	"errors"
	"slices"
	"time"

	"github.com/mlagen/mlagen/runtime"
)

// work is a sequence of calls that can be run again and again.
type work struct {
	stream runtime.Stream
	graph  runtime.Graph // nil where the device captures none
	launch func() error
}

// prepare captures the calls that launch makes, where the device can.
func (b *Bench) prepare(launch func() error) (*work, error) {
	w := &work{stream: b.stream, launch: launch}
	if !b.Driver.Attributes().GraphCapture {
		return w, nil
	}
	if err := b.stream.BeginCapture(); err != nil {
		return nil, err
	}
	err := launch()
	g, endErr := b.stream.EndCapture()
	if err != nil && endErr == nil {
		endErr = g.Destroy()
	}
	if err := errors.Join(err, endErr); err != nil {
		return nil, err
	}
	w.graph = g
	return w, nil
}

func (w *work) run() error {
	if w.graph == nil {
		return w.launch()
	}
	return w.stream.Replay(w.graph)
}

func (w *work) close() error {
	if w.graph == nil {
		return nil
	}
	return w.graph.Destroy()
}

// once runs the work on a cold L2, emptied by so many fills of the scratch memory
// and so many runs that are not timed, and returns its microseconds.
func (b *Bench) once(w *work, fills, leads int, from, to runtime.Event) (float64, error) {
	for range fills {
		if err := b.stream.FillAsync(b.scratch.Ptr, 0x5a, b.scratch.Bytes); err != nil {
			return 0, err
		}
	}
	for range leads {
		if err := w.run(); err != nil {
			return 0, err
		}
	}
	if err := b.stream.Record(from); err != nil {
		return 0, err
	}
	if err := w.run(); err != nil {
		return 0, err
	}
	if err := b.stream.Record(to); err != nil {
		return 0, err
	}
	if err := to.Synchronize(); err != nil {
		return 0, err
	}
	return to.Since(from)
}

// maxRest bounds the pause between bursts.
const maxRest = 15 * time.Millisecond

// bursts runs the work n times, each after a rest of twice its length, so that
// the card's power limit does not come into it, and returns the microseconds
// of each.
func (b *Bench) bursts(w *work, n int) (times []float64, err error) {
	from, err := b.Driver.NewEvent()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, from.Destroy()) }()
	to, err := b.Driver.NewEvent()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, to.Destroy()) }()
	for range n {
		t, err := b.once(w, scratchFills, 0, from, to)
		if err != nil {
			return nil, err
		}
		times = append(times, t)
		time.Sleep(min(maxRest, time.Duration(2*t)*time.Microsecond))
	}
	return times, nil
}

// sustain runs the work without pause for some seconds after half a second of
// rest. It returns the microseconds of the first runs (those that begin in
// the first five milliseconds) and of the last quarter, and what the device
// drew meanwhile.
func (b *Bench) sustain(w *work, seconds float64) (burst, sustained float64, power *Power, err error) {
	// A ring of events bounds how far the host runs ahead.
	var ring [4]runtime.Event
	for i := range ring {
		if ring[i], err = b.Driver.NewEvent(); err != nil {
			return 0, 0, nil, err
		}
		defer func() { err = errors.Join(err, ring[i].Destroy()) }()
	}
	time.Sleep(500 * time.Millisecond)
	end := b.watch()
	defer func() { power = end() }()
	if err := b.stream.Record(ring[0]); err != nil {
		return 0, 0, nil, err
	}
	var times []float64
	total := 0.0
	for i := 1; total < seconds*1e6; i++ {
		if err := w.run(); err != nil {
			return 0, 0, nil, err
		}
		if err := b.stream.Record(ring[i%len(ring)]); err != nil {
			return 0, 0, nil, err
		}
		if i < len(ring)-1 {
			continue
		}
		done := ring[(i+2)%len(ring)] // two runs behind
		if err := done.Synchronize(); err != nil {
			return 0, 0, nil, err
		}
		t, err := done.Since(ring[(i+1)%len(ring)])
		if err != nil {
			return 0, 0, nil, err
		}
		times = append(times, t)
		if total += t; total == 0 {
			return 0, 0, nil, errors.New("the device keeps no time")
		}
	}
	if err := b.stream.Synchronize(); err != nil {
		return 0, 0, nil, err
	}
	first, begin := 0, 0.0
	for first < len(times) && (first == 0 || begin < 5000) {
		begin += times[first]
		first++
	}
	last := 0
	for at := 0.0; last < len(times)-1 && at+times[last] < total*3/4; last++ {
		at += times[last]
	}
	return median(times[:first]), median(times[last:]), power, nil
}

func median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	n := len(s)
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// spread is (slowest−fastest)/median.
func spread(times []float64) float64 {
	return (slices.Max(times) - slices.Min(times)) / median(times)
}
