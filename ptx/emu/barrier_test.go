package emu

import (
	"strings"
	"testing"
)

var (
	// Four warps pass a value round through shared memory, by every spelling
	// of the named barrier; warp 3 only arrives at barrier 2.
	named = body("named barriers", `
	mov.u32 %r1, smem;
	mad.lo.u32 %r2, %t, 4, %r1;
	mul.lo.u32 %r3, %t, 3;
	st.shared.b32 [%r2], %r3;
	bar.sync 0;
	xor.b32 %r4, %t, 127;
	mad.lo.u32 %r5, %r4, 4, %r1;
	ld.shared.b32 %r6, [%r5];
	barrier.sync.aligned 1, 128;
	st.shared.b32 [%r2], %r6;
	barrier.cta.sync 3;
	ld.shared.b32 %r0, [%r5];
	barrier.sync 4, 128;
	barrier.cta.sync.aligned 5;
	shr.u32 %r7, %t, 5;
	setp.eq.u32 %p0, %r7, 3;
	@%p0 bra $producer;
	bar.sync 2, 128;
	barrier.sync.aligned 6, 128;
	barrier.cta.sync.aligned 7, 128;
	bar.sync 8, 128;
	ld.shared.b32 %r8, [%r1];
	add.u32 %r0, %r0, %r8;
	bra $end;
$producer:
	st.shared.b32 [%r1], 1000;
	bar.warp.sync 0xffffffff;
	bar.arrive 2, 128;
	barrier.arrive.aligned 6, 128;
	barrier.cta.arrive.aligned 7, 128;
	barrier.arrive 8, 128;
$end:`)

	// Four warps vote at barriers, by every spelling, and pass a word on at each.
	reductions = body("barrier reductions", `
	mov.u32 %r1, smem;
	mad.lo.u32 %r2, %t, 4, %r1;
	xor.b32 %r3, %t, 127;
	mad.lo.u32 %r3, %r3, 4, %r1;
	st.shared.b32 [%r2], %t;
	setp.eq.u32 %p0, %t, 77;
	setp.ne.u32 %p1, %t, 200;
	bar.red.popc.u32 %r4, 0, !%p0;
	ld.shared.b32 %r0, [%r3];
	barrier.red.popc.aligned.u32 %r5, 1, 128, %p0;
	barrier.cta.red.popc.u32 %r6, 2, %p1;
	mad.lo.u32 %r0, %r4, 1000, %r0;
	mad.lo.u32 %r0, %r5, 1000000, %r0;
	mad.lo.u32 %r0, %r6, 10000000, %r0;
	bar.red.or.pred %p2, 0, %p0;
	@%p2 add.u32 %r0, %r0, 200;
	bar.red.and.pred %p2, 0, 128, %p0;
	@%p2 add.u32 %r0, %r0, 1;
	barrier.red.and.pred %p0, 3, 128, !%p0;
	@%p0 add.u32 %r0, %r0, 1;
	barrier.red.or.aligned.pred %p3, 4, %p0;
	@%p3 add.u32 %r0, %r0, 1;
	barrier.cta.red.and.aligned.pred %p2, 5, %p1;
	@%p2 add.u32 %r0, %r0, 400;
	barrier.cta.red.or.pred %p2, 6, 128, !%p1;
	@%p2 add.u32 %r0, %r0, 1;`)

	clusters = body("clusters", `
	mov.u32 %r1, smem;
	mov.u32 %r2, %cluster_ctarank;
	mad.lo.u32 %r3, %t, 4, %r1;
	mad.lo.u32 %r4, %r2, 1000, %t;
	st.shared.b32 [%r3], %r4;
	barrier.cluster.arrive.release.aligned;
	barrier.cluster.wait.acquire.aligned;
	add.u32 %r5, %r2, 1;
	and.b32 %r5, %r5, 3;
	mapa.shared::cluster.u32 %r6, %r3, %r5;
	ld.shared::cluster.b32 %r0, [%r6];
	getctarank.shared::cluster.u32 %r7, %r6;
	mad.lo.u32 %r0, %r7, 100000, %r0;
	mad.lo.u32 %r8, %r2, 64, %t;
	mad.wide.u32 %mine, %r8, 4, %out;
	barrier.cluster.arrive.relaxed;
	barrier.cluster.wait;`)
)

