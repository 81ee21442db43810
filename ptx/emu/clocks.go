package emu

// Vector clocks. Every thread of the cluster is a component, and so is every
// agent of the async proxy: an mbarrier (for the copies it counts), a warp's
// multiplications, a thread's bulk groups.
//
// A component's clock grows with its releases. An access is stamped with its
// component's clock; it happens before whoever knows that clock.

// snapshot is what a thread knows: v[c] is the clock up to which it knows
// component c, and p[c] the clock up to which what c wrote through the generic
// proxy has been made visible to the async proxy by a fence on the way here.
// f is what it knows of other clusters. Snapshots are immutable and shared by
// the lanes of a warp.
type snapshot struct {
	v, p []uint32
	f    *foreign
}

func at(v []uint32, i int) uint32 {
	if i < len(v) {
		return v[i]
	}
	return 0
}

// join raises v to the maximum of v and w.
func join(v, w []uint32) []uint32 {
	if len(w) > len(v) {
		v = append(v, make([]uint32, len(w)-len(v))...)
	}
	v = v[:len(v):cap(v)]
	for i, x := range w {
		if x > v[i] {
			v[i] = x
		}
	}
	return v
}

func raise(v []uint32, i int, x uint32) []uint32 {
	if i >= len(v) {
		v = append(v, make([]uint32, i+1-len(v))...)
	}
	if x > v[i] {
		v[i] = x
	}
	return v
}

func covers(v, w []uint32) bool {
	for i, x := range w {
		if x > at(v, i) {
			return false
		}
	}
	return true
}

// gather accumulates releases, for those that acquire them together.
type gather struct {
	v, p []uint32
	f    *foreign
}

func (g *gather) clone() gather {
	return gather{append([]uint32(nil), g.v...), append([]uint32(nil), g.p...), g.f}
}

// own is the component of lane i of w.
func (w *warp) own(i int) int { return w.gid*lanes + i }

// release adds what lanes m know and have done to g, and begins a new clock.
func (w *warp) release(m uint32, g *gather) {
	if w.hz == nil {
		return
	}
	w.releaseOnly(m, g)
	w.hz.tick(w)
}

func (w *warp) releaseOnly(m uint32, g *gather) {
	sh := w.shadow
	var last *snapshot
	for y := m; y != 0; y &= y - 1 {
		i := trailing(y)
		if s := sh.snap[i]; s != last {
			g.v, g.p, g.f = join(g.v, s.v), join(g.p, s.p), g.f.join(s.f)
			last = s
		}
		g.v = raise(g.v, w.own(i), sh.clock)
	}
	if len(w.cl.ctas) > 1 {
		g.v = raise(g.v, w.hz.life(w), sh.clock)
	}
}

// acquire makes lanes m know what g has gathered.
func (w *warp) acquire(m uint32, g *gather) {
	if w.hz == nil || g == nil {
		return
	}
	w.learn(m, func(s *snapshot) bool { return covers(s.v, g.v) && covers(s.p, g.p) && s.f.covers(g.f) }, func(s *snapshot) {
		s.v, s.p, s.f = join(s.v, g.v), join(s.p, g.p), s.f.join(g.f)
	})
}

// learn replaces the snapshots of lanes m by changed copies, shared where they
// were shared before, unless known says that there is nothing to change.
func (w *warp) learn(m uint32, known func(*snapshot) bool, change func(*snapshot)) {
	sh := w.shadow
	var from, to *snapshot
	for y := m; y != 0; y &= y - 1 {
		i := trailing(y)
		s := sh.snap[i]
		if s != from {
			from, to = s, s
			if !known(s) {
				to = &snapshot{append([]uint32(nil), s.v...), append([]uint32(nil), s.p...), s.f}
				change(to)
			}
		}
		sh.snap[i] = to
	}
}

// syncLanes orders the accesses of lanes m before whatever they do next.
func (w *warp) syncLanes(m uint32) {
	if w.hz == nil {
		return
	}
	var g gather
	w.release(m, &g)
	w.acquire(m, &g)
}
