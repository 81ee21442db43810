package emu

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/emu/tma"
)

// Asynchronous work: copies that complete at times the seed decides.

// transfer is a copy under way. Its steps run in order, each at its own time.
type transfer struct {
	steps []func()
	due   uint64 // step of the cluster at which the next one runs
	at    access
}

func (t *transfer) done() bool { return len(t.steps) == 0 }

const never = math.MaxUint64

// delay draws how many warp instructions the next step of a transfer waits.
func (cl *cluster) delay() uint64 {
	switch cl.pace {
	case paceEager:
		return 0
	case paceLazy:
		return never
	case paceRandom:
		return uint64(cl.rng.intn(4000))
	}
	switch cl.rng.next() >> 62 {
	case 0:
		return 0
	case 1:
		return never
	case 2:
		return uint64(cl.rng.intn(200))
	}
	return uint64(cl.rng.intn(4000))
}

// begin puts a transfer under way.
func (cl *cluster) begin(t *transfer) {
	cl.schedule(t)
	cl.async = append(cl.async, t)
	cl.nextDue = min(cl.nextDue, t.due)
	cl.touch()
}

func (cl *cluster) schedule(t *transfer) {
	t.due = never
	if d := cl.delay(); d != never {
		t.due = cl.steps + d
	}
}

// advance runs the steps that are due.
func (cl *cluster) advance(now uint64) {
	if now < cl.nextDue {
		return
	}
	defer cl.wgmmaAdvance(now)
	for {
		cl.nextDue = never
		ready := -1
		n := 0
		for i, t := range cl.async {
			if t.due <= now {
				n++ // among those that are due, any may be first
				if cl.rng.intn(n) == 0 {
					ready = i
				}
			}
			cl.nextDue = min(cl.nextDue, t.due)
		}
		if ready < 0 {
			return
		}
		cl.step(ready)
	}
}

// step runs one step of transfer i.
func (cl *cluster) step(i int) {
	t := cl.async[i]
	f := t.steps[0]
	t.steps = t.steps[1:]
	if t.done() {
		cl.async[i] = cl.async[len(cl.async)-1]
		cl.async = cl.async[:len(cl.async)-1]
	} else {
		cl.schedule(t)
		cl.nextDue = min(cl.nextDue, t.due)
	}
	f()
	cl.wake()
}

// advanceOne runs a step of some transfer although none is due, for when
// nobody can run without it. It reports false when nothing is under way.
func (cl *cluster) advanceOne() bool {
	if len(cl.async) > 0 && (cl.rng.bool() || !cl.wgmmaPending()) {
		cl.step(cl.rng.intn(len(cl.async)))
		return true
	}
	return cl.wgmmaStep()
}

// drain completes what is left when the CTAs have ended.
func (cl *cluster) drain() {
	for len(cl.async) > 0 {
		cl.step(cl.rng.intn(len(cl.async)))
	}
}

// finish runs the next step of t.
func (cl *cluster) finish(t *transfer) {
	for i, x := range cl.async {
		if x == t {
			cl.step(i)
			return
		}
	}
}

// piece is a range of shared memory.
type piece struct {
	off uint32
	n   int
}

// load begins an asynchronous write of pieces of b's shared memory that is
// counted on bar.
func (w *warp) load(i int, bar *mbarrier, b *cta, pieces []piece, write func()) {
	bytes := 0
	for _, p := range pieces {
		bytes += p.n
	}
	phase := bar.phase
	at := w.access(i)
	if w.hz != nil {
		for _, p := range pieces {
			w.hz.asyncWrite(w, i, b, p.off, p.n, bar.comp, phase+1, 0)
		}
		w.hz.asyncBarrier(w, i, bar)
		bar.loads, bar.lastLoad = phase+1, at
	}
	t := &transfer{at: at}
	t.steps = []func(){func() {
		write()
		if bar.phase != phase && w.hz != nil {
			w.hz.latePhase(bar, at, phase, bytes)
		}
		bar.complete(int64(bytes))
	}}
	w.cl.begin(t)
}

// store begins an asynchronous read of a piece of the CTA's shared memory, in
// the lane's open bulk group: first read takes the source, then write stores it.
func (w *warp) store(i int, p piece, read, write func()) {
	g := &w.bulk[i]
	if w.hz != nil {
		w.hz.asyncRead(w, i, w.cta, p.off, p.n, w.hz.bulkComp(w, i), g.committed+1)
	}
	t := &transfer{at: w.access(i), steps: []func(){read, write}}
	g.open = append(g.open, t)
	w.cl.begin(t)
}

// memory returns the copy engine's view of global memory for warp w's lane i.
// Ranges that cross a page are staged; flush writes the staged stores back.
func (w *warp) memory(i int, write bool) (mem tma.Memory, flush func()) {
	at := w.access(i)
	waited := w.hz != nil && w.hz.hasWaited(w, i)
	heap := w.cl.g.m.heap
	type staged struct {
		addr uint64
		b    []byte
	}
	var late []staged
	mem = func(addr uint64, n int) ([]byte, error) {
		a, wrong := heap.locate(addr, uint64(n))
		if a == nil {
			return nil, fmt.Errorf("%d bytes: %s", n, wrong)
		}
		if w.hz != nil {
			w.hz.globalAt(w, a, addr, n, write, waited, at)
		}
		w.cl.stats.GlobalBytes += uint64(n)
		w.cl.stats.TMABytes += uint64(n)
		off := addr - a.base
		if copied := w.cl.g.m.cfg.Copied; copied != nil {
			copied(a.name, off, n)
		}
		if off>>pageShift == (off+uint64(n)-1)>>pageShift {
			if write {
				return a.poke(off, uint64(n)), nil
			}
			b, ok := a.peek(off, uint64(n))
			if !ok && w.hz != nil {
				w.hz.uninitCopy(a, off, n, at)
			}
			return b, nil
		}
		b := make([]byte, n)
		if err := heap.read(b, addr); err != nil {
			return nil, err
		}
		if write {
			late = append(late, staged{addr, b})
		}
		return b, nil
	}
	return mem, func() {
		for _, s := range late {
			_ = heap.write(s.addr, s.b) // located above
		}
	}
}

// dimension returns the number of coordinates of a tensor copy.
func dimension(in *ptx.Instr) int {
	n, _ := strconv.Atoi(strings.TrimSuffix(in.Mod("dim"), "d"))
	return n
}
