package vectors

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/mlagen/mlagen/ptx/emu/num"
	"github.com/mlagen/mlagen/ptx/isa"
)

// scalar is an instruction on registers, tried on many operands.
type scalar struct {
	name string // of the array: the opcode, dots as underscores
	// text computes the result from the operands, which are in %r50–%r52
	// and, as f32, in %f1–%f3. It leaves the result in %r53, or in %f0 when
	// it has an f32.
	text  string
	bits  bool // operands are bit patterns of all kinds, not f32 values of interest
	float bool // the result is in %f0
	want  func(a, b, c uint32) uint32
	// near says whether another result is as good, nil when none is.
	near func(got, want, a uint32) bool
}

// count is the number of operand triples.
const count = 1536

func scalarFamily() family {
	f := family{name: "scalar"}
	var kernels []*kernel
	for _, s := range scalars() {
		kernels = append(kernels, s.kernel())
		a, b, c := operands(s.bits)
		out := &buffer{name: "out", data: make([]byte, 4*count), elem: 4}
		params := []any{uint32(count), &buffer{name: "a", data: words(a)}, &buffer{name: "b", data: words(b)}, &buffer{name: "c", data: words(c)}, out}
		f.experiments = append(f.experiments, experiment{name: s.name, entry: "scalar_" + s.name, threads: 128, blocks: count / 128, params: params, check: func(got []byte) error {
			if len(got) != 4*count {
				return fmt.Errorf("%d bytes, must be %d", len(got), 4*count)
			}
			for i := range count {
				g, w := binary.LittleEndian.Uint32(got[4*i:]), s.want(a[i], b[i], c[i])
				if g != w && (s.near == nil || !s.near(g, w, a[i])) {
					return fmt.Errorf("operands %#08x, %#08x, %#08x: recorded %#08x, computed %#08x", a[i], b[i], c[i], g, w)
				}
			}
			return nil
		}})
	}
	f.ptx = module(kernels...)
	return f
}

func (s scalar) kernel() *kernel {
	k := &kernel{name: "scalar_" + s.name}
	k.params = []string{".param .u32 n", ".param .u64 a", ".param .u64 b", ".param .u64 c", ".param .u64 d"}
	k.line("mov.u32 %%r0, %%tid.x;")
	k.line("mov.u32 %%r1, %%ctaid.x;")
	k.line("mad.lo.u32 %%r0, %%r1, 128, %%r0;")
	k.load("u32", "%r2", "n")
	k.line("setp.ge.u32 %%p0, %%r0, %%r2;")
	k.line("@%%p0 bra end;")
	k.line("shl.b32 %%r10, %%r0, 2;")
	for i, name := range []string{"a", "b", "c", "d"} {
		k.load("u64", fmt.Sprintf("%%rd%d", i), name)
		k.addressInto(fmt.Sprintf("%%rd%d", 4+i), fmt.Sprintf("%%rd%d", i))
		if name != "d" {
			k.line("ld.global.u32 %%r%d, [%%rd%d];", 50+i, 4+i)
			k.line("mov.b32 %%f%d, %%r%d;", 1+i, 50+i)
		}
	}
	k.line("%s", s.text)
	if s.float {
		k.line("mov.b32 %%r53, %%f0;")
	}
	k.line("st.global.u32 [%%rd7], %%r53;")
	k.label("end")
	return k
}

