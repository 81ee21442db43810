package emu

import (
	"fmt"
)

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

	fences  uint32   // wgmma.fences so far, plus one
	touched []uint32 // the value of fences when a register was last accessed by other instructions
	accSeq  []int32  // 1 + the last multiplication that has it as an accumulator
	aSeq    []int32  // … as an operand A
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
	k := cl.g.k
	empty := &snapshot{}
	for _, b := range cl.ctas {
		b.shadow = newShadow(len(b.shared))
	}
	for _, w := range cl.warps {
		w.hz = h
		sh := &warpShadow{clock: 1, fences: 1, regs: make([]uint32, k.nregs), preds: make([]uint32, len(k.preds))}
		for i, r := range k.regs {
			if r == nil {
				sh.regs[i] = fullMask
			}
		}
		for i := range sh.snap {
			sh.snap[i] = empty
		}
		if k.wgmma {
			sh.touched = make([]uint32, k.nregs)
			sh.accSeq = make([]int32, k.nregs)
			sh.aSeq = make([]int32, k.nregs)
			if w.id%4 == 0 {
				h.comps = (h.comps + lanes - 1) / lanes * lanes
				w.group.comp = h.comps
				for i := range 4 {
					h.newComp(agent{what: "wgmma", cta: w.cta.number, warp: w.id + i})
				}
			}
		}
		w.shadow = sh
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
		sh.accSeq[r] = int32(x.seq + 1)
	}
	for _, r := range s.aRegs {
		if w.k.regs[r] == nil {
			continue
		}
		check(r, "operand A")
		if int(sh.accSeq[r]) > w.wgDone {
			h.registerInUse(w, r, "reads", "accumulator")
		}
		sh.aSeq[r] = int32(x.seq + 1)
	}
	q := w.id % 4
	stamp := asyncAgent{comp: w.group.comp + q, clock: uint32(x.seq + 1)}
	var list []uint32
	if s.aRegs == nil {
		a, _ := s.op.OperandA(x.a) // checked at issue
		list = a.Chunks(list)
	}
	b, _ := s.op.OperandB(x.b)
	list = b.Chunks(list)
	for _, off := range list {
		if int(off)+16 > len(w.cta.shared) || off < sharedBase {
			w.fail(RuleBounds, "wgmma operand: "+w.cta.outside(off, 16))
		}
		h.readAsync(w, 0, w.cta, off, 16, stamp)
	}
}

// wgmmaFence begins a new period of register accesses.
func (h *hazards) wgmmaFence(w *warp) { w.shadow.fences++ }

// wgmmaWaited makes lanes m know that w's multiplications up to wgDone are complete.
func (h *hazards) wgmmaWaited(w *warp, m uint32) {
	c, clock := w.group.comp+w.id%4, uint32(w.wgDone)
	w.learn(m, func(s *snapshot) bool { return at(s.v, c) >= clock }, func(s *snapshot) { s.v = raise(s.v, c, clock) })
}

// shared checks an access by lane i of w to n bytes at off of b.
func (h *hazards) shared(w *warp, i int, b *cta, off uint32, n int, f flavour) {
	sh := b.shadow
	if f.write {
		sh.written(off, n)
		sh.each(off, n, func(c *cell) { h.writeCell(w, i, sh, c, f.atomic) })
		return
	}
	if !sh.initialised(off, n) {
		w.reportLane(i, Error, RuleUninitShared, fmt.Sprintf("%d bytes at shared address %#x were never written", n, off))
		sh.written(off, n) // once
	}
	sh.each(off, n, func(c *cell) { h.readCell(w, i, sh, c, f.atomic) })
}

// known reports whether lane i of w knows the write of cell c.
func (h *hazards) known(w *warp, i int, c *cell) bool {
	comp := int(c.writer) - 1
	return comp == w.own(i) || at(w.shadow.snap[i].v, comp) >= c.wclock
}

