package ptx

import (
	"math"

	"github.com/mlagen/mlagen/ptx/isa"
)

// Operand is an instruction operand: *Reg, Special, Imm, Float, Addr, Vec,
// Tensor, Not, Symbol, Label or Sink.
type Operand interface{ operand() }

// Reg is a virtual register. Two operands are the same register when they are
// the same pointer.
type Reg struct {
	Name string // with the percent sign: "%r3"
	Type isa.Type
}

// Special is a read-only special register such as "%tid.x".
type Special struct {
	Name string
	Type isa.Type
}

// Imm is an integer constant.
type Imm int64

// Float is a floating-point constant, held as the bits that PTX text carries:
// 0fXXXXXXXX (Type F32) or 0dXXXXXXXXXXXXXXXX (Type F64).
type Float struct {
	Bits uint64
	Type isa.Type
}

// F32 returns the constant v of type f32.
func F32(v float32) Float { return Float{uint64(math.Float32bits(v)), isa.F32} }

// Addr is a memory operand [Base+Offset]; Base is a *Reg or a Symbol, or nil
// for an absolute address.
type Addr struct {
	Base   Operand
	Offset int64
}

// Vec is a brace list {a, b, …}.
type Vec []Operand

// Tensor is a tensor-copy operand [Map, {Coords…}].
type Tensor struct {
	Map    Operand
	Coords Vec
}

// Not is a negated predicate operand !p.
type Not struct{ P *Reg }

// Symbol names a variable or a parameter.
type Symbol string

// Label names a branch target.
type Label string

// Sink is the discarded result _.
type Sink struct{}

func (*Reg) operand()    {}
func (Special) operand() {}
func (Imm) operand()     {}
func (Float) operand()   {}
func (Addr) operand()    {}
func (Vec) operand()     {}
func (Tensor) operand()  {}
func (Not) operand()     {}
func (Symbol) operand()  {}
func (Label) operand()   {}
func (Sink) operand()    {}