func words(v []uint32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

// operands returns the triples: bit patterns of all kinds, or f32 values where
// the functions do something, with special ones first.
func operands(bits bool) (a, b, c []uint32) {
	rng := rand.New(rand.NewPCG(21, 0))
	special := []uint32{
		0, 0x8000_0000, 0x7f80_0000, 0xff80_0000, 0x7fc0_0000, 0xffc1_2345, 0x7f80_0001, 1, 0x8000_0001, 0x007f_ffff, 0x807f_ffff, 0x0080_0000,
		0x3f80_0000, 0xbf80_0000, 0x7f7f_ffff, 0xff7f_ffff, 0x477f_efff, 0x477f_f000, 0x3380_0000, 0x3300_0000, 0x3300_0001, 0x43e0_0000, 0x43e8_0000,
		0x43f0_0000, 0x4780_0000, 0x3f80_8000, 0x3f81_8000, 0x3f80_1000, 0x3f80_3000, 0xc2fc_0000, 0xc2fe_0000, 0xc315_0000, 0x4300_0000, 0x42ff_ffff,
		0x0040_0000, 0x3f00_0000, 0x3fff_ffff, 0x3f7f_ffff, 0x3f80_0001, 0x7e80_0000, 0x7e80_0001, 0x7f00_0000, 0x4b00_0001, 0x4eff_ffff, 0x4f00_0000,
		0xcf00_0000, 0xcf00_0001, 0x5f00_0000, 0x4020_0000, 0xc020_0000, 0x3fc0_0000, 0xbf00_0000,
	}
	value := func(i int) uint32 {
		var x float64
		switch i % 6 {
		case 0:
			x = rng.Float64()*310 - 160
		case 1:
			x = rng.NormFloat64()
		case 2:
			x = math.Ldexp(rng.NormFloat64(), rng.IntN(40)-20)
		case 3:
			x = 1 + rng.NormFloat64()*0.01
		case 4:
			return rng.Uint32()
		case 5:
			x = -rng.ExpFloat64() * 10
		}
		return math.Float32bits(float32(x))
	}
	for i := range count {
		switch {
		case bits:
			a, b, c = append(a, rng.Uint32()), append(b, rng.Uint32()), append(c, rng.Uint32())
		case i < len(special):
			a, b, c = append(a, special[i]), append(b, special[(i*7+3)%len(special)]), append(c, special[(i*11+5)%len(special)])
		default:
			x, y, z := value(i), value(i/6), value(i/36)
			if i%7 == 0 { // the product nearly cancels, or is a tie
				z = math.Float32bits(-math.Float32frombits(x)*math.Float32frombits(y)) + uint32(rng.IntN(3)) - 1
			}
			if i%11 == 0 { // a product next to the smallest normal number
				x = math.Float32bits(0x1p-63) | rng.Uint32()&0xff
				y = math.Float32bits(0x1p-63) - rng.Uint32()&0xff
			}
			a, b, c = append(a, x), append(b, y), append(c, z)
		}
	}
	return
}

// The helpers below turn functions of values into functions of bits.

func unary(f func(x float32) float32) func(a, b, c uint32) uint32 {
	return func(a, _, _ uint32) uint32 { return math.Float32bits(f(math.Float32frombits(a))) }
}

func binaryOp(f func(x, y float32) float32) func(a, b, c uint32) uint32 {
	return func(a, b, _ uint32) uint32 {
		return math.Float32bits(f(math.Float32frombits(a), math.Float32frombits(b)))
	}
}

func ternary(f func(x, y, z float32) float32) func(a, b, c uint32) uint32 {
	return func(a, b, c uint32) uint32 {
		return math.Float32bits(f(math.Float32frombits(a), math.Float32frombits(b), math.Float32frombits(c)))
	}
}

func pack(f *num.Format, r num.Rounding, saturate bool) func(a, b, c uint32) uint32 {
	return func(a, b, _ uint32) uint32 {
		hi := f.Encode(float64(math.Float32frombits(a)), r, saturate)
		lo := f.Encode(float64(math.Float32frombits(b)), r, saturate)
		return hi<<f.Bits() | lo
	}
}

func cvt(c num.Cvt) func(a, b, c uint32) uint32 {
	f, err := c.Func()
	if err != nil {
		panic(err)
	}
	return func(a, _, _ uint32) uint32 { return uint32(f(uint64(a))) }
}

func packed2(op func(a, b uint16) uint16) func(a, b, c uint32) uint32 {
	return func(a, b, _ uint32) uint32 { return num.Packed2(a, b, op) }
}

func packed3(op func(a, b, c uint16) uint16) func(a, b, c uint32) uint32 {
	return func(a, b, c uint32) uint32 { return num.Packed3(a, b, c, op) }
}

// within accepts f32 results by relative error, or absolute error for the
// arguments that absolute holds for (nil = none). NaN, infinities and zeros
// must be equal, except that next to the smallest normal number one side may
// flush.
func within(relative float64, absolute func(x float64) float64) func(got, want, a uint32) bool {
	return func(got, want, a uint32) bool {
		g, w := float64(math.Float32frombits(got)), float64(math.Float32frombits(want))
		if math.IsNaN(g) || math.IsNaN(w) || math.IsInf(g, 0) || math.IsInf(w, 0) {
			return false
		}
		const tiny = 0x1.00001p-126
		bound := relative * math.Abs(w)
		if absolute != nil {
			bound = max(bound, absolute(float64(math.Float32frombits(a))))
		}
		return math.Abs(g-w) <= bound || math.Abs(g) <= tiny && math.Abs(w) <= tiny && (g == 0 || w == 0 || math.Abs(g-w) <= 0x1p-148)
	}
}

// within16 accepts both halves of a packed result by relative error.
func within16(f *num.Format, relative float64) func(got, want, a uint32) bool {
	return func(got, want, _ uint32) bool {
		for shift := 0; shift < 32; shift += 16 {
			g, w := got>>shift&0xffff, want>>shift&0xffff
			if g == w {
				continue
			}
			x, y := f.Decode(g), f.Decode(w)
			if !(math.Abs(x-y) <= relative*math.Abs(y)+f.Decode(1)) {
				return false
			}
		}
		return true
	}
}

func scalars() []scalar {
	// Bounds of the manual, plus half an ulp for the unit's own rounding.
	const half = 0x1p-24
	tanhBound, halfBound := math.Exp2(-10.9), math.Exp2(-9.9)
	lg2 := within(0x1p-22+half, func(x float64) float64 {
		if x > 0.5 && x < 2 {
			return 0x1p-22 + half
		}
		return 0
	})
	f32 := func(r num.Rounding) num.Cvt { return num.Cvt{Src: isa.F32, Round: r} }
	to := func(t isa.Type, c num.Cvt) num.Cvt { c.Dst = t; return c }
	integral := func(c num.Cvt) num.Cvt { c.Integral = true; return c }
	relu := func(c num.Cvt) num.Cvt { c.Relu = true; return c }
	none := num.Mode{}
	return []scalar{
		{name: "ex2_approx_ftz_f32", text: "ex2.approx.ftz.f32 %f0, %f1;", float: true, want: unary(func(x float32) float32 { return num.Ex2(x, true) }), near: within(0x1p-22+half, nil)},
		{name: "ex2_approx_f32", text: "ex2.approx.f32 %f0, %f1;", float: true, want: unary(func(x float32) float32 { return num.Ex2(x, false) }), near: within(0x1p-22+half, nil)},
		{name: "lg2_approx_ftz_f32", text: "lg2.approx.ftz.f32 %f0, %f1;", float: true, want: unary(func(x float32) float32 { return num.Lg2(x, true) }), near: lg2},
		{name: "lg2_approx_f32", text: "lg2.approx.f32 %f0, %f1;", float: true, want: unary(func(x float32) float32 { return num.Lg2(x, false) }), near: lg2},
		{name: "rcp_approx_ftz_f32", text: "rcp.approx.ftz.f32 %f0, %f1;", float: true, want: unary(func(x float32) float32 { return num.Rcp(x, true) }), near: within(0x1p-23+half, nil)},
		{name: "rsqrt_approx_ftz_f32", text: "rsqrt.approx.ftz.f32 %f0, %f1;", float: true, want: unary(func(x float32) float32 { return num.Rsqrt(x, true) }), near: within(0x1p-22, nil)},
		{name: "sqrt_approx_ftz_f32", text: "sqrt.approx.ftz.f32 %f0, %f1;", float: true, want: unary(func(x float32) float32 { return num.Sqrt(x, true) }), near: within(0x1p-22, nil)},
		{name: "div_approx_ftz_f32", text: "div.approx.ftz.f32 %f0, %f1, %f2;", float: true, want: binaryOp(func(x, y float32) float32 { return num.Div(x, y, true) }), near: within(0x1p-22+half, nil)},
		{name: "tanh_approx_f32", text: "tanh.approx.f32 %f0, %f1;", float: true, want: unary(num.Tanh), near: within(tanhBound, nil)},
		{name: "ex2_approx_f16x2", text: "ex2.approx.f16x2 %r53, %r50;", bits: true, want: packed2(func(a, _ uint16) uint16 { return num.F16.Ex2(a, false) }), near: within16(num.F16, halfBound)},
		{name: "ex2_approx_ftz_bf16x2", text: "ex2.approx.ftz.bf16x2 %r53, %r50;", bits: true, want: packed2(func(a, _ uint16) uint16 { return num.BF16.Ex2(a, true) }), near: within16(num.BF16, 0x1p-7)},

		{name: "cvt_rn_bf16x2_f32", text: "cvt.rn.bf16x2.f32 %r53, %f1, %f2;", want: pack(num.BF16, num.RN, false)},
		{name: "cvt_rz_bf16x2_f32", text: "cvt.rz.bf16x2.f32 %r53, %f1, %f2;", want: pack(num.BF16, num.RZ, false)},
		{name: "cvt_rn_f16x2_f32", text: "cvt.rn.f16x2.f32 %r53, %f1, %f2;", want: pack(num.F16, num.RN, false)},
		{name: "cvt_rz_f16x2_f32", text: "cvt.rz.f16x2.f32 %r53, %f1, %f2;", want: pack(num.F16, num.RZ, false)},
		{name: "cvt_rn_relu_bf16x2_f32", text: "cvt.rn.relu.bf16x2.f32 %r53, %f1, %f2;", want: func(a, b, _ uint32) uint32 {
			f := cvt(to(isa.BF16, relu(f32(num.RN))))
			return f(a, 0, 0)<<16 | f(b, 0, 0)
		}},
		{name: "cvt_rn_satfinite_e4m3x2_f32", text: "cvt.rn.satfinite.e4m3x2.f32 %h0, %f1, %f2; cvt.u32.u16 %r53, %h0;", want: pack(num.E4M3, num.RN, true)},
		{name: "cvt_rn_satfinite_e5m2x2_f32", text: "cvt.rn.satfinite.e5m2x2.f32 %h0, %f1, %f2; cvt.u32.u16 %r53, %h0;", want: pack(num.E5M2, num.RN, true)},
		{name: "cvt_rn_f16x2_e4m3x2", text: "cvt.u16.u32 %h1, %r50; cvt.rn.f16x2.e4m3x2 %r53, %h1;", bits: true, want: func(a, _, _ uint32) uint32 { return num.UnpackFP8(num.E4M3, uint16(a)) }},
		{name: "cvt_rn_f16x2_e5m2x2", text: "cvt.u16.u32 %h1, %r50; cvt.rn.f16x2.e5m2x2 %r53, %h1;", bits: true, want: func(a, _, _ uint32) uint32 { return num.UnpackFP8(num.E5M2, uint16(a)) }},
		{name: "cvt_rzi_s32_f32", text: "cvt.rzi.s32.f32 %r53, %f1;", want: cvt(to(isa.S32, integral(f32(num.RZ))))},
		{name: "cvt_rni_s32_f32", text: "cvt.rni.s32.f32 %r53, %f1;", want: cvt(to(isa.S32, integral(f32(num.RN))))},
		{name: "cvt_rpi_u32_f32", text: "cvt.rpi.u32.f32 %r53, %f1;", want: cvt(to(isa.U32, integral(f32(num.RP))))},
		{name: "cvt_rni_f32_f32", text: "cvt.rni.f32.f32 %f0, %f1;", float: true, want: cvt(to(isa.F32, integral(f32(num.RN))))},
		{name: "cvt_rn_f32_s32", text: "cvt.rn.f32.s32 %f0, %r50;", bits: true, float: true, want: cvt(num.Cvt{Dst: isa.F32, Src: isa.S32})},
		{name: "cvt_rz_f32_u32", text: "cvt.rz.f32.u32 %f0, %r50;", bits: true, float: true, want: cvt(num.Cvt{Dst: isa.F32, Src: isa.U32, Round: num.RZ})},

		{name: "add_rn_ftz_f32", text: "add.rn.ftz.f32 %f0, %f1, %f2;", float: true, want: binaryOp(func(x, y float32) float32 { return num.AddF32(x, y, num.RN, true) })},
		{name: "add_rz_f32", text: "add.rz.f32 %f0, %f1, %f2;", float: true, want: binaryOp(func(x, y float32) float32 { return num.AddF32(x, y, num.RZ, false) })},
		{name: "mul_rn_f32", text: "mul.rn.f32 %f0, %f1, %f2;", float: true, want: binaryOp(func(x, y float32) float32 { return num.MulF32(x, y, num.RN, false) })},
		{name: "mul_rn_ftz_f32", text: "mul.rn.ftz.f32 %f0, %f1, %f2;", float: true, want: binaryOp(func(x, y float32) float32 { return num.MulF32(x, y, num.RN, true) })},
		{name: "fma_rn_f32", text: "fma.rn.f32 %f0, %f1, %f2, %f3;", float: true, want: ternary(func(x, y, z float32) float32 { return num.FmaF32(x, y, z, num.RN, false) })},
		{name: "fma_rn_ftz_f32", text: "fma.rn.ftz.f32 %f0, %f1, %f2, %f3;", float: true, want: ternary(func(x, y, z float32) float32 { return num.FmaF32(x, y, z, num.RN, true) })},
		{name: "fma_rm_f32", text: "fma.rm.f32 %f0, %f1, %f2, %f3;", float: true, want: ternary(func(x, y, z float32) float32 { return num.FmaF32(x, y, z, num.RM, false) })},
		{name: "div_rn_f32", text: "div.rn.f32 %f0, %f1, %f2;", float: true, want: binaryOp(func(x, y float32) float32 { return num.DivF32(x, y, num.RN, false) })},
		{name: "sqrt_rn_f32", text: "sqrt.rn.f32 %f0, %f1;", float: true, want: unary(func(x float32) float32 { return num.SqrtF32(x, num.RN, false) })},
		{name: "max_ftz_f32", text: "max.ftz.f32 %f0, %f1, %f2;", float: true, want: binaryOp(func(x, y float32) float32 { return num.MaxF32(x, y, true, false) })},
		{name: "max_f32", text: "max.f32 %f0, %f1, %f2;", float: true, want: binaryOp(func(x, y float32) float32 { return num.MaxF32(x, y, false, false) })},
		{name: "min_NaN_f32", text: "min.NaN.f32 %f0, %f1, %f2;", float: true, want: binaryOp(func(x, y float32) float32 { return num.MinF32(x, y, false, true) })},

		{name: "add_rn_f16x2", text: "add.rn.f16x2 %r53, %r50, %r51;", bits: true, want: packed2(func(a, b uint16) uint16 { return num.F16.Add(a, b, none) })},
		{name: "mul_rn_ftz_f16x2", text: "mul.rn.ftz.f16x2 %r53, %r50, %r51;", bits: true, want: packed2(func(a, b uint16) uint16 { return num.F16.Mul(a, b, num.Mode{FTZ: true}) })},
		{name: "fma_rn_relu_f16x2", text: "fma.rn.relu.f16x2 %r53, %r50, %r51, %r52;", bits: true, want: packed3(func(a, b, c uint16) uint16 { return num.F16.Fma(a, b, c, num.Mode{Relu: true}) })},
		{name: "fma_rn_bf16x2", text: "fma.rn.bf16x2 %r53, %r50, %r51, %r52;", bits: true, want: packed3(func(a, b, c uint16) uint16 { return num.BF16.Fma(a, b, c, none) })},
		{name: "add_rn_bf16x2", text: "add.rn.bf16x2 %r53, %r50, %r51;", bits: true, want: packed2(func(a, b uint16) uint16 { return num.BF16.Add(a, b, none) })},
		{name: "max_NaN_bf16x2", text: "max.NaN.bf16x2 %r53, %r50, %r51;", bits: true, want: packed2(func(a, b uint16) uint16 { return num.BF16.Max(a, b, none, true) })},
		{name: "min_f16x2", text: "min.f16x2 %r53, %r50, %r51;", bits: true, want: packed2(func(a, b uint16) uint16 { return num.F16.Min(a, b, none, false) })},
	}
}
