package gen

import (
	"math"
	"math/bits"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Value is a typed value in a register, or a constant.
type Value struct {
	k   *Kernel
	op  ptx.Operand
	typ isa.Type
}

// Var is a register that can be assigned again.
type Var struct{ Value }

// Type returns the value's type.
func (v Value) Type() isa.Type { return v.typ }

// Const makes a constant of type t: an integer type takes an int, F32 a float.
func (k *Kernel) Const(t isa.Type, x float64) Value {
	if t == isa.F32 {
		return Value{k, ptx.F32(float32(x)), t}
	}
	return Value{k, ptx.Imm(int64(x)), t}
}

// Int makes an s32 constant.
func (k *Kernel) Int(x int) Value { return Value{k, ptx.Imm(x), isa.S32} }

// Float makes an f32 constant.
func (k *Kernel) Float(x float64) Value { return k.Const(isa.F32, x) }

// NegInf is the f32 constant −∞.
func (k *Kernel) NegInf() Value { return Value{k, ptx.F32(float32(math.Inf(-1))), isa.F32} }

// Var declares a variable of init's type and assigns init to it.
func (k *Kernel) Var(init Value) *Var {
	v := &Var{Value{k, k.reg(init.typ), init.typ}}
	v.Set(init)
	return v
}

// Set assigns x to the variable.
func (v *Var) Set(x any) {
	y := v.k.value(x, v.typ)
	v.k.emit("mov."+moveType(v.typ), v.op, y.op)
}

// Scale multiplies the variable by x in place.
func (v *Var) Scale(x Value) { v.k.emit("mul.rn."+v.typ.String(), v.op, v.op, x.op) }

// Increase adds x to the variable in place.
func (v *Var) Increase(x any) {
	opcode := "add."
	if v.typ.Float() {
		opcode = "add.rn."
	}
	v.k.emit(opcode+v.typ.String(), v.op, v.op, v.k.value(x, v.typ).op)
}

// Choose keeps the variable where p holds and assigns x elsewhere.
func (v *Var) Choose(p, x Value) {
	t := moveType(v.typ)
	v.k.emit("selp."+t, v.op, v.op, x.op, p.op)
}

func moveType(t isa.Type) string {
	switch {
	case t == isa.Pred, t == isa.F32, t == isa.F64:
		return t.String()
	case t.Bits() == 64:
		return "b64"
	case t.Bits() == 32:
		return "b32"
	}
	return "b16"
}

// value converts an operand of the language (a Value, a *Var, an int or a
// float64) to a Value of type t.
func (k *Kernel) value(x any, t isa.Type) Value {
	switch x := x.(type) {
	case Value:
		if x.typ.Bits() != t.Bits() || x.typ.Float() != t.Float() {
			k.errorf("a %s value stands where a %s is needed", x.typ, t)
		}
		return x
	case *Var:
		return k.value(x.Value, t)
	case int:
		return k.Const(t, float64(x))
	case float64:
		return k.Const(t, x)
	}
	k.errorf("%T is no value", x)
	return Value{k, ptx.Imm(0), t}
}

func (v Value) imm() (int64, bool) {
	i, ok := v.op.(ptx.Imm)
	return int64(i), ok
}

// register returns v in a register, moving a constant into one.
func (v Value) register() *ptx.Reg {
	if r, ok := v.op.(*ptx.Reg); ok {
		return r
	}
	r := v.k.reg(v.typ)
	v.k.emit("mov."+moveType(v.typ), r, v.op)
	return r
}

// apply emits d = opcode(args…) and returns d, of type t.
func (k *Kernel) apply(t isa.Type, opcode string, args ...ptx.Operand) Value {
	d := k.reg(t)
	k.emit(opcode, append([]ptx.Operand{d}, args...)...)
	return Value{k, d, t}
}

func (v Value) binary(opcode string, x any) Value {
	y := v.k.value(x, v.typ)
	return v.k.apply(v.typ, opcode+"."+v.typ.String(), v.op, y.op)
}

// intOp folds constants and applies opcode otherwise.
func (v Value) intOp(opcode string, x any, fold func(a, b int64) int64) Value {
	y := v.k.value(x, v.typ)
	a, ok := v.imm()
	b, ok2 := y.imm()
	if ok && ok2 {
		return Value{v.k, ptx.Imm(fold(a, b)), v.typ}
	}
	if ok { // PTX wants the register first where operands commute
		v = Value{v.k, v.register(), v.typ}
	}
	return v.binary(opcode, y)
}

// Add returns v + x. Floats round to nearest and are never contracted.
func (v Value) Add(x any) Value {
	if v.typ.Float() {
		return v.binary("add.rn", x)
	}
	if y := v.k.value(x, v.typ); y.op == ptx.Imm(0) {
		return v
	} else if v.op == ptx.Imm(0) {
		return Value{v.k, y.op, v.typ}
	}
	return v.intOp("add", x, func(a, b int64) int64 { return a + b }).naturalIf(v, x)
}

// Sub returns v − x.
func (v Value) Sub(x any) Value {
	if v.typ.Float() {
		return v.binary("sub.rn", x)
	}
	if y := v.k.value(x, v.typ); y.op == ptx.Imm(0) {
		return v
	}
	return v.intOp("sub", x, func(a, b int64) int64 { return a - b })
}

// Mul returns v · x (the low half for integers). Floats are never contracted
// into a fused multiply-add, which softmax's exactness at the maximum needs.
func (v Value) Mul(x any) Value {
	if v.typ.Float() {
		return v.binary("mul.rn", x)
	}
	y := v.k.value(x, v.typ)
	if c, ok := y.imm(); ok {
		if c == 1 {
			return v
		}
		if _, isConst := v.imm(); !isConst && c > 0 && c&(c-1) == 0 {
			return v.Shl(bits.TrailingZeros64(uint64(c)))
		}
	}
	return v.intOp("mul.lo", x, func(a, b int64) int64 { return a * b }).naturalIf(v, x)
}

// MulAdd returns v·x + y in one rounding for floats.
func (v Value) MulAdd(x, y any) Value {
	a, b := v.k.value(x, v.typ), v.k.value(y, v.typ)
	if v.typ.Float() {
		return v.k.apply(v.typ, "fma.rn."+v.typ.String(), v.op, a.op, b.op)
	}
	return v.Mul(a).Add(b)
}

// MulWide returns the 64-bit product of two 32-bit integers.
func (v Value) MulWide(x any) Value {
	y := v.k.value(x, v.typ)
	return v.k.apply(wide(v.typ), "mul.wide."+v.typ.String(), v.register(), y.op)
}

// MulHigh returns the high 32 bits of the 64-bit product of two 32-bit integers,
// which are taken as unsigned.
func (v Value) MulHigh(x Value) Value {
	return v.k.apply(v.typ, "mul.hi.u32", v.register(), x.op)
}

func wide(t isa.Type) isa.Type {
	if t == isa.U32 {
		return isa.U64
	}
	return isa.S64
}

// Min returns the smaller of v and x; a NaN loses.
func (v Value) Min(x any) Value { return v.intOrFloat("min", x, minInt).naturalIf(v, x) }

// Max returns the larger of v and x; a NaN loses.
func (v Value) Max(x any) Value { return v.intOrFloat("max", x, maxInt) }

func minInt(a, b int64) int64 { return min(a, b) }
func maxInt(a, b int64) int64 { return max(a, b) }

func (v Value) intOrFloat(opcode string, x any, fold func(a, b int64) int64) Value {
	if v.typ.Float() {
		return v.binary(opcode, x)
	}
	return v.intOp(opcode, x, fold)
}

func (v Value) bitwise(opcode string, x any, fold func(a, b int64) int64) Value {
	y := v.k.value(x, v.typ)
	a, ok := v.imm()
	b, ok2 := y.imm()
	if ok && ok2 {
		return Value{v.k, ptx.Imm(fold(a, b)), v.typ}
	}
	t := moveType(v.typ)
	return v.k.apply(v.typ, opcode+"."+t, v.register(), y.op)
}

// And returns the bitwise (for predicates: logical) conjunction.
func (v Value) And(x any) Value {
	both := v.bitwise("and", x, func(a, b int64) int64 { return a & b })
	if v.typ == isa.S32 && (v.natural() || v.k.value(x, v.typ).natural()) {
		both.declareNatural()
	}
	return both
}

// Or returns the bitwise (for predicates: logical) disjunction.
func (v Value) Or(x any) Value { return v.bitwise("or", x, func(a, b int64) int64 { return a | b }) }

// Xor returns the bitwise exclusive or.
func (v Value) Xor(x any) Value { return v.bitwise("xor", x, func(a, b int64) int64 { return a ^ b }) }

// Not returns the negation of a predicate.
func (v Value) Not() Value { return v.k.apply(isa.Pred, "not.pred", v.op) }

// Shl shifts left by n bits.
func (v Value) Shl(n int) Value {
	if n == 0 {
		return v
	}
	if a, ok := v.imm(); ok {
		return Value{v.k, ptx.Imm(a << n), v.typ}
	}
	return v.k.apply(v.typ, "shl."+moveType(v.typ), v.op, ptx.Imm(n)).naturalIf(v)
}

// Shr shifts right by n bits, arithmetically for signed types.
func (v Value) Shr(n int) Value {
	if n == 0 {
		return v
	}
	if a, ok := v.imm(); ok {
		return Value{v.k, ptx.Imm(a >> n), v.typ}
	}
	return v.k.apply(v.typ, "shr."+v.typ.String(), v.op, ptx.Imm(n)).naturalIf(v)
}

func (v Value) compare(op string, x any) Value {
	y := v.k.value(x, v.typ)
	return v.k.apply(isa.Pred, "setp."+op+"."+v.typ.String(), v.register(), y.op)
}

// Comparisons give predicates; with a NaN all but Ne are false.

// Lt reports v < x.
func (v Value) Lt(x any) Value { return v.compare("lt", x) }

// Le reports v ≤ x.
func (v Value) Le(x any) Value { return v.compare("le", x) }

// Gt reports v > x.
func (v Value) Gt(x any) Value { return v.compare("gt", x) }

// Ge reports v ≥ x.
func (v Value) Ge(x any) Value { return v.compare("ge", x) }

// Eq reports v = x.
func (v Value) Eq(x any) Value { return v.compare("eq", x) }

// Ne reports v ≠ x.
func (v Value) Ne(x any) Value {
	if v.typ.Float() {
		return v.compare("neu", x)
	}
	return v.compare("ne", x)
}

// Select returns a where p holds and b elsewhere.
func (k *Kernel) Select(p Value, a, b Value) Value {
	b = k.value(b, a.typ)
	t := a.typ.String()
	if !a.typ.Float() {
		t = moveType(a.typ)
	}
	return k.apply(a.typ, "selp."+t, a.op, b.op, p.op)
}

// As reinterprets an integer value as another integer type of the same width.
func (v Value) As(t isa.Type) Value {
	if v.typ.Bits() != t.Bits() || v.typ.Float() != t.Float() {
		v.k.errorf("cannot view a %s as a %s", v.typ, t)
	}
	return Value{v.k, v.op, t}
}

// Float32 reads the 32 bits of a value as an f32.
func (v Value) Float32() Value { return v.k.apply(isa.F32, "mov.b32", v.register()) }

// Bits reads the 32 bits of an f32 as an integer.
func (v Value) Bits() Value { return v.k.apply(isa.S32, "mov.b32", v.register()) }

// Abs returns the magnitude of an f32.
func (v Value) Abs() Value { return v.k.apply(isa.F32, "abs.f32", v.register()) }

// Extend widens a 32-bit integer to 64 bits.
func (v Value) Extend() Value {
	if c, ok := v.imm(); ok {
		return Value{v.k, ptx.Imm(c), wide(v.typ)}
	}
	return v.k.apply(wide(v.typ), "cvt."+wide(v.typ).String()+"."+v.typ.String(), v.op)
}

// Truncate keeps the low 32 bits of a 64-bit integer.
func (v Value) Truncate() Value {
	t := isa.S32
	if v.typ == isa.U64 {
		t = isa.U32
	}
	return v.k.apply(t, "cvt.u32.u64", v.op)
}

// ToFloat converts a 32-bit integer to f32, rounding to nearest.
func (v Value) ToFloat() Value { return v.k.apply(isa.F32, "cvt.rn.f32."+v.typ.String(), v.register()) }

// ToUnsigned converts an f32 to u32, toward zero; what is out of range becomes
// the nearest u32, a NaN 0.
func (v Value) ToUnsigned() Value { return v.k.apply(isa.U32, "cvt.rzi.u32.f32", v.register()) }

// Exp2 returns 2^v, approximately (2 ulp); −∞ gives +0 exactly.
func (v Value) Exp2() Value { return v.k.apply(isa.F32, "ex2.approx.ftz.f32", v.op) }

// Log2 returns log₂ v, approximately.
func (v Value) Log2() Value { return v.k.apply(isa.F32, "lg2.approx.ftz.f32", v.op) }

// Reciprocal returns 1/v within 1 ulp.
func (v Value) Reciprocal() Value { return v.k.apply(isa.F32, "rcp.approx.ftz.f32", v.op) }

// Div64 divides a 64-bit integer by a 32-bit one; the quotient must fit 32 bits.
func (v Value) Div64(x Value) Value {
	return v.k.apply(v.typ, "div."+v.typ.String(), v.op, x.Extend().op).Truncate()
}
