package emu

import (
	"fmt"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Barriers between warps: barrier.cta (bar), bar.warp.sync, barrier.cluster.

var _ = register(map[string]func(*compiler, *ptx.Instr) error{
	"bar.sync":               buildBarrier(true, true),
	"bar.cta.sync":           buildBarrier(true, true),
	"bar.arrive":             buildBarrier(false, true),
	"bar.cta.arrive":         buildBarrier(false, true),
	"bar.red":                buildReduction(true),
	"barrier.sync":           buildBarrier(true, false),
	"barrier.cta.sync":       buildBarrier(true, false),
	"barrier.arrive":         buildBarrier(false, false),
	"barrier.cta.arrive":     buildBarrier(false, false),
	"barrier.red":            buildReduction(false),
	"barrier.cta.red":        buildReduction(false),
	"bar.warp.sync":          buildWarpSync,
	"barrier.cluster.arrive": buildClusterArrive,
	"barrier.cluster.wait":   buildClusterWait,
})

// namedBarrier is one of the 16 barriers of a CTA. Arrivals are counted in
// threads; a converged warp counts as 32.
type namedBarrier struct {
	arrived  int
	expected int  // of the generation under way
	whole    bool // expected is "every thread of the CTA"
	turn     *barTurn
	first    *op // the instruction that opened the generation
}

// barTurn is one generation of a named barrier.
type barTurn struct {
	complete bool
	rel      gather
	op       string // of the reduction, "" without one
	yes, no  int    // threads in which the reduction's predicate holds, and others
}

// barWait is a split's place in a barrier.
type barWait struct {
	turn *barTurn
	id   int
}

func buildBarrier(wait, aligned bool) func(*compiler, *ptx.Instr) error {
	return func(c *compiler, in *ptx.Instr) error {
		return c.barrier(in, in.Args, wait, aligned, nil)
	}
}

// reduction is what a barrier tells those that wait at it of a predicate in
// each of them.
type reduction struct {
	op   string // popc, and, or
	vote func(w *warp) uint32
	give func(w *warp, m uint32, t *barTurn)
}

// buildReduction decodes barrier.red: d, a{, b}, c.
func buildReduction(aligned bool) func(*compiler, *ptx.Instr) error {
	return func(c *compiler, in *ptx.Instr) error {
		last := len(in.Args) - 1
		r := &reduction{op: in.Mod("op")}
		if r.op == "" {
			r.op = "popc"
			d, err := c.dst(in.Args[0])
			if err != nil {
				return err
			}
			r.give = func(w *warp, m uint32, t *barTurn) { each(m, func(i int) { w.r[d][i] = uint64(t.yes) }) }
		} else {
			p, err := c.predDst(in.Args[0])
			if err != nil {
				return err
			}
			r.give = func(w *warp, m uint32, t *barTurn) {
				if r.op == "and" && t.no == 0 || r.op == "or" && t.yes > 0 {
					w.setPred(p, m, fullMask)
				} else {
					w.setPred(p, m, 0)
				}
			}
		}
		var err error
		if r.vote, err = c.predSrc(in.Args[last]); err != nil {
			return err
		}
		return c.barrier(in, in.Args[1:last], true, aligned, r)
	}
}

// barrier decodes an arrival at the barrier that args name, with its number of
// threads where there is one.
func (c *compiler) barrier(in *ptx.Instr, args []ptx.Operand, wait, aligned bool, r *reduction) error {
	aligned = aligned || in.Mod("aligned") != ""
	id, err := c.src(args[0], isa.U32)
	if err != nil {
		return err
	}
	count := int32(-1)
	if len(args) > 1 {
		if count, err = c.src(args[1], isa.U32); err != nil {
			return err
		}
	}
	passed := func(w *warp, s *split, m uint32, t *barTurn) verdict {
		w.acquire(s.mask, &t.rel)
		if r != nil {
			r.give(w, m, t)
		}
		return next
	}
	c.op.ctl = func(w *warp, s *split, m uint32) verdict {
		if s.bar != nil { // arrived before
			t := s.bar.turn
			if !t.complete {
				return stall
			}
			s.bar = nil
			return passed(w, s, m, t)
		}
		if aligned && !w.converged(m) {
			w.report(Error, RuleAligned, fmt.Sprintf("lanes %#x of %#x execute it", m, w.live))
		}
		n, ok := w.uniform(id, m)
		if !ok || n >= 16 {
			w.fail(RuleBarrier, fmt.Sprintf("barrier %d: it must be one number below 16 for the whole warp", n))
		}
		expected := -1
		if count >= 0 {
			e, ok := w.uniform(count, m)
			if !ok || e == 0 || e%lanes != 0 || e > maxBlock {
				w.fail(RuleBarrier, fmt.Sprintf("barrier %d: thread count %d, it must be a positive multiple of 32", n, e))
			}
			expected = int(e)
		}
		turn := w.cta.arriveBarrier(w, int(n), expected, m, r)
		if !wait {
			return next
		}
		if turn.complete {
			return passed(w, s, m, turn)
		}
		s.bar = &barWait{turn, int(n)}
		s.wait = waitReason{kind: onBarrier, cta: w.cta, id: int(n)}
		return stall
	}
	return nil
}

// arriveBarrier adds the lanes m of w to barrier id, with their votes where r
// is not nil.
func (b *cta) arriveBarrier(w *warp, id, expected int, m uint32, r *reduction) *barTurn {
	bar := &b.bars[id]
	op := ""
	if r != nil {
		op = r.op
	}
	if bar.turn == nil {
		bar.turn = &barTurn{op: op}
		bar.whole = expected < 0
		bar.expected = expected
		bar.first = w.at
	} else if bar.whole != (expected < 0) || !bar.whole && bar.expected != expected {
		w.report(Error, RuleBarrier, fmt.Sprintf("barrier %d with %s while %s is under way",
			id, threadCount(expected), threadCount(bar.expected)), w.accessOf(bar.first))
	} else if bar.turn.op != op {
		w.report(Error, RuleBarrier, fmt.Sprintf("barrier %d with %s while %s is under way", id, reductionName(op), reductionName(bar.turn.op)), w.accessOf(bar.first))
	}
	n := popcount(m)
	if w.converged(m) {
		n = lanes
	}
	bar.arrived += n
	turn := bar.turn
	if r != nil {
		yes := popcount(r.vote(w) & m)
		turn.yes += yes
		turn.no += popcount(m) - yes
	}
	w.release(m, &turn.rel)
	b.checkBarrier(id)
	return turn
}

func reductionName(op string) string {
	if op == "" {
		return "no reduction"
	}
	return "reduction " + op
}

func threadCount(n int) string {
	if n < 0 {
		return "all threads"
	}
	return fmt.Sprintf("%d threads", n)
}

// checkBarrier completes barrier id when everybody has arrived.
func (b *cta) checkBarrier(id int) {
	bar := &b.bars[id]
	if bar.turn == nil {
		return
	}
	expected := bar.expected
	if bar.whole {
		expected = 0
		for _, w := range b.warps {
			if w.live != 0 {
				expected += lanes
			}
		}
	}
	if bar.arrived < expected {
		return
	}
	bar.turn.complete = true
	*bar = namedBarrier{}
	b.cl.wake()
}

// warpSync is a bar.warp.sync that some lanes have reached.
type warpSync struct {
	mask, arrived uint32
	turn          barTurn
}

func buildWarpSync(c *compiler, in *ptx.Instr) error {
	mask, err := c.src(in.Args[0], isa.B32)
	if err != nil {
		return err
	}
	c.op.ctl = func(w *warp, s *split, m uint32) verdict {
		if s.bar != nil {
			if !s.bar.turn.complete {
				return stall
			}
			w.acquire(s.mask, &s.bar.turn.rel)
			s.bar = nil
			return next
		}
		v, ok := w.uniform(mask, m)
		members := uint32(v) & w.live
		if !ok || members&m != m {
			w.fail(RuleAligned, fmt.Sprintf("bar.warp.sync with mask %#x by lanes %#x", v, m))
		}
		if members == m { // everybody is here
			w.syncLanes(m)
			return next
		}
		var y *warpSync
		for _, x := range w.syncs {
			if x.mask == uint32(v) {
				y = x
			}
		}
		if y == nil {
			y = &warpSync{mask: uint32(v)}
			w.syncs = append(w.syncs, y)
		}
		y.arrived |= m
		w.release(m, &y.turn.rel)
		w.checkSyncs()
		if y.turn.complete {
			w.acquire(s.mask, &y.turn.rel)
			return next
		}
		s.bar = &barWait{turn: &y.turn}
		s.wait = waitReason{kind: onWarp}
		return stall
	}
	return nil
}

// checkSyncs completes the bar.warp.syncs that all living members have reached.
func (w *warp) checkSyncs() {
	open := w.syncs[:0]
	for _, y := range w.syncs {
		if members := y.mask & w.live; y.arrived&members == members {
			y.turn.complete = true
			w.cl.wake()
			continue
		}
		open = append(open, y)
	}
	w.syncs = open
}

// clusterBarrier is the one barrier of a cluster. Every live thread arrives,
// then waits.
type clusterBarrier struct {
	phase   uint64
	arrived int
	rel     gather
	done    []*gather // by phase
}

func (k *clusterBarrier) live(cl *cluster) int {
	n := 0
	for _, b := range cl.ctas {
		n += b.live
	}
	return n
}

func (k *clusterBarrier) check(cl *cluster) {
	if k.arrived == 0 || k.arrived < k.live(cl) {
		return
	}
	rel := k.rel
	k.done = append(k.done, &rel)
	k.rel = gather{}
	k.arrived = 0
	k.phase++
	cl.wake()
}

// exited accounts for n threads that will never arrive.
func (k *clusterBarrier) exited(cl *cluster, n int) { k.check(cl) }

func buildClusterArrive(c *compiler, in *ptx.Instr) error {
	aligned, relaxed := in.Mod("aligned") != "", in.Mod("sem") == "relaxed"
	c.op.ctl = func(w *warp, s *split, m uint32) verdict {
		if aligned && !w.converged(m) {
			w.report(Error, RuleAligned, fmt.Sprintf("lanes %#x of %#x execute it", m, w.live))
		}
		if again := w.clusterArrived & m; again != 0 {
			w.fail(RuleBarrier, fmt.Sprintf("lanes %#x arrive at the cluster barrier twice without waiting", again))
		}
		k := &w.cl.barrier
		w.clusterArrived |= m
		each(m, func(i int) { w.clusterPhase[i] = k.phase })
		if !relaxed {
			w.release(m, &k.rel)
		} else if w.hz != nil {
			w.hz.relaxedArrive(w, m, &k.rel)
		}
		k.arrived += popcount(m)
		k.check(w.cl)
		return next
	}
	return nil
}

func buildClusterWait(c *compiler, in *ptx.Instr) error {
	aligned := in.Mod("aligned") != ""
	c.op.ctl = func(w *warp, s *split, m uint32) verdict {
		if aligned && !w.converged(m) {
			w.report(Error, RuleAligned, fmt.Sprintf("lanes %#x of %#x execute it", m, w.live))
		}
		if w.clusterArrived&m != m {
			w.fail(RuleBarrier, fmt.Sprintf("lanes %#x wait at the cluster barrier without having arrived", m&^w.clusterArrived))
		}
		k := &w.cl.barrier
		for x := m; x != 0; x &= x - 1 {
			if k.phase <= w.clusterPhase[trailing(x)] {
				s.wait = waitReason{kind: onCluster}
				return stall
			}
		}
		w.clusterArrived &^= m
		w.acquire(m, k.done[w.clusterPhase[trailing(m)]])
		return next
	}
	return nil
}
