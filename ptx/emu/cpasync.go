package emu

import (
	"fmt"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Copies that a thread groups and waits for by number, cp.async and st.async.

var _ = register(map[string]func(*compiler, *ptx.Instr) error{
	"cp.async": buildCpAsync, "cp.async.commit_group": buildCommit(false), "cp.async.wait_group": buildWaitGroup(false),
	"cp.async.wait_all": buildWaitGroup(false), "cp.async.mbarrier.arrive": buildCpAsyncArrive,
	"cp.async.bulk.commit_group": buildCommit(true), "cp.async.bulk.wait_group": buildWaitGroup(true),
	"st.async": buildStAsync,
})

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
	dst, err := c.sharedRef(spShared, arg(in, "dst"))
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
			_, off := dst(w, i)
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
