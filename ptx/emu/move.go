package emu

import (
	"fmt"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// mov and the conversions between kinds of addresses.

var _ = register(map[string]func(*compiler, *ptx.Instr) error{
	"mov": buildMov, "cvta": buildCvta, "isspacep": buildIsspacep,
	"mapa": buildMapa, "getctarank": buildGetctarank,
	"prefetch": buildPrefetch, "createpolicy.fractional": buildPolicy,
})

func buildMov(c *compiler, in *ptx.Instr) error {
	t := in.Type("type")
	if t == isa.Pred {
		d, err := c.predDst(in.Args[0])
		if err != nil {
			return err
		}
		a, err := c.predSrc(in.Args[1])
		if err != nil {
			return err
		}
		c.op.exec = func(w *warp, m uint32) { w.setPred(d, m, a(w)) }
		return nil
	}
	if v, ok := in.Args[0].(ptx.Vec); ok {
		return buildUnpack(c, in, t, v)
	}
	if v, ok := in.Args[1].(ptx.Vec); ok {
		return buildPack(c, in, t, v)
	}
	if s, ok := in.Args[1].(ptx.Special); ok {
		if f := running[s.Name]; f != nil {
			d, err := c.dst(in.Args[0])
			if err != nil {
				return err
			}
			c.op.exec = func(w *warp, m uint32) {
				v := f(w)
				each(m, func(i int) { w.r[d][i] = v })
			}
			return nil
		}
	}
	if s, ok := in.Args[1].(ptx.Symbol); ok && c.vars[string(s)] != nil {
		return buildSharedAddress(c, in, s)
	}
	if err := c.unary(in, t, t, func(a uint64) uint64 { return a }); err != nil {
		return err
	}
	if len(c.op.writes) == 1 {
		s, err := c.srcsAgain(t, in.Args[1])
		if err != nil {
			return err
		}
		d, a := c.op.writes[0], s[0]
		c.full(func(w *warp) { w.r[d] = w.r[a] })
	}
	return nil
}

// buildSharedAddress decodes a mov of a shared variable's address. Where CTAs
// run in clusters it names the CTA too, as on hardware: what is made of such an
// address and is no address, such as a matrix descriptor, must leave that out.
func buildSharedAddress(c *compiler, in *ptx.Instr, s ptx.Symbol) error {
	offset, err := c.address(s)
	if err != nil {
		return err
	}
	d, err := c.dst(in.Args[0])
	if err != nil {
		return err
	}
	c.op.exec = func(w *warp, m uint32) {
		at := offset
		if len(w.cl.ctas) > 1 {
			at |= uint64(w.cta.rank+1) << rankShift
		}
		each(m, func(i int) { w.r[d][i] = at })
	}
	return nil
}

// buildUnpack decodes mov {d0, d1, …}, a; element 0 is the low part.
func buildUnpack(c *compiler, in *ptx.Instr, t isa.Type, v ptx.Vec) error {
	a, err := c.src(in.Args[1], t)
	if err != nil {
		return err
	}
	d := make([]int32, len(v))
	for i, x := range v {
		if d[i], err = c.dst(x); err != nil {
			return err
		}
	}
	n := t.Bits() / len(v)
	mask := widthMask(n)
	c.op.exec = func(w *warp, m uint32) {
		src := w.r[a] // a copy: a may be among the destinations
		for ; m != 0; m &= m - 1 {
			i := trailing(m) & 31
			for k, s := range d {
				w.r[s][i] = src[i] >> (k * n) & mask
			}
		}
	}
	return nil
}

// buildPack decodes mov d, {a0, a1, …}.
func buildPack(c *compiler, in *ptx.Instr, t isa.Type, v ptx.Vec) error {
	d, err := c.dst(in.Args[0])
	if err != nil {
		return err
	}
	n := t.Bits() / len(v)
	et := map[int]isa.Type{8: isa.B8, 16: isa.B16, 32: isa.B32}[n]
	s, err := c.srcs(et, v...)
	if err != nil {
		return err
	}
	mask := widthMask(n)
	c.op.exec = func(w *warp, m uint32) {
		for ; m != 0; m &= m - 1 {
			i := trailing(m) & 31
			var x uint64
			for k, s := range s {
				x |= w.r[s][i] & mask << (k * n)
			}
			w.r[d][i] = x
		}
	}
	return nil
}

// window returns the generic address of offset 0 of a state space.
func window(space string) (uint64, error) {
	switch space {
	case "global", "const":
		return 0, nil
	case "shared", "shared::cta", "shared::cluster":
		return sharedWindow, nil
	case "param":
		return 0, nil // symbols of parameters already are generic addresses
	case "local":
		return localWindow, nil
	}
	return 0, unsupported("space", space)
}

func buildCvta(c *compiler, in *ptx.Instr) error {
	base, err := window(in.Mod("space"))
	if err != nil {
		return err
	}
	t := in.Type("type")
	if t.Bits() != 64 {
		return unsupported("type", t.String())
	}
	if in.Mod("to") != "" {
		return c.unary(in, t, t, func(a uint64) uint64 { return a - base })
	}
	return c.unary(in, t, t, func(a uint64) uint64 { return a + base })
}

func buildIsspacep(c *compiler, in *ptx.Instr) error {
	want := in.Mod("space")
	f, p, err := c.predicate(in.Args[0], isa.U64, in.Args[1:], func(a, _ uint64) bool {
		switch want {
		case "shared", "shared::cluster":
			return inWindow(a, sharedWindow)
		case "shared::cta":
			return inWindow(a, sharedWindow) && uint32(a)>>rankShift == 0
		case "local":
			return inWindow(a, localWindow)
		case "global":
			return a >= heapBase
		}
		return false
	})
	if err != nil {
		return err
	}
	c.op.exec = func(w *warp, m uint32) { w.setPred(p, m, f(w, m)) }
	return nil
}

// A shared::cluster address holds the rank of its CTA plus one above the
// offset; rank bits 0 mean the executing CTA, so that a shared::cta address is
// a valid shared::cluster address.
const rankShift = 24

func buildMapa(c *compiler, in *ptx.Instr) error {
	t := in.Type("type")
	generic := in.Mod("shared::cluster") == ""
	d, err := c.dst(in.Args[0])
	if err != nil {
		return err
	}
	a, err := c.src(in.Args[1], t)
	if err != nil {
		return err
	}
	b, err := c.src(in.Args[2], isa.U32)
	if err != nil {
		return err
	}
	c.op.exec = func(w *warp, m uint32) {
		each(m, func(i int) {
			addr, rank := w.r[a][i], w.r[b][i]
			if int(rank) >= len(w.cl.ctas) {
				w.fail(RuleBounds, fmt.Sprintf("mapa to CTA %d of a cluster of %d", rank, len(w.cl.ctas)))
			}
			base := uint64(0)
			if generic {
				if !inWindow(addr, sharedWindow) {
					w.fail(RuleBounds, fmt.Sprintf("mapa of %#x, which is not in shared memory", addr))
				}
				base = sharedWindow
			}
			w.r[d][i] = base | (rank+1)<<rankShift | addr&(1<<rankShift-1)
		})
	}
	return nil
}

func buildGetctarank(c *compiler, in *ptx.Instr) error {
	d, err := c.dst(in.Args[0])
	if err != nil {
		return err
	}
	a, err := c.src(in.Args[1], in.Type("type"))
	if err != nil {
		return err
	}
	c.op.exec = func(w *warp, m uint32) {
		each(m, func(i int) {
			rank := uint64(w.cta.rank)
			if r := uint32(w.r[a][i]) >> rankShift; r != 0 {
				rank = uint64(r) - 1
			}
			w.r[d][i] = rank
		})
	}
	return nil
}

// buildPrefetch decodes hints that have no effect on results; the address is
// read so that an uninitialised register is noticed.
func buildPrefetch(c *compiler, in *ptx.Instr) error {
	if _, err := c.memAddr(in.Args[0]); err != nil {
		return err
	}
	c.op.exec = func(*warp, uint32) {}
	return nil
}

// buildPolicy decodes createpolicy: the policy is opaque, and any value does.
func buildPolicy(c *compiler, in *ptx.Instr) error {
	d, err := c.dst(in.Args[0])
	if err != nil {
		return err
	}
	c.op.exec = func(w *warp, m uint32) { each(m, func(i int) { w.r[d][i] = 0x12f0000000000000 }) }
	return nil
}
