package emu

import (
	"fmt"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

var _ = register(map[string]func(*compiler, *ptx.Instr) error{
	"mbarrier.init": buildMbarrierInit, "mbarrier.inval": buildMbarrierInval,
	"mbarrier.expect_tx": buildMbarrierTx, "mbarrier.complete_tx": buildMbarrierTx,
	"mbarrier.arrive": buildMbarrierArrive, "mbarrier.arrive.expect_tx": buildMbarrierArrive,
	"mbarrier.arrive.noComplete": buildMbarrierArrive, "mbarrier.arrive_drop": buildMbarrierArrive,
	"mbarrier.pending_count": buildPendingCount,
	"mbarrier.test_wait":     buildMbarrierWait, "mbarrier.try_wait": buildMbarrierWait,
})

// mbarrierRef decodes an mbarrier's address. The function it returns gives the
// CTA and offset that lane i names.
func (c *compiler) mbarrierRef(in *ptx.Instr, a ptx.Operand) (func(w *warp, i int) (*cta, uint32), error) {
	sp, err := parseSpace(in.Mod("space"))
	if err != nil {
		return nil, err
	}
	return c.sharedRef(sp, a)
}

// sharedRef decodes an address that must lie in shared memory.
func (c *compiler) sharedRef(sp space, a ptx.Operand) (func(w *warp, i int) (*cta, uint32), error) {
	addr, err := c.memAddr(a)
	if err != nil {
		return nil, err
	}
	return func(w *warp, i int) (*cta, uint32) {
		target, at := w.sharedAddress(sp, spCluster, addr, i)
		b, off := w.sharedTarget(target, at, i)
		if off < sharedBase || int(off)+8 > len(b.shared) {
			w.failLane(i, RuleBounds, b.outside(off, 8))
		}
		return b, off
	}, nil
}

func buildMbarrierInit(c *compiler, in *ptx.Instr) error {
	ref, err := c.mbarrierRef(in, arg(in, "addr"))
	if err != nil {
		return err
	}
	count, err := c.src(arg(in, "count"), isa.U32)
	if err != nil {
		return err
	}
	c.op.exec = func(w *warp, m uint32) {
		each(m, func(i int) {
			b, off := ref(w, i)
			n := int(w.r[count][i])
			if off%8 != 0 {
				w.failLane(i, RuleMisaligned, fmt.Sprintf("mbarrier at %#x, must be a multiple of 8", off))
			}
			if n < 1 || n > maxPending {
				w.failLane(i, RuleMbarrierCount, fmt.Sprintf("mbarrier.init with count %d, must be 1 to %d", n, maxPending))
			}
			if old := b.mbars[off]; old != nil {
				w.reportLane(i, Error, RuleMbarrierInit, fmt.Sprintf("init of the live %s without mbarrier.inval", old), old.init)
			}
			bar := &mbarrier{cta: b, addr: off, expected: n, pending: n}
			bar.init = w.access(i)
			b.mbars[off] = bar
			clear(b.shared[off : off+8])
			if w.hz != nil {
				w.hz.initMbarrier(w, i, bar)
			}
			w.cl.touch()
		})
	}
	return nil
}

func buildMbarrierInval(c *compiler, in *ptx.Instr) error {
	ref, err := c.mbarrierRef(in, arg(in, "addr"))
	if err != nil {
		return err
	}
	c.op.exec = func(w *warp, m uint32) {
		each(m, func(i int) {
			b, off := ref(w, i)
			bar := w.mbarrierAt(i, b, off)
			if bar.tx != 0 {
				w.reportLane(i, Error, RuleMbarrierTx, fmt.Sprintf("inval of the %s", bar))
			}
			delete(b.mbars, off)
			if w.hz != nil {
				w.hz.endMbarrier(bar)
			}
		})
	}
	return nil
}

func buildMbarrierTx(c *compiler, in *ptx.Instr) error {
	ref, err := c.mbarrierRef(in, arg(in, "addr"))
	if err != nil {
		return err
	}
	bytes, err := c.src(arg(in, "txCount"), isa.U32)
	if err != nil {
		return err
	}
	expect := in.Form.Root == "mbarrier.expect_tx"
	c.op.exec = func(w *warp, m uint32) {
		each(m, func(i int) {
			b, off := ref(w, i)
			bar := w.mbarrierAt(i, b, off)
			if n := int64(w.r[bytes][i]); expect {
				bar.expect(w, n)
			} else {
				bar.complete(n)
			}
		})
	}
	return nil
}

func buildMbarrierArrive(c *compiler, in *ptx.Instr) error {
	ref, err := c.mbarrierRef(in, arg(in, "addr"))
	if err != nil {
		return err
	}
	d, err := c.dst(in.Args[0])
	if err != nil {
		return err
	}
	count := c.constant(1)
	if a := arg(in, "count"); a != nil {
		if count, err = c.src(a, isa.U32); err != nil {
			return err
		}
	}
	tx := c.constant(0)
	if a := arg(in, "txCount"); a != nil {
		if tx, err = c.src(a, isa.U32); err != nil {
			return err
		}
	}
	if _, sink := in.Args[0].(ptx.Sink); !sink && in.Mod("space") == "shared::cluster" {
		return fmt.Errorf("an arrival at a shared::cluster address returns no state, write _")
	}
	drop := in.Form.Root == "mbarrier.arrive_drop"
	whole := in.Form.Root == "mbarrier.arrive.noComplete"
	c.op.exec = func(w *warp, m uint32) {
		// All lanes of one instruction release together: what any of them did
		// before happens before the phase's completion.
		if w.hz != nil {
			w.hz.arriveAll(w, m, ref)
		}
		each(m, func(i int) {
			b, off := ref(w, i)
			bar := w.mbarrierAt(i, b, off)
			n := int(w.r[count][i])
			if n < 1 || n > maxPending {
				w.failLane(i, RuleMbarrierCount, fmt.Sprintf("arrival with count %d", n))
			}
			w.r[d][i] = bar.phase<<24 | uint64(bar.pending)
			if t := int64(w.r[tx][i]); t != 0 {
				bar.expect(w, t)
			}
			if drop {
				if bar.expected <= n {
					w.failLane(i, RuleMbarrierCount, fmt.Sprintf("arrive_drop takes the last arrivals of the %s", bar))
				}
				bar.expected -= n
			}
			if whole && n >= bar.pending {
				w.failLane(i, RuleMbarrierCount, fmt.Sprintf("noComplete arrival would end the phase of the %s", bar))
			}
			bar.arrive(w, n)
		})
		if w.hz != nil {
			w.hz.tick(w)
		}
	}
	return nil
}

func buildPendingCount(c *compiler, in *ptx.Instr) error {
	return c.unary(in, isa.U32, isa.B64, func(a uint64) uint64 { return a & (1<<24 - 1) })
}

// buildMbarrierWait decodes test_wait and try_wait. A try_wait whose phase is
// not complete stalls until it is; when nobody can run it returns false, as
// the hardware does after its time limit. Some return false at once, before
// the phase is complete or even after, which the hardware may do too.
func buildMbarrierWait(c *compiler, in *ptx.Instr) error {
	ref, err := c.mbarrierRef(in, arg(in, "addr"))
	if err != nil {
		return err
	}
	p, err := c.predDst(in.Args[0])
	if err != nil {
		return err
	}
	parity := in.Mod("parity") != ""
	name := "state"
	t := isa.B64
	if parity {
		name, t = "phaseParity", isa.U32
	}
	want, err := c.src(arg(in, name), t)
	if err != nil {
		return err
	}
	if a := arg(in, "suspendTimeHint"); a != nil {
		if _, err := c.src(a, isa.U32); err != nil {
			return err
		}
	}
	try := in.Form.Root == "mbarrier.try_wait"
	c.op.ctl = func(w *warp, s *split, m uint32) verdict {
		var done uint32
		for y := m; y != 0; y &= y - 1 {
			i := trailing(y)
			b, off := ref(w, i)
			bar := w.mbarrierAt(i, b, off)
			v := w.r[want][i]
			if parity && v > 1 {
				w.failLane(i, RuleMbarrierPhase, fmt.Sprintf("phase parity %d, must be 0 or 1", v))
			}
			if parity && bar.parityDone(v) || !parity && bar.phase > v>>24 {
				done |= 1 << i
			}
			if parity && w.hz != nil {
				w.hz.waitPhase(w, i, bar, v, done>>i&1 != 0)
			}
		}
		switch {
		case done == 0 && try && !s.retry && w.cl.rng.next()&7 == 0:
			w.setPred(p, m, 0) // the time limit is up at once
			return yield
		case done == 0 && try && !s.retry:
			b, off := ref(w, trailing(m))
			s.wait = waitReason{kind: onMbarrier, cta: b, addr: off, parity: w.r[want][trailing(m)]}
			return stall
		case try && done != 0 && w.cl.rng.next()&31 == 0 && !s.spurious:
			s.spurious = true // once per wait
			w.setPred(p, m, 0)
			return yield
		}
		s.spurious = false
		if done != 0 && w.hz != nil {
			w.hz.waited(w, done, ref)
		}
		w.setPred(p, m, done)
		if done == m {
			return next
		}
		return yield
	}
	return nil
}
