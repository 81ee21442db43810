package num

import "math"

// BF16ToF32 widens a bf16 pattern; exact. NaN payloads are kept.
func BF16ToF32(p uint16) float32 { return math.Float32frombits(uint32(p) << 16) }

// F32ToBF16 rounds x to bf16, ties to even; NaN becomes 0x7FFF. It is
// cvt.rn.bf16.f32.
func F32ToBF16(x float32) uint16 {
	b := math.Float32bits(x)
	if b&0x7fff_ffff > 0x7f80_0000 {
		return 0x7fff
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// F16ToF32 widens an fp16 pattern; exact. NaN becomes the canonical f32 NaN.
func F16ToF32(p uint16) float32 {
	s := uint32(p&0x8000) << 16
	e, m := uint32(p>>10&0x1f), uint32(p&0x3ff)
	switch e {
	case 0: // m · 2^−24, exact in f32
		v := float32(m) * 0x1p-24
		return math.Float32frombits(math.Float32bits(v) | s)
	case 0x1f:
		if m != 0 {
			return math.Float32frombits(0x7fff_ffff)
		}
		return math.Float32frombits(s | 0x7f80_0000)
	}
	return math.Float32frombits(s | (e+112)<<23 | m<<13)
}

// F32ToF16 rounds x to fp16, ties to even; NaN becomes 0x7FFF, values from
// 65520 on become infinite. It is cvt.rn.f16.f32.
func F32ToF16(x float32) uint16 {
	b := math.Float32bits(x)
	s := uint16(b >> 16 & 0x8000)
	a := b & 0x7fff_ffff
	switch {
	case a > 0x7f80_0000:
		return 0x7fff
	case a >= 0x477f_f000: // 65520
		return s | 0x7c00
	case a >= 0x3880_0000: // 2^−14, the smallest normal
		a -= 112 << 23
		return s | uint16((a+0xfff+a>>13&1)>>13)
	}
	// Subnormal: adding 2^-1 aligns 2^-24 with the last bit of an f32 in
	// [0.5, 1), and the addition rounds to nearest even.
	v := math.Float32frombits(a) + 0.5
	return s | uint16(math.Float32bits(v)-0x3f00_0000)
}

// Pack puts hi into the upper and lo into the lower half of a register, as
// packed .f16x2, .bf16x2 and .b32 = {lo, hi} moves have them.
func Pack(hi, lo uint16) uint32 { return uint32(hi)<<16 | uint32(lo) }

// Unpack is the inverse of Pack.
func Unpack(p uint32) (hi, lo uint16) { return uint16(p >> 16), uint16(p) }

// PackBF16 is cvt.rn.bf16x2.f32 d, hi, lo: the first source goes to the upper half.
func PackBF16(hi, lo float32) uint32 { return Pack(F32ToBF16(hi), F32ToBF16(lo)) }

// PackF16 is cvt.rn.f16x2.f32 d, hi, lo: the first source goes to the upper half.
func PackF16(hi, lo float32) uint32 { return Pack(F32ToF16(hi), F32ToF16(lo)) }

// PackFP8 is cvt.rn.satfinite.{e4m3x2,e5m2x2}.f32 d, hi, lo: the first source
// goes to the upper byte.
func PackFP8(f *Format, hi, lo float32) uint16 {
	return uint16(f.Encode(float64(hi), RN, true)<<8 | f.Encode(float64(lo), RN, true))
}

// UnpackFP8 is cvt.rn.f16x2.{e4m3x2,e5m2x2} d, a; exact.
func UnpackFP8(f *Format, p uint16) uint32 {
	half := func(b uint16) uint16 { return uint16(F16.Encode(f.Decode(uint32(b)), RN, false)) }
	return Pack(half(p>>8), half(p&0xff))
}

// fp8Tables hold the exact values of the 8-bit formats.
var e4m3Table, e5m2Table = fp8Table(E4M3), fp8Table(E5M2)

func fp8Table(f *Format) (t [256]float32) {
	for p := range t {
		t[p] = float32(f.Decode(uint32(p)))
	}
	return
}

// E4M3ToF32 widens an e4m3 pattern; exact.
func E4M3ToF32(p uint8) float32 { return e4m3Table[p] }

// E5M2ToF32 widens an e5m2 pattern; exact.
func E5M2ToF32(p uint8) float32 { return e5m2Table[p] }
