package gen

import (
	"fmt"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// DType is a 16-bit storage type of tensors.
type DType struct {
	Name string   // "bf16" or "fp16", as users spell it
	Type isa.Type // element type
	mma  string   // in wgmma's opcode
	pack string   // f32 pair → packed pair
}

// Storage types.
var (
	BF16 = DType{"bf16", isa.BF16, "bf16", "cvt.rn.bf16x2.f32"}
	FP16 = DType{"fp16", isa.F16, "f16", "cvt.rn.f16x2.f32"}
)

// ParseDType returns the storage type called name.
func ParseDType(name string) (DType, error) {
	for _, d := range []DType{BF16, FP16} {
		if d.Name == name {
			return d, nil
		}
	}
	return DType{}, fmt.Errorf("dtype %q: want bf16 or fp16", name)
}

// Bytes returns the size of an element.
func (d DType) Bytes() int { return 2 }

// Pack rounds two f32 values to d, lo in the low half of the result.
func (k *Kernel) Pack(d DType, lo, hi Value) Value {
	return k.apply(isa.B32, d.pack, hi.op, lo.op)
}

// Unpack returns the two f32 values of a packed pair, the low half's first.
func (k *Kernel) Unpack(d DType, packed Value) (lo, hi Value) {
	if d == BF16 { // the upper half of an f32
		packed = packed.As(isa.B32)
		return packed.Shl(16).Float32(), packed.And(^0xffff).Float32()
	}
	l, h := k.reg(d.Type), k.reg(d.Type)
	k.emit("mov.b32", ptx.Vec{l, h}, packed.register())
	widen := "cvt.f32." + d.Type.String()
	return k.apply(isa.F32, widen, l), k.apply(isa.F32, widen, h)
}
