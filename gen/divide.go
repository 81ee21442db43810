package gen

import (
	"math"

	"github.com/mlagen/mlagen/ptx/isa"
)

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

// Ceil returns ⌈n/by⌉, for n and by whose sum is at most 2³².
func (d Divisor) Ceil(n Value) Value { return d.Floor(n.As(isa.U32).Add(d.by.Sub(1))).As(n.typ) }
