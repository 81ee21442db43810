package num

import (
	"math"
	"testing"

	"github.com/x448/float16"
)

// values copied from the format definitions (IEEE 754 binary16, bfloat16, OCP
// FP8), not computed.
func TestDecodeKnown(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		f *Format
		p uint32
		v float64
	}{
		{F16, 0x3c00, 1}, {F16, 0xc000, -2}, {F16, 0x7bff, 65504}, {F16, 0x0400, 0x1p-14}, {F16, 0x0001, 0x1p-24}, {F16, 0x03ff, 0x3ffp-24},
		{F16, 0x7c00, inf}, {F16, 0xfc00, -inf}, {F16, 0x3555, 0.333251953125}, {F16, 0x8000, math.Copysign(0, -1)},
		{BF16, 0x3f80, 1}, {BF16, 0xc000, -2}, {BF16, 0x7f7f, 0x1.fep127}, {BF16, 0x0080, 0x1p-126}, {BF16, 0x0001, 0x1p-133},
		{BF16, 0x7f80, inf}, {BF16, 0x4049, 3.140625}, {BF16, 0x3eab, 0.333984375},
		{E4M3, 0x38, 1}, {E4M3, 0x7e, 448}, {E4M3, 0xfe, -448}, {E4M3, 0x08, 0x1p-6}, {E4M3, 0x01, 0x1p-9}, {E4M3, 0x07, 7 * 0x1p-9}, {E4M3, 0x78, 256},
		{E5M2, 0x3c, 1}, {E5M2, 0x7b, 57344}, {E5M2, 0x7c, inf}, {E5M2, 0xfc, -inf}, {E5M2, 0x04, 0x1p-14}, {E5M2, 0x01, 0x1p-16},
		{F32, 0x3f800000, 1}, {F32, 1, 0x1p-149}, {F32, 0x7f7fffff, math.MaxFloat32},
	} {
		if got := c.f.Decode(c.p); got != c.v || math.Signbit(got) != math.Signbit(c.v) {
			t.Errorf("%s %#x = %v, want %v", c.f.Name, c.p, got, c.v)
		}
	}
	for _, c := range []struct {
		f *Format
		p []uint32
	}{{F16, []uint32{0x7c01, 0xfe00}}, {BF16, []uint32{0x7f81, 0xffff}}, {E4M3, []uint32{0x7f, 0xff}}, {E5M2, []uint32{0x7d, 0x7e, 0x7f, 0xfd}}} {
		for _, p := range c.p {
			if !math.IsNaN(c.f.Decode(p)) || !c.f.IsNaN(p) {
				t.Errorf("%s %#x is not a NaN", c.f.Name, p)
			}
		}
	}
}

// TestEncodeExhaustive checks, for every pair of neighbouring finite patterns
// of the narrow formats, the values themselves, the points next to the middle
// and the middle, in every rounding mode.
func TestEncodeExhaustive(t *testing.T) {
	for _, f := range []*Format{F16, BF16, E4M3, E5M2} {
		for p := uint32(0); p < f.max; p++ {
			lo, hi := f.Decode(p), f.Decode(p+1)
			mid := (lo + hi) / 2 // exact
			even := p + p&1
			for _, c := range []struct {
				x               float64
				rn, rz, rp, rna uint32
			}{
				{x: lo, rn: p, rz: p, rp: p, rna: p},
				{x: math.Nextafter(lo, hi), rn: p, rz: p, rp: p + 1, rna: p},
				{x: math.Nextafter(mid, lo), rn: p, rz: p, rp: p + 1, rna: p},
				{x: mid, rn: even, rz: p, rp: p + 1, rna: p + 1},
				{x: math.Nextafter(mid, hi), rn: p + 1, rz: p, rp: p + 1, rna: p + 1},
				{x: math.Nextafter(hi, lo), rn: p + 1, rz: p, rp: p + 1, rna: p + 1},
			} {
				for _, m := range []struct {
					r         Rounding
					want, neg uint32
				}{{RN, c.rn, c.rn}, {RZ, c.rz, c.rz}, {RM, c.rz, c.rp}, {RP, c.rp, c.rz}, {RNA, c.rna, c.rna}} {
					if got := f.Encode(c.x, m.r, false); got != m.want {
						t.Fatalf("%s mode %d: Encode(%v) = %#x, want %#x", f.Name, m.r, c.x, got, m.want)
					}
					if got := f.Encode(-c.x, m.r, false); got != m.neg|f.sign() {
						t.Fatalf("%s mode %d: Encode(%v) = %#x, want %#x", f.Name, m.r, -c.x, got, m.neg|f.sign())
					}
				}
			}
		}
	}
}

