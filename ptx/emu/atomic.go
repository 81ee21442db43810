package emu

import (
	"math"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/emu/num"
	"github.com/mlagen/mlagen/ptx/isa"
)

var _ = register(map[string]func(*compiler, *ptx.Instr) error{"atom": buildAtomic, "red": buildAtomic})

// update returns the function (old, b, c) -> new of an atomic operation.
func update(op string, t isa.Type, global bool) func(old, b, c uint64) uint64 {
	x := extend(t)
	switch op {
	case "add":
		switch t {
		case isa.F32: // global additions flush subnormals, shared ones do not
			return func(a, b, _ uint64) uint64 { return bits32(num.AddF32(f32(a), f32(b), num.RN, global)) }
		case isa.F64:
			return func(a, b, _ uint64) uint64 { return math.Float64bits(f64(a) + f64(b)) }
		}
		return func(a, b, _ uint64) uint64 { return a + b }
	case "min":
		if t.Signed() {
			return func(a, b, _ uint64) uint64 { return uint64(min(int64(x(a)), int64(x(b)))) }
		}
		return func(a, b, _ uint64) uint64 { return min(a, b) }
	case "max":
		if t.Signed() {
			return func(a, b, _ uint64) uint64 { return uint64(max(int64(x(a)), int64(x(b)))) }
		}
		return func(a, b, _ uint64) uint64 { return max(a, b) }
	case "and":
		return func(a, b, _ uint64) uint64 { return a & b }
	case "or":
		return func(a, b, _ uint64) uint64 { return a | b }
	case "xor":
		return func(a, b, _ uint64) uint64 { return a ^ b }
	case "exch":
		return func(_, b, _ uint64) uint64 { return b }
	case "inc":
		return func(a, b, _ uint64) uint64 {
			if a >= b {
				return 0
			}
			return a + 1
		}
	case "dec":
		return func(a, b, _ uint64) uint64 {
			if a == 0 || a > b {
				return b
			}
			return a - 1
		}
	case "cas":
		return func(a, b, c uint64) uint64 {
			if a == b {
				return c
			}
			return a
		}
	}
	return nil
}

func buildAtomic(c *compiler, in *ptx.Instr) error {
	t := in.Type("type")
	size := t.Bytes()
	name := in.Mod("space")
	if in.Mod("global") != "" {
		name = "global"
	}
	sp, err := parseSpace(name)
	if err != nil {
		return err
	}
	args := in.Args
	d := int32(-1)
	if in.Form.Root == "atom" {
		if d, err = c.dst(args[0]); err != nil {
			return err
		}
		args = args[1:]
	}
	addr, err := c.memAddr(args[0])
	if err != nil {
		return err
	}
	b, err := c.srcs(t, elements(args[1])...)
	if err != nil {
		return err
	}
	e := b[0]
	if len(args) > 2 {
		if e, err = c.src(args[2], t); err != nil {
			return err
		}
	}
	f := update(in.Mod("op"), t, sp == spGlobal)
	if f == nil {
		return unsupported("op", in.Mod("op"))
	}
	if sp != spShared {
		c.atomics = true
	}
	order := orderOf(in)
	n := size * len(b)
	watch := sp == spShared || sp == spCluster
	c.op.ctl = func(w *warp, s *split, m uint32) verdict {
		w.cl.touch()
		if w.hz != nil {
			w.hz.releaseAt(w, m, sp, addr, order)
		}
		for y := m; y != 0; y &= y - 1 {
			i := trailing(y) & 31
			at := addr.at(w, i)
			if watch {
				at = uint64(uint32(at))
			}
			// Read first, so that an uninitialised operand is noticed.
			w.bytes(sp, at, n, i, flavour{atomic: true})
			p := w.bytes(sp, at, n, i, flavour{write: true, atomic: true})
			for k, s := range b {
				q := p[k*size : (k+1)*size]
				old := loadUint(q)
				storeUint(q, f(old, w.r[s][i], w.r[e][i]))
				if d >= 0 && k == 0 {
					w.r[d][i] = old
				}
			}
		}
		if w.hz != nil {
			w.hz.acquireAt(w, m, sp, addr, order)
		}
		return yield
	}
	return nil
}
