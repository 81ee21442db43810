package emu_test

import (
	"fmt"
	"testing"

	"github.com/mlagen/mlagen/runtime/emu"
)

// TestPrograms: devices share what each of them has decoded, which stays right
// when more texts are loaded than are kept.
func TestPrograms(t *testing.T) {
	text := func(n int) []byte {
		return fmt.Appendf(nil, ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k%d()\n{\n\tret;\n}\n", n)
	}
	programs := new(emu.Programs)
	for range 2 {
		d, err := emu.Open(emu.Options{Programs: programs})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 40 {
			m, err := d.Load(text(n))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.Function(fmt.Sprintf("k%d", n)); err != nil {
				t.Error(err)
			}
		}
		for range 2 {
			if _, err := d.Load([]byte(".version 8.0\nnonsense")); err == nil {
				t.Error("nonsense was decoded")
			}
		}
	}
	if d, err := emu.Open(emu.Options{Programs: programs}); err != nil {
		t.Fatal(err)
	} else if allocated := testing.AllocsPerRun(10, func() {
		if _, err := d.Load(text(39)); err != nil {
			t.Fatal(err)
		}
	}); allocated > 8 {
		t.Errorf("%v allocations to load what was loaded before", allocated)
	}
}
