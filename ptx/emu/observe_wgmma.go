package emu

import "fmt"

// Observers of wgmma: its registers and its operands in shared memory.

// wgmmaRegisters notes accesses to registers for the wgmma rules.
func (h *hazards) wgmmaRegisters(w *warp, o *op) {
	sh := w.shadow
	pending := w.wgSeq > w.wgDone
	for _, r := range o.reads {
		sh.touched[r] = sh.fences
		if pending && int(sh.accSeq[r]) > w.wgDone {
			h.registerInUse(w, r, "reads", "accumulator")
		}
	}
	for _, r := range o.writes {
		sh.touched[r] = sh.fences
		if !pending {
			continue
		}
		if int(sh.accSeq[r]) > w.wgDone {
			h.registerInUse(w, r, "writes", "accumulator")
		} else if int(sh.aSeq[r]) > w.wgDone {
			h.registerInUse(w, r, "writes", "operand A")
		}
	}
}

func (h *hazards) registerInUse(w *warp, r int32, does, role string) {
	if w.k.regs[r] != nil {
		w.report(Error, RuleWgmmaPending, fmt.Sprintf("%s %s, %s of a wgmma that no wait_group has covered", does, w.k.regs[r].Name, role))
	}
}

// issueWgmma checks the registers and the shared memory of a multiplication.
func (h *hazards) issueWgmma(w *warp, s *mmaSpec, x *mma) {
	sh := w.shadow
	if sh.fences == 1 {
		w.report(Error, RuleWgmmaFence, "no wgmma.fence before the first wgmma.mma_async")
		sh.fences = 2
	}
	check := func(r int32, role string) {
		if sh.touched[r] == sh.fences && w.k.regs[r] != nil {
			w.report(Error, RuleWgmmaFence, fmt.Sprintf("%s, %s, has been accessed since the last wgmma.fence", w.k.regs[r].Name, role))
			sh.touched[r] = 0
		}
	}
	for _, r := range s.d {
		check(r, "an accumulator")
		if missing := fullMask &^ sh.regs[r]; x.accumulate && missing != 0 {
			w.report(Error, RuleUninitRegister, fmt.Sprintf("accumulator %s is added to before it is written", w.k.regs[r].Name))
		}
		if int(sh.aSeq[r]) > w.wgDone {
			h.registerInUse(w, r, "writes", "operand A")
		}
		sh.regs[r] = fullMask
		sh.accSeq[r] = uint32(x.seq + 1)
	}
	for _, r := range s.aRegs {
		if w.k.regs[r] == nil {
			continue
		}
		check(r, "operand A")
		if int(sh.accSeq[r]) > w.wgDone {
			h.registerInUse(w, r, "reads", "accumulator")
		}
		sh.aSeq[r] = uint32(x.seq + 1)
	}
	stamp := asyncAgent{comp: w.multiplications(), clock: uint32(x.seq + 1)}
	h.readLines(w, w.cta, x.chunks, stamp)
}

// wgmmaFence begins a new period of register accesses.
func (h *hazards) wgmmaFence(w *warp) { w.shadow.fences++ }