// readersKnown reports whether lane i of w knows the reads of a set.
func (h *hazards) readersKnown(w *warp, i int, block uint16, mask, clock uint32) (bool, int) {
	s := w.shadow.snap[i].v
	own := w.own(i)
	for y := mask; y != 0; y &= y - 1 {
		comp := int(block)*lanes + trailing(y)
		if comp != own && at(s, comp) < clock {
			return false, comp
		}
	}
	return true, 0
}

func (h *hazards) readCell(w *warp, i int, sh *shadow, c *cell, atomic bool) {
	if c.writer != 0 && !(atomic && c.flags&atomicWrite != 0) && !h.known(w, i, c) {
		rule, text := RuleRace, "reads shared memory that another thread wrote, with nothing to order them"
		if c.flags&asyncWrite != 0 {
			rule, text = RuleInFlight, "reads shared memory that an asynchronous copy writes, without having waited for its completion"
		}
		w.reportLane(i, Error, rule, text, h.who(int(c.writer)-1, c.wop, c.flags&asyncWrite != 0))
	}
	h.addReader(w, i, sh, c, uint16(w.gid), 1<<i, w.shadow.clock, false, atomic)
}

// addReader notes a read in the cell.
func (h *hazards) addReader(w *warp, i int, sh *shadow, c *cell, block uint16, bit, clock uint32, async, atomic bool) {
	op := int32(w.at.index)
	switch {
	case c.mask == 0:
	case c.block == block && c.rclock == clock:
		c.mask |= bit
		c.rop = op
		if !atomic {
			c.flags &^= atomicRead
		}
		return
	default:
		if ok, _ := h.readersKnown(w, i, c.block, c.mask, c.rclock); !ok {
			h.pushReader(sh, c)
		}
	}
	c.block, c.mask, c.rclock, c.rop = block, bit, clock, op
	c.flags &^= asyncReads | atomicRead
	if async {
		c.flags |= asyncReads
	}
	if atomic {
		c.flags |= atomicRead
	}
}

// pushReader moves the cell's readers to the further ones.
func (h *hazards) pushReader(sh *shadow, c *cell) {
	r := reader{c.block, c.mask, c.rclock, c.rop, c.flags&asyncReads != 0}
	if c.more == 0 {
		c.more = sh.addMore([]reader{r})
		return
	}
	list := sh.more[c.more-1]
	for k := range list {
		if list[k].block == r.block {
			if list[k].rclock == r.rclock {
				list[k].mask |= r.mask
				return
			}
			if list[k].mask&^r.mask == 0 && list[k].rclock < r.rclock {
				list[k] = r
				return
			}
		}
	}
	sh.more[c.more-1] = append(list, r)
}

func (h *hazards) writeCell(w *warp, i int, sh *shadow, c *cell, atomic bool) {
	h.overMbarrier(w, i, c)
	if c.writer != 0 && !(atomic && c.flags&atomicWrite != 0) && !h.known(w, i, c) {
		h.unorderedWrite(w, i, c)
	}
	h.checkReaders(w, i, sh, c, func(comp int, op int32, async bool) {
		if atomic && c.flags&atomicRead != 0 {
			return
		}
		rule, text := RuleRace, "writes shared memory that another thread reads, with nothing to order them"
		if async {
			rule, text = RuleOverwrite, "writes shared memory that a copy or wgmma still reads"
		}
		w.reportLane(i, Error, rule, text, h.who(comp, op, async))
	})
	c.writer, c.wclock, c.wop = uint32(w.own(i))+1, w.shadow.clock, int32(w.at.index)
	c.flags &= splitCell | mbarrierCell
	if atomic {
		c.flags |= atomicWrite
	}
	c.mask = 0
}

