package emu

import (
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/emu/num"
	"github.com/mlagen/mlagen/ptx/isa"
)

var _ = register(map[string]func(*compiler, *ptx.Instr) error{"setp": buildSetp, "selp": buildSelp})

// comparison returns the function of two register values that .cmp names.
func comparison(t isa.Type, cmp string, ftz bool) func(a, b uint64) bool {
	if t.Float() {
		x := f64
		if t == isa.F32 {
			x = func(v uint64) float64 {
				if ftz {
					return float64(num.FlushF32(f32(v)))
				}
				return float64(f32(v))
			}
		}
		return floatComparison(cmp, x)
	}
	x := extend(t)
	if t.Signed() {
		switch cmp {
		case "lt":
			return func(a, b uint64) bool { return int64(x(a)) < int64(x(b)) }
		case "le":
			return func(a, b uint64) bool { return int64(x(a)) <= int64(x(b)) }
		case "gt":
			return func(a, b uint64) bool { return int64(x(a)) > int64(x(b)) }
		case "ge":
			return func(a, b uint64) bool { return int64(x(a)) >= int64(x(b)) }
		}
	}
	switch cmp {
	case "eq":
		return func(a, b uint64) bool { return a == b }
	case "ne":
		return func(a, b uint64) bool { return a != b }
	case "lt", "lo":
		return func(a, b uint64) bool { return a < b }
	case "le", "ls":
		return func(a, b uint64) bool { return a <= b }
	case "gt", "hi":
		return func(a, b uint64) bool { return a > b }
	case "ge", "hs":
		return func(a, b uint64) bool { return a >= b }
	}
	return nil
}

func floatComparison(cmp string, x func(uint64) float64) func(a, b uint64) bool {
	var f func(a, b float64) bool
	unordered := func(a, b float64) bool { return a != a || b != b }
	switch cmp {
	case "eq":
		f = func(a, b float64) bool { return a == b }
	case "ne":
		f = func(a, b float64) bool { return a != b && !unordered(a, b) }
	case "lt":
		f = func(a, b float64) bool { return a < b }
	case "le":
		f = func(a, b float64) bool { return a <= b }
	case "gt":
		f = func(a, b float64) bool { return a > b }
	case "ge":
		f = func(a, b float64) bool { return a >= b }
	case "equ":
		f = func(a, b float64) bool { return a == b || unordered(a, b) }
	case "neu":
		f = func(a, b float64) bool { return a != b }
	case "ltu":
		f = func(a, b float64) bool { return !(a >= b) }
	case "leu":
		f = func(a, b float64) bool { return !(a > b) }
	case "gtu":
		f = func(a, b float64) bool { return !(a <= b) }
	case "geu":
		f = func(a, b float64) bool { return !(a < b) }
	case "num":
		f = func(a, b float64) bool { return !unordered(a, b) }
	case "nan":
		f = unordered
	default:
		return nil
	}
	return func(a, b uint64) bool { return f(x(a), x(b)) }
}

func buildSetp(c *compiler, in *ptx.Instr) error {
	t := in.Type("type")
	cmp := comparison(t, in.Mod("cmp"), in.Mod("ftz") != "")
	if cmp == nil {
		return unsupported("cmp", in.Mod("cmp"))
	}
	rest := in.Args[1:]
	q, second := int32(-1), arg(in, "q")
	if second != nil {
		rest = in.Args[2:]
	}
	f, p, err := c.predicate(in.Args[0], t, rest[:2], cmp)
	if err != nil {
		return err
	}
	if second != nil {
		if q, err = c.predDst(second); err != nil {
			return err
		}
	}
	op := in.Mod("bool")
	if op == "" {
		c.op.exec = func(w *warp, m uint32) {
			v := f(w, m)
			w.setPred(p, m, v)
			w.setPred(q, m, ^v)
		}
		return nil
	}
	third, err := c.predSrc(rest[2])
	if err != nil {
		return err
	}
	mix := boolean(op)
	c.op.exec = func(w *warp, m uint32) {
		v, e := f(w, m), third(w)
		w.setPred(p, m, mix(v, e))
		w.setPred(q, m, mix(^v, e))
	}
	return nil
}

func buildSelp(c *compiler, in *ptx.Instr) error {
	t := in.Type("type")
	d, err := c.dst(in.Args[0])
	if err != nil {
		return err
	}
	s, err := c.srcs(t, in.Args[1], in.Args[2])
	if err != nil {
		return err
	}
	p, err := c.predSrc(in.Args[3])
	if err != nil {
		return err
	}
	a, b := s[0], s[1]
	c.op.exec = func(w *warp, m uint32) {
		d, a, b, p := &w.r[d], &w.r[a], &w.r[b], p(w)
		for ; m != 0; m &= m - 1 {
			i := trailing(m) & 31
			if p>>i&1 != 0 {
				d[i] = a[i]
			} else {
				d[i] = b[i]
			}
		}
	}
	return nil
}
