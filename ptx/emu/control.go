package emu

import (
	"fmt"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Control flow and instructions whose effect is on scheduling.

var _ = register(map[string]func(*compiler, *ptx.Instr) error{
	"bra": buildBra, "ret": buildExit, "exit": buildExit, "trap": buildTrap,
	"nanosleep": buildNanosleep, "griddepcontrol": buildGridDependency, "setmaxnreg": buildSetMaxNReg,
	"membar": buildFence, "fence": buildFence, "fence.proxy.alias": buildFence,
	"fence.proxy.async": buildProxyFence, "fence.mbarrier_init": buildInitFence,
})

func buildBra(c *compiler, in *ptx.Instr) error {
	l, ok := in.Args[0].(ptx.Label)
	if !ok {
		return fmt.Errorf("branch target %T must be a label", in.Args[0])
	}
	target, ok := c.labels[l]
	if !ok {
		return fmt.Errorf("label %s is not defined", l)
	}
	c.op.target = target
	uni := in.Mod("uni") != ""
	c.op.ctl = func(w *warp, s *split, m uint32) verdict {
		if uni && m != s.mask {
			w.report(Error, RuleAligned, fmt.Sprintf("bra.uni is taken by lanes %#x of %#x", m, s.mask))
		}
		return w.branch(s, m, w.at)
	}
	return nil
}

func buildExit(c *compiler, in *ptx.Instr) error {
	c.op.ctl = exitLanes
	return nil
}

func buildTrap(c *compiler, in *ptx.Instr) error {
	c.op.ctl = func(w *warp, s *split, m uint32) verdict {
		w.fail(RuleTrap, fmt.Sprintf("trap by lanes %#x", m))
		return gone
	}
	return nil
}

func buildNanosleep(c *compiler, in *ptx.Instr) error {
	if _, err := c.src(in.Args[0], isa.U32); err != nil {
		return err
	}
	c.op.ctl = func(*warp, *split, uint32) verdict { return yield }
	return nil
}

// buildGridDependency decodes griddepcontrol. Grids run one after another, so
// it never waits; that a launch allowed to overlap does wait before it touches
// its predecessor's memory is checked by the hazards.
func buildGridDependency(c *compiler, in *ptx.Instr) error {
	wait := in.Mod("action") == "wait"
	c.triggers = c.triggers || !wait
	c.op.exec = func(w *warp, m uint32) {
		if wait {
			w.cl.stats.GridWaits++
			if w.hz != nil {
				w.hz.gridWaited(w, m)
			}
		} else {
			w.cl.stats.GridLaunches++
			if w.hz != nil && !w.hz.hasWaited(w, trailing(m)) {
				w.cl.g.early.Store(true)
			}
		}
	}
	return nil
}

// launchRegisters returns the registers per thread that a CTA starts with.
func (k *kernel) launchRegisters(threads int) int {
	warps := (threads + lanes - 1) / lanes
	quarters := (warps + 3) / 4 // each of the SM's four partitions has a quarter of the registers
	n := min(registersPerCTA/4/(quarters*lanes)/8*8, maxRegsPerThread)
	if k.def.MaxNReg > 0 {
		n = min(n, (k.def.MaxNReg+7)/8*8)
	}
	return n
}

func buildSetMaxNReg(c *compiler, in *ptx.Instr) error {
	v, err := immediate(in.Args[0])
	if err != nil {
		return err
	}
	n := int(v)
	inc := in.Mod("action") == "inc"
	if n < 24 || n > 256 || n%8 != 0 {
		return fmt.Errorf("register count %d, must be a multiple of 8 from 24 to 256", n)
	}
	c.op.ctl = func(w *warp, s *split, m uint32) verdict {
		if !w.converged(m) {
			w.report(Error, RuleAligned, fmt.Sprintf("lanes %#x of %#x execute it", m, w.live))
		}
		if len(w.group.warps) < 4 {
			w.report(Error, RuleRegisters, "setmaxnreg by a warpgroup of fewer than four warps")
		}
		if !inc {
			if n > w.registers {
				w.fail(RuleRegisters, fmt.Sprintf("setmaxnreg.dec to %d, the warp has %d", n, w.registers))
			}
			w.cta.pool += (w.registers - n) * lanes
			w.registers = n
			w.cl.wake()
			return next
		}
		if n < w.registers {
			w.fail(RuleRegisters, fmt.Sprintf("setmaxnreg.inc to %d, the warp has %d", n, w.registers))
		}
		want := (n - w.registers) * lanes
		if want > w.cta.pool {
			s.wait = waitReason{kind: onRegisters, cta: w.cta, id: n}
			return stall
		}
		w.cta.pool -= want
		w.registers = n
		return next
	}
	return nil
}

// buildFence decodes fences that order generic accesses: the emulator's memory
// is sequentially consistent, and what orders threads is the barrier or the
// release after the fence.
func buildFence(c *compiler, in *ptx.Instr) error {
	scope := in.Mod("scope") + in.Mod("level")
	c.op.exec = func(w *warp, m uint32) {
		if w.hz != nil {
			w.hz.fence(w, m, scope)
		}
	}
	return nil
}

func buildProxyFence(c *compiler, in *ptx.Instr) error {
	sp := in.Mod("space")
	c.op.exec = func(w *warp, m uint32) {
		if w.hz != nil && sp != "global" {
			w.hz.proxyFence(w, m)
		}
	}
	return nil
}

func buildInitFence(c *compiler, in *ptx.Instr) error {
	c.op.exec = func(w *warp, m uint32) {
		if w.hz != nil {
			w.hz.initFence(w, m, true)
		}
	}
	return nil
}
