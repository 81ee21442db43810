package emu

import "fmt"

// Observers of distributed shared memory: a CTA's shared memory may be touched
// by others only while it runs.

// remoteUse is the last access of a warp to another CTA's shared memory.
type remoteUse struct {
	warp  *warp
	lane  int
	clock uint32
	at    access
}

// life returns the component that stands for how far w has run. Unlike its
// lanes' components, which stand for what they have done to memory, relaxed
// arrivals at the cluster barrier publish it.
func (h *hazards) life(w *warp) int { return h.lives + w.gid }

// remote notes that lane i of w touches shared memory of CTA b, and checks
// that b is known to have started.
func (h *hazards) remote(w *warp, i int, b *cta) {
	if b == w.cta {
		return
	}
	sh := w.shadow
	if sh.met&(1<<b.rank) == 0 && !h.knowsAny(w, i, b) {
		w.reportLane(i, Error, RuleClusterLife, fmt.Sprintf("touches shared memory of CTA %d, with nothing to order it after that CTA's start", b.number))
	}
	sh.met |= 1 << b.rank
	use := &b.remote[w.gid]
	if use.warp == nil || use.clock != sh.clock || use.lane != i {
		*use = remoteUse{w, i, sh.clock, w.access(i)}
	}
}

// knowsAny reports whether lane i of w knows anything of a thread of b.
func (h *hazards) knowsAny(w *warp, i int, b *cta) bool {
	s := w.shadow.snap[i].v
	for _, x := range b.warps {
		if at(s, h.life(x)) > 0 {
			return true
		}
	}
	return false
}

// endOfCTA checks that the others' last accesses to b's shared memory happen
// before b ends.
func (h *hazards) endOfCTA(b *cta) {
	for k := range b.remote {
		use := &b.remote[k]
		if use.warp != nil && !h.anyKnows(b.warps, h.life(use.warp), use.clock) {
			h.found.note(h.cl.g.k, Error, RuleClusterLife, fmt.Sprintf("touches shared memory of CTA %d, which may have ended: it does not wait for this access", b.number), use.at)
		}
	}
}
