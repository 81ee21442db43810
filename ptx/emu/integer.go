package emu

import (
	"math/bits"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/emu/num"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Integer arithmetic. Mnemonics shared with floating point (add, mul, …)
// branch on the type in arithmetic.

var _ = register(map[string]func(*compiler, *ptx.Instr) error{
	"mad":   buildMad,
	"rem":   buildRem,
	"popc":  buildPopc,
	"clz":   buildClz,
	"bfind": buildBfind,
	"brev":  buildBrev,
	"bfe":   buildBfe,
	"bfi":   buildBfi,
})

// extend returns a function that widens a value of integer type t to 64 bits.
func extend(t isa.Type) func(uint64) uint64 {
	n := t.Bits()
	if !t.Signed() || n == 64 {
		return func(v uint64) uint64 { return v }
	}
	return func(v uint64) uint64 { return signExtend(v, n) }
}

// buildInteger decodes the two-operand integer instructions.
func buildInteger(c *compiler, in *ptx.Instr) error {
	t := in.Type("type")
	x := extend(t)
	bin := func(f func(a, b uint64) uint64) error { return c.binary(in, t, t, t, f) }
	switch in.Form.Root {
	case "add":
		if in.Mod("sat") != "" {
			return bin(func(a, b uint64) uint64 { return num.SaturateInt(x(a)+x(b), true, 32, true) })
		}
		err := bin(func(a, b uint64) uint64 { return a + b })
		c.fastAdd(in, t, err)
		return err
	case "sub":
		if in.Mod("sat") != "" {
			return bin(func(a, b uint64) uint64 { return num.SaturateInt(x(a)-x(b), true, 32, true) })
		}
		return bin(func(a, b uint64) uint64 { return a - b })
	case "mul":
		f, dt, err := product(in, t)
		if err != nil {
			return err
		}
		return c.binary(in, dt, t, t, f)
	case "div":
		return bin(divider(t, true))
	case "min", "max":
		smaller := func(a, b uint64) bool { return a < b }
		if t.Signed() {
			smaller = func(a, b uint64) bool { return int64(x(a)) < int64(x(b)) }
		}
		if in.Form.Root == "max" {
			return bin(func(a, b uint64) uint64 {
				if smaller(a, b) {
					return b
				}
				return a
			})
		}
		return bin(func(a, b uint64) uint64 {
			if smaller(b, a) {
				return b
			}
			return a
		})
	case "abs":
		return c.unary(in, t, t, func(a uint64) uint64 {
			if v := int64(x(a)); v < 0 {
				return uint64(-v)
			}
			return a
		})
	case "neg":
		return c.unary(in, t, t, func(a uint64) uint64 { return -a })
	}
	return unsupported("type", t.String())
}

// fastAdd writes out the loop of 32- and 64-bit additions.
func (c *compiler) fastAdd(in *ptx.Instr, t isa.Type, err error) {
	if err != nil || t.Bits() < 32 {
		return
	}
	r := c.op.writes
	if len(r) == 0 {
		return
	}
	d := r[len(r)-1]
	s, err := c.srcsAgain(t, in.Args[1], in.Args[2])
	if err != nil {
		return
	}
	a, b, mask := s[0], s[1], widthMask(t.Bits())
	c.full(func(w *warp) {
		d, a, b := &w.r[d], &w.r[a], &w.r[b]
		for i := range d {
			d[i] = (a[i] + b[i]) & mask
		}
	})
}

// srcsAgain returns the slots of operands whose reads have been noted.
func (c *compiler) srcsAgain(t isa.Type, args ...ptx.Operand) ([]int32, error) {
	n := len(c.op.reads)
	s, err := c.srcs(t, args...)
	c.op.reads = c.op.reads[:n]
	return s, err
}

// product returns mul's function and the type of its result.
func product(in *ptx.Instr, t isa.Type) (func(a, b uint64) uint64, isa.Type, error) {
	x, n := extend(t), t.Bits()
	switch {
	case in.Mod("wide") != "":
		wide := map[isa.Type]isa.Type{isa.U16: isa.U32, isa.S16: isa.S32, isa.U32: isa.U64, isa.S32: isa.S64}[t]
		return func(a, b uint64) uint64 { return x(a) * x(b) }, wide, nil
	case in.Mod("mode") == "lo":
		return func(a, b uint64) uint64 { return a * b }, t, nil
	case in.Mod("mode") == "hi" && n < 64:
		return func(a, b uint64) uint64 { return x(a) * x(b) >> n }, t, nil
	case in.Mod("mode") == "hi" && t.Signed():
		return func(a, b uint64) uint64 {
			hi, _ := bits.Mul64(a, b)
			if int64(a) < 0 {
				hi -= b
			}
			if int64(b) < 0 {
				hi -= a
			}
			return hi
		}, t, nil
	case in.Mod("mode") == "hi":
		return func(a, b uint64) uint64 { hi, _ := bits.Mul64(a, b); return hi }, t, nil
	}
	return nil, t, unsupported("mode", in.Mod("mode"))
}

// divider returns the quotient or remainder of type t. Division by zero is
// undefined in PTX; the hardware returns all ones, and the dividend as the remainder.
func divider(t isa.Type, quotient bool) func(a, b uint64) uint64 {
	x := extend(t)
	return func(a, b uint64) uint64 {
		switch {
		case b == 0 && quotient:
			return ^uint64(0)
		case b == 0:
			return a
		case t.Signed():
			p, q := int64(x(a)), int64(x(b))
			switch {
			case q == -1 && quotient:
				return uint64(-p)
			case q == -1:
				return 0
			case quotient:
				return uint64(p / q)
			}
			return uint64(p % q)
		case quotient:
			return a / b
		}
		return a % b
	}
}

func buildRem(c *compiler, in *ptx.Instr) error {
	t := in.Type("type")
	return c.binary(in, t, t, t, divider(t, false))
}

func buildMad(c *compiler, in *ptx.Instr) error {
	t := in.Type("type")
	f, dt, err := product(in, t)
	if err != nil {
		return err
	}
	mask := widthMask(dt.Bits())
	return c.ternary(in, dt, t, t, dt, func(a, b, e uint64) uint64 { return f(a, b)&mask + e })
}

func buildPopc(c *compiler, in *ptx.Instr) error {
	return c.unary(in, isa.U32, in.Type("type"), func(a uint64) uint64 { return uint64(bits.OnesCount64(a)) })
}

func buildClz(c *compiler, in *ptx.Instr) error {
	t := in.Type("type")
	gap := 64 - t.Bits()
	return c.unary(in, isa.U32, t, func(a uint64) uint64 { return uint64(bits.LeadingZeros64(a) - gap) })
}

func buildBfind(c *compiler, in *ptx.Instr) error {
	t := in.Type("type")
	x, n, shift := extend(t), t.Bits(), in.Mod("shiftamt") != ""
	return c.unary(in, isa.U32, t, func(a uint64) uint64 {
		v := x(a)
		if t.Signed() && int64(v) < 0 {
			v = ^v
		}
		if v == 0 {
			return ^uint64(0)
		}
		p := bits.Len64(v) - 1
		if shift {
			p = n - 1 - p
		}
		return uint64(p)
	})
}

func buildBrev(c *compiler, in *ptx.Instr) error {
	t := in.Type("type")
	gap := 64 - t.Bits()
	return c.unary(in, t, t, func(a uint64) uint64 { return bits.Reverse64(a) >> gap })
}

func buildBfe(c *compiler, in *ptx.Instr) error {
	t := in.Type("type")
	n := t.Bits()
	return c.ternary(in, t, t, isa.U32, isa.U32, func(a, b, l uint64) uint64 {
		pos, length := int(b&0xff), int(l&0xff)
		var sign uint64
		if t.Signed() && length > 0 {
			sign = a >> min(pos+length-1, n-1) & 1
		}
		var v uint64
		if pos < n {
			v = a >> pos
		}
		if length < 64 {
			v &= widthMask(length)
			if sign != 0 {
				v |= ^widthMask(min(length, max(n-pos, 0)))
			}
		}
		if sign != 0 && pos+length > n {
			v |= ^widthMask(max(n-pos, 0))
		}
		return v
	})
}

func buildBfi(c *compiler, in *ptx.Instr) error {
	t := in.Type("type")
	n := t.Bits()
	d, err := c.dst(in.Args[0])
	if err != nil {
		return err
	}
	s, err := c.srcs(t, in.Args[1:]...)
	if err != nil {
		return err
	}
	c.op.exec = func(w *warp, m uint32) {
		each(m, func(i int) {
			pos, length := int(w.r[s[2]][i]&0xff), int(w.r[s[3]][i]&0xff)
			length = max(min(length, n-pos), 0)
			v := w.r[s[1]][i]
			if length > 0 {
				mask := widthMask(length) << pos
				v = v&^mask | w.r[s[0]][i]<<pos&mask
			}
			w.r[d][i] = v & widthMask(n)
		})
	}
	return nil
}
