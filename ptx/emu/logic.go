package emu

import (
	"fmt"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Logic and shifts, on registers and on predicates.

var _ = register(map[string]func(*compiler, *ptx.Instr) error{
	"and": buildLogic, "or": buildLogic, "xor": buildLogic, "not": buildLogic,
	"shl": buildShift, "shr": buildShift, "shf": buildShf, "lop3": buildLop3, "prmt": buildPrmt,
})

func buildLogic(c *compiler, in *ptx.Instr) error {
	if in.Mod("type") == "pred" {
		return buildPredLogic(c, in)
	}
	t := in.Type("type")
	switch in.Form.Root {
	case "and":
		return c.binary(in, t, t, t, func(a, b uint64) uint64 { return a & b })
	case "or":
		return c.binary(in, t, t, t, func(a, b uint64) uint64 { return a | b })
	case "xor":
		return c.binary(in, t, t, t, func(a, b uint64) uint64 { return a ^ b })
	}
	return c.unary(in, t, t, func(a uint64) uint64 { return ^a })
}

func buildPredLogic(c *compiler, in *ptx.Instr) error {
	d, err := c.predDst(in.Args[0])
	if err != nil {
		return err
	}
	var s []func(*warp) uint32
	for _, x := range in.Args[1:] {
		f, err := c.predSrc(x)
		if err != nil {
			return err
		}
		s = append(s, f)
	}
	a, b := s[0], s[len(s)-1]
	f := boolean(in.Form.Root)
	if in.Form.Root == "not" {
		f = func(a, _ uint32) uint32 { return ^a }
	}
	c.op.exec = func(w *warp, m uint32) { w.setPred(d, m, f(a(w), b(w))) }
	return nil
}

// boolean returns the function of two lane masks that op names.
func boolean(op string) func(a, b uint32) uint32 {
	switch op {
	case "and":
		return func(a, b uint32) uint32 { return a & b }
	case "or":
		return func(a, b uint32) uint32 { return a | b }
	case "xor":
		return func(a, b uint32) uint32 { return a ^ b }
	}
	return nil
}

func buildShift(c *compiler, in *ptx.Instr) error {
	t := in.Type("type")
	n, x := uint64(t.Bits()), extend(t)
	if in.Form.Root == "shl" {
		return c.binary(in, t, t, isa.U32, func(a, b uint64) uint64 {
			if b >= n {
				return 0
			}
			return a << b
		})
	}
	if t.Signed() {
		return c.binary(in, t, t, isa.U32, func(a, b uint64) uint64 { return uint64(int64(x(a)) >> min(b, n-1)) })
	}
	return c.binary(in, t, t, isa.U32, func(a, b uint64) uint64 {
		if b >= n {
			return 0
		}
		return a >> b
	})
}

func buildShf(c *compiler, in *ptx.Instr) error {
	wrap := in.Mod("mode") == "wrap"
	count := func(e uint64) uint64 {
		if wrap {
			return e & 31
		}
		return min(e, 32)
	}
	t := isa.B32
	if in.Mod("dir") == "l" {
		return c.ternary(in, t, t, t, isa.U32, func(a, b, e uint64) uint64 { return (b<<32 | a) << count(e) >> 32 })
	}
	return c.ternary(in, t, t, t, isa.U32, func(a, b, e uint64) uint64 { return (b<<32 | a) >> count(e) })
}

func buildLop3(c *compiler, in *ptx.Instr) error {
	lut, err := immediate(in.Args[4])
	if err != nil {
		return err
	}
	t := isa.B32
	return c.ternary(in, t, t, t, t, func(a, b, e uint64) (r uint64) {
		for k := range 8 { // truth table row k: a is bit 2, b bit 1, c bit 0
			if lut>>k&1 == 0 {
				continue
			}
			x, y, z := a, b, e
			if k&4 == 0 {
				x = ^x
			}
			if k&2 == 0 {
				y = ^y
			}
			if k&1 == 0 {
				z = ^z
			}
			r |= x & y & z
		}
		return r
	})
}

func buildPrmt(c *compiler, in *ptx.Instr) error {
	if len(in.Form.Slots) > 1 {
		return fmt.Errorf("no semantics for prmt's modes")
	}
	t := isa.B32
	return c.ternary(in, t, t, t, t, func(a, b, e uint64) (r uint64) {
		bytes := b<<32 | a
		for i := range 4 {
			sel := e >> (4 * i)
			v := bytes >> (8 * (sel & 7)) & 0xff
			if sel&8 != 0 { // the byte's sign, eight times
				v = v >> 7 * 0xff
			}
			r |= v << (8 * i)
		}
		return r
	})
}
