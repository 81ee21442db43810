package isa

import "fmt"

// Type is a fundamental PTX type, as written after the dot of a type
// specifier (PTX manual, "Fundamental Types").
type Type uint8

// The fundamental types of the subset, in the manual's order. Pred is the
// one-bit predicate type.
const (
	NoType Type = iota
	Pred
	B8
	B16
	B32
	B64
	B128
	U8
	U16
	U32
	U64
	S8
	S16
	S32
	S64
	F16
	F16x2
	BF16
	BF16x2
	E4M3
	E5M2
	E4M3x2
	F32
	F64
)

var types = [...]struct {
	name string
	bits int
}{
	NoType: {"", 0}, Pred: {"pred", 1},
	B8: {"b8", 8}, B16: {"b16", 16}, B32: {"b32", 32}, B64: {"b64", 64}, B128: {"b128", 128},
	U8: {"u8", 8}, U16: {"u16", 16}, U32: {"u32", 32}, U64: {"u64", 64},
	S8: {"s8", 8}, S16: {"s16", 16}, S32: {"s32", 32}, S64: {"s64", 64},
	F16: {"f16", 16}, F16x2: {"f16x2", 32}, BF16: {"bf16", 16}, BF16x2: {"bf16x2", 32},
	E4M3: {"e4m3", 8}, E5M2: {"e5m2", 8}, E4M3x2: {"e4m3x2", 16}, F32: {"f32", 32}, F64: {"f64", 64},
}

// String returns the type's name without the dot, "u32" for U32.
func (t Type) String() string {
	if int(t) >= len(types) {
		return fmt.Sprintf("Type(%d)", uint8(t))
	}
	return types[t].name
}

// Bits returns the width of a value of type t; 1 for Pred.
func (t Type) Bits() int { return types[t].bits }

// Bytes returns the size in memory of a value of type t; 0 for Pred.
func (t Type) Bytes() int { return types[t].bits / 8 }

// Float reports whether t is a floating-point type, packed ones included.
func (t Type) Float() bool { return t >= F16 }

// Signed reports whether t is a signed integer type.
func (t Type) Signed() bool { return t >= S8 && t <= S64 }

// Unsigned reports whether t is an unsigned integer type.
func (t Type) Unsigned() bool { return t >= U8 && t <= U64 }

// Untyped reports whether t is one of the .bN types.
func (t Type) Untyped() bool { return t >= B8 && t <= B128 }

// ParseType returns the type that name (without the dot) spells.
func ParseType(name string) (Type, bool) {
	for t, d := range types {
		if d.name == name && t != int(NoType) {
			return Type(t), true
		}
	}
	return NoType, false
}
