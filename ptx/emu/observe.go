package emu

import "fmt"

// hazards observes one cluster.
type hazards struct {
	cl      *cluster
	found   *findings
	comps   int // components of the vector clocks so far
	threads int // those that are threads
	agents  map[int]agent
	lanesOf []*warp // by component / 32

	bulkComps map[int]int // thread -> component of its bulk groups
	copyComps map[int]int // thread -> component of its cp.async groups
	gridComp  int         // "griddepcontrol.wait has returned"
	lives     int         // first of the warps' life components
	places    map[uint64]*gather
}

// agent describes a component that is not a thread.
type agent struct {
	what string
	cta  int
	warp int
	lane int
}

// warpShadow is what the observers know of a warp.
type warpShadow struct {
	snap  [lanes]*snapshot
	clock uint32
	regs  []uint32 // lanes in which a register has been written
	preds []uint32

	fence [lanes]fencePoint
	late  gather // found by relaxed reads, known after a fence

	point        *meetingPoint // last acquired, with its version then
	pointVersion uint64
	pointLanes   uint32

	writersOf *allocation // of the last global access
	writers   *writers

	met     uint32   // CTAs of the cluster known to have started
	fences  uint32   // wgmma.fences so far, plus one
	touched []uint32 // the value of fences when a register was last accessed by other instructions
	accSeq  []uint32 // 1 + the last multiplication that has it as an accumulator
	aSeq    []uint32 // … as an operand A
}

// shadowWords is how many words a warpShadow has for registers and predicates.
func (k *kernel) shadowWords() int {
	n := k.nregs + len(k.preds)
	if k.wgmma {
		n += 3 * k.nregs
	}
	return n
}

// newWarpShadow returns the shadow of a warp that has done nothing, its words
// zeros.
func newWarpShadow(k *kernel, words []uint32) *warpShadow {
	sh := &warpShadow{clock: 1, fences: 1, regs: cut(&words, k.nregs), preds: cut(&words, len(k.preds))}
	for i, r := range k.regs {
		if r == nil {
			sh.regs[i] = fullMask
		}
	}
	if k.wgmma {
		sh.touched, sh.accSeq, sh.aSeq = cut(&words, k.nregs), cut(&words, k.nregs), cut(&words, k.nregs)
	}
	return sh
}

func newHazards(cl *cluster) *hazards {
	return &hazards{cl: cl, found: newFindings(), agents: map[int]agent{}, bulkComps: map[int]int{}, copyComps: map[int]int{},
		places: map[uint64]*gather{}}
}

// start prepares the shadows once the cluster's warps exist.
func (h *hazards) start() {
	cl := h.cl
	h.threads = len(cl.warps) * lanes
	h.comps = h.threads
	h.lanesOf = cl.warps
	h.gridComp = h.newComp(agent{what: "griddepcontrol"})
	h.lives = h.comps
	h.comps += len(cl.warps)
	k := cl.g.k
	empty := &snapshot{}
	for _, b := range cl.ctas {
		b.shadow = &b.mem.shadow
		b.shadow.reset(len(b.shared))
		b.remote = make([]remoteUse, len(cl.warps))
	}
	for _, w := range cl.warps {
		w.hz = h
		for i := range w.shadow.snap {
			w.shadow.snap[i] = empty
		}
		if k.wgmma {
			if w.id%4 == 0 {
				h.comps = (h.comps + lanes - 1) / lanes * lanes
				w.group.comp = h.comps
				for i := range 4 {
					h.newComp(agent{what: "wgmma", cta: w.cta.number, warp: w.id + i})
				}
			}
		}
	}
}

func (h *hazards) newComp(a agent) int {
	c := h.comps
	h.comps++
	h.agents[c] = a
	return c
}

// tick begins a new clock of w, after a release.
func (h *hazards) tick(w *warp) { w.shadow.clock++ }

// who describes the access of component c at instruction op.
func (h *hazards) who(c int, op int32, async bool) access {
	k := h.cl.g.k
	a := access{op: &k.code[op], k: k, async: async}
	if c < h.threads {
		w := h.lanesOf[c/lanes]
		a.cta, a.warp, a.lane = w.cta.number, w.id, c%lanes
		return a
	}
	g := h.agents[c]
	a.cta, a.warp, a.lane, a.async = g.cta, g.warp, g.lane, true
	return a
}

