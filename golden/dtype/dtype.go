// Package dtype converts between float32 and the 16-bit formats of the
// tensors, rounding to nearest even as the hardware's cvt.rn does.
package dtype

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/x448/float16"
)

// Type is an element type by the name that specs and cases use.
type Type string

// Element types.
const (
	BF16 Type = "bf16" // 8 exponent bits, 7 mantissa bits
	FP16 Type = "fp16" // IEEE 754 binary16
	F32  Type = "f32"  // IEEE 754 binary32
)

// Parse returns the type called name, or an error that lists the names.
func Parse(name string) (Type, error) {
	switch t := Type(name); t {
	case BF16, FP16, F32:
		return t, nil
	}
	return "", fmt.Errorf("element type %q must be one of bf16, fp16, f32", name)
}

// Size is the number of bytes per element.
func (t Type) Size() int {
	if t == F32 {
		return 4
	}
	return 2
}

// Round returns the value of t nearest to x, ties to even; values beyond the
// largest finite one become infinite.
func (t Type) Round(x float32) float32 {
	switch t {
	case BF16:
		return BF16Value(BF16Bits(x))
	case FP16:
		return float16.Fromfloat32(x).Float32()
	}
	return x
}

// Encode appends src to dst as little-endian elements of t.
func (t Type) Encode(dst []byte, src []float32) []byte {
	switch t {
	case BF16:
		for _, x := range src {
			dst = binary.LittleEndian.AppendUint16(dst, BF16Bits(x))
		}
	case FP16:
		for _, x := range src {
			dst = binary.LittleEndian.AppendUint16(dst, float16.Fromfloat32(x).Bits())
		}
	default:
		for _, x := range src {
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(x))
		}
	}
	return dst
}

// Decode appends the little-endian elements of src to dst as float32, exactly.
func (t Type) Decode(dst []float32, src []byte) []float32 {
	switch t {
	case BF16:
		for ; len(src) >= 2; src = src[2:] {
			dst = append(dst, BF16Value(binary.LittleEndian.Uint16(src)))
		}
	case FP16:
		for ; len(src) >= 2; src = src[2:] {
			dst = append(dst, float16.Frombits(binary.LittleEndian.Uint16(src)).Float32())
		}
	default:
		for ; len(src) >= 4; src = src[4:] {
			dst = append(dst, math.Float32frombits(binary.LittleEndian.Uint32(src)))
		}
	}
	return dst
}

// BF16Bits rounds x to bfloat16, ties to even; a NaN stays a (quiet) NaN.
func BF16Bits(x float32) uint16 {
	b := math.Float32bits(x)
	if x != x {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// BF16Value returns the value of a bfloat16.
func BF16Value(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }
