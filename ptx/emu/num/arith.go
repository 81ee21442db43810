package num

import "math"

// canonical is the NaN that f32 instructions produce (PTX manual,
// "Single-precision floating-point NaN payload": 0x7fffffff).
var canonical = math.Float32frombits(0x7fff_ffff)

// FlushF32 returns x with a subnormal replaced by zero of the same sign (.ftz).
func FlushF32(x float32) float32 {
	b := math.Float32bits(x)
	if b&0x7f80_0000 == 0 {
		return math.Float32frombits(b & 0x8000_0000)
	}
	return x
}

// AddF32 is add.r{.ftz}.f32.
func AddF32(a, b float32, r Rounding, ftz bool) float32 {
	if ftz {
		a, b = FlushF32(a), FlushF32(b)
	}
	if r == RN {
		return finish(a+b, ftz)
	}
	return roundF32(zeroSign(addOdd(float64(a), float64(b)), float64(a), float64(b), r), r, ftz)
}

// SubF32 is sub.r{.ftz}.f32.
func SubF32(a, b float32, r Rounding, ftz bool) float32 { return AddF32(a, -b, r, ftz) }

// MulF32 is mul.r{.ftz}.f32.
func MulF32(a, b float32, r Rounding, ftz bool) float32 {
	if ftz {
		a, b = FlushF32(a), FlushF32(b)
	}
	if r == RN {
		return finish(a*b, ftz)
	}
	return roundF32(float64(a)*float64(b), r, ftz) // 48 bits: exact
}

// FmaF32 is fma.r{.ftz}.f32: a·b + c rounded once.
func FmaF32(a, b, c float32, r Rounding, ftz bool) float32 {
	if ftz {
		a, b, c = FlushF32(a), FlushF32(b), FlushF32(c)
	}
	p := float64(a) * float64(b) // 48 bits: exact
	s := p + float64(c)
	if r == RN {
		// s rounded to f32 is right unless s is inexact and its lower bits
		// look like a tie: only then, and below the normal range, go by round-to-odd.
		const low = 1<<29 - 1
		if math.Float64bits(s)&low != 1<<28 && math.Abs(s) >= 0x1p-126 {
			return finish(float32(s), ftz)
		}
	}
	return roundF32(zeroSign(addOdd(p, float64(c)), p, float64(c), r), r, ftz)
}

// DivF32 is div.r{.ftz}.f32, the correctly rounded quotient.
func DivF32(a, b float32, r Rounding, ftz bool) float32 {
	if ftz {
		a, b = FlushF32(a), FlushF32(b)
	}
	if r == RN {
		return finish(a/b, ftz)
	}
	q := float64(a) / float64(b)
	if b != 0 && !math.IsInf(q, 0) && !math.IsNaN(q) && !math.IsInf(float64(b), 0) {
		q = odd(q, math.FMA(-q, float64(b), float64(a))*math.Copysign(1, float64(b)))
	}
	return roundF32(q, r, ftz)
}

// SqrtF32 is sqrt.r{.ftz}.f32, correctly rounded; sqrt(−0) = −0.
func SqrtF32(a float32, r Rounding, ftz bool) float32 {
	if ftz {
		a = FlushF32(a)
	}
	s := math.Sqrt(float64(a))
	if a > 0 && !math.IsInf(s, 1) {
		s = odd(s, math.FMA(-s, s, float64(a)))
	}
	return roundF32(s, r, ftz)
}

// MaxF32 is max{.ftz}{.NaN}.f32: −0 < +0; a NaN operand loses, unless nan is
// set: then the result is the canonical NaN.
func MaxF32(a, b float32, ftz, nan bool) float32 {
	if ftz {
		a, b = FlushF32(a), FlushF32(b)
	}
	switch {
	case a > b:
		return a
	case b > a:
		return b
	case a != a || b != b:
		return pickNumber(a, b, nan)
	}
	return math.Float32frombits(math.Float32bits(a) & math.Float32bits(b)) // equal, or ±0
}

// MinF32 is min{.ftz}{.NaN}.f32; see MaxF32.
func MinF32(a, b float32, ftz, nan bool) float32 {
	if ftz {
		a, b = FlushF32(a), FlushF32(b)
	}
	switch {
	case a < b:
		return a
	case b < a:
		return b
	case a != a || b != b:
		return pickNumber(a, b, nan)
	}
	return math.Float32frombits(math.Float32bits(a) | math.Float32bits(b)) // equal, or ±0
}

func pickNumber(a, b float32, nan bool) float32 {
	switch {
	case nan || a != a && b != b:
		return canonical
	case a != a:
		return b
	}
	return a
}

// SaturateF32 is the .sat modifier of f32 results: clamped to [0, 1], NaN to +0.
func SaturateF32(x float32) float32 {
	switch {
	case x >= 1:
		return 1
	case x > 0:
		return x
	}
	return 0
}

// finish makes NaN canonical and flushes when asked.
func finish(x float32, ftz bool) float32 {
	if ftz {
		x = FlushF32(x)
	}
	return Canonical(x)
}

// Canonical returns x, or the NaN that f32 instructions produce in place of any
// other.
func Canonical(x float32) float32 {
	if x != x {
		return canonical
	}
	return x
}

func roundF32(x float64, r Rounding, ftz bool) float32 {
	if r == RN {
		return finish(float32(x), ftz)
	}
	return finish(math.Float32frombits(F32.Encode(x, r, false)), ftz)
}

// addOdd returns a+b rounded to odd in float64: exact sums as they are, others
// to the neighbour with an odd last bit. Rounding that to a format of at most
// 51 bits is as good as rounding the exact sum.
func addOdd(a, b float64) float64 {
	s := a + b
	if math.IsInf(s, 0) || math.IsNaN(s) {
		return s
	}
	t := s - a
	return odd(s, (a-(s-t))+(b-t)) // the exact error of s
}

// odd moves s, a float64 rounded to nearest, to the odd neighbour on the side
// of rest, the sign of (exact − s).
func odd(s, rest float64) float64 {
	if rest == 0 || math.Float64bits(s)&1 != 0 {
		return s
	}
	if (rest > 0) == (s > 0) {
		return math.Float64frombits(math.Float64bits(s) + 1)
	}
	return math.Float64frombits(math.Float64bits(s) - 1)
}

// zeroSign gives the sum s of a and b the sign that IEEE 754 wants when
// operands of opposite sign cancel: − for RM, + otherwise.
func zeroSign(s, a, b float64, r Rounding) float64 {
	if s == 0 && r == RM && (a != 0 || math.Signbit(a) != math.Signbit(b)) {
		return math.Copysign(0, -1)
	}
	return s
}
