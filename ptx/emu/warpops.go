package emu

import (
	"fmt"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Exchanges between the lanes of a warp.

var _ = register(map[string]func(*compiler, *ptx.Instr) error{
	"shfl.sync": buildShfl, "vote.sync": buildVote, "match.any.sync": buildMatch, "match.all.sync": buildMatch,
	"activemask": buildActiveMask, "redux.sync": buildRedux, "elect.sync": buildElect,
})

// members decodes the member mask. The function it returns gives the lanes
// that take part and reports a mask that does not name exactly those that are
// here: the emulator's warps reconverge where the compiler's would, so a
// member that is elsewhere never comes.
func (c *compiler) members(a ptx.Operand) (func(w *warp, m uint32) uint32, error) {
	slot, err := c.src(a, isa.B32)
	if err != nil {
		return nil, err
	}
	return func(w *warp, m uint32) uint32 {
		v, same := w.uniform(slot, m)
		mask := uint32(v)
		switch {
		case !same:
			w.report(Error, RuleAligned, "lanes disagree on the member mask")
		case m&^mask != 0:
			w.report(Error, RuleAligned, fmt.Sprintf("lanes %#x execute it but are not in its mask %#x", m&^mask, mask))
		case mask&w.live&^m != 0:
			w.report(Error, RuleAligned, fmt.Sprintf("lanes %#x of mask %#x do not execute it", mask&w.live&^m, mask))
		}
		return mask & m
	}, nil
}

func buildShfl(c *compiler, in *ptx.Instr) error {
	d, err := c.dst(in.Args[0])
	if err != nil {
		return err
	}
	p := int32(-1)
	args := in.Args[1:]
	if arg(in, "p") != nil {
		if p, err = c.predDst(args[0]); err != nil {
			return err
		}
		args = args[1:]
	}
	s, err := c.srcs(isa.B32, args[:3]...)
	if err != nil {
		return err
	}
	members, err := c.members(args[3])
	if err != nil {
		return err
	}
	mode := in.Mod("mode")
	a, b, e := s[0], s[1], s[2]
	c.op.exec = func(w *warp, m uint32) {
		members(w, m)
		src := w.r[a]
		var ok uint32
		for y := m; y != 0; y &= y - 1 {
			i := trailing(y) & 31
			bv, cv := int(w.r[b][i]&0x1f), w.r[e][i]
			clamp, seg := int(cv&0x1f), int(cv>>8&0x1f)
			max := i&seg | clamp&^seg
			min := i & seg
			var j int
			in := false
			switch mode {
			case "up":
				j = i - bv
				in = j >= max
			case "down":
				j = i + bv
				in = j <= max
			case "bfly":
				j = i ^ bv
				in = j <= max
			default:
				j = min | bv&^seg
				in = j <= max
			}
			if !in {
				j = i
			} else {
				ok |= 1 << i
			}
			if m>>j&1 == 0 && w.hz != nil {
				w.reportLane(i, Error, RuleAligned, fmt.Sprintf("reads from lane %d, which does not execute the shuffle", j))
			}
			w.r[d][i] = src[j&31]
		}
		w.setPred(p, m, ok)
	}
	return nil
}

func buildVote(c *compiler, in *ptx.Instr) error {
	a, err := c.predSrc(in.Args[1])
	if err != nil {
		return err
	}
	members, err := c.members(in.Args[2])
	if err != nil {
		return err
	}
	mode := in.Mod("mode")
	if mode == "ballot" {
		d, err := c.dst(in.Args[0])
		if err != nil {
			return err
		}
		c.op.exec = func(w *warp, m uint32) {
			v := uint64(a(w) & members(w, m))
			each(m, func(i int) { w.r[d][i] = v })
		}
		return nil
	}
	p, err := c.predDst(in.Args[0])
	if err != nil {
		return err
	}
	c.op.exec = func(w *warp, m uint32) {
		all := members(w, m)
		yes := a(w) & all
		ok := yes == all
		switch mode {
		case "any":
			ok = yes != 0
		case "uni":
			ok = yes == 0 || yes == all
		}
		v := uint32(0)
		if ok {
			v = ^v
		}
		w.setPred(p, m, v)
	}
	return nil
}

func buildMatch(c *compiler, in *ptx.Instr) error {
	d, err := c.dst(in.Args[0])
	if err != nil {
		return err
	}
	p := int32(-1)
	args := in.Args[1:]
	whole := in.Form.Root == "match.all.sync"
	if whole {
		if p, err = c.predDst(args[0]); err != nil {
			return err
		}
		args = args[1:]
	}
	a, err := c.src(args[0], in.Type("type"))
	if err != nil {
		return err
	}
	members, err := c.members(args[1])
	if err != nil {
		return err
	}
	c.op.exec = func(w *warp, m uint32) {
		all := members(w, m)
		src := w.r[a]
		var ok uint32
		each(m, func(i int) {
			var same uint32
			each(all, func(j int) {
				if src[j] == src[i] {
					same |= 1 << j
				}
			})
			if whole {
				if same == all {
					ok |= 1 << i
				} else {
					same = 0
				}
			}
			w.r[d][i] = uint64(same)
		})
		w.setPred(p, m, ok)
	}
	return nil
}

func buildActiveMask(c *compiler, in *ptx.Instr) error {
	d, err := c.dst(in.Args[0])
	if err != nil {
		return err
	}
	c.op.exec = func(w *warp, m uint32) { each(m, func(i int) { w.r[d][i] = uint64(m) }) }
	return nil
}

func buildRedux(c *compiler, in *ptx.Instr) error {
	t := in.Type("type")
	d, err := c.dst(in.Args[0])
	if err != nil {
		return err
	}
	a, err := c.src(in.Args[1], t)
	if err != nil {
		return err
	}
	members, err := c.members(in.Args[2])
	if err != nil {
		return err
	}
	f := update(in.Mod("op"), t, false)
	if f == nil {
		return unsupported("op", in.Mod("op"))
	}
	c.op.exec = func(w *warp, m uint32) {
		all := members(w, m)
		if all == 0 {
			return
		}
		v := w.r[a][trailing(all)]
		each(all&(all-1), func(i int) { v = f(v, w.r[a][i], 0) & 0xffffffff })
		each(m, func(i int) { w.r[d][i] = v })
	}
	return nil
}

// buildElect decodes elect.sync. PTX leaves open which lane is elected, the
// same one for the same mask; the hardware takes the lowest.
func buildElect(c *compiler, in *ptx.Instr) error {
	d, err := c.dst(in.Args[0])
	if err != nil {
		return err
	}
	p, err := c.predDst(in.Args[1])
	if err != nil {
		return err
	}
	members, err := c.members(in.Args[2])
	if err != nil {
		return err
	}
	c.op.exec = func(w *warp, m uint32) {
		all := members(w, m)
		if all == 0 {
			return
		}
		i := trailing(all)
		each(m, func(l int) { w.r[d][l] = uint64(i) })
		w.setPred(p, m, 1<<i)
	}
	return nil
}
