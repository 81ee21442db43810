package emu

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/emu/tma"
	"github.com/mlagen/mlagen/ptx/isa"
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

// copyGroups are one thread's groups of copies that it waits for by number.
type copyGroups struct {
	open      []*transfer
	closed    [][]*transfer
	committed uint64 // groups so far
	read      uint64 // groups whose sources a wait has shown to be read
}

func (g *copyGroups) commit() {
	g.closed = append(g.closed, g.open)
	g.open = nil
	g.committed++
}

// pending reports whether a group other than the newest n is not complete;
// with read, groups whose sources have been read count as complete.
func (g *copyGroups) pending(n int, read bool) bool {
	for k := 0; k < len(g.closed)-n; k++ {
		for _, t := range g.closed[k] {
			if !t.done() && !(read && len(t.steps) < 2) {
				return true
			}
		}
	}
	return false
}

// forget drops the groups that a wait has covered.
func (g *copyGroups) forget(n int) {
	if k := len(g.closed) - n; k > 0 {
		g.closed = g.closed[k:]
	}
}

var _ = register(map[string]func(*compiler, *ptx.Instr) error{
	"cp.async": buildCpAsync, "cp.async.commit_group": buildCommit(false), "cp.async.wait_group": buildWaitGroup(false),
	"cp.async.wait_all": buildWaitGroup(false), "cp.async.mbarrier.arrive": buildCpAsyncArrive,
	"cp.async.bulk.commit_group": buildCommit(true), "cp.async.bulk.wait_group": buildWaitGroup(true),
	"st.async": buildStAsync,
})

func (w *warp) groups(bulk bool, i int) *copyGroups {
	if bulk {
		return &w.bulk[i]
	}
	return &w.copies[i]
}

func buildCommit(bulk bool) func(*compiler, *ptx.Instr) error {
	return func(c *compiler, in *ptx.Instr) error {
		c.op.exec = func(w *warp, m uint32) { each(m, func(i int) { w.groups(bulk, i).commit() }) }
		return nil
	}
}

func buildWaitGroup(bulk bool) func(*compiler, *ptx.Instr) error {
	return func(c *compiler, in *ptx.Instr) error {
		n := 0
		all := len(in.Args) == 0 // cp.async.wait_all, which closes the open group too
		if !all {
			v, err := immediate(in.Args[0])
			if err != nil {
				return err
			}
			n = int(v)
		}
		read := in.Mod("read") != ""
		c.op.ctl = func(w *warp, s *split, m uint32) verdict {
			for y := m; y != 0; y &= y - 1 {
				g := w.groups(bulk, trailing(y))
				if all && len(g.open) > 0 {
					g.commit()
				}
				if g.pending(n, read) {
					s.wait = waitReason{kind: onBulk, id: n}
					return stall
				}
			}
			each(m, func(i int) {
				g := w.groups(bulk, i)
				before := g.committed - uint64(min(n, int(g.committed)))
				g.read = max(g.read, before)
				if !read {
					g.forget(n)
				}
				if w.hz != nil {
					w.hz.groupsDone(w, i, bulk, before, read)
				}
			})
			return next
		}
		return nil
	}
}

