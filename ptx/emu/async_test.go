package emu

import (
	"encoding/binary"
	"testing"

	"github.com/mlagen/mlagen/ptx/emu/tma"
	"github.com/mlagen/mlagen/ptx/hopper"
	"github.com/mlagen/mlagen/ptx/isa"
)

// The memory of these tests: out has 64 KB; words 4096… hold their index.
const inputOffset = 16384

func (r *rig) withInput() *rig {
	r.t.Helper()
	out, err := r.m.Alloc("out", 1<<16)
	if err != nil {
		r.t.Fatal(err)
	}
	b := make([]byte, 1<<16)
	for i := range b {
		if i >= inputOffset {
			binary.LittleEndian.PutUint32(b[i/4*4:], uint32(i/4))
		}
	}
	if err := r.m.Write(out, b); err != nil {
		r.t.Fatal(err)
	}
	r.out = out
	return r
}

var (
	cpAsync = body("cp.async", `
	mov.u32 %r1, smem;
	mad.lo.u32 %r2, %t, 16, %r1;
	mul.wide.u32 %d1, %t, 16;
	add.u64 %d1, %d1, %out;
	createpolicy.fractional.L2::evict_first.b64 %d9, 0f3F800000;
	cp.async.cg.shared.global [%r2], [%d1+16384], 16;
	cp.async.commit_group;
	cp.async.ca.shared.global.L2::cache_hint [%r2+512], [%d1+16384], 8, 4, %d9;
	cp.async.commit_group;
	cp.async.wait_group 1;
	ld.shared.u32 %r3, [%r2+12];
	cp.async.wait_all;
	ld.shared.v2.u32 {%r4, %r5}, [%r2+512];
	mad.lo.u32 %r0, %r4, 100000, %r3;
	add.u32 %r0, %r0, %r5;`)

	cpAsyncArrive = body("cp.async.mbarrier.arrive", `
	mov.u32 %r1, smem;
	mad.lo.u32 %r2, %t, 4, %r1;
	setp.eq.u32 %p0, %t, 0;
	@%p0 mbarrier.init.shared.b64 [%r1], 32;
	bar.sync 0;
	mul.wide.u32 %d1, %t, 4;
	add.u64 %d1, %d1, %out;
	cp.async.ca.shared.global [%r2+64], [%d1+16384], 4;
	cp.async.mbarrier.arrive.noinc.shared.b64 [%r1];
$w:
	mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0;
	@!%p1 bra $w;
	xor.b32 %r3, %t, 31;
	mad.lo.u32 %r3, %r3, 4, %r1;
	ld.shared.u32 %r0, [%r3+64];`)

	bulk = body("bulk copies", `
	mov.u32 %r1, smem;
	mov.u32 %r0, 0;
	createpolicy.fractional.L2::evict_first.b64 %d9, 0f3F800000;
	setp.eq.u32 %p0, %t, 0;
	@!%p0 bra $end;
	mbarrier.init.shared.b64 [%r1], 1;
	fence.mbarrier_init.release.cluster;
	mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 512;
	cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+128], [%out+16384], 256, [%r1];
	cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r1+384], [%out+16640], 256, [%r1], %d9;
$w0:
	mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0;
	@!%p1 bra $w0;
	mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 512;
	cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r1+640], [%r1+128], 512, [%r1];
$w1:
	mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 1;
	@!%p1 bra $w1;
	ld.shared.u32 %r2, [%r1+1148];
	cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%out+8192], [%r1+640], 64, %d9;
	cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%out+16384], [%r1+128], 64;
	cp.async.bulk.commit_group;
	st.shared.v4.b32 [%r1+1152], {0x3c003c00, 0, 0, 0};
	fence.proxy.async.shared::cta;
	cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%out+8192], [%r1+1152], 16;
	cp.async.bulk.commit_group;
	cp.async.bulk.wait_group.read 1;
	cp.async.bulk.wait_group 0;
	cp.async.bulk.prefetch.L2.global [%out+16384], 64;
	ld.global.u32 %r3, [%out+8196];
	ld.global.u32 %r4, [%out+16388];
	sub.u32 %r0, %r2, 4096;
	mad.lo.u32 %r0, %r3, 1000, %r0;
	add.u32 %r0, %r0, %r4;
$end:`)

	stAsync = body("st.async", `
	mov.u32 %r1, smem;
	mov.u32 %r2, %cluster_ctarank;
	setp.eq.u32 %p0, %t, 0;
	@%p0 mbarrier.init.shared.b64 [%r1], 1;
	fence.mbarrier_init.release.cluster;
	barrier.cluster.arrive;
	barrier.cluster.wait;
	@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 256;
	xor.b32 %r3, %r2, 1;
	mapa.shared::cluster.u32 %r4, %r1, %r3;
	mad.lo.u32 %r5, %t, 8, %r4;
	mad.lo.u32 %r6, %r2, 100, %t;
	st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r5+64], {%r6, %r2}, [%r4];
$w:
	mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0;
	@!%p1 bra $w;
	mad.lo.u32 %r7, %t, 8, %r1;
	ld.shared.u32 %r0, [%r7+64];
	mad.lo.u32 %r8, %r2, 32, %t;
	mad.wide.u32 %mine, %r8, 4, %out;
	barrier.cluster.arrive;
	barrier.cluster.wait;`)

	// In a cluster a shared variable's address is the one that mapa gives for the
	// CTA's own rank.
	ownAddress = body("own address", `
	mov.u32 %r1, smem;
	mov.u32 %r2, %cluster_ctarank;
	mapa.shared::cluster.u32 %r3, %r1, %r2;
	sub.u32 %r0, %r1, %r3;
	getctarank.shared::cluster.u32 %r4, %r1;
	sub.u32 %r4, %r4, %r2;
	add.u32 %r0, %r0, %r4;
	setp.eq.u32 %p0, %t, 0;
	@%p0 st.shared.u32 [%r1+64], %r0;
	bar.warp.sync -1;
	ld.shared.u32 %r0, [%r1+64];
	mad.lo.u32 %r8, %r2, 32, %t;
	mad.wide.u32 %mine, %r8, 4, %out;`)

	// The map at out+0 is f32 [64 columns, 32 rows] over the input, box 32 × 8,
	// 128-byte swizzle; row r column c holds word 4096 + 64r + c.
	tensor = body("tensor copies", `
	mov.u32 %r1, smem;
	mov.u32 %r0, 0;
	createpolicy.fractional.L2::evict_first.b64 %d9, 0f3F800000;
	setp.eq.u32 %p0, %t, 0;
	@!%p0 bra $end;
	prefetch.tensormap [%out];
	mbarrier.init.shared.b64 [%r1+16384], 1;
	fence.proxy.async;
	mbarrier.arrive.expect_tx.shared.b64 _, [%r1+16384], 2048;
	cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r1], [%out, {32, 4}], [%r1+16384], %d9;
	cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r1+1024], [%out, {48, -3}], [%r1+16384];
$w0:
	mbarrier.try_wait.parity.shared.b64 %p1, [%r1+16384], 0;
	@!%p1 bra $w0;
	ld.shared.u32 %r2, [%r1+152];
	ld.shared.u32 %r3, [%r1+1024];
	ld.shared.u32 %r4, [%r1+1456];
	ld.shared.u32 %r5, [%r1+1520];
	sub.u32 %r2, %r2, 4096;
	sub.u32 %r4, %r4, 4096;
	cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint [%out, {0, 0}], [%r1], %d9;
	cp.async.bulk.commit_group;
	cp.async.bulk.wait_group 0;
	cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%out, {0, 0}], [%r1];
	cp.async.bulk.commit_group;
	cp.async.bulk.wait_group 0;
	cp.async.bulk.prefetch.tensor.2d.L2.global [%out, {0, 0}];
	ld.global.u32 %r6, [%out+16384];
	mad.lo.u32 %r0, %r4, 10000, %r2;
	add.u32 %r0, %r0, %r3;
	add.u32 %r0, %r0, %r5;
	sub.u32 %r6, %r6, 8192;
	mad.lo.u32 %r0, %r6, 1000000, %r0;
$end:`)

	multicast = body("multicast", `
	mov.u32 %r1, smem;
	mov.u32 %r2, %cluster_ctarank;
	setp.eq.u32 %p0, %t, 0;
	@%p0 mbarrier.init.shared.b64 [%r1+4096], 1;
	fence.mbarrier_init.release.cluster;
	barrier.cluster.arrive;
	barrier.cluster.wait;
	@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r1+4096], 2048;
	mov.u16 %h1, 3;
	mul.lo.u32 %r3, %r2, 1024;
	add.u32 %r3, %r3, %r1;
	mul.lo.u32 %r4, %r2, 8;
	@!%p0 bra $wait;
	setp.eq.u32 %p2, %r2, 0;
	@!%p2 bra $second;
	cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r3], [%out, {0, %r4}], [%r1+4096], %h1;
	bra $wait;
$second:
	cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r3], [%out+16384], 1024, [%r1+4096], %h1;
$wait:
	mbarrier.try_wait.parity.shared.b64 %p1, [%r1+4096], 0;
	@!%p1 bra $wait;
	ld.shared.u32 %r5, [%r1];
	ld.shared.u32 %r6, [%r1+1028];
	sub.u32 %r5, %r5, 4096;
	mad.lo.u32 %r0, %r5, 10, %r6;
	mad.lo.u32 %r8, %r2, 32, %t;
	mad.wide.u32 %mine, %r8, 4, %out;
	add.u64 %mine, %mine, 1024;
	barrier.cluster.arrive;
	barrier.cluster.wait;`)
)

