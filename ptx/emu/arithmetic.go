package emu

import (
	"math"
	"math/big"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/emu/num"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Arithmetic that several type families share, and floating point.

var _ = register(map[string]func(*compiler, *ptx.Instr) error{
	"add": buildArithmetic, "sub": buildArithmetic, "mul": buildArithmetic, "div": buildArithmetic,
	"min": buildArithmetic, "max": buildArithmetic, "abs": buildArithmetic, "neg": buildArithmetic,
	"fma": buildArithmetic,
	"rcp": buildFunction, "sqrt": buildFunction, "rsqrt": buildFunction, "sin": buildFunction,
	"cos": buildFunction, "lg2": buildFunction, "ex2": buildFunction, "tanh": buildFunction,
	"testp": buildTestp, "copysign": buildCopysign,
})

func buildArithmetic(c *compiler, in *ptx.Instr) error {
	switch name := in.Mod("type"); name {
	case "f32":
		return buildF32(c, in)
	case "f64":
		return buildF64(c, in)
	case "f16", "f16x2", "bf16", "bf16x2":
		return buildHalf(c, in)
	case "u16x2", "s16x2":
		if in.Form.Root != "add" {
			return unsupported("type", name)
		}
		return c.binary(in, isa.B32, isa.B32, isa.B32, func(a, b uint64) uint64 {
			return uint64(uint16(a)+uint16(b)) | (a>>16+b>>16)<<16
		})
	}
	return buildInteger(c, in)
}

// rounding returns the rounding mode of in.
func rounding(in *ptx.Instr) (num.Rounding, error) {
	for _, slot := range []string{"rnd", "rn"} {
		if name := in.Mod(slot); name != "" {
			r, ok := num.ParseRounding(name)
			if !ok {
				return 0, unsupported("rnd", name)
			}
			return r, nil
		}
	}
	return num.RN, nil
}

func buildF32(c *compiler, in *ptx.Instr) error {
	r, err := rounding(in)
	if err != nil {
		return err
	}
	t, ftz, nan := isa.F32, in.Mod("ftz") != "", in.Mod("NaN") != ""
	sat := func(x float32) uint64 { return bits32(x) }
	if in.Mod("sat") != "" {
		sat = func(x float32) uint64 { return bits32(num.SaturateF32(x)) }
	}
	bin := func(f func(a, b float32) float32) error {
		return c.binary(in, t, t, t, func(a, b uint64) uint64 { return sat(f(f32(a), f32(b))) })
	}
	var op func(a, b float32, r num.Rounding, ftz bool) float32
	var loop func(d, a, b *vreg) // of a warp, when it rounds to nearest
	switch in.Form.Root {
	case "add":
		op, loop = num.AddF32, func(d, a, b *vreg) {
			for i := range d {
				d[i] = bits32(num.Canonical(f32(a[i]) + f32(b[i])))
			}
		}
	case "sub":
		op, loop = num.SubF32, func(d, a, b *vreg) {
			for i := range d {
				d[i] = bits32(num.Canonical(f32(a[i]) - f32(b[i])))
			}
		}
	case "mul":
		op, loop = num.MulF32, func(d, a, b *vreg) {
			for i := range d {
				d[i] = bits32(num.Canonical(f32(a[i]) * f32(b[i])))
			}
		}
	}
	switch in.Form.Root {
	case "add", "sub", "mul":
		err := bin(func(a, b float32) float32 { return op(a, b, r, ftz) })
		if err == nil && r == num.RN && !ftz && in.Mod("sat") == "" {
			c.fastF32(in, loop)
		}
		return err
	case "fma":
		err := c.ternary(in, t, t, t, t, func(a, b, e uint64) uint64 { return sat(num.FmaF32(f32(a), f32(b), f32(e), r, ftz)) })
		if err == nil && in.Mod("sat") == "" {
			c.fastFma(in, r, ftz)
		}
		return err
	case "div":
		if in.Mod("approx") != "" || in.Mod("full") != "" {
			return bin(func(a, b float32) float32 { return num.Div(a, b, ftz) })
		}
		return bin(func(a, b float32) float32 { return num.DivF32(a, b, r, ftz) })
	case "min":
		return bin(func(a, b float32) float32 { return num.MinF32(a, b, ftz, nan) })
	case "max":
		return bin(func(a, b float32) float32 { return num.MaxF32(a, b, ftz, nan) })
	case "abs", "neg":
		set, flip := uint64(0), uint64(1<<31)
		if in.Form.Root == "abs" {
			set, flip = 1<<31, 0
		}
		return c.unary(in, t, t, func(a uint64) uint64 {
			if ftz {
				a = bits32(num.FlushF32(f32(a)))
			}
			return a&^set ^ flip
		})
	}
	return unsupported("type", "f32")
}

// fastF32 writes out the loop of an f32 instruction with two operands.
func (c *compiler) fastF32(in *ptx.Instr, f func(d, a, b *vreg)) {
	s, err := c.srcsAgain(isa.F32, in.Args[1:3]...)
	w0 := c.op.writes
	if err != nil || len(w0) == 0 {
		return
	}
	d, a, b := w0[len(w0)-1], s[0], s[1]
	c.full(func(w *warp) { f(&w.r[d], &w.r[a], &w.r[b]) })
}

// fastFma writes out the loop of fma.f32.
func (c *compiler) fastFma(in *ptx.Instr, r num.Rounding, ftz bool) {
	s, err := c.srcsAgain(isa.F32, in.Args[1:4]...)
	if err != nil {
		return
	}
	w0 := c.op.writes
	if len(w0) == 0 {
		return
	}
	d, a, b, e := w0[len(w0)-1], s[0], s[1], s[2]
	c.full(func(w *warp) {
		d, a, b, e := &w.r[d], &w.r[a], &w.r[b], &w.r[e]
		for i := range d {
			d[i] = bits32(num.FmaF32(f32(a[i]), f32(b[i]), f32(e[i]), r, ftz))
		}
	})
}

func buildF64(c *compiler, in *ptx.Instr) error {
	r, err := rounding(in)
	if err != nil {
		return err
	}
	t := isa.F64
	root := in.Form.Root
	if r != num.RN {
		return buildDirected(c, in, r)
	}
	bin := func(f func(a, b float64) float64) error {
		return c.binary(in, t, t, t, func(a, b uint64) uint64 { return math.Float64bits(f(f64(a), f64(b))) })
	}
	pick := func(f func(a, b float64) float64) error {
		return bin(func(a, b float64) float64 {
			switch {
			case a != a:
				return b
			case b != b:
				return a
			}
			return f(a, b)
		})
	}
	switch root {
	case "add":
		return bin(func(a, b float64) float64 { return a + b })
	case "sub":
		return bin(func(a, b float64) float64 { return a - b })
	case "mul":
		return bin(func(a, b float64) float64 { return a * b })
	case "fma":
		return c.ternary(in, t, t, t, t, func(a, b, e uint64) uint64 { return math.Float64bits(math.FMA(f64(a), f64(b), f64(e))) })
	case "min":
		return pick(math.Min)
	case "max":
		return pick(math.Max)
	case "abs":
		return c.unary(in, t, t, func(a uint64) uint64 { return a &^ (1 << 63) })
	case "neg":
		return c.unary(in, t, t, func(a uint64) uint64 { return a ^ 1<<63 })
	}
	return unsupported("type", "f64")
}

// buildDirected decodes f64 arithmetic with a rounding other than to nearest,
// by exact sums and products.
func buildDirected(c *compiler, in *ptx.Instr, r num.Rounding) error {
	mode := map[num.Rounding]big.RoundingMode{num.RZ: big.ToZero, num.RM: big.ToNegativeInf, num.RP: big.ToPositiveInf}[r]
	t, root := isa.F64, in.Form.Root
	near := map[string]func(a, b, e float64) float64{
		"add": func(a, b, _ float64) float64 { return a + b },
		"sub": func(a, b, _ float64) float64 { return a - b },
		"mul": func(a, b, _ float64) float64 { return a * b },
		"fma": math.FMA,
	}[root]
	if near == nil {
		return unsupported("rnd", in.Mod("rnd"))
	}
	f := func(a, b, e float64) uint64 {
		n := near(a, b, e)
		if n == 0 || math.IsInf(n, 0) || n != n {
			return math.Float64bits(n)
		}
		const exact = 4300 // bits that hold any sum of a product and a number
		x := func(v float64) *big.Float { return new(big.Float).SetPrec(exact).SetFloat64(v) }
		y := new(big.Float).SetPrec(exact)
		switch root {
		case "add":
			y.Add(x(a), x(b))
		case "sub":
			y.Sub(x(a), x(b))
		default:
			y.Mul(x(a), x(b))
		}
		if root == "fma" {
			y.Add(y, x(e))
		}
		v, _ := y.SetMode(mode).SetPrec(53).Float64()
		return math.Float64bits(v)
	}
	if root == "fma" {
		return c.ternary(in, t, t, t, t, func(a, b, e uint64) uint64 { return f(f64(a), f64(b), f64(e)) })
	}
	return c.binary(in, t, t, t, func(a, b uint64) uint64 { return f(f64(a), f64(b), 0) })
}

// format returns the 16-bit format of a type and whether it is packed.
func format(t isa.Type) (f *num.Format, packed bool) {
	switch t {
	case isa.F16x2:
		return num.FormatOf(isa.F16), true
	case isa.BF16x2:
		return num.FormatOf(isa.BF16), true
	}
	return num.FormatOf(t), false
}

func buildHalf(c *compiler, in *ptx.Instr) error {
	t := in.Type("type")
	f, packed := format(t)
	mode := num.Mode{FTZ: in.Mod("ftz") != "", Sat: in.Mod("sat") != "", Relu: in.Mod("relu") != ""}
	nan := in.Mod("NaN") != ""
	var two func(a, b uint16) uint16
	var one func(a uint16) uint16
	flush := func(a uint16) uint16 {
		if mode.FTZ {
			return uint16(f.Flush(uint32(a)))
		}
		return a
	}
	switch in.Form.Root {
	case "add":
		two = func(a, b uint16) uint16 { return f.Add(a, b, mode) }
	case "sub":
		two = func(a, b uint16) uint16 { return f.Sub(a, b, mode) }
	case "mul":
		two = func(a, b uint16) uint16 { return f.Mul(a, b, mode) }
	case "min":
		two = func(a, b uint16) uint16 { return f.Min(a, b, mode, nan) }
	case "max":
		two = func(a, b uint16) uint16 { return f.Max(a, b, mode, nan) }
	case "abs":
		one = func(a uint16) uint16 { return flush(a) &^ 0x8000 }
	case "neg":
		one = func(a uint16) uint16 { return flush(a) ^ 0x8000 }
	case "fma":
		three := func(a, b, e uint16) uint16 { return f.Fma(a, b, e, mode) }
		return c.ternary(in, t, t, t, t, func(a, b, e uint64) uint64 {
			if packed {
				return uint64(num.Packed3(uint32(a), uint32(b), uint32(e), three))
			}
			return uint64(three(uint16(a), uint16(b), uint16(e)))
		})
	default:
		return unsupported("type", t.String())
	}
	if one != nil {
		return c.unary(in, t, t, onHalves(one, packed))
	}
	return c.binary(in, t, t, t, func(a, b uint64) uint64 {
		if packed {
			return uint64(num.Packed2(uint32(a), uint32(b), two))
		}
		return uint64(two(uint16(a), uint16(b)))
	})
}

// onHalves applies f to the halves of a packed value, or to the value.
func onHalves(f func(uint16) uint16, packed bool) func(uint64) uint64 {
	if !packed {
		return func(a uint64) uint64 { return uint64(f(uint16(a))) }
	}
	return func(a uint64) uint64 { return uint64(num.Pack(f(uint16(a>>16)), f(uint16(a)))) }
}

// buildFunction decodes the one-operand functions.
func buildFunction(c *compiler, in *ptx.Instr) error {
	t, ftz := in.Type("type"), in.Mod("ftz") != ""
	r, err := rounding(in)
	if err != nil {
		return err
	}
	approx := in.Mod("approx") != ""
	var f func(float32) float32
	switch in.Form.Root {
	case "rcp":
		f = func(x float32) float32 { return num.Rcp(x, ftz) }
		if !approx {
			f = func(x float32) float32 { return num.DivF32(1, x, r, ftz) }
		}
	case "sqrt":
		f = func(x float32) float32 { return num.Sqrt(x, ftz) }
		if !approx {
			f = func(x float32) float32 { return num.SqrtF32(x, r, ftz) }
		}
	case "rsqrt":
		f = func(x float32) float32 { return num.Rsqrt(x, ftz) }
	case "sin":
		f = func(x float32) float32 { return num.Sin(x, ftz) }
	case "cos":
		f = func(x float32) float32 { return num.Cos(x, ftz) }
	case "lg2":
		f = func(x float32) float32 { return num.Lg2(x, ftz) }
	case "ex2":
		f = func(x float32) float32 { return num.Ex2(x, ftz) }
	case "tanh":
		f = num.Tanh
	}
	if t == isa.F32 {
		return c.unary(in, t, t, func(a uint64) uint64 { return bits32(f(f32(a))) })
	}
	h, packed := format(t)
	if h == nil {
		return unsupported("type", in.Mod("type"))
	}
	return c.unary(in, t, t, onHalves(func(a uint16) uint16 {
		return uint16(h.Encode(float64(f(float32(h.Decode(uint32(a))))), num.RN, false))
	}, packed))
}

func buildTestp(c *compiler, in *ptx.Instr) error {
	p, err := c.predDst(in.Args[0])
	if err != nil {
		return err
	}
	t := in.Type("type")
	a, err := c.src(in.Args[1], t)
	if err != nil {
		return err
	}
	man, exp := uint64(1)<<23-1, uint64(0xff)<<23
	if t == isa.F64 {
		man, exp = 1<<52-1, 0x7ff<<52
	}
	tests := map[string]func(e, m uint64) bool{
		"finite":     func(e, _ uint64) bool { return e != exp },
		"infinite":   func(e, m uint64) bool { return e == exp && m == 0 },
		"number":     func(e, m uint64) bool { return e != exp || m == 0 },
		"notanumber": func(e, m uint64) bool { return e == exp && m != 0 },
		"normal":     func(e, _ uint64) bool { return e != exp && e != 0 },
		"subnormal":  func(e, m uint64) bool { return e == 0 && m != 0 },
	}
	test := tests[in.Mod("op")]
	c.op.exec = func(w *warp, m uint32) {
		var v uint32
		each(m, func(i int) {
			x := w.r[a][i]
			if test(x&exp, x&man) {
				v |= 1 << i
			}
		})
		w.setPred(p, m, v)
	}
	return nil
}

func buildCopysign(c *compiler, in *ptx.Instr) error {
	t := in.Type("type")
	sign := uint64(1) << (t.Bits() - 1)
	return c.binary(in, t, t, t, func(a, b uint64) uint64 { return b&^sign | a&sign })
}
