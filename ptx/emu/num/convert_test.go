package num

import (
	"math"
	"testing"

	"github.com/mlagen/mlagen/ptx/isa"
)

func TestCvt(t *testing.T) {
	f := func(x float32) uint64 { return uint64(math.Float32bits(x)) }
	d := math.Float64bits
	i := func(x int64) uint64 { return uint64(x) }
	for _, c := range []struct {
		c    Cvt
		v    uint64
		want uint64
	}{
		{Cvt{Dst: isa.S32, Src: isa.F32, Round: RZ, Integral: true}, f(-2.9), i(-2)},
		{Cvt{Dst: isa.S32, Src: isa.F32, Round: RN, Integral: true}, f(2.5), 2},
		{Cvt{Dst: isa.S32, Src: isa.F32, Round: RM, Integral: true}, f(-2.1), i(-3)},
		{Cvt{Dst: isa.S32, Src: isa.F32, Round: RP, Integral: true}, f(2.1), 3},
		{Cvt{Dst: isa.S32, Src: isa.F32, Round: RZ}, f(3e9), math.MaxInt32},
		{Cvt{Dst: isa.S32, Src: isa.F32, Round: RZ}, f(-3e9), i(math.MinInt32)},
		{Cvt{Dst: isa.U32, Src: isa.F32, Round: RZ}, f(-1), 0},
		{Cvt{Dst: isa.U32, Src: isa.F32, Round: RZ}, f(5e9), math.MaxUint32},
		{Cvt{Dst: isa.U8, Src: isa.F32, Round: RZ}, f(300), 255},
		{Cvt{Dst: isa.S8, Src: isa.F32, Round: RZ}, f(-300), i(-128)},
		{Cvt{Dst: isa.S32, Src: isa.F32, Round: RZ}, 0x7fc00000, 0},
		{Cvt{Dst: isa.S64, Src: isa.F32, Round: RZ}, 0x7fc00000, 1 << 63},
		{Cvt{Dst: isa.U64, Src: isa.F32, Round: RZ}, 0x7fc00000, 1 << 63},
		{Cvt{Dst: isa.S32, Src: isa.F64, Round: RZ}, d(math.NaN()), i(math.MinInt32)},
		{Cvt{Dst: isa.U32, Src: isa.F64, Round: RZ}, d(math.NaN()), 1 << 31},
		{Cvt{Dst: isa.S64, Src: isa.F64, Round: RZ}, d(1e30), math.MaxInt64},
		{Cvt{Dst: isa.S64, Src: isa.F64, Round: RZ}, d(-1e30), 1 << 63},
		{Cvt{Dst: isa.U64, Src: isa.F64, Round: RZ}, d(1.5e19), 15000000000000000000},
		{Cvt{Dst: isa.U64, Src: isa.F64, Round: RZ}, d(2e19), math.MaxUint64},
		{Cvt{Dst: isa.S32, Src: isa.F32, Round: RP, FTZ: true}, 1, 0},
		{Cvt{Dst: isa.S32, Src: isa.F32, Round: RP}, 1, 1},
		{Cvt{Dst: isa.F32, Src: isa.U32}, 0xffffffff, f(4294967296)},
		{Cvt{Dst: isa.F32, Src: isa.S32}, 0xffffffff, f(-1)},
		{Cvt{Dst: isa.F32, Src: isa.S32}, 16777217, f(16777216)},
		{Cvt{Dst: isa.F32, Src: isa.S32}, 16777219, f(16777220)},
		{Cvt{Dst: isa.F32, Src: isa.S32, Round: RZ}, 16777219, f(16777218)},
		{Cvt{Dst: isa.F32, Src: isa.S32, Round: RM}, i(-16777219), f(-16777220)},
		// A float64 would be a tie here: the exact integer lies above it.
		{Cvt{Dst: isa.F32, Src: isa.U64}, 1<<63 + 1<<39 + 1, f(0x1p63 + 0x1p40)},
		{Cvt{Dst: isa.F32, Src: isa.U64}, 1<<63 + 1<<39, f(0x1p63)},
		{Cvt{Dst: isa.F64, Src: isa.U64}, math.MaxUint64, d(0x1p64)},
		{Cvt{Dst: isa.F64, Src: isa.U64, Round: RZ}, math.MaxUint64, d(0x1.fffffffffffffp63)},
		{Cvt{Dst: isa.F64, Src: isa.S64}, i(-5), d(-5)},
		{Cvt{Dst: isa.F16, Src: isa.U32}, 70000, 0x7c00},
		{Cvt{Dst: isa.BF16, Src: isa.S32}, 257, 0x4380},
		{Cvt{Dst: isa.F64, Src: isa.F32}, f(0.1), d(float64(float32(0.1)))},
		{Cvt{Dst: isa.F32, Src: isa.F64}, d(0.1), f(0.1)},
		{Cvt{Dst: isa.F32, Src: isa.F64, Round: RP}, d(0.1), f(math.Nextafter32(0.1, 1)) - 1},
		{Cvt{Dst: isa.F32, Src: isa.F64, FTZ: true}, d(-0x1p-130), 0x80000000},
		{Cvt{Dst: isa.F32, Src: isa.F32, Round: RN, Integral: true}, f(-0.5), 0x80000000},
		{Cvt{Dst: isa.F32, Src: isa.F32, Round: RP, Integral: true}, f(1.25), f(2)},
		{Cvt{Dst: isa.F32, Src: isa.F32, Sat: true}, f(1.5), f(1)},
		{Cvt{Dst: isa.F32, Src: isa.F32, Sat: true}, 0x7fc00000, 0},
		{Cvt{Dst: isa.F16, Src: isa.F32, Relu: true}, f(-1), 0},
		{Cvt{Dst: isa.BF16, Src: isa.F32, Relu: true}, f(1), 0x3f80},
		{Cvt{Dst: isa.F32, Src: isa.BF16}, 0x4049, f(3.140625)},
		{Cvt{Dst: isa.F32, Src: isa.F16}, 0x0001, f(0x1p-24)},
		{Cvt{Dst: isa.F16, Src: isa.F32, SatFinite: true}, f(1e9), 0x7bff},
		{Cvt{Dst: isa.S64, Src: isa.S32}, 0xffffffff, i(-1)},
		{Cvt{Dst: isa.U64, Src: isa.U32}, 0xffffffffffffffff, 0xffffffff},
		{Cvt{Dst: isa.U32, Src: isa.S32, Sat: true}, 0xffffffff, 0},
		{Cvt{Dst: isa.S8, Src: isa.S32, Sat: true}, 1000, 127},
		{Cvt{Dst: isa.S8, Src: isa.S32, Sat: true}, i(-1000), i(-128)},
		{Cvt{Dst: isa.S32, Src: isa.U32, Sat: true}, 0xffffffff, math.MaxInt32},
		{Cvt{Dst: isa.U8, Src: isa.U32}, 0x1ff, 0xff},
		{Cvt{Dst: isa.S16, Src: isa.U32}, 0x18000, i(-32768)},
	} {
		fn, err := c.c.Func()
		if err != nil {
			t.Errorf("%+v: %v", c.c, err)
			continue
		}
		if got := fn(c.v); got != c.want {
			t.Errorf("%+v (%#x) = %#x, want %#x", c.c, c.v, got, c.want)
		}
	}
	if _, err := (Cvt{Dst: isa.BF16x2, Src: isa.F32}).Func(); err == nil {
		t.Error("a packed conversion was taken for a scalar one")
	}
}