func (h *hazards) unorderedWrite(w *warp, i int, c *cell) {
	comp := int(c.writer) - 1
	switch {
	case c.flags&asyncWrite != 0:
		w.reportLane(i, Error, RuleInFlight, "writes shared memory that an asynchronous copy writes, without having waited for its completion", h.who(comp, c.wop, true))
	case comp/lanes == w.gid && c.wop == int32(w.at.index) && c.wclock == w.shadow.clock:
		w.reportLane(i, Advice, RuleRace, "lanes of one store write the same bytes", h.who(comp, c.wop, false))
	default:
		w.reportLane(i, Error, RuleRace, "writes shared memory that another thread wrote, with nothing to order them", h.who(comp, c.wop, false))
	}
}

// checkReaders calls bad for a reader of the cell that lane i of w does not
// know, and drops the further readers.
func (h *hazards) checkReaders(w *warp, i int, sh *shadow, c *cell, bad func(comp int, op int32, async bool)) {
	if c.mask == 0 {
		return
	}
	if ok, comp := h.readersKnown(w, i, c.block, c.mask, c.rclock); !ok {
		bad(comp, c.rop, c.flags&asyncReads != 0)
	}
	if c.more == 0 {
		return
	}
	for _, r := range sh.more[c.more-1] {
		if ok, comp := h.readersKnown(w, i, r.block, r.mask, r.rclock); !ok {
			bad(comp, r.rop, r.async)
		}
	}
	sh.dropMore(c)
}

// asyncAgent stamps the accesses of asynchronous work.
type asyncAgent struct {
	comp  int
	clock uint32
}

// readAsync checks that asynchronous work issued by lane i of w may read n
// bytes at off of b.
func (h *hazards) readAsync(w *warp, i int, b *cta, off uint32, n int, a asyncAgent) {
	sh := b.shadow
	if !sh.initialised(off, n) {
		w.reportLane(i, Error, RuleUninitShared, fmt.Sprintf("%d bytes at shared address %#x were never written", n, off))
		sh.written(off, n)
	}
	block, bit := uint16(a.comp/lanes), uint32(1)<<(a.comp%lanes)
	sh.each(off, n, func(c *cell) {
		if c.writer != 0 {
			h.asyncSees(w, i, c)
		}
		h.addReader(w, i, sh, c, block, bit, a.clock, true, false)
	})
}

// unfenced reports whether the cell was written through the generic proxy and
// no fence has made that visible to the async one on the way to s.
func (c *cell) unfenced(s *snapshot) bool {
	return c.flags&(asyncWrite|threadCopy) != asyncWrite && at(s.p, int(c.writer)-1) < c.wclock
}

// asyncSees checks that asynchronous work issued by lane i of w sees the write
// of cell c.
func (h *hazards) asyncSees(w *warp, i int, c *cell) {
	comp := int(c.writer) - 1
	async := c.flags&asyncWrite != 0
	switch {
	case !h.known(w, i, c) && async:
		w.reportLane(i, Error, RuleInFlight, "reads shared memory that an asynchronous copy writes, without having waited for its completion", h.who(comp, c.wop, true))
	case !h.known(w, i, c):
		w.reportLane(i, Error, RuleRace, "reads, through the async proxy, shared memory that another thread wrote, with nothing to order them", h.who(comp, c.wop, false))
	case c.unfenced(w.shadow.snap[i]):
		w.reportLane(i, Error, RuleProxy, "reads through the async proxy what was written through the generic one, with no fence.proxy.async between", h.who(comp, c.wop, false))
	}
}

func (h *hazards) asyncRead(w *warp, i int, b *cta, off uint32, n, comp int, clock uint64) {
	h.readAsync(w, i, b, off, n, asyncAgent{comp, uint32(clock)})
}

