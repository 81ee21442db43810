package emu

import "math/bits"

const (
	lanes    = 32
	fullMask = ^uint32(0)
)

// vreg is one register of all lanes. Values narrower than 64 bits are kept
// zero-extended.
type vreg = [lanes]uint64

// warp is 32 threads and their registers.
type warp struct {
	cta  *cta
	cl   *cluster
	k    *kernel
	id   int // in the CTA
	gid  int // in the cluster
	r    []vreg
	p    []uint32 // predicates, a bit per lane
	live uint32   // lanes that have not exited
	made uint32   // lanes that exist

	splits []*split
	turn   int // index of the split to run
	at     *op // being executed
	cur    *split

	syncs []*warpSync // bar.warp.sync under way

	clusterArrived uint32 // lanes between barrier.cluster.arrive and wait
	clusterPhase   [lanes]uint64

	registers int     // per thread, moved by setmaxnreg
	group     *wgroup // warpgroup state of wgmma, shared by four warps
	wgSeq     int     // wgmma.mma_async issued by this warp
	wgGroups  []int   // wgSeq at the commits that no wait has covered
	wgDone    int     // multiplications that a wait has covered
	bulk      [lanes]copyGroups
	copies    [lanes]copyGroups
	local     [lanes][]byte

	lastAlloc *allocation // of the last global access
	addrs     [lanes]uint32
	rowBuf    [lanes][]byte

	hz     *hazards
	shadow *warpShadow
}

// split is a set of lanes that run together.
type split struct {
	pc   int
	rpc  int // where they meet their siblings, -1 = never
	mask uint32
	node *meeting

	wait   waitReason // why it is stalled
	epoch  uint64     // of the cluster when it stalled
	parked bool
	bar    *barWait // arrived at this barrier and not yet released
	retry  bool     // a timed-out try_wait: let it return false

	spurious bool // this wait has returned false for no reason
}

// meeting is a place where the splits of a divergent branch join again.
type meeting struct {
	rpc     int
	parent  *meeting
	open    int // splits and inner meetings under way
	arrived uint32
}

// waitReason says, for a deadlock report, what a split waits for.
type waitReason struct {
	kind   waitKind
	cta    *cta
	addr   uint32 // mbarrier
	parity uint64
	id     int // named barrier, or registers wanted
}

type waitKind uint8

const (
	notWaiting waitKind = iota
	onMbarrier
	onBarrier
	onWarp
	onCluster
	onWgmma
	onBulk
	onRegisters
)

func (w *warp) runnable(epoch uint64) bool {
	for _, s := range w.splits {
		if !s.parked || s.epoch != epoch {
			return true
		}
	}
	return false
}

// pick returns a split that can run, beginning with the current one.
func (w *warp) pick(epoch uint64) *split {
	for range w.splits {
		if w.turn >= len(w.splits) {
			w.turn = 0
		}
		s := w.splits[w.turn]
		if !s.parked || s.epoch != epoch {
			return s
		}
		w.turn++
	}
	return nil
}

// run executes up to quantum instructions of one split.
func (w *warp) run(quantum int) {
	cl, code := w.cl, w.k.code
	s := w.pick(cl.epoch)
	for s != nil && quantum > 0 {
		if s.pc == s.rpc {
			w.meet(s)
			s = w.pick(cl.epoch)
			continue
		}
		o := &code[s.pc]
		m := s.mask
		if o.guard >= 0 {
			p := w.p[o.guard]
			if o.neg {
				p = ^p
			}
			m &= p
		}
		w.at, w.cur = o, s
		quantum--
		cl.steps++
		if w.hz != nil {
			w.hz.registers(w, o, s.mask, m)
		}
		if m == 0 {
			s.pc++
			continue
		}
		if o.exec != nil {
			cl.counts[o.index] += uint64(bits.OnesCount32(m))
			o.exec(w, m)
			s.pc++
			continue
		}
		s.parked = false
		switch o.ctl(w, s, m) {
		case next:
			s.pc++
		case moved:
		case stall:
			s.parked, s.epoch = true, cl.epoch
			cl.steps--
			w.turn++
			s = w.pick(cl.epoch)
			continue
		case yield:
			s.pc++
			quantum = 0
			cl.spins++
			w.turn++
		case gone:
			cl.counts[o.index] += uint64(bits.OnesCount32(m))
			s = w.pick(cl.epoch)
			continue
		}
		s.wait = waitReason{}
		s.retry = false
		cl.counts[o.index] += uint64(bits.OnesCount32(m))
		if w.cur != s { // the branch has replaced it
			s = w.pick(cl.epoch)
		}
	}
}

// meet ends split s at its meeting point.
func (w *warp) meet(s *split) {
	w.drop(s)
	w.close(s.node, s.mask)
}

func (w *warp) drop(s *split) {
	for i, x := range w.splits {
		if x == s {
			w.splits = append(w.splits[:i], w.splits[i+1:]...)
			return
		}
	}
}

// close tells meeting n that one of its splits has ended, with lanes mask at
// the meeting point.
func (w *warp) close(n *meeting, mask uint32) {
	for n != nil {
		n.arrived |= mask
		n.open--
		if n.open > 0 {
			return
		}
		mask = n.arrived
		if mask != 0 && (n.parent == nil || n.parent.rpc != n.rpc) {
			w.splits = append(w.splits, newSplit(n.rpc, mask, n.parent))
			return
		}
		n = n.parent
	}
}

func newSplit(pc int, mask uint32, n *meeting) *split {
	s := &split{pc: pc, mask: mask, node: n, rpc: -1}
	if n != nil {
		s.rpc = n.rpc
	}
	return s
}

// branch sends lanes taken of s to target and the rest on.
func (w *warp) branch(s *split, taken uint32, o *op) verdict {
	rest := s.mask &^ taken
	if rest == 0 {
		s.pc = o.target
		return moved
	}
	n := s.node
	if n == nil || n.rpc != o.reconv {
		n = &meeting{rpc: o.reconv, parent: s.node, open: 1}
	}
	n.open++
	w.drop(s)
	a, b := newSplit(o.target, taken, n), newSplit(s.pc+1, rest, n)
	if w.cl.rng.bool() {
		a, b = b, a
	}
	w.splits = append(w.splits, a, b)
	w.turn = len(w.splits) - 2
	w.cur = nil
	return moved
}

// exitLanes ends the lanes of m.
func exitLanes(w *warp, s *split, m uint32) verdict {
	w.live &^= m
	w.cta.exited(w, m)
	w.checkSyncs()
	s.mask &^= m
	if s.mask != 0 {
		return next
	}
	w.drop(s)
	w.close(s.node, 0)
	return gone
}

// each calls f with every lane of m.
func each(m uint32, f func(i int)) {
	for ; m != 0; m &= m - 1 {
		f(bits.TrailingZeros32(m))
	}
}

// converged reports whether m is all of the warp's live lanes.
func (w *warp) converged(m uint32) bool { return m == w.live }

// uniform returns the value of register slot r in the lowest lane of m and
// whether all lanes of m agree.
func (w *warp) uniform(r int32, m uint32) (uint64, bool) {
	v := &w.r[r]
	first := v[bits.TrailingZeros32(m)]
	for x := m; x != 0; x &= x - 1 {
		if v[bits.TrailingZeros32(x)] != first {
			return first, false
		}
	}
	return first, true
}
