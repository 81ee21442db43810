//go:build !cuda

package differential

import (
	"testing"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
)

// open returns two emulators whose copies, warps and CTAs go in other orders:
// not a bit may differ.
func open(t *testing.T) (*Pair, Limits) {
	t.Helper()
	seeded := func(seed uint64) runtime.Driver {
		d, err := emu.Open(emu.Options{SMs: 132, Seed: seed, NoHazards: true})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	return &Pair{A: seeded(1), B: seeded(20_000)}, Limits{Exact: true}
}