// asyncWrite checks that a copy issued by lane i of w may overwrite n bytes at
// off of b, and stamps them.
func (h *hazards) asyncWrite(w *warp, i int, b *cta, off uint32, n, comp int, clock uint64, kind uint8) {
	sh := b.shadow
	sh.written(off, n)
	writer, op := uint32(comp)+1, int32(w.at.index)
	sh.each(off, n, func(c *cell) {
		h.overMbarrier(w, i, c)
		if c.writer != 0 {
			h.asyncOverWrite(w, i, c, writer, uint32(clock), kind)
		}
		h.checkReaders(w, i, sh, c, func(comp int, op int32, async bool) {
			text := "the copy overwrites shared memory that another thread may still read"
			if async {
				text = "the copy overwrites shared memory that a copy or wgmma may still read"
			}
			w.reportLane(i, Error, RuleRefill, text, h.who(comp, op, async))
		})
		c.writer, c.wclock, c.wop = writer, uint32(clock), op
		c.flags = c.flags&(splitCell|mbarrierCell) | asyncWrite | kind
		c.mask = 0
	})
}

// asyncOverWrite checks a copy against the write it replaces.
func (h *hazards) asyncOverWrite(w *warp, i int, c *cell, writer, clock uint32, kind uint8) {
	comp := int(c.writer) - 1
	async := c.flags&asyncWrite != 0
	switch {
	case async && c.writer == writer && c.wclock == clock && kind == 0:
		w.reportLane(i, Error, RuleRefill, "two copies of one phase write the same bytes", h.who(comp, c.wop, true))
	case !h.known(w, i, c):
		w.reportLane(i, Error, RuleRefill, "the copy overwrites what another has written, with nothing to order them", h.who(comp, c.wop, async))
	case kind == 0 && c.unfenced(w.shadow.snap[i]):
		w.reportLane(i, Error, RuleProxy, "the copy overwrites what was written through the generic proxy, with no fence.proxy.async between", h.who(comp, c.wop, false))
	}
}

// global checks an access to global memory.
func (h *hazards) global(w *warp, i int, a *allocation, addr uint64, n int, f flavour) {
	w.cl.stats.GlobalBytes += uint64(n)
	h.gridDependency(w, i, a, addr, n, f.write)
}

// globalAt checks an access of a copy.
func (h *hazards) globalAt(w *warp, a *allocation, addr uint64, n int, write bool) {
	if write {
		a.grids.wrote(a, addr, n, w.cl.g.number)
	}
}

// gridDependency checks that a programmatic launch has waited for the grids it
// may overlap when it reads what they wrote.
func (h *hazards) gridDependency(w *warp, i int, a *allocation, addr uint64, n int, write bool) {
	g := w.cl.g
	if write {
		a.grids.wrote(a, addr, n, g.number)
		return
	}
	if g.oldest < g.number && !h.hasWaited(w, i) {
		if by := a.grids.writer(a, addr); by >= g.oldest && by < g.number {
			w.reportLane(i, Error, RuleGridDependency, fmt.Sprintf("reads %s, which launch %d wrote and which this one, launch %d, may overlap, before griddepcontrol.wait", a.name, by, g.number))
		}
	}
}

// hasWaited reports whether lane i of w is ordered after a griddepcontrol.wait.
func (h *hazards) hasWaited(w *warp, i int) bool { return at(w.shadow.snap[i].v, h.gridComp) != 0 }

// gridWaited makes lanes m know that the previous grid is complete.
func (h *hazards) gridWaited(w *warp, m uint32) {
	w.learn(m, func(s *snapshot) bool { return at(s.v, h.gridComp) > 0 }, func(s *snapshot) { s.v = raise(s.v, h.gridComp, 1) })
}

func (h *hazards) uninitCopy(a *allocation, off uint64, n int, at access) {
	h.found.note(h.cl.g.k, Advice, RuleUninitGlobal, fmt.Sprintf("the copy reads bytes of %s that were never written", a.name), at)
}