// remoteArrivals initialises an mbarrier, shows it by fence.mbarrier_init and a
// relaxed cluster barrier, and arrives at the neighbour's.
var remoteArrivals = body("remote arrivals", `
	mov.u32 %r1, smem;
	setp.eq.u32 %p0, %t, 0;
	@%p0 mbarrier.init.shared.b64 [%r1], 32;
	@%p0 fence.mbarrier_init.release.cluster;
	barrier.cluster.arrive.relaxed.aligned;
	barrier.cluster.wait.acquire.aligned;
	mov.u32 %r2, %cluster_ctarank;
	xor.b32 %r3, %r2, 1;
	mapa.shared::cluster.u32 %r4, %r1, %r3;
	mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4];
$w:
	mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p1, [%r1], 0;
	@!%p1 bra $w;
	mov.u32 %r0, 7;
	mad.lo.u32 %r5, %r2, 32, %t;
	mad.wide.u32 %mine, %r5, 4, %out;`)

func TestRemoteArrivals(t *testing.T) {
	want(t, runBody(t, remoteArrivals, 32, 64, 2), func(int) uint32 { return 7 })
	// Without the barrier the neighbour may not have started.
	r := newRig(t, `
	mov.u32 %r1, smem;
	mapa.shared::cluster.u32 %r4, %r1, 1;
	setp.eq.u32 %p0, %t, 0;
	@%p0 st.shared::cluster.b32 [%r4], %t;
	barrier.cluster.arrive;
	barrier.cluster.wait;`)
	r.grid, r.clust, r.smem = Dim{2, 1, 1}, Dim{2, 1, 1}, 64
	r.hazard(RuleClusterLife)
	// Without the last barrier the neighbour may have ended.
	r = newRig(t, strings.Replace(bodies[clusters], "barrier.cluster.arrive.relaxed;\n\tbarrier.cluster.wait;", "", 1))
	r.grid, r.clust, r.block, r.smem = Dim{4, 1, 1}, Dim{4, 1, 1}, Dim{64, 1, 1}, 1024
	if h := r.hazard(RuleClusterLife); !strings.Contains(h.Text, "ended") {
		t.Error(h)
	}
	// Without the fence the relaxed barrier orders nothing.
	r = newRig(t, strings.Replace(bodies[remoteArrivals], "@%p0 fence.mbarrier_init.release.cluster;", "", 1))
	r.grid, r.clust, r.smem = Dim{2, 1, 1}, Dim{2, 1, 1}, 64
	r.hazard(RuleMbarrierInit)
}

func TestNamedBarriers(t *testing.T) {
	want(t, runBody(t, named, 128, 1024), func(i int) uint32 {
		// Thread i wrote 3i, read 3(127−i), wrote it at i, and read i's mirror: 3i.
		if i < 96 {
			return uint32(3*i + 1000)
		}
		return uint32(3 * i)
	})
}

func TestReductions(t *testing.T) {
	want(t, runBody(t, reductions, 128, 1024), func(i int) uint32 {
		// What the mirror thread stored; 127 of 128 are not thread 77, which is one,
		// and none is thread 200.
		return uint32(127-i+127*1000+1000000+128*10000000) + 200 + 400
	})
	// The word is passed on by the first of them.
	r := newRig(t, strings.Replace(bodies[reductions], "bar.red.popc.u32 %r4, 0, !%p0;", "mov.u32 %r4, 0;", 1))
	r.block, r.smem = Dim{128, 1, 1}, 1024
	r.hazard(RuleRace)
}

func TestClusters(t *testing.T) {
	got := runBody(t, clusters, 64, 1024, 4)
	want(t, got, func(i int) uint32 {
		peer := (i/64 + 1) % 4
		return uint32(peer*100000 + peer*1000 + i%64)
	})
}
