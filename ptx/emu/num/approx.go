package num

import "math"

// The .approx functions are evaluated in float64 and rounded to nearest f32,
// so their relative error is below 2^−23.9. Hardware may differ from them by
// its own error, which the PTX manual bounds:
//
//	ex2.approx    2 ulp over the full range (2^−22.5 relative in older editions)
//	lg2.approx    2^−22 absolute for results of arguments in (0.5, 2), else 2^−22 relative
//	rcp.approx    1 ulp
//	rsqrt.approx  2^−22.9 relative
//	sqrt.approx   2^−23 relative
//	div.approx    2 ulp for a divisor in [2^−126, 2^126]
//	tanh.approx   2^−11 relative
//	sin, cos      2^−20.5 absolute in [−π, π]
//
// Special values are exact and follow the manual's tables. With ftz subnormal
// operands and results count as zero of the same sign.

// Ex2 is ex2.approx{.ftz}.f32: 2^x. −∞ gives +0, +∞ gives +∞, ±0 and (with
// ftz) subnormals give 1.
func Ex2(x float32, ftz bool) float32 {
	if ftz {
		x = FlushF32(x)
	}
	return finish(float32(math.Exp2(float64(x))), ftz)
}

// Lg2 is lg2.approx{.ftz}.f32: log2 x. ±0 gives −∞, +∞ gives +∞, anything
// below zero NaN.
func Lg2(x float32, ftz bool) float32 {
	if ftz {
		x = FlushF32(x)
	}
	return finish(float32(math.Log2(float64(x))), ftz)
}

// Rcp is rcp.approx{.ftz}.f32: 1/x. ±0 gives ±∞, ±∞ gives ±0.
func Rcp(x float32, ftz bool) float32 {
	if ftz {
		x = FlushF32(x)
	}
	return finish(float32(1/float64(x)), ftz)
}

// Rsqrt is rsqrt.approx{.ftz}.f32: 1/√x. ±0 gives ±∞, +∞ gives +0, anything
// below zero NaN.
func Rsqrt(x float32, ftz bool) float32 {
	if ftz {
		x = FlushF32(x)
	}
	return finish(float32(1/math.Sqrt(float64(x))), ftz)
}

// Sqrt is sqrt.approx{.ftz}.f32. ±0 gives ±0, +∞ gives +∞, anything below
// zero NaN.
func Sqrt(x float32, ftz bool) float32 { return SqrtF32(x, RN, ftz) }

// Div is div.approx{.ftz}.f32: a·(1/b). For 2^126 < |b| < 2^128 the
// reciprocal is below the normal range and the result is ±0, or NaN when a is
// infinite.
func Div(a, b float32, ftz bool) float32 {
	if ftz {
		a, b = FlushF32(a), FlushF32(b)
	}
	if m := math.Abs(float64(b)); m > 0x1p126 && !math.IsInf(m, 0) {
		zero := math.Copysign(0, float64(b))
		return finish(float32(float64(a)*zero), ftz)
	}
	return finish(float32(float64(a)/float64(b)), ftz)
}

// Tanh is tanh.approx.f32. ±∞ gives ±1.
func Tanh(x float32) float32 { return finish(float32(math.Tanh(float64(x))), false) }

// Sin is sin.approx{.ftz}.f32. ±∞ gives NaN.
func Sin(x float32, ftz bool) float32 {
	if ftz {
		x = FlushF32(x)
	}
	return finish(float32(math.Sin(float64(x))), ftz)
}

// Cos is cos.approx{.ftz}.f32. ±∞ gives NaN.
func Cos(x float32, ftz bool) float32 {
	if ftz {
		x = FlushF32(x)
	}
	return finish(float32(math.Cos(float64(x))), ftz)
}

// Ex2 is ex2.approx{.ftz} of one 16-bit value: 2^x, rounded to nearest. The
// manual bounds hardware's relative error by 2^−9.9 (f16) and 2^−7 (bf16).
func (f *Format) Ex2(p uint16, ftz bool) uint16 {
	m := Mode{FTZ: ftz}
	return f.result(math.Exp2(f.operand(p, m)), m)
}