// place returns the releases at an address that strong accesses synchronise on.
func (h *hazards) place(w *warp, i int, sp space, addr memOperand) *gather {
	a := addr.at(w, i)
	key := a
	if sp == spShared || sp == spCluster || sp == generic && inWindow(a, sharedWindow) {
		b, off := w.sharedTarget(spCluster, uint32(a), i)
		key = uint64(b.rank)<<32 | uint64(off)
	}
	g := h.places[key]
	if g == nil {
		g = &gather{}
		h.places[key] = g
	}
	return g
}

// releaseAt orders what lanes m did before a strong write.
func (h *hazards) releaseAt(w *warp, m uint32, sp space, addr memOperand) {
	each(m, func(i int) { w.releaseOnly(1<<i, h.place(w, i, sp, addr)) })
	h.tick(w)
}

// acquireAt orders what lanes m do after a strong read.
func (h *hazards) acquireAt(w *warp, m uint32, sp space, addr memOperand) {
	each(m, func(i int) { w.acquire(1<<i, h.place(w, i, sp, addr)) })
}

func (h *hazards) fence(*warp, uint32) {}

// proxyFence makes the generic writes that lanes m know visible to the async proxy.
func (h *hazards) proxyFence(w *warp, m uint32) {
	clock := w.shadow.clock
	w.learn(m, func(*snapshot) bool { return false }, func(s *snapshot) {
		s.p = join(s.p, s.v)
		each(m, func(i int) { s.p = raise(s.p, w.own(i), clock) })
	})
	h.initFence(w, m, false)
	h.tick(w)
}

// initFence makes the mbarriers that lanes m have initialised visible to the
// async proxy and, when the fence is fence.mbarrier_init, to whoever a relaxed
// arrival at the cluster barrier orders after it.
func (h *hazards) initFence(w *warp, m uint32, cluster bool) {
	h.ownMbarriers(w, m, func(bar *mbarrier) {
		bar.fenced = true
		bar.shown = bar.shown || cluster
	})
}

// ownMbarriers calls f for the mbarriers that lanes m of w have initialised.
func (h *hazards) ownMbarriers(w *warp, m uint32, f func(bar *mbarrier)) {
	for _, bar := range w.cta.mbars {
		if bar.init.warp == w.id && m>>bar.init.lane&1 != 0 {
			f(bar)
		}
	}
}

// relaxedArrive lets a relaxed arrival at the cluster barrier carry what
// fence.mbarrier_init has made visible, and nothing else.
func (h *hazards) relaxedArrive(w *warp, m uint32, g *gather) {
	h.ownMbarriers(w, m, func(bar *mbarrier) {
		if bar.shown {
			g.v = raise(g.v, bar.known, 1)
		}
	})
}

func (h *hazards) initMbarrier(w *warp, i int, bar *mbarrier) {
	bar.comp = h.newComp(agent{what: "copy", cta: bar.cta.number, warp: w.id, lane: i})
	bar.born = w.shadow.clock
	bar.owner = w.own(i)
	bar.known = h.newComp(agent{what: "mbarrier.init", cta: bar.cta.number, warp: w.id, lane: i})
	sh := bar.cta.shadow
	sh.written(bar.addr, 8)
	sh.each(bar.addr, 8, func(c *cell) { c.flags |= mbarrierCell })
}

// useMbarrier checks that lane i of w knows bar to be initialised.
func (h *hazards) useMbarrier(w *warp, i int, bar *mbarrier) {
	s := w.shadow.snap[i].v
	if w.own(i) != bar.owner && at(s, bar.owner) < bar.born && at(s, bar.known) == 0 {
		w.reportLane(i, Error, RuleMbarrierInit, fmt.Sprintf("uses the %s, with nothing to order it after the init", bar), bar.init)
	}
}

// endMbarrier ends the watch over the bytes of an mbarrier.
func (h *hazards) endMbarrier(bar *mbarrier) {
	bar.cta.shadow.each(bar.addr, 8, func(c *cell) { c.flags &^= mbarrierCell })
}