// buildCpAsync decodes cp.async: the copy of 4, 8 or 16 bytes by the thread
// itself, later.
func buildCpAsync(c *compiler, in *ptx.Instr) error {
	dst, err := c.memAddr(arg(in, "dst"))
	if err != nil {
		return err
	}
	src, err := c.memAddr(arg(in, "src"))
	if err != nil {
		return err
	}
	n64, err := immediate(arg(in, "cp-size"))
	if err != nil {
		return err
	}
	n := int(n64)
	if n != 16 && (in.Mod("ca") == "" || n != 4 && n != 8) {
		return fmt.Errorf("cp-size %d", n)
	}
	size := c.constant(uint64(n))
	if a := arg(in, "src-size"); a != nil {
		if size, err = c.src(a, isa.U32); err != nil {
			return err
		}
	}
	c.op.exec = func(w *warp, m uint32) {
		each(m, func(i int) {
			k := int(w.r[size][i])
			if k > n {
				w.failLane(i, RuleBounds, fmt.Sprintf("cp.async of %d bytes from a source of %d", n, k))
			}
			off := uint32(dst.at(w, i))
			if off%uint32(n) != 0 {
				w.failLane(i, RuleMisaligned, fmt.Sprintf("destination %#x, must be a multiple of %d", off, n))
			}
			w.inShared(i, w.cta, off, n)
			to := w.cta.shared[off : off+uint32(n)]
			from := make([]byte, n)
			if k > 0 {
				at := src.at(w, i)
				if at%uint64(n) != 0 {
					w.failLane(i, RuleMisaligned, fmt.Sprintf("source %#x, must be a multiple of %d", at, n))
				}
				for o := 0; o < k; o++ { // src-size need not be a power of two
					from[o] = w.bytes(spGlobal, at+uint64(o), 1, i, flavour{})[0]
				}
			}
			g := &w.copies[i]
			if w.hz != nil {
				w.hz.asyncWrite(w, i, w.cta, off, n, w.hz.copyComp(w, i), g.committed+1, threadCopy)
			}
			t := &transfer{at: w.access(i)}
			t.steps = []func(){func() { copy(to, from) }}
			g.open = append(g.open, t)
			w.cl.begin(t)
		})
	}
	return nil
}

// buildCpAsyncArrive decodes the arrival that happens once the thread's
// earlier cp.async are complete.
func buildCpAsyncArrive(c *compiler, in *ptx.Instr) error {
	ref, err := c.mbarrierRef(in, arg(in, "addr"))
	if err != nil {
		return err
	}
	noinc := in.Mod("noinc") != ""
	c.op.exec = func(w *warp, m uint32) {
		each(m, func(i int) {
			b, off := ref(w, i)
			bar := w.mbarrierAt(i, b, off)
			if !noinc {
				bar.pending++
			}
			var before []*transfer
			for _, g := range w.copies[i].closed {
				before = append(before, g...)
			}
			before = append(before, w.copies[i].open...)
			if w.hz != nil {
				w.hz.arriveLater(w, i, bar)
			}
			t := &transfer{at: w.access(i)}
			t.steps = []func(){func() {
				for _, x := range before {
					for !x.done() {
						w.cl.finish(x)
					}
				}
				bar.arrive(w, 1)
			}}
			w.cl.begin(t)
		})
	}
	return nil
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

// buildStAsync decodes st.async: a store to shared memory of the cluster whose
// bytes are counted on an mbarrier of the same CTA.
func buildStAsync(c *compiler, in *ptx.Instr) error {
	t := in.Type("type")
	dst, err := c.sharedRef(spCluster, arg(in, "a"))
	if err != nil {
		return err
	}
	mbar, err := c.sharedRef(spCluster, arg(in, "mbar"))
	if err != nil {
		return err
	}
	src := elements(arg(in, "b"))
	s, err := c.srcs(t, src...)
	if err != nil {
		return err
	}
	size := t.Bytes()
	n := size * len(s)
	c.op.exec = func(w *warp, m uint32) {
		each(m, func(i int) {
			b, off := dst(w, i)
			if int(off)%n != 0 {
				w.failLane(i, RuleMisaligned, fmt.Sprintf("st.async to %#x, must be a multiple of %d", off, n))
			}
			if int(off)+n > len(b.shared) {
				w.failLane(i, RuleBounds, b.outside(off, n))
			}
			mb, moff := mbar(w, i)
			if mb != b {
				w.failLane(i, RuleMbarrierInit, "st.async counts on an mbarrier of another CTA than it writes to")
			}
			bar := w.mbarrierAt(i, mb, moff)
			data := make([]byte, n)
			for k, r := range s {
				storeUint(data[k*size:(k+1)*size], w.r[r][i])
			}
			w.load(i, bar, b, []piece{{off, n}}, func() { copy(b.shared[off:], data) })
		})
	}
	return nil
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
			w.hz.globalAt(w, a, addr, n, write)
		}
		w.cl.stats.GlobalBytes += uint64(n)
		w.cl.stats.TMABytes += uint64(n)
		off := addr - a.base
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
