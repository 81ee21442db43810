package emu

import "fmt"

// Observers of copies and of the async proxy.

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

// readLines is readAsync of lane 0 for many lines, most of which have the same
// history as the one before.
func (h *hazards) readLines(w *warp, b *cta, list []uint32, a asyncAgent) {
	sh, op := b.shadow, int32(w.at.index)
	block, bit := uint16(a.comp/lanes), uint32(1)<<(a.comp%lanes)
	const kind = asyncWrite | threadCopy
	var seen, met cell // the last write that is seen, and the last readers that are known
	for _, off := range list {
		c := &sh.lines[off/lineBytes]
		if c.flags&splitCell != 0 || !sh.lineInitialised(off/lineBytes) {
			h.readAsync(w, 0, b, off, lineBytes, a)
			continue
		}
		if c.writer != 0 && (c.writer != seen.writer || c.wclock != seen.wclock || (c.flags^seen.flags)&kind != 0) && h.asyncSees(w, 0, c) {
			seen = *c
		}
		switch {
		case c.mask == 0:
		case c.block == block && c.rclock == a.clock:
			c.mask |= bit
			c.rop = op
			c.flags &^= atomicRead
			continue
		case c.block == met.block && c.mask == met.mask && c.rclock == met.rclock:
		default:
			if ok, _ := h.readersKnown(w, 0, c.block, c.mask, c.rclock); !ok {
				h.pushReader(sh, c)
			} else {
				met = *c
			}
		}
		c.block, c.mask, c.rclock, c.rop = block, bit, a.clock, op
		c.flags = c.flags&^atomicRead | asyncReads
	}
}

// asyncSees checks that asynchronous work issued by lane i of w sees the write
// of cell c.
func (h *hazards) asyncSees(w *warp, i int, c *cell) bool {
	comp := int(c.writer) - 1
	async := c.flags&asyncWrite != 0
	switch {
	case !h.known(w, i, c) && async:
		w.reportLane(i, Error, RuleInFlight, "reads shared memory that an asynchronous copy writes, without having waited for its completion", h.who(comp, c.wop, true))
	case !h.known(w, i, c):
		w.reportLane(i, Error, RuleRace, "reads, through the async proxy, shared memory that another thread wrote, with nothing to order them", h.who(comp, c.wop, false))
	case c.unfenced(w.shadow.snap[i]):
		w.reportLane(i, Error, RuleProxy, "reads through the async proxy what was written through the generic one, with no fence.proxy.async between", h.who(comp, c.wop, false))
	default:
		return true
	}
	return false
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

// proxyFence makes the generic writes that lanes m know visible to the async proxy.
func (h *hazards) proxyFence(w *warp, m uint32) {
	clock := w.shadow.clock
	w.learn(m, func(*snapshot) bool { return false }, func(s *snapshot) {
		s.p = join(append([]uint32(nil), s.p...), s.v)
		each(m, func(i int) { s.p = raise(s.p, w.own(i), clock) })
	})
	h.initFence(w, m, false)
	h.tick(w)
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