// overMbarrier reports a write over a live mbarrier.
func (h *hazards) overMbarrier(w *warp, i int, c *cell) {
	if c.flags&mbarrierCell != 0 {
		w.reportLane(i, Error, RuleMbarrierInit, "writes over a live mbarrier, which mbarrier.inval has not ended")
	}
}

// asyncBarrier checks that the async proxy sees bar's init.
func (h *hazards) asyncBarrier(w *warp, i int, bar *mbarrier) {
	if !bar.fenced {
		w.reportLane(i, Error, RuleMbarrierInit, fmt.Sprintf("a copy counts on the %s, whose init no fence.mbarrier_init or fence.proxy.async has made visible", bar), bar.init)
	}
}

// phaseEnd publishes what the arrivals of the phase have released.
func (h *hazards) phaseEnd(bar *mbarrier) {
	bar.done = bar.rel.clone()
	bar.done.v = raise(bar.done.v, bar.comp, uint32(bar.phase))
}

// arriveAll releases what lanes m have done to the mbarriers they arrive at.
func (h *hazards) arriveAll(w *warp, m uint32, ref func(w *warp, i int) (*cta, uint32)) {
	for y := m; y != 0; y &= y - 1 {
		i := trailing(y)
		b, off := ref(w, i)
		if bar := b.mbars[off]; bar != nil {
			w.releaseOnly(1<<i, &bar.rel)
		}
	}
}

// arriveLater releases for an arrival that follows the thread's cp.async.
func (h *hazards) arriveLater(w *warp, i int, bar *mbarrier) {
	w.releaseOnly(1<<i, &bar.rel)
	c := h.copyComp(w, i)
	bar.rel.v = raise(bar.rel.v, c, uint32(w.copies[i].committed)+1)
	h.tick(w)
}

// waited acquires the completed phases of the mbarriers that lanes m waited for.
func (h *hazards) waited(w *warp, m uint32, ref func(w *warp, i int) (*cta, uint32)) {
	var last *mbarrier
	var run uint32
	for y := m; y != 0; y &= y - 1 {
		i := trailing(y)
		b, off := ref(w, i)
		bar := b.mbars[off]
		if bar != last && last != nil {
			w.acquire(run, &last.done)
			run = 0
		}
		last = bar
		run |= 1 << i
	}
	if last != nil {
		w.acquire(run, &last.done)
	}
}

// waitPhase follows which phase each thread waits for and reports one that
// ended so long ago that its parity has come round again.
func (h *hazards) waitPhase(w *warp, i int, bar *mbarrier, parity uint64, done bool) {
	if bar.seen == nil {
		bar.seen = make([]int64, h.threads)
		for k := range bar.seen {
			bar.seen[k] = -2
		}
	}
	target := bar.target(w.own(i), parity)
	if !done && int64(bar.phase)-1 > target {
		// A thread that skips phases may mean a later one; a deadlock proves otherwise.
		w.reportLane(i, Advice, RuleMbarrierPhase, fmt.Sprintf("waits for phase %d of the %s, which has ended %d phases since: the parity stands for a later one",
			target, bar, int64(bar.phase)-1-target))
	}
	if done {
		bar.seen[w.own(i)] = target
	}
}

// target returns the phase that a thread, which has waited for its phases in
// turn, means by a parity.
func (b *mbarrier) target(thread int, parity uint64) int64 {
	last := b.seen[thread]
	switch {
	case last == -2: // its first wait
		return -int64(parity)
	case uint64(last+1)&1 == parity:
		return last + 1
	}
	return last
}

// latePhase reports bytes that arrived in a later phase than they were issued in.
func (h *hazards) latePhase(bar *mbarrier, at access, issued uint64, bytes int) {
	h.found.note(h.cl.g.k, Error, RuleMbarrierTx,
		fmt.Sprintf("%d bytes were issued in phase %d of the %s and arrive in phase %d: the phase expected fewer bytes than its copies bring", bytes, issued, bar, bar.phase), at)
}