// seeds runs a body with the input under several seeds and compares.
func withSeeds(t *testing.T, name string, prepare func(r *rig), check func(words []uint32)) {
	t.Helper()
	for seed := range uint64(8) {
		r := newRig(t, bodies[name]).withInput()
		r.smem = 20480
		r.m.SetSeed(seed)
		if prepare != nil {
			prepare(r)
		}
		check(r.ok(1024))
	}
}

func TestCpAsync(t *testing.T) {
	withSeeds(t, cpAsync, nil, func(w []uint32) {
		want(t, w[:32], func(i int) uint32 { return uint32(4096+4*i)*100000 + uint32(4096+4*i+3) })
	})
	withSeeds(t, cpAsyncArrive, nil, func(w []uint32) {
		want(t, w[:32], func(i int) uint32 { return uint32(4096 + 31 - i) })
	})
}

func TestBulk(t *testing.T) {
	withSeeds(t, bulk, nil, func(w []uint32) {
		// smem word 127 of the 512 bytes; out[2049] = 4097; input word 1 doubled.
		want(t, w[:1], func(int) uint32 { return 127 + 4097*1000 + 2*4097 })
	})
}

func TestStAsync(t *testing.T) {
	withSeeds(t, stAsync, func(r *rig) { r.grid, r.clust = Dim{2, 1, 1}, Dim{2, 1, 1} }, func(w []uint32) {
		want(t, w[:64], func(i int) uint32 { return uint32((1-i/32)*100 + i%32) })
	})
}

