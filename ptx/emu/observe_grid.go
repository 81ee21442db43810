package emu

import (
	"fmt"
	"slices"
	"sync/atomic"
)

// Observers of global memory that the CTAs of one grid share: who wrote what,
// and whether whoever reads it is ordered after that.

// foreign is what is known of other clusters' threads: vector clocks by
// cluster. Values are immutable; nil knows nothing.
type foreign struct{ by map[int][]uint32 }

func (f *foreign) of(cluster int) []uint32 {
	if f == nil {
		return nil
	}
	return f.by[cluster]
}

func (f *foreign) covers(g *foreign) bool {
	if g == nil || f == g {
		return true
	}
	for id, v := range g.by {
		if !covers(f.of(id), v) {
			return false
		}
	}
	return true
}

func (f *foreign) join(g *foreign) *foreign {
	switch {
	case f.covers(g):
		return f
	case f == nil:
		return g
	}
	out := &foreign{map[int][]uint32{}}
	for id, v := range f.by {
		out.by[id] = v
	}
	for id, v := range g.by {
		out.by[id] = join(append([]uint32(nil), out.by[id]...), v)
	}
	return out
}

// meetingPoint is a location that strong accesses synchronise on: what was
// released to it, for the releaser's own cluster and, when the scope was gpu
// or wider, for everyone.
type meetingPoint struct {
	near, far map[int][]uint32
	version   uint64   // grows with every release
	known     *foreign // far, as of some version, for those who acquire it
	asOf      uint64
}

// snapshot returns what the point has for other clusters.
func (p *meetingPoint) snapshot() *foreign {
	if p.known == nil || p.asOf != p.version {
		f := &foreign{map[int][]uint32{}}
		for id, v := range p.far {
			f.by[id] = append([]uint32(nil), v...)
		}
		p.known, p.asOf = f, p.version
	}
	return p.known
}

// fencePoint is what a thread knew at its last fence.
type fencePoint struct {
	snap  *snapshot
	clock uint32
	wide  bool // gpu scope or wider
}

func wideScope(scope string) bool { return scope != "cta" && scope != "cluster" }

// point returns the meeting point at a global address. Kernels with strong
// accesses run on one host thread.
func (g *grid) point(addr uint64) *meetingPoint {
	p := g.points[addr]
	if p == nil {
		p = &meetingPoint{near: map[int][]uint32{}, far: map[int][]uint32{}, version: 1}
		if g.points == nil {
			g.points = map[uint64]*meetingPoint{}
		}
		g.points[addr] = p
	}
	return p
}

// strongWrite notes that lanes m write strongly to global memory: a release
// publishes all that they know, a relaxed one what they knew at their last
// fence.
func (h *hazards) strongWrite(w *warp, m uint32, addr memOperand, release bool, scope string) {
	id := h.cl.id
	each(m, func(i int) {
		k := fencePoint{w.shadow.snap[i], w.shadow.clock, true}
		if !release {
			k = w.shadow.fence[i]
			if k.snap == nil {
				return
			}
		}
		p := h.cl.g.point(addr.at(w, i))
		p.version++
		publish := func(to map[int][]uint32) {
			v := k.snap.v
			to[id] = raise(join(to[id], v[:min(len(v), h.threads)]), w.own(i), k.clock)
			if k.snap.f != nil {
				for other, v := range k.snap.f.by {
					to[other] = join(to[other], v)
				}
			}
		}
		publish(p.near)
		if k.wide && wideScope(scope) {
			publish(p.far)
		}
	})
	h.tick(w)
}

// strongRead notes that lanes m read strongly from global memory. What an
// acquire finds is known at once, what a relaxed one finds after a fence.
func (h *hazards) strongRead(w *warp, m uint32, addr memOperand, acquire bool, scope string) {
	sh := w.shadow
	for m != 0 {
		first := addr.at(w, trailing(m))
		var same uint32 // lanes that read the same location
		each(m, func(i int) {
			if addr.at(w, i) == first {
				same |= 1 << i
			}
		})
		m &^= same
		p := h.cl.g.point(first)
		if sh.point == p && sh.pointVersion == p.version && same&^sh.pointLanes == 0 {
			continue // a poll that finds nothing new
		}
		got := gather{v: slices.Clone(p.near[h.cl.id])}
		if wideScope(scope) {
			got.f = p.snapshot()
		}
		if acquire {
			w.acquire(same, &got)
			sh.point, sh.pointVersion, sh.pointLanes = p, p.version, same
			continue
		}
		sh.late.change()
		sh.late.v, sh.late.f = join(sh.late.v, got.v), sh.late.f.join(got.f)
	}
}

