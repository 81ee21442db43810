package num

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// interesting returns a random f32 pattern that favours edges: extreme
// exponents, few fraction bits, neighbours of powers of two.
func interesting(r *rand.Rand) float32 {
	e := uint32(r.IntN(256))
	switch r.IntN(4) {
	case 0:
		e = uint32(r.IntN(4))
	case 1:
		e = 120 + uint32(r.IntN(16))
	}
	m := r.Uint32() & 0x7fffff
	switch r.IntN(4) {
	case 0:
		m = 0
	case 1:
		m = 0x7fffff
	case 2:
		m = 1 << r.IntN(23)
	}
	return math.Float32frombits(r.Uint32()&0x80000000 | e<<23 | m)
}

// exact rounds an exact rational to f32 with math/big, in one of the modes.
func exact(x *big.Rat, mode big.RoundingMode) float32 {
	if x.Sign() == 0 {
		return 0
	}
	// big.Float has no subnormals: give it as many bits as the result has.
	f := new(big.Float).SetPrec(600).SetRat(x)
	bits := f.MantExp(nil) + 149 // exponent of the leading bit over 2^−149, +1
	switch {
	case bits > 24:
		bits = 24
	case bits < 1: // below the smallest subnormal
		half := big.NewRat(1, 1).SetFloat64(0x1p-150)
		c := new(big.Rat).Abs(x).Cmp(half)
		up := mode == big.ToNearestEven && c > 0 || mode == big.ToPositiveInf && x.Sign() > 0 || mode == big.ToNegativeInf && x.Sign() < 0
		if !up {
			return float32(math.Copysign(0, float64(x.Sign())))
		}
		return float32(math.Copysign(0x1p-149, float64(x.Sign())))
	}
	g := new(big.Float).SetPrec(uint(bits)).SetMode(mode).Set(f)
	v, _ := g.Float64()
	if math.Abs(v) > math.MaxFloat32 {
		away := mode == big.ToNearestEven || mode == big.ToPositiveInf && v > 0 || mode == big.ToNegativeInf && v < 0
		if away {
			return float32(math.Copysign(math.Inf(1), v))
		}
		return float32(math.Copysign(math.MaxFloat32, v))
	}
	return float32(v)
}

func rat(x float32) *big.Rat { return new(big.Rat).SetFloat64(float64(x)) }

func finiteF32(x ...float32) bool {
	for _, v := range x {
		if math.IsInf(float64(v), 0) || v != v {
			return false
		}
	}
	return true
}

var modes = map[Rounding]big.RoundingMode{RN: big.ToNearestEven, RZ: big.ToZero, RM: big.ToNegativeInf, RP: big.ToPositiveInf}

// TestArithmeticExact holds add, mul, fma, div and sqrt against math/big.
func TestArithmeticExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 0; n < 20000; n++ {
		a, b, c := interesting(rng), interesting(rng), interesting(rng)
		if n%3 == 0 { // near-cancelling fma
			c = -a * b * (1 + float32(rng.IntN(3)-1)*0x1p-23)
		}
		if !finiteF32(a, b, c) {
			continue
		}
		product := new(big.Rat).Mul(rat(a), rat(b))
		for r, mode := range modes {
			check := func(name string, got float32, x *big.Rat) {
				t.Helper()
				if want := exact(x, mode); got != want {
					t.Fatalf("%s mode %d of %x, %x, %x = %x, want %x", name, r, a, b, c, got, want)
				}
			}
			check("add", AddF32(a, b, r, false), new(big.Rat).Add(rat(a), rat(b)))
			check("sub", SubF32(a, b, r, false), new(big.Rat).Sub(rat(a), rat(b)))
			check("mul", MulF32(a, b, r, false), product)
			check("fma", FmaF32(a, b, c, r, false), new(big.Rat).Add(product, rat(c)))
			if b != 0 {
				check("div", DivF32(a, b, r, false), new(big.Rat).Quo(rat(a), rat(b)))
			}
			if a > 0 {
				got := SqrtF32(a, r, false)
				root := new(big.Float).SetPrec(400).Sqrt(new(big.Float).SetPrec(400).SetFloat64(float64(a)))
				x, _ := root.Rat(nil)
				check("sqrt", got, x)
			}
		}
	}
}

// TestFmaDoubleRounding has cases where rounding a float64 sum to f32 is wrong.
func TestFmaDoubleRounding(t *testing.T) {
	a, b := float32(1+0x1p-12), float32(1+0x1p-12) // product 1 + 2^−11 + 2^−24: a tie for f32
	for _, c := range []struct{ c, want float32 }{
		{0, 1 + 0x1p-11},
		{0x1p-80, 1 + 0x1p-11 + 0x1p-23}, // far below float64's last bit, still breaks the tie
		{-0x1p-80, 1 + 0x1p-11},
	} {
		if got := FmaF32(a, b, c.c, RN, false); got != c.want {
			t.Errorf("fma(…, %v) = %x, want %x", c.c, got, c.want)
		}
	}
}

