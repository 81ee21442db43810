// Package num is the emulator's arithmetic: the storage formats that Hopper
// computes with, PTX's conversions between them, and the rounding, flushing
// and saturation modifiers of its arithmetic.
//
// Everything that the PTX manual fixes to the bit (conversions, add, mul, fma,
// div.rn, sqrt.rn) is bit-exact here; the .approx functions are correctly
// rounded float64 results within the manual's error bounds (approx.go).
//
// The package works on values and bit patterns only: it knows no registers.
package num

import (
	"math"
	"math/bits"
)

// Rounding is a PTX rounding modifier. The integer forms .rni, .rzi, .rmi and
// .rpi use the same values.
type Rounding uint8

// Rounding modes. RN is ties-to-even.
const (
	RN  Rounding = iota // to nearest even
	RZ                  // towards zero
	RM                  // towards −∞
	RP                  // towards +∞
	RNA                 // to nearest, ties away from zero
)

// ParseRounding returns the mode that a modifier spells, without the dot:
// "rn", "rz", "rm", "rp", "rna" or an integer form such as "rzi". The empty
// modifier is RN.
func ParseRounding(name string) (Rounding, bool) {
	switch name {
	case "", "rn", "rni":
		return RN, true
	case "rz", "rzi":
		return RZ, true
	case "rm", "rmi":
		return RM, true
	case "rp", "rpi":
		return RP, true
	case "rna":
		return RNA, true
	}
	return RN, false
}

// Format is a binary floating-point storage format of at most 32 bits: one
// sign bit, Exp exponent bits and Man fraction bits.
type Format struct {
	Name     string
	Exp, Man int
	Bias     int
	max      uint32 // pattern of the largest finite value
	inf      uint32 // pattern of +∞; 0 when the format has none
	nan      uint32 // canonical NaN, as PTX instructions produce it
}

// The storage formats of the PTX subset. E4M3 has no infinity; its only NaNs
// are 0x7F and 0xFF.
var (
	F32  = &Format{"f32", 8, 23, 127, 0x7f7f_ffff, 0x7f80_0000, 0x7fff_ffff}
	F16  = &Format{"f16", 5, 10, 15, 0x7bff, 0x7c00, 0x7fff}
	BF16 = &Format{"bf16", 8, 7, 127, 0x7f7f, 0x7f80, 0x7fff}
	E4M3 = &Format{"e4m3", 4, 3, 7, 0x7e, 0, 0x7f}
	E5M2 = &Format{"e5m2", 5, 2, 15, 0x7b, 0x7c, 0x7f}
)

// Bits returns the width of the format.
func (f *Format) Bits() int { return 1 + f.Exp + f.Man }

// NaN returns the canonical NaN that PTX instructions produce in the format.
func (f *Format) NaN() uint32 { return f.nan }

// Largest returns the largest finite value of the format.
func (f *Format) Largest() float64 { return f.Decode(f.max) }

// IsNaN reports whether the pattern p is a NaN.
func (f *Format) IsNaN(p uint32) bool {
	p &= f.sign() - 1
	if f.inf == 0 {
		return p == f.nan
	}
	return p > f.inf
}

func (f *Format) sign() uint32 { return 1 << (f.Exp + f.Man) }

// Decode returns the exact value of pattern p. Bits above the format's width
// are ignored; every NaN becomes Go's NaN.
func (f *Format) Decode(p uint32) float64 {
	s := p & f.sign()
	p &= f.sign() - 1
	var v float64
	e, m := int(p>>f.Man), uint64(p&(1<<f.Man-1))
	switch {
	case f.IsNaN(p):
		return math.NaN()
	case f.inf != 0 && p == f.inf:
		v = math.Inf(1)
	case e == 0: // subnormal: m · 2^(1−bias−man)
		v = math.Ldexp(float64(m), 1-f.Bias-f.Man)
	default:
		v = math.Float64frombits(uint64(e-f.Bias+1023)<<52 | m<<(52-f.Man))
	}
	if s != 0 {
		return -v
	}
	return v
}

// Encode rounds x to the format. A finite result that is too large becomes
// what IEEE 754 says for the rounding mode, or, with saturate (.satfinite) or
// in a format without infinities, the largest finite value; saturate also
// bounds infinities. NaN gives the canonical NaN without a sign.
//
// To round an inexact result once, pass its round-to-odd float64 (see
// arith.go): float64 is wider than every format by more than two bits.
func (f *Format) Encode(x float64, r Rounding, saturate bool) uint32 {
	b := math.Float64bits(x)
	var s uint32
	if b>>63 != 0 {
		s = f.sign()
	}
	e := int(b >> 52 & 0x7ff)
	m := b & (1<<52 - 1)
	switch {
	case e == 0x7ff && m != 0:
		return f.nan
	case e == 0x7ff:
		if saturate || f.inf == 0 {
			return s | f.max
		}
		return s | f.inf
	case e == 0 && m == 0:
		return s
	case e == 0: // float64 subnormal: normalise
		n := bits.LeadingZeros64(m) - 11
		m, e = m<<n, 1-n
	default:
		m |= 1 << 52
	}
	e -= 1023 // x = m · 2^(e−52), m in [2^52, 2^53)

	shift := 52 - f.Man
	base := uint32(e+f.Bias-1) << f.Man // the hidden bit of q adds the one back
	if min := 1 - f.Bias; e < min {
		shift += min - e
		base = 0
	}
	var q, rest, half uint64 // q units in the last place and a rest
	if shift > 54 {          // below half of the smallest subnormal
		rest, half = 1, 2
	} else {
		q, rest, half = m>>shift, m&(1<<shift-1), 1<<(shift-1)
	}
	if roundUp(r, s != 0, q&1 != 0, rest, half) {
		q++
	}
	p := base + uint32(q) // a carry out of the fraction raises the exponent
	if p > f.max {
		away := r == RN || r == RNA || r == RM && s != 0 || r == RP && s == 0
		if saturate || f.inf == 0 || !away {
			return s | f.max
		}
		return s | f.inf
	}
	return s | p
}

// roundUp decides whether the magnitude is incremented, given the discarded
// rest and half a unit of the last place kept.
func roundUp(r Rounding, neg, odd bool, rest, half uint64) bool {
	switch r {
	case RN:
		return rest > half || rest == half && odd
	case RNA:
		return rest >= half
	case RM:
		return neg && rest != 0
	case RP:
		return !neg && rest != 0
	}
	return false
}

// Flush returns p with a subnormal replaced by zero of the same sign (.ftz).
func (f *Format) Flush(p uint32) uint32 {
	if p&(1<<(f.Exp+f.Man)-1)>>f.Man == 0 {
		return p & f.sign()
	}
	return p
}
