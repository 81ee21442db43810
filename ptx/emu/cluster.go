package emu

import (
	"fmt"
	"maps"
	"slices"
)

// cluster is a group of CTAs that run at the same time (one CTA when the
// launch has no clusters), with its scheduler.
type cluster struct {
	g      *grid
	id     int
	ctas   []*cta
	warps  []*warp
	rng    prng
	steps  uint64
	epoch  uint64 // grows whenever something that a split may wait for happens
	effect uint64 // step of the last effect on memory or barriers

	granted uint64 // step at which another cluster last had an effect
	counts  []uint64
	stats   Stats
	hz      *hazards
	fatal   *Hazard

	async     []*transfer // under way
	nextDue   uint64      // when the first of them is due
	pace      pace
	scratch   *mmaScratch
	conflicts []conflictCount // per instruction
	barrier   clusterBarrier
	polls     uint64 // rounds of try_wait time-outs without effect
	spins     int    // polls that have found nothing since the last effect
}

// cta is one thread block.
type cta struct {
	cl     *cluster
	rank   int // in the cluster
	number int // linear index in the grid
	id     [3]uint32
	shared []byte // indexed by shared address
	warps  []*warp
	bars   [16]namedBarrier
	mbars  map[uint32]*mbarrier
	live   int // threads
	pool   int // registers that setmaxnreg may take
	shadow *shadow
	remote []remoteUse // by warp of the cluster
	mem    *ctaMemory
}

// pace is how a seed treats asynchronous work.
type pace uint8

const (
	paceMixed  pace = iota
	paceEager       // as soon as issued
	paceLazy        // only when nobody can run without it
	paceRandom      // uniformly late
	paces
)

func (g *grid) newCluster(id int) *cluster {
	cl := &cluster{g: g, id: id, rng: newPRNG(g.seed, g.turn(), uint64(id)+2)}
	cl.counts = make([]uint64, len(g.k.code))
	cl.conflicts = make([]conflictCount, len(g.k.code))
	cl.nextDue = never
	cl.pace = pace((g.seed + uint64(id)) % uint64(paces))
	if !g.m.cfg.NoHazards {
		cl.hz = newHazards(cl)
	}
	n := g.cfg.Cluster.count()
	corner := g.shape.at(id)
	for rank := range n {
		in := g.cfg.Cluster.at(rank)
		var at [3]uint32
		for d, size := range []int{g.cfg.Cluster.X, g.cfg.Cluster.Y, g.cfg.Cluster.Z} {
			at[d] = corner[d]*uint32(size) + in[d]
		}
		b := &cta{cl: cl, rank: rank, id: at, mbars: map[uint32]*mbarrier{}}
		b.number = int(at[0]) + g.cfg.Grid.X*(int(at[1])+g.cfg.Grid.Y*int(at[2]))
		b.mem = ctaMemories.Get().(*ctaMemory)
		b.mem.shared = zeroed(b.mem.shared, g.k.dynBase()+g.cfg.Shared)
		b.shared = b.mem.shared
		b.live = g.cfg.Block.count()
		cl.ctas = append(cl.ctas, b)
	}
	for _, b := range cl.ctas {
		b.start()
		cl.warps = append(cl.warps, b.warps...)
	}
	if cl.hz != nil {
		cl.hz.start()
	}
	return cl
}

// start creates the CTA's warps.
func (b *cta) start() {
	k, threads := b.cl.g.k, b.cl.g.cfg.Block.count()
	n := (threads + lanes - 1) / lanes
	regs := k.launchRegisters(threads)
	b.pool = 0
	b.mem.regs, b.mem.words = zeroed(b.mem.regs, n*k.nregs), zeroed(b.mem.words, n*(len(k.preds)+k.shadowWords()))
	slots, words := b.mem.regs, b.mem.words
	var group *wgroup
	for i := range n {
		if i%4 == 0 {
			group = &wgroup{}
		}
		w := &warp{cta: b, cl: b.cl, k: k, id: i, gid: b.rank*n + i, group: group}
		group.warps = append(group.warps, w)
		w.made = fullMask
		if rest := threads - i*lanes; rest < lanes {
			w.made = 1<<rest - 1
		}
		w.live, w.registers = w.made, regs
		w.r, w.p = cut(&slots, k.nregs), cut(&words, len(k.preds))
		if b.cl.hz != nil {
			w.shadow = newWarpShadow(k, cut(&words, k.shadowWords()))
		}
		for _, c := range k.consts {
			v := &w.r[c.slot]
			for l := range v {
				v[l] = c.value
			}
		}
		for _, s := range k.specials {
			v := &w.r[s.slot]
			for l := range v {
				v[l] = s.fill(w, l)
			}
		}
		w.splits = []*split{newSplit(0, w.made, nil)}
		b.warps = append(b.warps, w)
	}
}

