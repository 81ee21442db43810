//go:build cuda

package differential

import (
	"errors"
	"testing"

	"github.com/mlagen/mlagen/runtime/cuda"
	"github.com/mlagen/mlagen/runtime/emu"
)

// open returns the first GPU and the emulator.
func open(t *testing.T) (*Pair, Limits) {
	t.Helper()
	gpu, err := cuda.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	emulator, err := emu.Open(emu.Options{SMs: gpu.Attributes().SMs, NoHazards: true})
	if err != nil {
		t.Fatal(err)
	}
	p := &Pair{A: gpu, B: emulator}
	t.Cleanup(func() {
		if err := errors.Join(p.Close(), gpu.Close()); err != nil {
			t.Error(err)
		}
	})
	return p, HardwareLimits
}
