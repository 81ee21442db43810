package gen

import (
	"math"
	"math/bits"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// ptxas makes a division of every div and rem, of one by a constant too: some
// twenty instructions one behind the other. So those by constants are products
// and shifts here.

// Div returns v / x, for integers, rounded toward zero.
func (v Value) Div(x any) Value {
	y := v.k.value(x, v.typ)
	c, ok := y.imm()
	_, known := v.imm()
	switch {
	case !ok || known || c <= 0:
		return v.intOp("div", x, func(a, b int64) int64 { return a / b })
	case c == 1:
		return v
	}
	n := bits.TrailingZeros64(uint64(c))
	power := c == 1<<n
	switch {
	case power && (v.natural() || v.typ == isa.U32 || v.typ == isa.U64):
		return v.Shr(n)
	case power && v.typ == isa.S32: // negative numbers are rounded up
		up := v.Shr(31).As(isa.U32).Shr(32 - n).As(isa.S32)
		return v.Add(up).Shr(n)
	case v.typ == isa.S32:
		return v.quotient(c)
	}
	return v.intOp("div", x, func(a, b int64) int64 { return a / b })
}

// quotient returns v / c for a c that is no power of two: with 2ˡ the next power,
// the product with ⌊2³¹⁺ˡ/c⌋ + 1, which is too large by 2ˡ at most, shifted by
// 31 + l is right for every |v| ≤ 2³¹ (Granlund and Montgomery, "Division by
// Invariant Integers using Multiplication", PLDI 1994).
func (v Value) quotient(c int64) Value {
	l := bits.Len64(uint64(c))
	m := int64(1)<<(31+l)/c + 1
	if v.natural() {
		return v.MulHigh(Value{v.k, ptx.Imm(m), isa.U32}).As(isa.U32).Shr(l - 1).As(v.typ).declareNatural()
	}
	high := v.k.apply(v.typ, "mul.hi.s32", v.register(), ptx.Imm(int64(int32(uint32(m)))))
	if m >= 1<<31 { // it was taken for m − 2³²
		high = high.Add(v)
	}
	return high.Shr(l - 1).Sub(v.Shr(31))
}

// Rem returns the remainder of v / x, for integers; it has the sign of v.
func (v Value) Rem(x any) Value {
	y := v.k.value(x, v.typ)
	c, ok := y.imm()
	_, known := v.imm()
	switch {
	case !ok || known || c <= 0 || v.typ.Bits() == 64:
		return v.intOp("rem", x, func(a, b int64) int64 { return a % b })
	case c == 1:
		return Value{v.k, ptx.Imm(0), v.typ}
	case c&(c-1) == 0 && (v.natural() || v.typ == isa.U32):
		return v.And(int(c - 1))
	case v.typ == isa.S32:
		return v.Sub(v.Div(x).Mul(x)).naturalIf(v)
	}
	return v.intOp("rem", x, func(a, b int64) int64 { return a % b })
}

// Natural numbers are known to be at least 0, as indices are that come of special
// registers: they divide with fewer instructions. Sums and products of natural
// numbers are taken to stay within 31 bits.

// natural reports whether v is known to be at least 0.
func (v Value) natural() bool {
	if c, ok := v.imm(); ok {
		return c >= 0
	}
	r, ok := v.op.(*ptx.Reg)
	return ok && v.k.naturals[r]
}

// declareNatural says that v is at least 0.
func (v Value) declareNatural() Value {
	if r, ok := v.op.(*ptx.Reg); ok {
		v.k.naturals[r] = true
	}
	return v
}

// naturalIf says that v, an s32, is at least 0 if all of these are.
func (v Value) naturalIf(of ...any) Value {
	if v.typ != isa.S32 {
		return v
	}
	for _, x := range of {
		if !v.k.value(x, isa.S32).natural() {
			return v
		}
	}
	return v.declareNatural()
}

// Divisor divides by one number again and again: the one slow division is made
// when it is declared. Numbers are 32-bit integers, taken as unsigned.
type Divisor struct{ by, scale Value }

// Divisor prepares divisions by a number that is at least 1.
func (k *Kernel) Divisor(by Value) Divisor {
	// With scale = ⌊(2³²−1)/by⌋, n·scale/2³² is less than n/by by less than 1.
	by = by.As(isa.U32)
	return Divisor{by, k.Const(isa.U32, math.MaxUint32).Div(by)}
}

// Floor returns ⌊n/by⌋.
func (d Divisor) Floor(n Value) Value {
	m := n.As(isa.U32)
	q := m.MulHigh(d.scale)
	rest := m.Sub(q.Mul(d.by))
	return n.k.Select(rest.Ge(d.by), q.Add(1), q).As(n.typ)
}

// Split returns ⌊n/by⌋ and what is left.
func (d Divisor) Split(n Value) (quotient, rest Value) {
	quotient = d.Floor(n)
	return quotient, n.Sub(quotient.Mul(d.by.As(n.typ)))
}

// Ceil returns ⌈n/by⌉, for n and by whose sum is at most 2³².
func (d Divisor) Ceil(n Value) Value { return d.Floor(n.As(isa.U32).Add(d.by.Sub(1))).As(n.typ) }
