package emu

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bodies are the kernels of the tests that need more than one instruction; the
// table's coverage is computed from them and from scalarTests. Each ends with
// the result of the lane in %r0, which is stored to out[tid].
var bodies = map[string]string{}

func body(name, text string) string {
	bodies[name] = text + "\n\tst.global.b32 [%mine], %r0;"
	return name
}

// runBody runs a body on a block of the given size without hazards, with
// several seeds, and returns the words it stored.
func runBody(t *testing.T, name string, block, smem int, clusters ...int) []uint32 {
	t.Helper()
	var first []uint32
	for seed := range uint64(5) {
		r := newRig(t, bodies[name])
		r.m.SetSeed(seed)
		r.block, r.smem = Dim{block, 1, 1}, smem
		n := block
		if len(clusters) > 0 {
			r.grid, r.clust = Dim{clusters[0], 1, 1}, Dim{clusters[0], 1, 1}
			n *= clusters[0]
		}
		got := r.ok(n)
		if first == nil {
			first = got
		} else if d := cmp.Diff(first, got); d != "" {
			t.Fatalf("seed %d differs from seed 0: %s", seed, d)
		}
	}
	return first
}

func want(t *testing.T, got []uint32, f func(i int) uint32) {
	t.Helper()
	for i, v := range got {
		if w := f(i); v != w {
			t.Errorf("thread %d: %#x, want %#x", i, v, w)
			return
		}
	}
}

var (
	globalAccess = body("global access", `
	mov.b64 %d1, 1;
	createpolicy.fractional.L2::evict_last.b64 %d9, 0f3F800000;
	mul.wide.u32 %d2, %t, 16;
	add.u64 %d2, %d2, %out;
	st.global.v4.b32 [%d2+8192], {%t, 1, 2, 3};
	st.global.L1::no_allocate.L2::cache_hint.b32 [%d2+8196], 7, %d9;
	ld.global.v2.u32 {%r1, %r2}, [%d2+8192];
	ld.global.L1::no_allocate.L2::cache_hint.L2::128B.u32 %r3, [%d2+8200], %d9;
	ld.global.nc.u32 %r4, [%d2+8204];
	ld.global.nc.L1::evict_last.v4.u32 {%r5, %r6, %r7, %r20}, [%d2+8192];
	prefetch.global.L2 [%d2];
	prefetch.global.L2::evict_last [%d2];
	cvta.to.global.u64 %d3, %d2;
	cvta.global.u64 %d3, %d3;
	st.volatile.global.u16 [%d3+8192], %r1;
	ld.volatile.s16 %r8, [%d3+8192];
	st.release.gpu.global.u8 [%d3+8195], 0xff;
	ld.acquire.gpu.global.s8 %r9, [%d3+8195];
	fence.acq_rel.gpu;
	membar.gl;
	fence.proxy.alias;
	add.u32 %r0, %r1, %r2;
	add.u32 %r0, %r0, %r3;
	add.u32 %r0, %r0, %r4;
	sub.u32 %r0, %r0, %r7;
	sub.u32 %r0, %r0, %r5;
	add.u32 %r0, %r0, %r8;
	add.u32 %r0, %r0, %r9;`)

	sharedAccess = body("shared access", `
	mov.u32 %r1, smem;
	mad.lo.u32 %r1, %t, 8, %r1;
	cvt.u64.u32 %d1, %t;
	st.shared.u64 [%r1], %d1;
	bar.warp.sync 0xffffffff;
	xor.b32 %r2, %t, 31;
	mov.u32 %r3, smem;
	mad.lo.u32 %r2, %r2, 8, %r3;
	ld.shared::cta.u16 %r4, [%r2];
	cvt.u64.u32 %d2, %r2;
	cvta.shared.u64 %d2, %d2;
	ld.u8 %r5, [%d2];
	mapa.shared::cluster.u32 %r6, %r2, 0;
	ld.shared::cluster.u32 %r7, [%r6];
	mad.lo.u32 %r0, %r4, 100, %r5;
	mad.lo.u32 %r0, %r7, 10000, %r0;`)

	paramAccess = body("param access", `
	ld.param.u32 %r1, [out];
	ld.param.u32 %r2, [out+4];
	mov.b64 %d1, out;
	cvta.param.u64 %d1, %d1;
	ld.u32 %r3, [%d1];
	ld.u32 %r4, [%d1+4];
	sub.u32 %r0, %r1, %r3;
	add.u32 %r0, %r0, %r2;
	sub.u32 %r0, %r0, %r4;
	prefetch.tensormap [%d1];`)

	atomicAccess = body("atomics", `
	mov.u32 %r1, smem;
	setp.eq.u32 %p0, %t, 0;
	@%p0 st.shared.v4.b32 [%r1], {0, 1000, 0, 0};
	@%p0 st.shared.v2.b32 [%r1+16], {0xff, 0};
	@%p0 st.global.b64 [%out+4096], 0;
	@%p0 st.global.v4.f32 [%out+4112], {0f00000000, 0f00000000, 0f00000000, 0f00000000};
	bar.sync 0;
	atom.shared.add.u32 %r2, [%r1], 1;
	red.shared.min.s32 [%r1+4], %t;
	atom.shared.max.u32 _, [%r1+8], %t;
	red.shared.max.u32 [%r1+8], %t;
	atom.shared.or.b32 %r3, [%r1+12], 1;
	red.shared.xor.b32 [%r1+12], 2;
	atom.shared.inc.u32 %r3, [%r1+20], 9;
	red.shared.dec.u32 [%r1+16], 1000;
	atom.global.add.u64 %d1, [%out+4096], 1;
	red.relaxed.gpu.global.add.f32 [%out+4112], 0f3F800000;
	red.global.add.v2.f32 [%out+4120], {%f0, %f1};
	bar.sync 0;
	ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r1];
	ld.shared.v2.u32 {%r8, %r9}, [%r1+16];
	ld.global.u32 %r10, [%out+4096];
	ld.global.v4.f32 {%f2, %f3, %f4, %f5}, [%out+4112];
	bar.sync 0;
	atom.shared.cas.b32 %r11, [%r1], 64, 5;
	cvt.rzi.u32.f32 %r12, %f2;
	cvt.rzi.u32.f32 %r13, %f5;
	mad.lo.u32 %r0, %r5, 7, %r4;
	add.u32 %r0, %r0, %r6;
	add.u32 %r0, %r0, %r7;
	add.u32 %r0, %r0, %r8;
	mad.lo.u32 %r0, %r9, 1000, %r0;
	add.u32 %r0, %r0, %r10;
	add.u32 %r0, %r0, %r12;
	mad.lo.u32 %r0, %r13, 10000, %r0;`)
)