func TestArithmeticSpecials(t *testing.T) {
	inf := float32(math.Inf(1))
	nan := math.Float32frombits(0x7f800001)
	sub := math.Float32frombits(0x00400000)
	minus := math.Float32frombits(0x80000000)
	for _, c := range []struct {
		name string
		got  float32
		want uint32
	}{
		{"inf-inf", AddF32(inf, -inf, RN, false), 0x7fffffff},
		{"nan+1", AddF32(nan, 1, RN, false), 0x7fffffff},
		{"nan+1 rz", AddF32(nan, 1, RZ, false), 0x7fffffff},
		{"0*inf", MulF32(0, inf, RN, false), 0x7fffffff},
		{"fma nan", FmaF32(0, inf, 1, RN, false), 0x7fffffff},
		{"fma inf", FmaF32(2, inf, 1, RN, false), 0x7f800000},
		{"1-1", AddF32(1, -1, RN, false), 0},
		{"1-1 rm", AddF32(1, -1, RM, false), 0x80000000},
		{"fma cancel rm", FmaF32(1, 1, -1, RM, false), 0x80000000},
		{"0+0 rm", AddF32(0, 0, RM, false), 0},
		{"-0 + -0", AddF32(minus, minus, RN, false), 0x80000000},
		{"ftz input", AddF32(sub, 0, RN, true), 0},
		{"ftz input fma", FmaF32(sub, 2, 0, RN, true), 0},
		{"no ftz", MulF32(sub, 2, RN, false), 0x00800000},
		{"ftz result", MulF32(-0x1p-100, 0x1p-40, RN, true), 0x80000000},
		{"1/0", DivF32(1, 0, RN, false), 0x7f800000},
		{"0/0 rz", DivF32(0, 0, RZ, false), 0x7fffffff},
		{"1/inf rp", DivF32(1, inf, RP, false), 0},
		{"sqrt -1", SqrtF32(-1, RN, false), 0x7fffffff},
		{"sqrt -0", SqrtF32(minus, RN, false), 0x80000000},
		{"max nan", MaxF32(nan, 1, false, false), 0x3f800000},
		{"max.NaN", MaxF32(nan, 1, false, true), 0x7fffffff},
		{"max nan nan", MaxF32(nan, nan, false, false), 0x7fffffff},
		{"max -0 0", MaxF32(minus, 0, false, false), 0},
		{"min 0 -0", MinF32(0, minus, false, false), 0x80000000},
		{"max ftz", MaxF32(sub, -1, true, false), 0},
		{"max -inf", MaxF32(-inf, -inf, false, false), 0xff800000},
		{"sat", SaturateF32(3), 0x3f800000},
		{"sat nan", SaturateF32(nan), 0},
		{"sat neg", SaturateF32(-2), 0},
	} {
		if got := math.Float32bits(c.got); got != c.want {
			t.Errorf("%s = %#08x, want %#08x", c.name, got, c.want)
		}
	}
}

// TestPackedArithmetic compares 16-bit arithmetic with exact rationals, every
// operand class included.
func TestPackedArithmetic(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, f := range []*Format{F16, BF16} {
		value := func(p uint16) *big.Rat { return new(big.Rat).SetFloat64(f.Decode(uint32(p))) }
		for n := 0; n < 30000; n++ {
			a, b, c := uint16(rng.Uint32()), uint16(rng.Uint32()), uint16(rng.Uint32())
			if f.Decode(uint32(a))-f.Decode(uint32(a)) != 0 || f.Decode(uint32(b))-f.Decode(uint32(b)) != 0 || f.Decode(uint32(c))-f.Decode(uint32(c)) != 0 {
				continue // NaN or infinite
			}
			check := func(name string, got uint16, x *big.Rat) {
				t.Helper()
				lo, hi := f.neighbours(x)
				if g := uint32(got) &^ f.sign(); g != lo && g != hi {
					t.Fatalf("%s %s(%#x, %#x, %#x) = %#x, neighbours of the exact result are %#x and %#x", f.Name, name, a, b, c, got, lo, hi)
				}
				if want := f.nearest(x, lo, hi); uint32(got)&^f.sign() != want {
					t.Fatalf("%s %s(%#x, %#x, %#x) = %#x, want %#x", f.Name, name, a, b, c, got, want)
				}
			}
			p := new(big.Rat).Mul(value(a), value(b))
			check("add", f.Add(a, b, Mode{}), new(big.Rat).Add(value(a), value(b)))
			check("sub", f.Sub(a, b, Mode{}), new(big.Rat).Sub(value(a), value(b)))
			check("mul", f.Mul(a, b, Mode{}), p)
			check("fma", f.Fma(a, b, c, Mode{}), new(big.Rat).Add(p, value(c)))
		}
	}
}

