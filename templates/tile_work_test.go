package templates

import (
	"strings"
	"testing"
)

// TestWork: cycles and bytes are those of the budget that the kernels were
// designed for, and where the text has a tile's products once, as many wgmma.
func TestWork(t *testing.T) {
	for _, c := range []struct {
		kernel        string
		spec          Spec
		cycles, bytes int
		inText        bool
	}{
		{"absorb-decode", Spec{Heads: 16}, 576 + 512, 73728, true},
		{"absorb-decode", Spec{Heads: 40}, 36*20 + 32*20, 73728, true},
		{"absorb-decode", Spec{Heads: 40, Teams: 1}, 36*20 + 32*20, 73728, true},
		{"absorb-decode", Spec{Heads: 128}, 2176, 73728, false},
		{"expand-prefill", Spec{}, 2 * (12*64 + 8*64), 128 * 320 * 2, false},
		{"expand-prefill", Spec{BlockM: 192}, 3 * (12*48 + 6*64), 96 * 320 * 2, false},
		{"up-project", Spec{}, 2 * 32 * 64, 128 * 512 * 2, false},
		{"absorb-q", Spec{BlockM: 8, BlockN: 128}, 2 * 8 * 16, (128 + 8) * 128 * 2, true},
		{"absorb-o", Spec{BlockM: 16}, 32 * 16, (64 + 16) * 512 * 2, false},
	} {
		s, err := Defaults(c.kernel, c.spec)
		if err != nil {
			t.Fatal(err)
		}
		w, ok := Work(c.kernel, s)
		if !ok || w.Cycles != c.cycles || w.Bytes != c.bytes {
			t.Errorf("%s %+v: %d cycles, %d bytes, want %d and %d", c.kernel, c.spec, w.Cycles, w.Bytes, c.cycles, c.bytes)
		}
		out, err := Build(c.kernel, s)
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for _, p := range w.Products {
			count += p.Count
		}
		if got := strings.Count(string(out.PTX), "wgmma.mma_async."); c.inText && got != count {
			t.Errorf("%s %+v: %d wgmma of a tile, %d in the text", c.kernel, c.spec, count, got)
		}
	}
	if _, ok := Work("decode-schedule", Spec{}.WithDefaults()); ok {
		t.Error("the schedule multiplies")
	}
	s := Spec{Heads: 20, BlockH: 24}.WithDefaults()
	if w, _ := Work("absorb-decode", s); w.Useful != 20./24 {
		t.Errorf("%v of 24 rows are 20", w.Useful)
	}
}