// exited tells the CTA that lanes m of w have ended.
func (b *cta) exited(w *warp, m uint32) {
	n := popcount(m)
	b.live -= n
	b.cl.wake()
	for i := range b.bars {
		b.checkBarrier(i)
	}
	b.cl.barrier.exited(b.cl, n)
	if b.cl.hz != nil {
		b.cl.hz.lanesEnd(w, m)
	}
}

// wake lets stalled splits try again.
func (cl *cluster) wake() { cl.epoch++; cl.touch() }

// touch notes an effect, for the watchdog.
func (cl *cluster) touch() { cl.effect, cl.polls, cl.spins = cl.steps, 0, 0 }

// run executes up to budget warp instructions; done is true when all CTAs have
// ended.
func (cl *cluster) run(budget uint64) (done bool, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case fault:
			if cl.hz != nil {
				cl.hz.found.add(r.h)
			} else {
				cl.fatal = &r.h
			}
			err = fmt.Errorf("%s: %s", cl.g.describe(), r.h.String())
		default:
			panic(r)
		}
	}()
	end := cl.steps + budget
	for cl.steps < end {
		cl.advance(cl.steps)
		if cl.spinning() {
			cl.spins = 0
			if !cl.advanceOne() && cl.steps < end {
				end = cl.steps + 1 // what it waits for may be another cluster's to do
			}
		}
		w := cl.choose()
		if w != nil {
			w.run(cl.quantum())
			if cl.steps > max(cl.effect, cl.granted)+cl.g.m.cfg.MaxSteps {
				cl.livelock()
			}
			continue
		}
		if cl.finished() {
			cl.drain()
			if cl.hz != nil {
				cl.hz.end()
			}
			return true, nil
		}
		if cl.advanceOne() {
			continue
		}
		if !cl.timeout() {
			cl.deadlock()
		}
	}
	return false, nil
}

// spinning reports whether the cluster's warps seem to poll for something.
func (cl *cluster) spinning() bool {
	const polls, steps = 64, 100_000
	return cl.spins > polls*len(cl.warps) || cl.steps > cl.effect+steps && (cl.steps-cl.effect)%steps < 600
}

// quantum is how many instructions the chosen warp runs before another may.
func (cl *cluster) quantum() int {
	switch cl.rng.next() >> 62 {
	case 0:
		return 1 + cl.rng.intn(8)
	case 1:
		return 1 + cl.rng.intn(64)
	}
	return 1 + cl.rng.intn(512)
}

// choose returns a warp that can run, nil when there is none.
func (cl *cluster) choose() *warp {
	n := len(cl.warps)
	first := cl.rng.intn(n)
	for i := range n {
		w := cl.warps[(first+i)%n]
		if len(w.splits) > 0 && w.runnable(cl.epoch) {
			return w
		}
	}
	return nil
}

// sortedMbarriers returns the CTA's mbarriers by address.
func (b *cta) sortedMbarriers() []*mbarrier {
	var out []*mbarrier
	for _, a := range slices.Sorted(maps.Keys(b.mbars)) {
		out = append(out, b.mbars[a])
	}
	return out
}

func (cl *cluster) finished() bool {
	for _, w := range cl.warps {
		if w.live != 0 {
			return false
		}
	}
	return true
}

// timeout lets every split that is stalled in a try_wait return false, as the
// hardware does after its time limit. It reports false when that has been
// tried without any effect since.
func (cl *cluster) timeout() bool {
	const rounds = 3
	if cl.polls >= rounds {
		return false
	}
	any := false
	for _, w := range cl.warps {
		for _, s := range w.splits {
			if s.parked && s.wait.kind == onMbarrier {
				s.retry, s.parked, any = true, false, true
			}
		}
	}
	cl.polls++
	return any
}
