package gen

import (
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// NamedBarrier lets a fixed set of warps of the CTA meet (bar.sync).
type NamedBarrier struct {
	k       *Kernel
	id      ptx.Operand
	threads int
}

// NamedBarrier reserves one of the CTA's fifteen named barriers for the given
// number of threads, a multiple of 32.
func (k *Kernel) NamedBarrier(threads int) NamedBarrier {
	return k.NamedBarriers(1, threads, k.Int(0))
}

// NamedBarriers reserves n of them and returns the one of an index, which is the
// same in all of its threads.
func (k *Kernel) NamedBarriers(n, threads int, index Value) NamedBarrier {
	first := k.barID
	k.barID += n
	if k.barID > 16 {
		k.errorf("more than 15 named barriers")
	}
	return NamedBarrier{k, index.Add(first).op, threads}
}

// Sync waits until all threads of the barrier have come.
func (b NamedBarrier) Sync() {
	b.k.emit("bar.sync", b.id, ptx.Imm(b.threads))
}

// Any waits like Sync and reports whether v held in any of the threads.
func (b NamedBarrier) Any(v Value) Value {
	return b.k.apply(isa.Pred, "bar.red.or.pred", b.id, ptx.Imm(b.threads), v.op)
}

// Arrive counts the warp as come and goes on.
func (b NamedBarrier) Arrive() {
	b.k.emit("bar.arrive", b.id, ptx.Imm(b.threads))
}

// SyncCTA waits for every thread of the CTA.
func (k *Kernel) SyncCTA() { k.emit("bar.sync", ptx.Imm(0)) }

// SyncWarp orders shared memory among the warp's lanes.
func (k *Kernel) SyncWarp() { k.emit("bar.warp.sync", fullMask) }

// SyncCluster waits for every thread of the cluster; what was written before
// is visible to the peers after.
func (k *Kernel) SyncCluster() {
	k.emit("barrier.cluster.arrive.release.aligned")
	k.emit("barrier.cluster.wait.acquire.aligned")
}

// FenceAsync makes this thread's ordinary writes to shared memory visible to
// wgmma and to the copy engine, after the barrier that follows.
func (k *Kernel) FenceAsync() { k.emit("fence.proxy.async.shared::cta") }

// WaitForPreviousGrid waits until the grids this launch depends on have ended
// and their writes are visible; without programmatic launch it does nothing.
func (k *Kernel) WaitForPreviousGrid() { k.emit("griddepcontrol.wait") }

// AllowNextGrid lets a dependent grid be scheduled beside this one.
func (k *Kernel) AllowNextGrid() { k.emit("griddepcontrol.launch_dependents") }

// Barrier is an array of mbarriers in shared memory.
type Barrier struct {
	k        *Kernel
	at       Region
	n        int
	arrivals int
	counts   []int // arrivals of each, where they differ
}

// Barrier reserves n mbarriers whose phases complete after the given number of
// arrivals (and all announced bytes).
func (k *Kernel) Barrier(name string, n, arrivals int) *Barrier {
	b := &Barrier{k: k, at: k.SharedArray(name, isa.B64, n), n: n, arrivals: arrivals}
	k.inits = append(k.inits, b)
	return b
}

// Arrive counts the warp as come to mbarrier i and goes on; what its lanes have
// written to shared memory is visible to who waits.
func (b *Barrier) Arrive(i Value) {
	k := b.k
	k.SyncWarp()
	k.If(k.Lane().Eq(0), func() { k.emit("mbarrier.arrive.shared.b64", ptx.Sink{}, b.at.At(i).addr(0)) })
}

// Waiter is a side that waits for the phases of a barrier's mbarriers, one after
// the other.
type Waiter struct {
	b      *Barrier
	parity *Var
}

// Waiter begins with the first phase. Unlike a named barrier's Sync, waiting for
// an mbarrier does not wait for multiplies that the warp has issued (seen on an
// H200).
func (b *Barrier) Waiter() Waiter { return Waiter{b, b.k.Var(b.k.Int(0))} }

// Wait waits until the phase of mbarrier i has completed, and is then for the
// next.
func (w Waiter) Wait(i Value) {
	w.b.k.await(w.b.at.At(i).addr(0), w.parity.Value)
	w.parity.Set(w.parity.Xor(1))
}

// InitBarriers initialises every mbarrier declared so far, in one thread, and
// publishes them to the CTA and to the copy engine.
func (k *Kernel) InitBarriers() {
	k.Comment("initialise mbarriers")
	k.If(k.Thread().Eq(0), func() {
		for _, b := range k.inits {
			for i := range b.n {
				arrivals := b.arrivals
				if b.counts != nil {
					arrivals = b.counts[i]
				}
				k.emit("mbarrier.init.shared.b64", b.at.addr(i), ptx.Imm(arrivals))
			}
		}
		k.emit("fence.mbarrier_init.release.cluster")
		k.emit("fence.proxy.async")
	})
	k.inits = nil
	k.SyncCTA()
}

// expect counts one arrival and announces bytes on the barrier at a.
func (k *Kernel) expect(a ptx.Addr, bytes int) {
	k.emit("mbarrier.arrive.expect_tx.shared.b64", ptx.Sink{}, a, ptx.Imm(bytes))
}

// await spins until the phase of the given parity has completed.
func (k *Kernel) await(a ptx.Addr, parity Value) {
	head := k.label("await")
	done := k.reg(isa.Pred)
	k.place(head)
	k.emit("mbarrier.try_wait.parity.shared.b64", done, a, parity.register())
	k.emitIf(ptx.Guard{P: done, Negate: true}, "bra", head)
}