// registers checks the registers that o accesses.
func (h *hazards) registers(w *warp, o *op, active, m uint32) {
	sh := w.shadow
	for i, p := range o.predReads {
		want := m
		if i == 0 && o.guard >= 0 {
			want = active
		}
		if missing := want &^ sh.preds[p]; missing != 0 {
			w.reportLane(trailing(missing), Error, RuleUninitRegister, fmt.Sprintf("%s is read before it is written", w.k.preds[p].Name))
			sh.preds[p] |= missing // once
		}
	}
	if m == 0 {
		return
	}
	for _, r := range o.reads {
		if missing := m &^ sh.regs[r]; missing != 0 {
			w.reportLane(trailing(missing), Error, RuleUninitRegister, fmt.Sprintf("%s is read before it is written", w.k.regs[r].Name))
			sh.regs[r] |= missing
		}
	}
	for _, r := range o.writes {
		sh.regs[r] |= m
	}
	for _, p := range o.predWrites {
		sh.preds[p] |= m
	}
	if sh.touched != nil && o.wgmma == nil {
		h.wgmmaRegisters(w, o)
	}
}

// lanesEnd reports copies and multiplications that nobody has waited for when
// the lanes m of w end.
func (h *hazards) lanesEnd(w *warp, m uint32) {
	if w.live == 0 && w.wgSeq > w.wgDone {
		w.report(Advice, RuleWgmmaPending, "the warp ends with multiplications that no wait_group has covered")
	}
	if len(h.bulkComps) == 0 {
		return
	}
	each(m, func(i int) {
		g := &w.bulk[i]
		if len(g.open) > 0 {
			w.reportLane(i, Error, RuleLeftover, "the thread ends with a copy in a group that it has not committed", g.open[0].at)
		} else if k := int(g.committed - g.read); k > 0 && k <= len(g.closed) && len(g.closed[len(g.closed)-k]) > 0 {
			w.reportLane(i, Error, RuleLeftover, "the thread ends without cp.async.bulk.wait_group for a copy out of shared memory", g.closed[len(g.closed)-k][0].at)
		}
	})
}

// end checks the barriers of CTAs that have ended.
func (h *hazards) end() {
	k := h.cl.g.k
	for _, b := range h.cl.ctas {
		h.endOfCTA(b)
		for id := range b.bars {
			if bar := &b.bars[id]; bar.turn != nil {
				h.found.note(k, Error, RuleBarrier, fmt.Sprintf("CTA %d ends with %d threads at barrier %d, which wants %s", b.number, bar.arrived, id, threadCount(bar.expected)),
					access{op: bar.first, k: k, cta: b.number})
			}
		}
		for _, bar := range b.sortedMbarriers() {
			if bar.loads > 0 && !h.anyKnows(b.warps, bar.comp, uint32(bar.loads)) {
				h.found.note(k, Error, RuleLeftover, "the CTA ends without having waited for a copy into its shared memory", bar.lastLoad)
			}
			if bar.tx != 0 {
				h.found.note(k, Error, RuleMbarrierTx, fmt.Sprintf("CTA %d ends with the %s", b.number, bar), bar.init)
			}
		}
	}
}

// anyKnows reports whether a thread of some warps knows clock of component c.
func (h *hazards) anyKnows(warps []*warp, c int, clock uint32) bool {
	for _, w := range warps {
		var last *snapshot
		for _, s := range w.shadow.snap {
			if s != last && at(s.v, c) >= clock {
				return true
			}
			last = s
		}
	}
	return false
}

// stuck explains a deadlock by the mbarriers that cannot complete.
func (h *hazards) stuck() {
	k := h.cl.g.k
	for _, b := range h.cl.ctas {
		for _, bar := range b.sortedMbarriers() {
			if bar.pending == 0 && bar.tx != 0 {
				h.found.note(k, Error, RuleMbarrierTx, fmt.Sprintf("the phase of the %s cannot end: bytes expected and bytes copied differ", bar), bar.init)
			}
		}
	}
	for _, w := range h.cl.warps {
		for _, s := range w.splits {
			if s.wait.kind != onMbarrier {
				continue
			}
			i := trailing(s.mask) & 31
			bar := s.wait.cta.mbars[s.wait.addr]
			if bar == nil || bar.seen == nil {
				continue
			}
			if target := bar.target(bar.seen[w.own(i)], s.wait.parity); int64(bar.phase)-1 > target {
				a := w.accessOf(&k.code[s.pc])
				a.lane = i
				h.found.note(k, Error, RuleMbarrierPhase, fmt.Sprintf("waits for ever: phase %d of the %s has ended, and another since", target, bar), a)
			}
		}
	}
}