func TestGlobalAccess(t *testing.T) {
	r := newRig(t, bodies[globalAccess])
	got := r.ok(4096)[:32]
	want(t, got, func(i int) uint32 { return uint32(i) + 7 + 2 + 3 - 2 - uint32(i) + uint32(i) + 0xffffffff })
}

func TestSharedAccess(t *testing.T) {
	got := runBody(t, sharedAccess, 32, 256)
	want(t, got, func(i int) uint32 { return uint32(31-i) * 10101 })
}

func TestParamAccess(t *testing.T) {
	want(t, runBody(t, paramAccess, 32, 0), func(int) uint32 { return 0 })
}

func TestAtomics(t *testing.T) {
	// The registers %f0 and %f1 are the lanes' 1 and 2.
	bodies["atomics 64"] = "\tmov.f32 %f0, 0f3F800000;\n\tmov.f32 %f1, 0f40000000;\n" + bodies[atomicAccess]
	r := newRig(t, bodies["atomics 64"])
	r.block, r.smem = Dim{64, 1, 1}, 64
	got := r.ok(2048)[:64]
	// min 0; add 64; max 63; or 1 xor 2·64 = 1; dec 255−64 = 191; inc 64 mod 10 = 4; global 64; f32 64; v2's second 128.
	// atom.inc wraps after 9: 64 increments from 0 give 64 mod 10.
	want(t, got, func(int) uint32 { return 64 + 63 + 1 + 191 + 4000 + 64 + 64 + 128*10000 })
}
