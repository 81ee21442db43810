package verify

import (
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// memberMasks finds shuffles, votes and their like that wait for lanes which
// provably do not come: the mask names them, and a branch or a guard on the
// lane sends them elsewhere. It is a hang on hardware, or, where the lanes
// come by at another such instruction, an exchange of the wrong values.
//
// Lanes that have returned are not waited for, and lanes may meet at two
// instructions of the same kind, so nothing is said where the other way has
// one, or where it leads to the kernel's end past nothing that waits.
func (c *kernelChecker) memberMasks() {
	reported := map[*ptx.Instr]bool{}
	c.passages(func(p passage) {
		mask, ok := memberMask(p.at)
		if !ok || reported[p.at] || !absent(p.may, mask) {
			return
		}
		meet, wait := false, false
		p.others(func(i *ptx.Instr) bool {
			m, ok := memberMask(i)
			meet = ok && m == mask && i.Form.Root == p.at.Form.Root
			wait = wait || waits(i)
			return !meet
		})
		p.after(func(i *ptx.Instr) bool { wait = wait || waits(i); return !wait })
		if meet || !wait {
			return
		}
		reported[p.at] = true
		c.report(p.at, "member-mask", "%s waits for the lanes of its mask 0x%08x, but %s lets only some of them pass", p.at.Opcode(), mask, p.because)
	})
}

// memberMask returns the constant mask of a warp-wide instruction.
func memberMask(i *ptx.Instr) (mask uint32, ok bool) {
	if i.Form.Scope != isa.PerWarp {
		return 0, false
	}
	m, ok := i.Arg("membermask").(ptx.Imm)
	return uint32(m), ok
}

// waits reports whether i may make a thread wait for others.
func waits(i *ptx.Instr) bool {
	switch i.Form.Root {
	case "mbarrier.try_wait", "mbarrier.test_wait":
		return true
	}
	return i.Form.Scope != isa.PerThread
}

// absent reports whether, in every warp that has a lane in may, lanes of the
// mask are outside it.
func absent(may []bool, mask uint32) bool {
	some := false
	for at := 0; at < len(may); at += warp {
		in, out := false, false
		for lane, x := range may[at:min(at+warp, len(may))] {
			in = in || x
			out = out || !x && mask>>lane&1 == 1
		}
		if in && !out {
			return false
		}
		some = some || in
	}
	return some
}
