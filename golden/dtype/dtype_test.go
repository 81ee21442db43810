package dtype

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRoundToNearestEven(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		t        Type
		in, want float32
	}{
		{BF16, 1, 1},
		{BF16, 1 + 1.0/256, 1},                  // half way, even below
		{BF16, 1 + 3.0/256, 1 + 2.0/128},        // half way, even above
		{BF16, 1 + 1.0/256 + 1e-6, 1 + 1.0/128}, // just above half way
		{BF16, 450, 450},
		{BF16, 449, 448},
		{BF16, math.MaxFloat32, inf},
		{BF16, -inf, -inf},
		{FP16, 1 + 1.0/2048, 1},
		{FP16, 1 + 3.0/2048, 1 + 2.0/1024},
		{FP16, 65519, 65504},
		{FP16, 65520, inf},
		{FP16, 1.0 / (1 << 24), 1.0 / (1 << 24)}, // smallest subnormal
		{FP16, 1.0 / (1 << 25), 0},
		{F32, 0.1, 0.1},
	} {
		if got := c.t.Round(c.in); got != c.want {
			t.Errorf("%s.Round(%v) = %v, want %v", c.t, c.in, got, c.want)
		}
	}
	nan := math.Float32frombits(0x7f800001) // its payload is lost in the upper half
	for _, typ := range []Type{BF16, FP16, F32} {
		if got := typ.Round(nan); got == got {
			t.Errorf("%s.Round(NaN) = %v", typ, got)
		}
	}
}

func TestEveryBF16SurvivesTheRoundTrip(t *testing.T) {
	for b := 0; b < 1<<16; b++ {
		v := BF16Value(uint16(b))
		if v != v {
			continue
		}
		if got := BF16Bits(v); got != uint16(b) {
			t.Fatalf("%#04x became %#04x", b, got)
		}
	}
}

func TestEncodeDecode(t *testing.T) {
	want := []float32{0, 1, -2.5, 65504, -0.125}
	for _, typ := range []Type{FP16, F32} {
		raw := typ.Encode(nil, want)
		if len(raw) != len(want)*typ.Size() {
			t.Errorf("%s: %d bytes", typ, len(raw))
		}
		if d := cmp.Diff(want, typ.Decode(nil, raw)); d != "" {
			t.Errorf("%s: %s", typ, d)
		}
	}
	if d := cmp.Diff([]byte{0x80, 0x3f, 0x20, 0xc0}, BF16.Encode(nil, []float32{1, -2.5})); d != "" {
		t.Error(d)
	}
	if _, err := Parse("fp8"); err == nil {
		t.Error("Parse accepted fp8")
	}
}
