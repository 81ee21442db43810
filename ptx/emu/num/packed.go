package num

import "math"

// Mode is the set of modifiers of a 16-bit floating-point instruction.
type Mode struct {
	Round Rounding
	FTZ   bool // .ftz: subnormal operands and results become zero (f16 only in PTX)
	Sat   bool // .sat: clamp the result to [0, 1], NaN to +0
	Relu  bool // .relu: negative results become 0, NaN stays the canonical NaN
}

// Add returns a+b in format f, rounded once.
func (f *Format) Add(a, b uint16, m Mode) uint16 {
	x, y := f.operand(a, m), f.operand(b, m)
	return f.result(zeroSign(addOdd(x, y), x, y, m.Round), m)
}

// Sub returns a−b in format f, rounded once.
func (f *Format) Sub(a, b uint16, m Mode) uint16 { return f.Add(a, b^uint16(f.sign()), m) }

// Mul returns a·b in format f, rounded once.
func (f *Format) Mul(a, b uint16, m Mode) uint16 {
	return f.result(f.operand(a, m)*f.operand(b, m), m) // at most 22 bits: exact in float64
}

// Fma returns a·b + c in format f, rounded once.
func (f *Format) Fma(a, b, c uint16, m Mode) uint16 {
	p, z := f.operand(a, m)*f.operand(b, m), f.operand(c, m)
	return f.result(zeroSign(addOdd(p, z), p, z, m.Round), m)
}

// Max returns the larger of a and b; see MaxF32 for −0 and NaN.
func (f *Format) Max(a, b uint16, m Mode, nan bool) uint16 { return f.choose(a, b, m, nan, MaxF32) }

// Min returns the smaller of a and b; see MaxF32 for −0 and NaN.
func (f *Format) Min(a, b uint16, m Mode, nan bool) uint16 { return f.choose(a, b, m, nan, MinF32) }

func (f *Format) choose(a, b uint16, m Mode, nan bool, pick func(a, b float32, ftz, nan bool) float32) uint16 {
	x, y := float32(f.operand(a, m)), float32(f.operand(b, m)) // every 16-bit value is an f32
	return uint16(f.Encode(float64(pick(x, y, false, nan)), RN, false))
}

// Packed2 applies a two-operand instruction to both halves of packed registers.
func Packed2(a, b uint32, op func(a, b uint16) uint16) uint32 {
	return Pack(op(uint16(a>>16), uint16(b>>16)), op(uint16(a), uint16(b)))
}

// Packed3 applies a three-operand instruction to both halves of packed registers.
func Packed3(a, b, c uint32, op func(a, b, c uint16) uint16) uint32 {
	return Pack(op(uint16(a>>16), uint16(b>>16), uint16(c>>16)), op(uint16(a), uint16(b), uint16(c)))
}

func (f *Format) operand(p uint16, m Mode) float64 {
	if m.FTZ {
		p = uint16(f.Flush(uint32(p)))
	}
	return f.Decode(uint32(p))
}

func (f *Format) result(x float64, m Mode) uint16 {
	p := f.Encode(x, m.Round, false)
	if m.FTZ {
		p = f.Flush(p)
	}
	switch {
	case m.Sat:
		return uint16(f.saturate(p))
	case m.Relu:
		return uint16(f.relu(p))
	}
	return uint16(p)
}

func (f *Format) saturate(p uint32) uint32 {
	switch v := f.Decode(p); {
	case v >= 1:
		return f.Encode(1, RN, false)
	case v > 0:
		return p
	}
	return 0
}

func (f *Format) relu(p uint32) uint32 {
	if !f.IsNaN(p) && p&f.sign() != 0 {
		return 0
	}
	return p
}

// roundIntegral rounds x to an integral value.
func roundIntegral(x float64, r Rounding) float64 {
	switch r {
	case RZ:
		return math.Trunc(x)
	case RM:
		return math.Floor(x)
	case RP:
		return math.Ceil(x)
	case RNA:
		return math.Round(x)
	}
	return math.RoundToEven(x)
}