func TestFormatOf(t *testing.T) {
	for ty, want := range map[isa.Type]*Format{isa.F16x2: F16, isa.BF16: BF16, isa.E4M3x2: E4M3, isa.F32: F32, isa.S32: nil, isa.F64: nil} {
		if got := FormatOf(ty); got != want {
			t.Errorf("FormatOf(%v) = %v", ty, got)
		}
	}
}

func TestParseRounding(t *testing.T) {
	for s, want := range map[string]Rounding{"": RN, "rn": RN, "rzi": RZ, "rmi": RM, "rp": RP, "rna": RNA} {
		if got, ok := ParseRounding(s); !ok || got != want {
			t.Errorf("ParseRounding(%q) = %v, %v", s, got, ok)
		}
	}
	if _, ok := ParseRounding("ftz"); ok {
		t.Error("ftz is not a rounding")
	}
}

func TestApprox(t *testing.T) {
	inf := float32(math.Inf(1))
	nan := float32(math.NaN())
	minus := math.Float32frombits(0x80000000)
	sub := math.Float32frombits(0x00400000) // 2^−127
	for _, c := range []struct {
		name string
		got  float32
		want uint32
	}{
		{"ex2 -inf", Ex2(-inf, true), 0}, {"ex2 inf", Ex2(inf, true), 0x7f800000}, {"ex2 nan", Ex2(nan, true), 0x7fffffff},
		{"ex2 0", Ex2(0, true), 0x3f800000}, {"ex2 -0", Ex2(minus, false), 0x3f800000}, {"ex2 subnormal", Ex2(sub, true), 0x3f800000},
		{"ex2 10", Ex2(10, true), 0x44800000}, {"ex2 -127 ftz", Ex2(-127, true), 0}, {"ex2 -127", Ex2(-127, false), 0x00400000},
		{"ex2 128", Ex2(128, true), 0x7f800000}, {"ex2 0.5", Ex2(0.5, true), 0x3fb504f3}, {"ex2 -1e30", Ex2(-1e30, true), 0},
		{"lg2 0", Lg2(0, true), 0xff800000}, {"lg2 -0", Lg2(minus, true), 0xff800000}, {"lg2 inf", Lg2(inf, true), 0x7f800000},
		{"lg2 -1", Lg2(-1, true), 0x7fffffff}, {"lg2 -inf", Lg2(-inf, true), 0x7fffffff}, {"lg2 1", Lg2(1, true), 0},
		{"lg2 8", Lg2(8, true), 0x40400000}, {"lg2 sub ftz", Lg2(sub, true), 0xff800000}, {"lg2 sub", Lg2(sub, false), 0xc2fe0000},
		{"lg2 3", Lg2(3, true), 0x3fcae00d},
		{"rcp 0", Rcp(0, true), 0x7f800000}, {"rcp -0", Rcp(minus, true), 0xff800000}, {"rcp -inf", Rcp(-inf, true), 0x80000000},
		{"rcp 3", Rcp(3, true), 0x3eaaaaab}, {"rcp sub ftz", Rcp(sub, true), 0x7f800000}, {"rcp sub", Rcp(sub, false), 0x7f000000},
		{"rcp huge ftz", Rcp(-0x1.8p127, true), 0x80000000},
		{"rsqrt 0", Rsqrt(0, true), 0x7f800000}, {"rsqrt -0", Rsqrt(minus, true), 0xff800000}, {"rsqrt -1", Rsqrt(-1, true), 0x7fffffff},
		{"rsqrt 4", Rsqrt(4, true), 0x3f000000}, {"rsqrt inf", Rsqrt(inf, true), 0},
		{"sqrt 2", Sqrt(2, true), 0x3fb504f3}, {"sqrt -0", Sqrt(minus, true), 0x80000000}, {"sqrt inf", Sqrt(inf, true), 0x7f800000},
		{"div 1/3", Div(1, 3, true), 0x3eaaaaab}, {"div huge", Div(1, 0x1.8p126, true), 0}, {"div inf huge", Div(inf, 0x1.8p126, true), 0x7fffffff},
		{"div -x/2^126", Div(-0x1p126, 0x1p126, true), 0xbf800000}, {"div 1/0", Div(1, 0, true), 0x7f800000}, {"div inf/inf", Div(inf, inf, true), 0x7fffffff},
		{"tanh inf", Tanh(inf), 0x3f800000}, {"tanh 0", Tanh(0), 0}, {"sin inf", Sin(inf, true), 0x7fffffff}, {"sin -0", Sin(minus, true), 0x80000000},
		{"cos 0", Cos(0, true), 0x3f800000}, {"cos inf", Cos(inf, true), 0x7fffffff},
	} {
		if got := math.Float32bits(c.got); got != c.want {
			t.Errorf("%s = %#08x, want %#08x", c.name, got, c.want)
		}
	}
}