// neighbours returns the patterns without sign around |x| (equal when exact or
// overflowing to infinity), by bisection over the patterns.
func (f *Format) neighbours(x *big.Rat) (lo, hi uint32) {
	x = new(big.Rat).Abs(x)
	lo, hi = 0, f.max
	if x.Cmp(new(big.Rat).SetFloat64(f.Decode(f.max))) > 0 {
		return f.max, f.inf
	}
	for lo+1 < hi {
		mid := (lo + hi) / 2
		if new(big.Rat).SetFloat64(f.Decode(mid)).Cmp(x) <= 0 {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo, hi
}

func (f *Format) nearest(x *big.Rat, lo, hi uint32) uint32 {
	x = new(big.Rat).Abs(x)
	value := f.Decode(hi)
	if hi == f.inf {
		value = math.Ldexp(1, f.Bias+1) // where the next pattern would be
	}
	top := new(big.Rat).SetFloat64(value)
	mid := top.Add(top, new(big.Rat).SetFloat64(f.Decode(lo)))
	mid.Quo(mid, big.NewRat(2, 1))
	switch c := x.Cmp(mid); {
	case c < 0 || c == 0 && lo&1 == 0:
		return lo
	}
	return hi
}

func TestPackedModes(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uint16
	}{
		{"relu", F16.Fma(0x3c00, 0xc000, 0x3c00, Mode{Relu: true}), 0},
		{"relu nan", F16.Fma(0x7e00, 0xc000, 0x3c00, Mode{Relu: true}), 0x7fff},
		{"sat", F16.Add(0x3c00, 0x3c00, Mode{Sat: true}), 0x3c00},
		{"sat nan", F16.Add(0x7e00, 0x3c00, Mode{Sat: true}), 0},
		{"ftz in", F16.Add(0x0001, 0, Mode{FTZ: true}), 0},
		{"ftz out", F16.Mul(0x0400, 0x3800, Mode{FTZ: true}), 0},
		{"subnormal", F16.Mul(0x0400, 0x3800, Mode{}), 0x0200},
		{"overflow", F16.Mul(0x7bff, 0x4000, Mode{}), 0x7c00},
		{"bf16 max nan", BF16.Max(0x7fc0, 0x3f80, Mode{}, false), 0x3f80},
		{"bf16 max.NaN", BF16.Max(0x7fc0, 0x3f80, Mode{}, true), 0x7fff},
		{"bf16 min", BF16.Min(0x8000, 0, Mode{}, false), 0x8000},
	} {
		if c.got != c.want {
			t.Errorf("%s = %#x, want %#x", c.name, c.got, c.want)
		}
	}
	add := func(a, b uint16) uint16 { return BF16.Add(a, b, Mode{}) }
	if got := Packed2(0x3f804000, 0x3f803f80, add); got != 0x40004040 {
		t.Errorf("Packed2 = %#x", got)
	}
	fma := func(a, b, c uint16) uint16 { return BF16.Fma(a, b, c, Mode{}) }
	if got := Packed3(0x3f804000, 0x3f804000, 0x3f803f80, fma); got != 0x400040a0 {
		t.Errorf("Packed3 = %#x", got)
	}
}

func FuzzFma(f *testing.F) {
	f.Add(uint32(0x3f800800), uint32(0x3f800800), uint32(1))
	f.Fuzz(func(t *testing.T, x, y, z uint32) {
		a, b, c := math.Float32frombits(x), math.Float32frombits(y), math.Float32frombits(z)
		if !finiteF32(a, b, c) {
			t.Skip()
		}
		want := exact(new(big.Rat).Add(new(big.Rat).Mul(rat(a), rat(b)), rat(c)), big.ToNearestEven)
		if got := FmaF32(a, b, c, RN, false); got != want {
			t.Errorf("fma(%x, %x, %x) = %x, want %x", a, b, c, got, want)
		}
	})
}

var sinkF32 float32

func BenchmarkFmaF32(b *testing.B) {
	x := float32(1.0001)
	for i := 0; i < b.N; i++ {
		x = FmaF32(x, 0.9999, 0.0001, RN, false)
	}
	sinkF32 = x
}

func BenchmarkEx2(b *testing.B) {
	x := float32(-1.3)
	for i := 0; i < b.N; i++ {
		sinkF32 += Ex2(x, true)
	}
}

func BenchmarkF32ToBF16(b *testing.B) {
	var s uint16
	for i := 0; i < b.N; i++ {
		s += F32ToBF16(float32(i))
	}
	sinkF32 = float32(s)
}