// mapInput writes the test's tensor map to out.
func mapInput(r *rig) {
	m := &tma.Map{DType: isa.U32, Address: r.out + inputOffset, Sizes: []uint64{64, 32}, Strides: []uint64{256},
		Box: []int{32, 8}, Swizzle: hopper.Swizzle128}
	b, err := m.Encode()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.m.Write(r.out, b[:]); err != nil {
		r.t.Fatal(err)
	}
}

func TestTensor(t *testing.T) {
	withSeeds(t, tensor, mapInput, func(w []uint32) {
		// Byte 152 is row 1, chunk 1 xor 1 = 0, word 2: (34, 5). Byte 1024 is row −3: zero.
		// Byte 1456 = 1024 + 432: row 3 = tensor row 0, chunk 3 xor 3 = 0, word 0: column 48.
		// Byte 1520 = row 3, chunk 7 xor 3 = 4: column 64, outside: zero.
		// Input word 0 was overwritten by (32, 4) = 4096 + 288 and doubled.
		want(t, w[:1], func(int) uint32 { return 5*64 + 34 + 48*10000 + 2*288*1000000 })
	})
}

func TestMulticast(t *testing.T) {
	prepare := func(r *rig) { mapInput(r); r.grid, r.clust = Dim{2, 1, 1}, Dim{2, 1, 1} }
	withSeeds(t, multicast, prepare, func(w []uint32) {
		want(t, w[256:320], func(int) uint32 { return 4097 })
	})
}

func TestOwnAddress(t *testing.T) {
	prepare := func(r *rig) { r.grid, r.clust = Dim{2, 1, 1}, Dim{2, 1, 1} }
	withSeeds(t, ownAddress, prepare, func(w []uint32) {
		want(t, w[:64], func(int) uint32 { return 0 })
	})
}
