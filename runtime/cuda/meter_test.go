//go:build cuda

package cuda

import (
	"testing"
	"time"

	"github.com/mlagen/mlagen/runtime"
)

// TestMeter: NVIDIA's management library knows the GPU by its UUID, and what
// the GPU tells is plausible. A machine without the library has no meter.
func TestMeter(t *testing.T) {
	d := open(t)
	m, err := d.(runtime.Metered).Meter()
	if err != nil {
		t.Skip(err)
	}
	first, err := m.Read()
	try(t, err)
	time.Sleep(500 * time.Millisecond)
	begin := time.Now()
	second, err := m.Read()
	try(t, err)
	t.Logf("%+v, then %+v in %v", first, second, time.Since(begin))
	// NaN, for what a GPU does not tell, fails none of these.
	if first.Watts < 10 || first.Watts > 2000 || first.ClockMHz < 100 || first.ClockMHz > 5000 {
		t.Errorf("implausible: %+v", first)
	}
	if drawn := second.Joules - first.Joules; drawn <= 0 || drawn > 1000 {
		t.Errorf("%v J in half a second", drawn)
	}
	try(t, m.Close())

	address, err := shimPCI(0)
	if err != nil || len(address) < len("0000:1b:00.0") {
		t.Errorf("PCI address %q, %v", address, err)
	}
}
