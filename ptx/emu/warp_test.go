package emu

import "testing"

var (
	shuffles = body("shuffles", `
	shfl.sync.bfly.b32 %r1, %t, 1, 31, 0xffffffff;
	shfl.sync.down.b32 %r2|%p1, %t, 4, 31, 0xffffffff;
	shfl.sync.up.b32 %r3|%p2, %t, 4, 0, 0xffffffff;
	shfl.sync.idx.b32 %r4, %t, 3, 0x1807, 0xffffffff;
	selp.u32 %r5, 1, 0, %p1;
	selp.u32 %r6, 1, 0, %p2;
	mad.lo.u32 %r0, %r2, 100, %r1;
	mad.lo.u32 %r0, %r3, 10000, %r0;
	mad.lo.u32 %r0, %r4, 1000000, %r0;
	shl.b32 %r5, %r5, 30;
	shl.b32 %r6, %r6, 31;
	or.b32 %r0, %r0, %r5;
	or.b32 %r0, %r0, %r6;`)

	votes = body("votes", `
	setp.lt.u32 %p1, %t, 5;
	vote.sync.any.pred %p2, %p1, 0xffffffff;
	vote.sync.all.pred %p3, %p1, 0xffffffff;
	vote.sync.uni.pred %p4, !%p1, 0xffffffff;
	vote.sync.ballot.b32 %r1, %p1, 0xffffffff;
	shr.u32 %r2, %t, 3;
	match.any.sync.b32 %r3, %r2, 0xffffffff;
	match.all.sync.b32 %r4|%p5, %r2, 0xffffffff;
	activemask.b32 %r5;
	redux.sync.add.u32 %r6, %t, 0xffffffff;
	redux.sync.max.s32 %r7, %t, 0xffffffff;
	redux.sync.xor.b32 %r8, %t, 0xffffffff;
	elect.sync %r9|%p6, 0xffffffff;
	elect.sync _|%p7, 0xffffffff;
	selp.u32 %r10, 1, 0, %p2;
	selp.u32 %r11, 2, 0, %p3;
	selp.u32 %r12, 4, 0, %p4;
	selp.u32 %r13, 8, 0, %p5;
	selp.u32 %r14, 16, 0, %p6;
	selp.u32 %r15, 32, 0, %p7;
	add.u32 %r0, %r10, %r11;
	add.u32 %r0, %r0, %r12;
	add.u32 %r0, %r0, %r13;
	add.u32 %r0, %r0, %r14;
	add.u32 %r0, %r0, %r15;
	setp.ne.u32 %p8, %r1, 31;
	@%p8 add.u32 %r0, %r0, 1000;
	shl.b32 %r16, %r2, 3;
	mov.u32 %r17, 255;
	shl.b32 %r17, %r17, %r16;
	setp.ne.u32 %p8, %r3, %r17;
	@%p8 add.u32 %r0, %r0, 2000;
	setp.ne.u32 %p8, %r5, 0xffffffff;
	@%p8 add.u32 %r0, %r0, 4000;
	setp.ne.u32 %p8, %r6, 496;
	@%p8 add.u32 %r0, %r0, 8000;
	setp.ne.u32 %p8, %r7, 31;
	@%p8 add.u32 %r0, %r0, 16000;
	add.u32 %r0, %r0, %r8;
	add.u32 %r0, %r0, %r9;
	add.u32 %r0, %r0, %r4;`)

	// Lane by lane through different paths, with an early exit of some lanes.
	paths = body("paths", `
	setp.eq.u32 %p1, %t, 31;
	@%p1 mov.u32 %r0, 777;
	@%p1 st.global.b32 [%mine], %r0;
	@%p1 exit;
	mov.u32 %r0, 0;
	setp.lt.u32 %p0, %t, 16;
	@!%p0 bra $upper;
	setp.lt.u32 %p2, %t, 8;
	@%p2 bra $low;
	add.u32 %r0, %r0, 10;
	bra.uni $joined;
$low:
	add.u32 %r0, %r0, 20;
$joined:
	bra $out;
$upper:
	add.u32 %r0, %r0, 30;
	setp.eq.u32 %p3, %t, 20;
	@%p3 ret;
$out:
	bar.warp.sync 0xffffffff;
	nanosleep.u32 20;
	elect.sync %r1|%p4, 0xffffffff;
	add.u32 %r0, %r0, %r1;
	griddepcontrol.wait;
	griddepcontrol.launch_dependents;`)

	// One lane spins until another lane of its warp has written.
	spin = body("spin", `
	mov.u32 %r1, smem;
	setp.eq.u32 %p0, %t, 0;
	@%p0 st.shared.b32 [%r1], 0;
	bar.warp.sync 0xffffffff;
	setp.lt.u32 %p1, %t, 16;
	@!%p1 bra $writer;
$wait:
	ld.acquire.cta.shared.u32 %r2, [%r1];
	setp.ne.u32 %p2, %r2, 5;
	@%p2 bra $wait;
	bra $join;
$writer:
	setp.eq.u32 %p3, %t, 20;
	@%p3 st.release.cta.shared.u32 [%r1], 5;
$join:
	ld.relaxed.cta.shared.u32 %r0, [%r1];`)
)

func TestShuffles(t *testing.T) {
	want(t, runBody(t, shuffles, 32, 0), func(i int) uint32 {
		v := uint32(i ^ 1)
		if i+4 < 32 {
			v += uint32(i+4) * 100
		} else {
			v += uint32(i) * 100
		}
		if i >= 4 {
			v += uint32(i-4) * 10000
		} else {
			v += uint32(i) * 10000
		}
		v += uint32(i&24|3) * 1000000
		if i+4 < 32 {
			v |= 1 << 30
		}
		if i >= 4 {
			v |= 1 << 31
		}
		return v
	})
}

func TestVotes(t *testing.T) {
	want(t, runBody(t, votes, 32, 0), func(i int) uint32 {
		if i == 0 {
			return 1 + 16 + 32
		}
		return 1
	})
}

func TestPaths(t *testing.T) {
	want(t, runBody(t, paths, 32, 0), func(i int) uint32 {
		switch {
		case i == 31:
			return 777
		case i == 20:
			return 0 // returned before it stored
		case i < 8:
			return 20
		case i < 16:
			return 10
		}
		return 30
	})
}

func TestSpin(t *testing.T) {
	want(t, runBody(t, spin, 32, 64), func(int) uint32 { return 5 })
}
