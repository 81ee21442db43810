package tma

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/mlagen/mlagen/ptx/emu/num"
	"github.com/mlagen/mlagen/ptx/isa"
)

// ReduceOp is the operation of cp.reduce.async.bulk, named as the modifier:
// "add", "min", "max", "and", "or", "xor", "inc" or "dec".
type ReduceOp string

// combiner returns the function that combines whole elements of src into dst.
//
// f32 add flushes subnormals, f16 and bf16 do not (.noftz); the order in which
// concurrent reductions arrive is the caller's.
func (op ReduceOp) combiner(t isa.Type) (func(dst, src []byte), error) {
	le := binary.LittleEndian
	unsupported := fmt.Errorf("bulk reduction: .%s of .%v is not in the table of the PTX manual or not emulated", op, t)
	switch t {
	case isa.F32:
		if op != "add" {
			return nil, unsupported
		}
		return func(dst, src []byte) {
			for i := 0; i+4 <= len(src); i += 4 {
				a, b := math.Float32frombits(le.Uint32(dst[i:])), math.Float32frombits(le.Uint32(src[i:]))
				le.PutUint32(dst[i:], math.Float32bits(num.AddF32(a, b, num.RN, true)))
			}
		}, nil
	case isa.F64:
		if op != "add" {
			return nil, unsupported
		}
		return func(dst, src []byte) {
			for i := 0; i+8 <= len(src); i += 8 {
				sum := math.Float64frombits(le.Uint64(dst[i:])) + math.Float64frombits(le.Uint64(src[i:]))
				le.PutUint64(dst[i:], math.Float64bits(sum))
			}
		}, nil
	case isa.F16, isa.BF16:
		f := num.FormatOf(t)
		var g func(a, b uint16) uint16
		switch op {
		case "add":
			g = func(a, b uint16) uint16 { return f.Add(a, b, num.Mode{}) }
		case "min":
			g = func(a, b uint16) uint16 { return f.Min(a, b, num.Mode{}, false) }
		case "max":
			g = func(a, b uint16) uint16 { return f.Max(a, b, num.Mode{}, false) }
		default:
			return nil, unsupported
		}
		return func(dst, src []byte) {
			for i := 0; i+2 <= len(src); i += 2 {
				le.PutUint16(dst[i:], g(le.Uint16(dst[i:]), le.Uint16(src[i:])))
			}
		}, nil
	case isa.B32, isa.U32, isa.S32, isa.B64, isa.U64, isa.S64:
		g := op.integer(t)
		if g == nil {
			return nil, unsupported
		}
		if t.Bytes() == 8 {
			return func(dst, src []byte) {
				for i := 0; i+8 <= len(src); i += 8 {
					le.PutUint64(dst[i:], g(le.Uint64(dst[i:]), le.Uint64(src[i:])))
				}
			}, nil
		}
		widen := func(v uint32) uint64 { return uint64(v) }
		if t.Signed() {
			widen = func(v uint32) uint64 { return uint64(int32(v)) }
		}
		return func(dst, src []byte) {
			for i := 0; i+4 <= len(src); i += 4 {
				le.PutUint32(dst[i:], uint32(g(widen(le.Uint32(dst[i:])), widen(le.Uint32(src[i:])))))
			}
		}, nil
	}
	return nil, unsupported
}

// integer returns the operation on extended 64-bit values, nil for none.
func (op ReduceOp) integer(t isa.Type) func(a, b uint64) uint64 {
	if t.Untyped() && op != "and" && op != "or" && op != "xor" {
		return nil
	}
	switch op {
	case "add":
		return func(a, b uint64) uint64 { return a + b }
	case "min":
		if t.Signed() {
			return func(a, b uint64) uint64 { return uint64(min(int64(a), int64(b))) }
		}
		return func(a, b uint64) uint64 { return min(a, b) }
	case "max":
		if t.Signed() {
			return func(a, b uint64) uint64 { return uint64(max(int64(a), int64(b))) }
		}
		return func(a, b uint64) uint64 { return max(a, b) }
	case "and":
		return func(a, b uint64) uint64 { return a & b }
	case "or":
		return func(a, b uint64) uint64 { return a | b }
	case "xor":
		return func(a, b uint64) uint64 { return a ^ b }
	case "inc": // wraps to 0 after the bound b
		if t != isa.U32 {
			return nil
		}
		return func(a, b uint64) uint64 {
			if a >= b {
				return 0
			}
			return a + 1
		}
	case "dec": // wraps to the bound b after 0
		if t != isa.U32 {
			return nil
		}
		return func(a, b uint64) uint64 {
			if a == 0 || a > b {
				return b
			}
			return a - 1
		}
	}
	return nil
}