// TestIntToFloatOdd checks the intermediate that integers are rounded through.
func TestIntToFloatOdd(t *testing.T) {
	for _, c := range []struct {
		v      uint64
		signed bool
		want   float64
	}{
		{1 << 63, true, -0x1p63}, {1 << 63, false, 0x1p63}, {5, false, 5}, {math.MaxUint64, true, -1},
		{1<<63 + 1, false, 0x1.0000000000001p63}, {math.MaxUint64, false, 0x1.fffffffffffffp63}, {1<<53 + 1, false, 0x1.0000000000001p53},
	} {
		if got := IntToFloat(c.v, c.signed); got != c.want {
			t.Errorf("IntToFloat(%#x, %v) = %x, want %x", c.v, c.signed, got, c.want)
		}
	}
}

func TestEx2Half(t *testing.T) {
	for _, c := range []struct {
		f    *Format
		p    uint16
		ftz  bool
		want uint16
	}{
		{F16, 0x4000, false, 0x4400}, {F16, 0xfc00, false, 0}, {F16, 0x7c00, false, 0x7c00}, {F16, 0x7e00, false, 0x7fff},
		{F16, 0x4c00, false, 0x7c00}, {F16, 0xcd00, false, 0x0010}, {F16, 0x8001, false, 0x3c00},
		{BF16, 0x4000, true, 0x4080}, {BF16, 0xff80, true, 0}, {BF16, 0x3f00, true, 0x3fb5}, {BF16, 0xc2fe, true, 0}, {BF16, 0x7fc0, true, 0x7fff},
	} {
		if got := c.f.Ex2(c.p, c.ftz); got != c.want {
			t.Errorf("%s ex2(%#x) = %#x, want %#x", c.f.Name, c.p, got, c.want)
		}
	}
}
