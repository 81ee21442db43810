package emu

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Helpers by which the families apply a scalar function to the lanes of a warp.

func popcount(m uint32) int { return bits.OnesCount32(m) }

func trailing(m uint32) int { return bits.TrailingZeros32(m) }

func f32(v uint64) float32 { return math.Float32frombits(uint32(v)) }

func bits32(x float32) uint64 { return uint64(math.Float32bits(x)) }

func f64(v uint64) float64 { return math.Float64frombits(v) }

// widthMask returns the mask of the low n bits.
func widthMask(n int) uint64 {
	if n >= 64 {
		return ^uint64(0)
	}
	return 1<<n - 1
}

// unary makes the instruction d = f(a) with a of type at and d of type dt.
func (c *compiler) unary(in *ptx.Instr, dt, at isa.Type, f func(a uint64) uint64) error {
	d, err := c.dst(in.Args[0])
	if err != nil {
		return err
	}
	a, err := c.src(in.Args[1], at)
	if err != nil {
		return err
	}
	mask := widthMask(dt.Bits())
	c.op.exec = func(w *warp, m uint32) {
		d, a := &w.r[d], &w.r[a]
		if m == fullMask {
			for i := range d {
				d[i] = f(a[i]) & mask
			}
			return
		}
		for ; m != 0; m &= m - 1 {
			i := trailing(m) & 31
			d[i] = f(a[i]) & mask
		}
	}
	return nil
}

// binary makes the instruction d = f(a, b).
func (c *compiler) binary(in *ptx.Instr, dt, at, bt isa.Type, f func(a, b uint64) uint64) error {
	d, err := c.dst(in.Args[0])
	if err != nil {
		return err
	}
	a, err := c.src(in.Args[1], at)
	if err != nil {
		return err
	}
	b, err := c.src(in.Args[2], bt)
	if err != nil {
		return err
	}
	mask := widthMask(dt.Bits())
	c.op.exec = func(w *warp, m uint32) {
		d, a, b := &w.r[d], &w.r[a], &w.r[b]
		if m == fullMask {
			for i := range d {
				d[i] = f(a[i], b[i]) & mask
			}
			return
		}
		for ; m != 0; m &= m - 1 {
			i := trailing(m) & 31
			d[i] = f(a[i], b[i]) & mask
		}
	}
	return nil
}

// ternary makes the instruction d = f(a, b, e).
func (c *compiler) ternary(in *ptx.Instr, dt, at, bt, et isa.Type, f func(a, b, e uint64) uint64) error {
	d, err := c.dst(in.Args[0])
	if err != nil {
		return err
	}
	a, err := c.src(in.Args[1], at)
	if err != nil {
		return err
	}
	b, err := c.src(in.Args[2], bt)
	if err != nil {
		return err
	}
	e, err := c.src(in.Args[3], et)
	if err != nil {
		return err
	}
	mask := widthMask(dt.Bits())
	c.op.exec = func(w *warp, m uint32) {
		d, a, b, e := &w.r[d], &w.r[a], &w.r[b], &w.r[e]
		if m == fullMask {
			for i := range d {
				d[i] = f(a[i], b[i], e[i]) & mask
			}
			return
		}
		for ; m != 0; m &= m - 1 {
			i := trailing(m) & 31
			d[i] = f(a[i], b[i], e[i]) & mask
		}
	}
	return nil
}

// full replaces the loop over a full warp by one written out for a hot
// instruction. It must give the same result.
func (c *compiler) full(f func(w *warp)) {
	slow := c.op.exec
	c.op.exec = func(w *warp, m uint32) {
		if m == fullMask {
			f(w)
			return
		}
		slow(w, m)
	}
}

// predicate makes the instruction p = f(a, b) on predicate destination dst.
func (c *compiler) predicate(dst ptx.Operand, at isa.Type, args []ptx.Operand, f func(a, b uint64) bool) (func(w *warp, m uint32) uint32, int32, error) {
	p, err := c.predDst(dst)
	if err != nil {
		return nil, 0, err
	}
	s, err := c.srcs(at, args...)
	if err != nil {
		return nil, 0, err
	}
	a, b := s[0], s[len(s)-1]
	return func(w *warp, m uint32) (r uint32) {
		a, b := &w.r[a], &w.r[b]
		for x := m; x != 0; x &= x - 1 {
			i := trailing(x) & 31
			if f(a[i], b[i]) {
				r |= 1 << i
			}
		}
		return r
	}, p, nil
}

// setPred writes the lanes m of predicate slot p; -1 is the sink.
func (w *warp) setPred(p int32, m, v uint32) {
	if p >= 0 {
		w.p[p] = w.p[p]&^m | v&m
	}
}

// arg returns the written operand of the form's operand called name, nil when
// it was left out.
func arg(in *ptx.Instr, name string) ptx.Operand {
	idx, ok := in.Form.Bind(in.Mods, len(in.Args))
	if !ok {
		return nil
	}
	for i, k := range idx {
		if in.Form.Operands[k].Name == name {
			return in.Args[i]
		}
	}
	return nil
}

// elements returns the elements of a vector operand, or the operand itself.
func elements(a ptx.Operand) []ptx.Operand {
	if v, ok := a.(ptx.Vec); ok {
		return v
	}
	return []ptx.Operand{a}
}

// immediate returns the value of a constant operand.
func immediate(a ptx.Operand) (int64, error) {
	if v, ok := a.(ptx.Imm); ok {
		return int64(v), nil
	}
	return 0, fmt.Errorf("operand %T must be a constant", a)
}