// fence notes a fence of lanes m.
func (h *hazards) fence(w *warp, m uint32, scope string) {
	sh := w.shadow
	w.acquire(m, &sh.late)
	sh.late = gather{}
	each(m, func(i int) { sh.fence[i] = fencePoint{sh.snap[i], sh.clock, wideScope(scope)} })
	h.tick(w)
}

const (
	stampBytes = 2 // granularity of the writers' shadow
	stampCells = pageBytes / stampBytes
)

// writerPage is the shadow of one page of global memory: the last writer of
// every 2 bytes in this grid.
type writerPage struct {
	stamp [stampCells]atomic.Uint64
	op    [stampCells]atomic.Int32
}

// A stamp is cluster+1, component and clock.
const (
	clockBits = 26
	compBits  = 14
)

func makeStamp(cluster, comp int, clock uint32) uint64 {
	return uint64(cluster+1)<<(clockBits+compBits) | uint64(comp)<<clockBits | uint64(clock)&(1<<clockBits-1)
}

func splitStamp(s uint64) (cluster, comp int, clock uint32) {
	return int(s>>(clockBits+compBits)) - 1, int(s >> clockBits & (1<<compBits - 1)), uint32(s & (1<<clockBits - 1))
}

// writers holds the shadows of an allocation's pages.
type writers struct{ pages []atomic.Pointer[writerPage] }

// writersOf returns the shadow of allocation a in this grid.
func (g *grid) writersOf(a *allocation) *writers {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.writers == nil {
		g.writers = map[*allocation]*writers{}
	}
	x := g.writers[a]
	if x == nil {
		x = &writers{make([]atomic.Pointer[writerPage], len(a.pages))}
		g.writers[a] = x
	}
	return x
}

func (x *writers) page(i uint64, create bool) *writerPage {
	slot := &x.pages[i]
	p := slot.Load()
	if p == nil && create {
		p = new(writerPage)
		if !slot.CompareAndSwap(nil, p) {
			p = slot.Load()
		}
	}
	return p
}

// globalOrder checks a weak access of lane i to n bytes at off of a, in one
// page, against the writes of this grid, and stamps a write.
func (h *hazards) globalOrder(w *warp, i int, a *allocation, off uint64, n int, f flavour) {
	sh := w.shadow
	if sh.writersOf != a {
		sh.writersOf, sh.writers = a, h.cl.g.writersOf(a)
	}
	p := sh.writers.page(off>>pageShift, f.write)
	if p == nil {
		return
	}
	first := off % pageBytes / stampBytes
	last := (off%pageBytes + uint64(n) - 1) / stampBytes
	mine := makeStamp(h.cl.id, w.own(i), sh.clock)
	if f.atomic {
		mine = 0 // ordered by what it synchronises, not by a stamp
	}
	var before uint64
	for c := first; c <= last; c++ {
		s := p.stamp[c].Load()
		if s != 0 && s != before && !f.atomic && !h.ordered(w, i, s) {
			h.globalRace(w, i, a, off, f.write, s, p.op[c].Load())
		}
		before = s
		if f.write && n >= stampBytes {
			p.op[c].Store(int32(w.at.index))
			p.stamp[c].Store(mine)
		}
	}
}

// ordered reports whether lane i of w knows the write of a stamp.
func (h *hazards) ordered(w *warp, i int, stamp uint64) bool {
	cluster, comp, clock := splitStamp(stamp)
	s := w.shadow.snap[i]
	if cluster == h.cl.id {
		return comp == w.own(i) || at(s.v, comp) >= clock
	}
	return at(s.f.of(cluster), comp) >= clock
}

func (h *hazards) globalRace(w *warp, i int, a *allocation, off uint64, write bool, stamp uint64, op int32) {
	cluster, comp, _ := splitStamp(stamp)
	g := h.cl.g
	perCTA := len(h.cl.warps) / len(h.cl.ctas)
	earlier := access{op: &g.k.code[op], k: g.k, warp: comp / lanes % perCTA, lane: comp % lanes}
	earlier.cta = g.ctaNumber(cluster, comp/lanes/perCTA)
	if write {
		// Two writers of equal values do no harm.
		w.reportLane(i, Advice, RuleGlobalRace, fmt.Sprintf("writes %s+%#x, which another thread wrote, with nothing to order them", a.name, off), earlier)
		return
	}
	w.reportLane(i, Error, RuleGlobalRace, fmt.Sprintf("reads %s+%#x, which another thread of the grid wrote, with nothing to order them", a.name, off), earlier)
}
