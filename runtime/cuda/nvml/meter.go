//go:build cuda

package nvml

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/mlagen/mlagen/runtime"
)

// meter reads one GPU. It implements runtime.Meter.
type meter struct {
	mu     sync.Mutex
	device handle
	closed bool
}

// Open returns the meter of the GPU with a UUID ("GPU-…") or, where the library
// does not know that, at a PCI address ("0000:1b:00.0", or "" to do without).
// The order of devices differs from CUDA's, so an ordinal would not do.
func Open(uuid, pci string) (runtime.Meter, error) {
	if err := load(); err != nil {
		return nil, err
	}
	if err := initialise(); err != nil {
		return nil, err
	}
	d, err := find(uuid, pci)
	if err != nil {
		return nil, errors.Join(err, shutdown())
	}
	return &meter{device: d}, nil
}

// Read reads all three instruments. One that the GPU lacks reads NaN.
func (m *meter) Read() (runtime.Reading, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var r runtime.Reading
	if m.closed {
		return r, errors.New("the meter is closed")
	}
	for _, instrument := range []struct {
		read func(handle) (float64, *Error)
		to   *float64
		unit float64 // of what is read, in that of the Reading
	}{
		{energy, &r.Joules, 1e-3}, {power, &r.Watts, 1e-3}, {clock, &r.ClockMHz, 1},
	} {
		v, err := instrument.read(m.device)
		switch {
		case err == nil:
			*instrument.to = v * instrument.unit
		case err.absent():
			*instrument.to = math.NaN()
		default:
			return r, fmt.Errorf("read the GPU's instruments: %w", err)
		}
	}
	return r, nil
}

// Close lets go of the library.
func (m *meter) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	return shutdown()
}
