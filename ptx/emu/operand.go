package emu

import (
	"fmt"
	"math"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Operands as slots of the register file: constants and special registers have
// slots of their own, so that instructions read registers alone.

// address returns what the name of a variable or parameter means as a value.
func (c *compiler) address(s ptx.Symbol) (uint64, error) {
	if off, ok := c.params[string(s)]; ok {
		return paramWindow + uint64(off), nil
	}
	v := c.vars[string(s)]
	switch {
	case v == nil:
		return 0, fmt.Errorf("unknown symbol %s", s)
	case v.dyn:
		return uint64(c.dynBase()), nil
	}
	return uint64(v.off), nil
}

// reg returns the slot of a general register.
func (c *compiler) reg(r *ptx.Reg) (int32, error) {
	s, ok := c.slots[r]
	if !ok {
		if r.Type == isa.Pred {
			return 0, fmt.Errorf("%s is a predicate", r.Name)
		}
		return 0, fmt.Errorf("register %s is not declared", r.Name)
	}
	return s, nil
}

// pred returns the slot of a predicate register.
func (c *compiler) pred(r *ptx.Reg) (int32, error) {
	s, ok := c.predSlots[r]
	if !ok {
		return 0, fmt.Errorf("predicate %s is not declared", r.Name)
	}
	return s, nil
}

// constant returns a slot that holds v in every lane.
func (c *compiler) constant(v uint64) int32 {
	if s, ok := c.fixed[v]; ok {
		return s
	}
	s := int32(len(c.regs))
	c.regs = append(c.regs, nil)
	c.fixed[v] = s
	c.consts = append(c.consts, fixedSlot{s, v})
	return s
}

// src returns the slot of a source operand of type t.
func (c *compiler) src(a ptx.Operand, t isa.Type) (int32, error) {
	switch a := a.(type) {
	case *ptx.Reg:
		s, err := c.reg(a)
		if err != nil {
			return 0, err
		}
		c.op.reads = append(c.op.reads, s)
		return s, nil
	case ptx.Imm:
		if t == isa.F32 {
			return c.constant(uint64(math.Float32bits(float32(a)))), nil
		}
		if t == isa.F64 {
			return c.constant(math.Float64bits(float64(a))), nil
		}
		return c.constant(truncate(uint64(a), t.Bits())), nil
	case ptx.Float:
		return c.constant(floatConst(a, t)), nil
	case ptx.Special:
		return c.specialSlot(a)
	case ptx.Symbol:
		v, err := c.address(a)
		if err != nil {
			return 0, err
		}
		return c.constant(v), nil
	}
	return 0, fmt.Errorf("operand %T cannot be read as %s", a, t)
}

// floatConst returns the bits of constant f in an operand of type t.
func floatConst(f ptx.Float, t isa.Type) uint64 {
	switch {
	case f.Type == isa.F64 && t == isa.F32:
		return uint64(math.Float32bits(float32(math.Float64frombits(f.Bits))))
	case f.Type == isa.F32 && t == isa.F64:
		return math.Float64bits(float64(math.Float32frombits(uint32(f.Bits))))
	}
	return f.Bits
}

// srcs returns the slots of several source operands of type t.
func (c *compiler) srcs(t isa.Type, args ...ptx.Operand) ([]int32, error) {
	out := make([]int32, len(args))
	for i, a := range args {
		s, err := c.src(a, t)
		if err != nil {
			return nil, err
		}
		out[i] = s
	}
	return out, nil
}

// dst returns the slot of a destination operand; the sink gets a slot that
// nothing reads.
func (c *compiler) dst(a ptx.Operand) (int32, error) {
	switch a := a.(type) {
	case *ptx.Reg:
		s, err := c.reg(a)
		if err != nil {
			return 0, err
		}
		c.op.writes = append(c.op.writes, s)
		return s, nil
	case ptx.Sink:
		return c.scratch(), nil
	}
	return 0, fmt.Errorf("operand %T cannot be written", a)
}

// scratch returns a slot for results that are dropped.
func (c *compiler) scratch() int32 {
	s := int32(len(c.regs))
	c.regs = append(c.regs, nil)
	return s
}

// dstBits returns the width of a destination register.
func dstBits(a ptx.Operand, otherwise int) int {
	if r, ok := a.(*ptx.Reg); ok {
		return r.Type.Bits()
	}
	return otherwise
}

// predDst returns the slot of a predicate destination, -1 for the sink.
func (c *compiler) predDst(a ptx.Operand) (int32, error) {
	switch a := a.(type) {
	case *ptx.Reg:
		s, err := c.pred(a)
		if err == nil {
			c.op.predWrites = append(c.op.predWrites, s)
		}
		return s, err
	case ptx.Sink:
		return -1, nil
	}
	return 0, fmt.Errorf("operand %T cannot be written as a predicate", a)
}

// predSrc returns a reader of a predicate operand: a register, its negation or
// a constant.
func (c *compiler) predSrc(a ptx.Operand) (func(w *warp) uint32, error) {
	switch a := a.(type) {
	case *ptx.Reg:
		s, err := c.pred(a)
		if err != nil {
			return nil, err
		}
		c.op.predReads = append(c.op.predReads, s)
		return func(w *warp) uint32 { return w.p[s] }, nil
	case ptx.Not:
		s, err := c.pred(a.P)
		if err != nil {
			return nil, err
		}
		c.op.predReads = append(c.op.predReads, s)
		return func(w *warp) uint32 { return ^w.p[s] }, nil
	case ptx.Imm:
		v := uint32(0)
		if a != 0 {
			v = ^v
		}
		return func(*warp) uint32 { return v }, nil
	}
	return nil, fmt.Errorf("operand %T cannot be read as a predicate", a)
}

func truncate(v uint64, bits int) uint64 {
	if bits >= 64 || bits == 0 {
		return v
	}
	return v & (1<<bits - 1)
}

func signExtend(v uint64, bits int) uint64 {
	return uint64(int64(v<<(64-bits)) >> (64 - bits))
}
