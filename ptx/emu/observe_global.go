package emu

import "fmt"

// Observers of global memory.

// global checks an access to global memory.
func (h *hazards) global(w *warp, i int, a *allocation, addr uint64, n int, f flavour) {
	w.cl.stats.GlobalBytes += uint64(n)
	h.gridDependency(w, i, a, addr, n, f.write)
	h.globalOrder(w, i, a, addr-a.base, n, f)
}

// globalAt checks an access of a copy that was issued at a place, by a thread that
// had waited for the previous grid or had not.
func (h *hazards) globalAt(w *warp, a *allocation, addr uint64, n int, write bool, at access, waited bool) {
	if text := h.overlapped(w, a, addr, n, write, waited); text != "" {
		h.found.note(h.cl.g.k, Error, RuleGridDependency, "the copy "+text, at)
	}
	if write {
		a.grids.wrote(a, addr, n, w.cl.g.number)
	}
}

// gridDependency checks that a launch that may overlap its predecessors has
// waited for them when it reads or overwrites what they wrote.
func (h *hazards) gridDependency(w *warp, i int, a *allocation, addr uint64, n int, write bool) {
	if text := h.overlapped(w, a, addr, n, write, h.hasWaited(w, i)); text != "" {
		w.reportLane(i, Error, RuleGridDependency, text)
	}
	if write {
		a.grids.wrote(a, addr, n, w.cl.g.number)
	}
}

// overlapped says what is wrong with an access by who has waited for the previous
// grid or has not, "" when nothing is.
func (h *hazards) overlapped(w *warp, a *allocation, addr uint64, n int, write, waited bool) string {
	g := w.cl.g
	if waited || g.oldest >= g.number {
		return ""
	}
	by := a.grids.writer(a, addr, n)
	if by <= 0 || by < g.oldest || by >= g.number {
		return ""
	}
	does := "reads"
	if write {
		does = "overwrites"
	}
	return fmt.Sprintf("%s %s, which launch %d wrote and which this one, launch %d, may overlap, before griddepcontrol.wait", does, a.name, by, g.number)
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
