package emu

import "fmt"

// Observers of shared memory: races between threads and uninitialised reads.

// shared checks an access by lane i of w to n bytes at off of b.
func (h *hazards) shared(w *warp, i int, b *cta, off uint32, n int, f flavour) {
	h.remote(w, i, b)
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
	own, done := w.own(i), w.wgDone
	for y := mask; y != 0; y &= y - 1 {
		comp := int(block)*lanes + trailing(y)
		if comp != own && at(s, comp) < clock && !(int(clock) <= done && comp == w.multiplications()) {
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
		c.more = sh.addMore(r)
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
func (h *hazards) releaseAt(w *warp, m uint32, sp space, addr memOperand, order strength) {
	if sp == spGlobal || sp == generic && addr.at(w, trailing(m)) >= heapBase {
		h.strongWrite(w, m, addr, order.release, order.scope)
		return
	}
	each(m, func(i int) { w.releaseOnly(1<<i, h.place(w, i, sp, addr)) })
	h.tick(w)
}

// acquireAt orders what lanes m do after a strong read.
func (h *hazards) acquireAt(w *warp, m uint32, sp space, addr memOperand, order strength) {
	if sp == spGlobal || sp == generic && addr.at(w, trailing(m)) >= heapBase {
		h.strongRead(w, m, addr, order.acquire, order.scope)
		return
	}
	each(m, func(i int) { w.acquire(1<<i, h.place(w, i, sp, addr)) })
}
