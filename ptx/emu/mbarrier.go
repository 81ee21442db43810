package emu

import "fmt"

// mbarrier is the state of an mbarrier object. It lives beside the 8 bytes of
// shared memory that name it, since PTX leaves their contents opaque.
type mbarrier struct {
	cta      *cta
	addr     uint32
	expected int    // arrivals per phase
	pending  int    // arrivals that the phase still wants
	tx       int64  // bytes that the phase still wants
	phase    uint64 // completed phases

	comp   int     // its component of the vector clocks
	rel    gather  // releases so far
	done   gather  // releases of the completed phases
	fenced bool    // fence.mbarrier_init or fence.proxy.async since init
	known  int     // component that stands for "its init has been made visible"
	shown  bool    // fence.mbarrier_init since init
	init   access  // the mbarrier.init
	owner  int     // component of the thread that ran it
	born   uint32  // its clock then
	seen   []int64 // by thread, the last phase that it has waited for
	loads  uint64  // one more than the last phase in which a copy was issued

	lastLoad access
}

const (
	maxPending = 1<<20 - 1
	maxTx      = 1<<20 - 1
)

// parityDone reports whether the phase with this parity is the last completed
// one. A fresh barrier's "phase −1" has parity 1.
func (b *mbarrier) parityDone(parity uint64) bool { return (b.phase+1)&1 == parity&1 }

// arrive counts n arrivals of w's lane.
func (b *mbarrier) arrive(w *warp, n int) {
	if n > b.pending {
		w.fail(RuleMbarrierCount, fmt.Sprintf("%s: %d arrivals where the phase wants %d more of %d", b, n, b.pending, b.expected))
	}
	b.pending -= n
	b.check()
}

// expect adds n bytes to what the phase wants.
func (b *mbarrier) expect(w *warp, n int64) {
	b.tx += n
	if b.tx > maxTx {
		w.fail(RuleMbarrierTx, fmt.Sprintf("%s: transaction count %d, at most %d", b, b.tx, maxTx))
	}
	b.cta.cl.touch()
}

// complete counts n bytes as arrived.
func (b *mbarrier) complete(n int64) {
	b.tx -= n
	b.check()
}

// check ends the phase when nothing is missing.
func (b *mbarrier) check() {
	cl := b.cta.cl
	cl.touch()
	if b.pending != 0 || b.tx != 0 {
		return
	}
	b.phase++
	b.pending = b.expected
	if cl.hz != nil {
		cl.hz.phaseEnd(b)
	}
	cl.wake()
}

// String names the barrier for reports.
func (b *mbarrier) String() string {
	bytes := fmt.Sprintf("%d bytes missing", b.tx)
	if b.tx < 0 {
		bytes = fmt.Sprintf("%d bytes too many", -b.tx)
	}
	return fmt.Sprintf("mbarrier at shared address %#x of CTA %d (phase %d, %d of %d arrivals and %s)",
		b.addr, b.cta.number, b.phase, b.pending, b.expected, bytes)
}

// mbarrierAt returns the live mbarrier at a shared address that w uses.
func (w *warp) mbarrierAt(i int, b *cta, addr uint32) *mbarrier {
	if addr%8 != 0 {
		w.failLane(i, RuleMisaligned, fmt.Sprintf("mbarrier at %#x, it must be 8-byte aligned", addr))
	}
	m := b.mbars[addr]
	if m == nil {
		w.failLane(i, RuleMbarrierInit, fmt.Sprintf("there is no mbarrier at shared address %#x of CTA %d: mbarrier.init has not run", addr, b.number))
	}
	if w.hz != nil {
		w.hz.useMbarrier(w, i, m)
	}
	return m
}
