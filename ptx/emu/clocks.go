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
	if len(w) > len(v) {
		for _, x := range w[len(v):] {
			if x != 0 {
				return false
			}
		}
		w = w[:len(v)]
	}
	v = v[:len(w)]
	for i, x := range w {
		if x > v[i] {
			return false
		}
	}
	return true
}

// joined is join that leaves v as it is, and is v where that has everything.
func joined(v, w []uint32) []uint32 {
	if covers(v, w) {
		return v
	}
	return join(append(make([]uint32, 0, max(len(v), len(w))), v...), w)
}

// gather accumulates releases, for those that acquire them together.
type gather struct {
	v, p []uint32
	f    *foreign

	from *snapshot    // the last that was released to it
	all  *snapshot    // what it has, for those who knew nothing else; shares v and p
	last [2]*snapshot // the last that acquired it, before and after
}

func (g *gather) clone() gather {
	return gather{v: append([]uint32(nil), g.v...), p: append([]uint32(nil), g.p...), f: g.f}
}

// change prepares g for more releases.
func (g *gather) change() {
	if g.all != nil {
		g.v, g.p = append([]uint32(nil), g.v...), append([]uint32(nil), g.p...)
		g.all = nil
	}
	g.last = [2]*snapshot{}
}

// add releases a snapshot.
func (g *gather) add(s *snapshot) {
	if s == g.from {
		return
	}
	g.change()
	g.v, g.p, g.f = join(g.v, s.v), join(g.p, s.p), g.f.join(s.f)
	g.from = s
}

// raise releases component c up to clock x.
func (g *gather) raise(c int, x uint32) {
	if at(g.v, c) < x {
		g.change()
		g.v = raise(g.v, c, x)
	}
}

// with returns what whoever knows s knows after acquiring g: s itself, or a
// snapshot that others who knew the same share.
func (g *gather) with(s *snapshot) *snapshot {
	if s == g.last[0] {
		return g.last[1]
	}
	to := s
	switch {
	case covers(s.v, g.v) && covers(s.p, g.p) && s.f.covers(g.f):
	case s == g.from || covers(g.v, s.v) && covers(g.p, s.p) && g.f.covers(s.f):
		if g.all == nil {
			g.all = &snapshot{g.v, g.p, g.f}
		}
		to = g.all
	default:
		to = &snapshot{joined(s.v, g.v), joined(s.p, g.p), s.f.join(g.f)}
	}
	g.last = [2]*snapshot{s, to}
	return to
}

// own is the component of lane i of w.
func (w *warp) own(i int) int { return w.gid*lanes + i }

// multiplications is the component of w's wgmma. The warp itself knows them up
// to wgDone, which its snapshots do not say.
func (w *warp) multiplications() int { return w.group.comp + w.id%4 }

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
			g.add(s)
			last = s
		}
		g.raise(w.own(i), sh.clock)
	}
	if w.wgDone > 0 {
		g.raise(w.multiplications(), uint32(w.wgDone))
	}
	if len(w.cl.ctas) > 1 {
		g.raise(w.hz.life(w), sh.clock)
	}
}

// acquire makes lanes m know what g has gathered.
func (w *warp) acquire(m uint32, g *gather) {
	if w.hz == nil || g == nil {
		return
	}
	sh := w.shadow
	for ; m != 0; m &= m - 1 {
		s := &sh.snap[trailing(m)]
		*s = g.with(*s)
	}
}

// learn replaces the snapshots of lanes m by changed copies, shared where they
// were shared before, unless known says that there is nothing to change. What
// change changes beside v it must copy.
func (w *warp) learn(m uint32, known func(*snapshot) bool, change func(*snapshot)) {
	sh := w.shadow
	var from, to *snapshot
	for y := m; y != 0; y &= y - 1 {
		i := trailing(y)
		s := sh.snap[i]
		if s != from {
			from, to = s, s
			if !known(s) {
				to = &snapshot{append([]uint32(nil), s.v...), s.p, s.f}
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