func (h *hazards) lazyComp(m map[int]int, w *warp, i int, what string) int {
	c, ok := m[w.own(i)]
	if !ok {
		c = h.newComp(agent{what: what, cta: w.cta.number, warp: w.id, lane: i})
		m[w.own(i)] = c
	}
	return c
}

func (h *hazards) bulkComp(w *warp, i int) int { return h.lazyComp(h.bulkComps, w, i, "bulk copy") }

func (h *hazards) copyComp(w *warp, i int) int { return h.lazyComp(h.copyComps, w, i, "cp.async") }

// groupsDone makes lane i know that its copy groups below the given number are complete.
func (h *hazards) groupsDone(w *warp, i int, bulk bool, groups uint64, _ bool) {
	comps := h.copyComps
	if bulk {
		comps = h.bulkComps
	}
	if c, ok := comps[w.own(i)]; ok {
		w.learn(1<<i, func(s *snapshot) bool { return at(s.v, c) >= uint32(groups) }, func(s *snapshot) { s.v = raise(s.v, c, uint32(groups)) })
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
		for id := range b.bars {
			if bar := &b.bars[id]; bar.turn != nil {
				h.found.note(k, Error, RuleBarrier, fmt.Sprintf("CTA %d ends with %d threads at barrier %d, which wants %s", b.number, bar.arrived, id, threadCount(bar.expected)),
					access{op: bar.first, k: k, cta: b.number})
			}
		}
		for _, bar := range b.sortedMbarriers() {
			if bar.loads > 0 && !h.anyKnows(bar.comp, uint32(bar.loads)) {
				h.found.note(k, Error, RuleLeftover, "the CTA ends without having waited for a copy into its shared memory", bar.lastLoad)
			}
			if bar.tx != 0 {
				h.found.note(k, Error, RuleMbarrierTx, fmt.Sprintf("CTA %d ends with the %s", b.number, bar), bar.init)
			}
		}
	}
}

// anyKnows reports whether some thread knows clock of component c.
func (h *hazards) anyKnows(c int, clock uint32) bool {
	for _, w := range h.cl.warps {
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
			if target := bar.target(w.own(i), s.wait.parity); int64(bar.phase)-1 > target {
				a := w.accessOf(&k.code[s.pc])
				a.lane = i
				h.found.note(k, Error, RuleMbarrierPhase, fmt.Sprintf("waits for ever: phase %d of the %s has ended, and another since", target, bar), a)
			}
		}
	}
}

// banks counts the cycles that an access of n bytes a lane takes beyond the
// fewest its width allows. A wide access is done in parts of 128 bytes.
func (h *hazards) banks(w *warp, m uint32, addrs *[lanes]uint32, n int) {
	group := lanes
	if n > wordBytes {
		group = max(lanes*wordBytes/n, 1)
	}
	words := max(n/wordBytes, 1)
	extra := 0
	for first := 0; first < lanes; first += group {
		var seen [32][4]uint32
		var count [32]uint8
		worst := uint8(0)
		for i := first; i < first+group; i++ {
			if m>>i&1 == 0 {
				continue
			}
			for k := range words {
				word := addrs[i]/wordBytes + uint32(k) + 1
				bank := word & 31
				c := count[bank]
				dup := false
				for j := range min(c, 4) {
					if seen[bank][j] == word {
						dup = true
						break
					}
				}
				if dup {
					continue
				}
				if c < 4 {
					seen[bank][c] = word
				}
				count[bank]++
				worst = max(worst, count[bank])
			}
		}
		if worst > 1 {
			extra += int(worst) - 1
		}
	}
	s := &w.cl.conflicts[w.at.index]
	s.times++
	s.extra += uint64(extra)
	w.cl.stats.BankConflicts += uint64(extra)
}

type conflictCount struct{ times, extra uint64 }
