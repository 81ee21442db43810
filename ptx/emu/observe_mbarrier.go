package emu

import "fmt"

// Observers of mbarriers.

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

// relaxedArrive lets a relaxed arrival at the cluster barrier carry that the
// warp has come so far and what fence.mbarrier_init has made visible, and
// nothing else.
func (h *hazards) relaxedArrive(w *warp, m uint32, g *gather) {
	g.raise(h.life(w), w.shadow.clock)
	h.tick(w)
	h.ownMbarriers(w, m, func(bar *mbarrier) {
		if bar.shown {
			g.raise(bar.known, 1)
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
	h.remote(w, i, bar.cta)
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
	bar.done.raise(bar.comp, uint32(bar.phase))
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
	bar.rel.raise(c, uint32(w.copies[i].committed)+1)
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
			bar.seen[k] = -1
		}
	}
	// Other threads may have waited for phases in between and told this one.
	known := int64(at(w.shadow.snap[i].v, bar.comp)) - 1
	target := bar.target(max(bar.seen[w.own(i)], known), parity)
	if !done && int64(bar.phase)-1 > target {
		// A thread that skips phases may mean a later one; a deadlock proves otherwise.
		w.reportLane(i, Advice, RuleMbarrierPhase, fmt.Sprintf("waits for phase %d of the %s, which has ended %d phases since: the parity stands for a later one",
			target, bar, int64(bar.phase)-1-target))
	}
	if done {
		bar.seen[w.own(i)] = target
	}
}

// target returns the phase that a thread means by a parity when last, or −1, is
// the last phase that it knows to have ended: that one or the next.
func (b *mbarrier) target(last int64, parity uint64) int64 {
	if uint64(last+1)&1 == parity {
		return last + 1
	}
	return last
}

// latePhase reports bytes that arrived in a later phase than they were issued in.
func (h *hazards) latePhase(bar *mbarrier, at access, issued uint64, bytes int) {
	h.found.note(h.cl.g.k, Error, RuleMbarrierTx,
		fmt.Sprintf("%d bytes were issued in phase %d of the %s and arrive in phase %d: the phase expected fewer bytes than its copies bring", bytes, issued, bar, bar.phase), at)
}
