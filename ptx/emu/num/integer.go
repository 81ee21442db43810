package num

import (
	"math"
	"math/bits"
)

// FloatToInt converts x to an integer of the given width, rounded by r, and
// returns it sign- or zero-extended to 64 bits. Out-of-range values clamp to
// the destination's range, as PTX float-to-integer conversions always do.
//
// NaN gives 0 when neither the source is f64 (wide) nor the destination 64
// bits; otherwise the destination's top bit alone.
func FloatToInt(x float64, width int, signed bool, r Rounding, wide bool) uint64 {
	if math.IsNaN(x) {
		if !wide && width < 64 {
			return 0
		}
		return extend(1<<(width-1), width, signed)
	}
	x = roundIntegral(x, r)
	if signed {
		limit := math.Ldexp(1, width-1)
		switch {
		case x >= limit:
			return 1<<(width-1) - 1
		case x < -limit:
			return ^uint64(0) << (width - 1)
		}
		return uint64(int64(x))
	}
	switch {
	case x <= 0:
		return 0
	case x >= math.Ldexp(1, width):
		return ^uint64(0) >> (64 - width)
	case x >= 0x1p63: // Go leaves a direct conversion undefined on some machines
		return uint64(x-0x1p63) + 1<<63
	}
	return uint64(x)
}

// IntToFloat returns the 64-bit integer v (two's complement when signed) as a
// float64 rounded to odd, from which Format.Encode rounds to any format of
// the package as if from the exact value. For an f64 destination use IntToF64.
func IntToFloat(v uint64, signed bool) float64 {
	neg := signed && int64(v) < 0
	if neg {
		v = -v
	}
	if drop := 64 - 53 - bits.LeadingZeros64(v); drop > 0 {
		lost := v&(1<<drop-1) != 0
		v = v >> drop
		if lost {
			v |= 1
		}
		v <<= drop
	}
	x := float64(v) // 53 significant bits: exact
	if neg {
		return -x
	}
	return x
}

// IntToF64 converts the 64-bit integer v (two's complement when signed) to
// float64, rounded by r.
func IntToF64(v uint64, signed bool, r Rounding) float64 {
	neg := signed && int64(v) < 0
	if neg {
		v = -v
	}
	if drop := 64 - 53 - bits.LeadingZeros64(v); drop > 0 {
		q, rest, half := v>>drop, v&(1<<drop-1), uint64(1)<<(drop-1)
		if roundUp(r, neg, q&1 != 0, rest, half) {
			q++
		}
		x := math.Ldexp(float64(q), drop)
		if neg {
			return -x
		}
		return x
	}
	x := float64(v)
	if neg {
		return -x
	}
	return x
}

// SaturateInt clamps the 64-bit value v, two's complement when fromSigned, to
// the range of an integer of the given width: cvt.sat between integers.
func SaturateInt(v uint64, fromSigned bool, width int, signed bool) uint64 {
	neg := fromSigned && int64(v) < 0
	if signed {
		max := uint64(1)<<(width-1) - 1
		switch {
		case neg && int64(v) < -int64(max)-1:
			return ^max
		case !neg && v > max:
			return max
		}
		return v
	}
	max := ^uint64(0) >> (64 - width)
	switch {
	case neg:
		return 0
	case v > max:
		return max
	}
	return v
}

// extend sign- or zero-extends the low width bits of v.
func extend(v uint64, width int, signed bool) uint64 {
	if signed {
		return uint64(int64(v<<(64-width)) >> (64 - width))
	}
	return v << (64 - width) >> (64 - width)
}
