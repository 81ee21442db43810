package gen

import (
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

const fullMask = ptx.Imm(0xffffffff)

// Broadcast gives every lane the value of one lane.
func (v Value) Broadcast(lane int) Value {
	return v.k.apply(v.typ, "shfl.sync.idx.b32", v.register(), ptx.Imm(lane), ptx.Imm(31), fullMask)
}

// FromLane gives every lane the value held by the lane that index names.
func (v Value) FromLane(index Value) Value {
	return v.k.apply(v.typ, "shfl.sync.idx.b32", v.register(), index.op, ptx.Imm(31), fullMask)
}

// Butterfly returns the value of the lane whose index differs in mask.
func (v Value) Butterfly(mask int) Value {
	return v.k.apply(v.typ, "shfl.sync.bfly.b32", v.register(), ptx.Imm(mask), ptx.Imm(31), fullMask)
}

// FromBelow returns the value of the lane delta below, and whether there is one.
func (v Value) FromBelow(delta int) (Value, Value) {
	d, p := v.k.reg(v.typ), v.k.reg(isa.Pred)
	v.k.emit("shfl.sync.up.b32", d, p, v.register(), ptx.Imm(delta), ptx.Imm(0), fullMask)
	return Value{v.k, d, v.typ}, Value{v.k, p, isa.Pred}
}

// Reduce combines v over the lanes whose indices differ in the given bits:
// Reduce(max, 4, 8, 16) combines the eight lanes with equal index mod 4.
func (v Value) Reduce(combine func(a, b Value) Value, masks ...int) Value {
	for _, m := range masks {
		v = combine(v, v.Butterfly(m))
	}
	return v
}

// MaxOf and SumOf are combining functions for Reduce.

// MaxOf returns the larger of two values.
func MaxOf(a, b Value) Value { return a.Max(b) }

// SumOf returns the sum of two values.
func SumOf(a, b Value) Value { return a.Add(b) }

// AnyInWarp reports whether p holds in any lane of the warp.
func (k *Kernel) AnyInWarp(p Value) Value {
	return k.apply(isa.Pred, "vote.sync.any.pred", p.op, fullMask)
}

// SumOfWarp returns the sum of a 32-bit integer over all lanes.
func (v Value) SumOfWarp() Value { return v.redux("add") }

// MinOfWarp returns the smallest value of a 32-bit integer in any lane.
func (v Value) MinOfWarp() Value { return v.redux("min") }

// MaxOfWarp returns the largest value of a 32-bit integer in any lane.
func (v Value) MaxOfWarp() Value { return v.redux("max") }

func (v Value) redux(op string) Value {
	return v.k.apply(v.typ, "redux.sync."+op+"."+v.typ.String(), v.register(), fullMask)
}

// CountInWarp returns in how many lanes p holds: of those up to and including
// this one, and of all.
func (k *Kernel) CountInWarp(p Value) (upTo, all Value) {
	lanes := k.apply(isa.S32, "vote.sync.ballot.b32", p.op, fullMask)
	count := func(bits Value) Value { return k.apply(isa.S32, "popc.b32", bits.op) }
	return count(lanes.And(k.special("%lanemask_le", isa.S32))), count(lanes)
}

// InclusiveSum returns the sum of v over this lane and all lanes below it.
func (v Value) InclusiveSum() Value {
	sum := v.k.Var(v)
	for delta := 1; delta < 32; delta *= 2 {
		below, valid := sum.FromBelow(delta)
		zero := v.k.Const(v.typ, 0)
		sum.Set(sum.Add(v.k.Select(valid, below, zero)))
	}
	return sum.Value
}

// OneLane runs body in one lane of the warp, the same one every time.
func (k *Kernel) OneLane(body func()) {
	p := k.reg(isa.Pred)
	k.emit("elect.sync", ptx.Sink{}, p, fullMask)
	k.If(Value{k, p, isa.Pred}, body)
}