func TestEncodeEdges(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		f    *Format
		x    float64
		r    Rounding
		sat  bool
		want uint32
	}{
		{F16, 65519.99, RN, false, 0x7bff}, {F16, 65520, RN, false, 0x7c00}, {F16, -1e9, RN, false, 0xfc00}, {F16, 1e9, RZ, false, 0x7bff},
		{F16, 1e9, RM, false, 0x7bff}, {F16, -1e9, RM, false, 0xfc00}, {F16, -1e9, RP, false, 0xfbff}, {F16, 1e9, RN, true, 0x7bff}, {F16, -inf, RN, true, 0xfbff},
		{F16, nan, RN, true, 0x7fff}, {F16, -nan, RN, false, 0x7fff}, {F16, 0x1p-25, RN, false, 0}, {F16, 0x1.8p-25, RN, false, 1}, {F16, 0x1p-1074, RP, false, 1},
		{F16, -0x1p-1074, RM, false, 0x8001}, {F16, -0x1p-1074, RN, false, 0x8000}, {F16, 0x1p-26, RNA, false, 0}, {F16, 0x1p-25, RNA, false, 1},
		{BF16, 0x1.ffp127, RN, false, 0x7f80}, {BF16, 0x1.feffp127, RN, false, 0x7f7f}, {BF16, inf, RN, false, 0x7f80}, {BF16, nan, RN, false, 0x7fff},
		{E4M3, 464, RN, true, 0x7e}, {E4M3, 1e30, RN, true, 0x7e}, {E4M3, -inf, RN, true, 0xfe}, {E4M3, nan, RN, true, 0x7f}, {E4M3, 0x1p-10, RN, true, 0},
		{E4M3, 0x1.1p-10, RN, true, 1}, {E4M3, 17, RN, true, 0x58}, {E4M3, 19, RN, true, 0x5a},
		{E5M2, 61440, RN, true, 0x7b}, {E5M2, inf, RN, true, 0x7b}, {E5M2, inf, RN, false, 0x7c}, {E5M2, nan, RN, true, 0x7f}, {E5M2, -1e6, RN, true, 0xfb},
		{F32, 0x1.fffffefp127, RN, false, 0x7f7fffff}, {F32, 0x1.ffffffp127, RN, false, 0x7f800000}, {F32, 0x1p-150, RN, false, 0}, {F32, 0x1.8p-150, RN, false, 1},
	} {
		if got := c.f.Encode(c.x, c.r, c.sat); got != c.want {
			t.Errorf("%s Encode(%v, %d, %v) = %#x, want %#x", c.f.Name, c.x, c.r, c.sat, got, c.want)
		}
	}
}

// TestHalfAgainstLibrary compares fp16 with an independent implementation.
func TestHalfAgainstLibrary(t *testing.T) {
	for p := 0; p < 1<<16; p++ {
		h := uint16(p)
		want := float16.Frombits(h).Float32()
		if got := F16ToF32(h); got != want && !(got != got && want != want) {
			t.Fatalf("F16ToF32(%#x) = %v, want %v", h, got, want)
		}
		if got := F16.Decode(uint32(p)); got != float64(want) && want == want {
			t.Fatalf("Decode(%#x) = %v, want %v", h, got, want)
		}
	}
	for b := uint32(0); b < 1<<31; b += 4093 { // all exponents, odd step
		for _, b := range []uint32{b, b | 1<<31} {
			x := math.Float32frombits(b)
			got := F32ToF16(x)
			if x != x {
				if got != 0x7fff {
					t.Fatalf("F32ToF16(NaN %#x) = %#x", b, got)
				}
				continue
			}
			if want := float16.Fromfloat32(x).Bits(); got != want {
				t.Fatalf("F32ToF16(%#x) = %#x, want %#x", b, got, want)
			}
			if want := F16.Encode(float64(x), RN, false); uint32(got) != want {
				t.Fatalf("F32ToF16(%#x) = %#x, Encode has %#x", b, got, want)
			}
			if got, want := uint32(F32ToBF16(x)), BF16.Encode(float64(x), RN, false); got != want {
				t.Fatalf("F32ToBF16(%#x) = %#x, Encode has %#x", b, got, want)
			}
			if got := F32.Encode(float64(x), RN, false); got != b {
				t.Fatalf("F32.Encode(%#x) = %#x", b, got)
			}
		}
	}
}

func TestNarrowRoundTrip(t *testing.T) {
	for p := 0; p < 1<<16; p++ {
		h := uint16(p)
		if x := BF16ToF32(h); x == x {
			if F32ToBF16(x) != h || BF16.Decode(uint32(p)) != float64(x) {
				t.Fatalf("bf16 %#x", h)
			}
		} else if F32ToBF16(x) != 0x7fff {
			t.Fatalf("bf16 NaN %#x", h)
		}
		if x := F16ToF32(h); x == x && F32ToF16(x) != h {
			t.Fatalf("f16 %#x", h)
		}
	}
	for p := 0; p < 256; p++ {
		for _, c := range []struct {
			f *Format
			x float32
		}{{E4M3, E4M3ToF32(uint8(p))}, {E5M2, E5M2ToF32(uint8(p))}} {
			if c.x == c.x && c.f.Encode(float64(c.x), RN, false) != uint32(p) {
				t.Fatalf("%s %#x", c.f.Name, p)
			}
			w := UnpackFP8(c.f, uint16(p)<<8|0x38)
			hi, lo := Unpack(w)
			if x := F16ToF32(hi); x != c.x && c.x == c.x || F16ToF32(lo) != float32(c.f.Decode(0x38)) {
				t.Fatalf("UnpackFP8 %s %#x = %#x", c.f.Name, p, w)
			}
		}
	}
}

func TestPack(t *testing.T) {
	if got := PackBF16(1, -2); got != 0x3f80c000 {
		t.Errorf("PackBF16 = %#x", got)
	}
	if got := PackF16(1, -2); got != 0x3c00c000 {
		t.Errorf("PackF16 = %#x", got)
	}
	if got := PackFP8(E4M3, 1, -1000); got != 0x38fe {
		t.Errorf("PackFP8 = %#x", got)
	}
	if hi, lo := Unpack(0x12345678); hi != 0x1234 || lo != 0x5678 || Pack(hi, lo) != 0x12345678 {
		t.Errorf("Unpack = %#x %#x", hi, lo)
	}
}

func TestFlush(t *testing.T) {
	for _, c := range []struct {
		f       *Format
		p, want uint32
	}{{F16, 0x83ff, 0x8000}, {F16, 0x0400, 0x0400}, {F32, 0x807fffff, 0x80000000}, {F32, 0x00800000, 0x00800000}} {
		if got := c.f.Flush(c.p); got != c.want {
			t.Errorf("%s Flush(%#x) = %#x, want %#x", c.f.Name, c.p, got, c.want)
		}
	}
}
