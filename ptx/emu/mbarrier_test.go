package emu

import "testing"

var (
	// Warp 1 waits for 32 arrivals of warp 0, by every spelling; each phase is
	// waited for in order.
	arrivals = body("mbarrier arrivals", `
	mov.u32 %r1, smem;
	setp.eq.u32 %p0, %t, 0;
	@%p0 mbarrier.init.shared.b64 [%r1], 32;
	@%p0 mbarrier.init.shared::cta.b64 [%r1+8], 32;
	@%p0 mbarrier.init.shared::cta.b64 [%r1+16], 32;
	@%p0 mbarrier.init.shared::cta.b64 [%r1+24], 64;
	fence.mbarrier_init.release.cluster;
	bar.sync 0;
	mad.lo.u32 %r2, %t, 4, %r1;
	setp.ge.u32 %p1, %t, 32;
	@%p1 bra $consumer;
	st.shared.b32 [%r2+64], %t;
	mbarrier.arrive.shared.b64 %d1, [%r1];
	mbarrier.pending_count.b64 %r9, %d1;
	st.shared.b32 [%r2+192], %t;
	mbarrier.arrive.release.cta.shared::cta.b64 _, [%r1+8];
	mapa.shared::cluster.u32 %r3, %r1, 0;
	mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3+16];
	mbarrier.arrive.shared::cluster.b64 _, [%r3+24], 2;
	mov.u32 %r0, 5;
	bra $end;
$consumer:
$w0:
	mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;
	@!%p2 bra $w0;
	ld.shared.b32 %r5, [%r2-64];
$w1:
	mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p2, [%r1+8], 0, 100;
	@!%p2 bra $w1;
	ld.shared.b32 %r6, [%r2+64];
$w2:
	mbarrier.test_wait.parity.shared.b64 %p2, [%r1+16], 0;
	@!%p2 bra $w2;
$w3:
	mbarrier.test_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r1+24], 0;
	@!%p2 bra $w3;
	mad.lo.u32 %r0, %r5, 100, %r6;
$end:
	bar.sync 0;
	@%p0 mbarrier.inval.shared.b64 [%r1];`)

	// Transactions counted by hand, states instead of parities, dropped arrivals.
	states = body("mbarrier states", `
	mov.u32 %r1, smem;
	setp.eq.u32 %p0, %t, 0;
	mov.u32 %r0, 0;
	@!%p0 bra $end;
	mbarrier.init.shared.b64 [%r1], 2;
	mapa.shared::cluster.u32 %r3, %r1, 0;
	mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 48;
	mbarrier.arrive.shared.b64 %d1, [%r1], 1;
	mbarrier.arrive.expect_tx.shared.b64 %d2, [%r1], 16;
	mbarrier.test_wait.shared.b64 %p1, [%r1], %d1;
	@%p1 add.u32 %r0, %r0, 1;
	mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r3], 60;
	mbarrier.complete_tx.shared.b64 [%r1], 4;
	mbarrier.test_wait.acquire.cta.shared.b64 %p1, [%r1], %d2;
	@%p1 add.u32 %r0, %r0, 2;
	mbarrier.arrive.noComplete.shared.b64 %d3, [%r1], 1;
	mbarrier.pending_count.b64 %r4, %d3;
	mad.lo.u32 %r0, %r4, 10, %r0;
	mbarrier.arrive_drop.shared.b64 %d4, [%r1];
$w0:
	mbarrier.try_wait.shared.b64 %p1, [%r1], %d4;
	@!%p1 bra $w0;
	mbarrier.arrive.expect_tx.release.cta.shared.b64 %d5, [%r1], 0;
$w1:
	mbarrier.try_wait.acquire.cta.shared.b64 %p1, [%r1], %d5, 50;
	@!%p1 bra $w1;
	mbarrier.expect_tx.shared.b64 [%r1], 8;
	mbarrier.arrive.expect_tx.shared::cluster.b64 _, [%r3], 8;
	mbarrier.complete_tx.shared.b64 [%r1], 16;
	mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%r3], 0;
	add.u32 %r0, %r0, 100;
	mbarrier.inval.shared.b64 [%r1];
	mbarrier.init.shared.b64 [%r1], 5;
	mbarrier.arrive_drop.release.cta.shared.b64 _, [%r1];
	mbarrier.arrive_drop.shared::cluster.b64 _, [%r3];
	mbarrier.arrive_drop.release.cluster.shared::cluster.b64 _, [%r3];
	mbarrier.arrive.shared.b64 %d6, [%r1];
	mbarrier.pending_count.b64 %r5, %d6;
	mad.lo.u32 %r0, %r5, 1000, %r0;
$end:`)
)

func TestMbarrierArrivals(t *testing.T) {
	want(t, runBody(t, arrivals, 64, 512), func(i int) uint32 {
		if i < 32 {
			return 5
		}
		return uint32((i-32)*100 + i - 32)
	})
}

func TestMbarrierStates(t *testing.T) {
	want(t, runBody(t, states, 32, 512)[:1], func(int) uint32 { return 2 + 20 + 100 + 2000 })
}

// TestMbarrierPhasesOfOthers: a thread's first wait at an mbarrier may be for a
// late phase, when those before it were waited for by others that it has met
// since. That is no wait for a phase long over.
func TestMbarrierPhasesOfOthers(t *testing.T) {
	r := newRig(t, `
	mov.u32 %r1, smem;
	setp.eq.u32 %p0, %t, 0;
	@%p0 mbarrier.init.shared.b64 [%r1], 1;
	bar.sync 0;
	setp.ge.u32 %p1, %t, 32;
	@%p1 bra $late;
	@%p0 mbarrier.arrive.shared.b64 _, [%r1];
$w0:
	mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;
	@!%p2 bra $w0;
	@%p0 mbarrier.arrive.shared.b64 _, [%r1];
$w1:
	mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 1;
	@!%p2 bra $w1;
	bar.sync 0;
	bar.sync 1, 64;
	@%p0 mbarrier.arrive.shared.b64 _, [%r1];
	bra $end;
$late:
	bar.sync 0;
	mbarrier.test_wait.parity.shared.b64 %p2, [%r1], 0;
	bar.sync 1, 64;
$w2:
	mbarrier.try_wait.parity.shared.b64 %p3, [%r1], 0;
	@!%p3 bra $w2;
	selp.b32 %r2, 1, 0, %p2;
	st.global.b32 [%mine], %r2;
$end:`)
	r.block, r.smem = Dim{64, 1, 1}, 64
	for seed := range uint64(8) {
		r.m.SetSeed(seed)
		out, rep, err := r.launch(64)
		if err != nil {
			t.Fatal(err)
		}
		if len(rep.Hazards) > 0 || out[32] != 0 {
			t.Errorf("seed %d: the phase had ended: %d; hazards %v", seed, out[32], rep.Hazards)
		}
	}
}
