package emu

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/ptx/emu/num"
)

// scalarTest runs one instruction on constants. Sources are %r1…%r3 (32 bits),
// %d1…%d3 (64 bits), %h1…%h3 (16 bits), all set to the low bits of in, and
// predicates %p1 (true) and %p2 (false). The result is the first operand.
type scalarTest struct {
	text string
	in   []uint64
	want uint64
}

func f(x float32) uint64 { return uint64(math.Float32bits(x)) }

func g(x float64) uint64 { return math.Float64bits(x) }

func h(x float32) uint64 { return uint64(num.F32ToF16(x)) }

func b(x float32) uint64 { return uint64(num.F32ToBF16(x)) }

func hh(hi, lo float32) uint64 { return uint64(num.PackF16(hi, lo)) }

func bb(hi, lo float32) uint64 { return uint64(num.PackBF16(hi, lo)) }

func neg(x int64, bits int) uint64 { return truncate(uint64(-x), bits) }

func u(v ...uint64) []uint64 { return v }

var nan32 = uint64(0x7fffffff)

// scalarTests has a value computed by hand for every form of the scalar
// instructions: the arithmetic of each format is tested exhaustively in num.
var scalarTests = []scalarTest{
	// Integer arithmetic.
	{"add.s32 %r0, %r1, %r2", u(5, neg(7, 32)), neg(2, 32)},
	{"add.u16 %h0, %h1, %h2", u(0xffff, 2), 1},
	{"add.u64 %d0, %d1, %d2", u(1<<40, 1<<41), 3 << 40},
	{"add.sat.s32 %r0, %r1, %r2", u(0x7fffffff, 1), 0x7fffffff},
	{"add.u16x2 %r0, %r1, %r2", u(0x0001ffff, 0x00020001), 0x00030000},
	{"sub.s64 %d0, %d1, %d2", u(5, 9), neg(4, 64)},
	{"sub.sat.s32 %r0, %r1, %r2", u(0x80000000, 1), 0x80000000},
	{"mul.lo.s32 %r0, %r1, %r2", u(neg(3, 32), 7), neg(21, 32)},
	{"mul.hi.u32 %r0, %r1, %r2", u(0x80000000, 6), 3},
	{"mul.hi.s32 %r0, %r1, %r2", u(neg(1, 32), 1), neg(1, 32)},
	{"mul.hi.u64 %d0, %d1, %d2", u(1<<63, 6), 3},
	{"mul.hi.s64 %d0, %d1, %d2", u(neg(1, 64), 5), neg(1, 64)},
	{"mul.wide.u16 %r0, %h1, %h2", u(0xffff, 2), 0x1fffe},
	{"mul.wide.s16 %r0, %h1, %h2", u(0xffff, 2), neg(2, 32)},
	{"mul.wide.u32 %d0, %r1, %r2", u(0xffffffff, 2), 0x1fffffffe},
	{"mul.wide.s32 %d0, %r1, %r2", u(neg(3, 32), 2), neg(6, 64)},
	{"mad.lo.u32 %r0, %r1, %r2, %r3", u(3, 4, 5), 17},
	{"mad.hi.s32 %r0, %r1, %r2, %r3", u(neg(1, 32), 1, 5), 4},
	{"mad.wide.u16 %r0, %h1, %h2, %r3", u(3, 4, 5), 17},
	{"mad.wide.s16 %r0, %h1, %h2, %r3", u(0xffff, 4, 5), 1},
	{"mad.wide.u32 %d0, %r1, %r2, %d3", u(0xffffffff, 2, 1), 0x1ffffffff},
	{"mad.wide.s32 %d0, %r1, %r2, %d3", u(neg(3, 32), 2, 10), 4},
	{"div.s32 %r0, %r1, %r2", u(neg(7, 32), 2), neg(3, 32)},
	{"div.u32 %r0, %r1, %r2", u(0xfffffff9, 2), 0x7ffffffc},
	{"div.u32 %r0, %r1, %r2", u(7, 0), 0xffffffff},
	{"rem.s32 %r0, %r1, %r2", u(neg(7, 32), 2), neg(1, 32)},
	{"abs.s32 %r0, %r1", u(neg(7, 32)), 7},
	{"neg.s64 %d0, %d1", u(7), neg(7, 64)},
	{"min.s32 %r0, %r1, %r2", u(neg(7, 32), 2), neg(7, 32)},
	{"min.u32 %r0, %r1, %r2", u(neg(7, 32), 2), 2},
	{"max.s32 %r0, %r1, %r2", u(neg(7, 32), 2), 2},
	{"max.u64 %d0, %d1, %d2", u(neg(7, 64), 2), neg(7, 64)},
	{"popc.b32 %r0, %r1", u(0xf0f), 8},
	{"popc.b64 %r0, %d1", u(neg(1, 64)), 64},
	{"clz.b32 %r0, %r1", u(0x00010000), 15},
	{"clz.b64 %r0, %d1", u(0), 64},
	{"bfind.u32 %r0, %r1", u(0x00010000), 16},
	{"bfind.s32 %r0, %r1", u(neg(1, 32)), 0xffffffff},
	{"bfind.shiftamt.u32 %r0, %r1", u(0x00010000), 15},
	{"brev.b32 %r0, %r1", u(1), 0x80000000},
	{"bfe.u32 %r0, %r1, %r2, %r3", u(0xabcd1234, 8, 12), 0xd12},
	{"bfe.s32 %r0, %r1, %r2, %r3", u(0x00000f00, 8, 4), 0xffffffff},
	{"bfe.s64 %d0, %d1, %r2, %r3", u(1<<63, 60, 20), neg(8, 64)},
	{"bfi.b32 %r0, %r1, %r2, 8, 4", u(0xff, 0xaaaaaaaa), 0xaaaaafaa},
	{"bfi.b64 %d0, %d1, %d2, 60, 20", u(0xff, 0), 0xf << 60},

	// f32 and f64.
	{"add.f32 %r0, %r1, %r2", u(f(1.5), f(2)), f(3.5)},
	{"add.rz.f32 %r0, %r1, %r2", u(f(1<<24), f(1)), f(1 << 24)},
	{"add.rp.f32 %r0, %r1, %r2", u(f(1<<24), f(1)), f(1<<24 + 2)},
	{"add.ftz.f32 %r0, %r1, %r2", u(1, 1), 0},
	{"add.sat.f32 %r0, %r1, %r2", u(f(1.5), f(2)), f(1)},
	{"add.f64 %d0, %d1, %d2", u(g(1.5), g(2)), g(3.5)},
	{"add.rm.f64 %d0, %d1, %d2", u(g(1<<53), g(1)), g(1 << 53)},
	{"add.rp.f64 %d0, %d1, %d2", u(g(1<<53), g(1)), g(1<<53 + 2)},
	{"sub.f32 %r0, %r1, %r2", u(f(1.5), f(2)), f(-0.5)},
	{"sub.f64 %d0, %d1, %d2", u(g(1.5), g(2)), g(-0.5)},
	{"mul.f32 %r0, %r1, %r2", u(f(1.5), f(-2)), f(-3)},
	{"mul.ftz.f32 %r0, %r1, %r2", u(f(0x1p-100), f(0x1p-40)), 0},
	{"mul.f64 %d0, %d1, %d2", u(g(1.5), g(2)), g(3)},
	{"fma.rn.f32 %r0, %r1, %r2, %r3", u(f(1+0x1p-23), f(1+0x1p-23), f(-1)), f(0x1p-22 + 0x1p-46)},
	{"fma.rn.sat.f32 %r0, %r1, %r2, %r3", u(f(3), f(3), f(1)), f(1)},
	{"fma.rn.f64 %d0, %d1, %d2, %d3", u(g(3), g(4), g(5)), g(17)},
	{"fma.rz.f64 %d0, %d1, %d2, %d3", u(g(1<<53), g(1), g(1)), g(1 << 53)},
	{"div.approx.f32 %r0, %r1, %r2", u(f(3), f(2)), f(1.5)},
	{"div.full.f32 %r0, %r1, %r2", u(f(3), f(2)), f(1.5)},
	{"div.rn.f32 %r0, %r1, %r2", u(f(1), f(3)), f(1.0 / 3)},
	{"abs.f32 %r0, %r1", u(f(-2)), f(2)},
	{"abs.f64 %d0, %d1", u(g(-2)), g(2)},
	{"neg.f32 %r0, %r1", u(f(-2)), f(2)},
	{"neg.ftz.f32 %r0, %r1", u(1), 0x80000000},
	{"neg.f64 %d0, %d1", u(g(-2)), g(2)},
	{"min.f32 %r0, %r1, %r2", u(f(-2), nan32), f(-2)},
	{"min.f64 %d0, %d1, %d2", u(g(-2), g(math.NaN())), g(-2)},
	{"min.NaN.f32 %r0, %r1, %r2", u(f(-2), nan32), nan32},
	{"max.f32 %r0, %r1, %r2", u(f(-2), f(math.Pi)), f(math.Pi)},
	{"max.f64 %d0, %d1, %d2", u(g(-2), g(3)), g(3)},
	{"max.NaN.f32 %r0, %r1, %r2", u(f(-2), nan32), nan32},
	{"rcp.approx.ftz.f32 %r0, %r1", u(f(4)), f(0.25)},
	{"rcp.rn.f32 %r0, %r1", u(f(3)), f(1.0 / 3)},
	{"sqrt.approx.f32 %r0, %r1", u(f(9)), f(3)},
	{"sqrt.rn.f32 %r0, %r1", u(f(2)), f(math.Sqrt2)},
	{"rsqrt.approx.f32 %r0, %r1", u(f(16)), f(0.25)},
	{"sin.approx.f32 %r0, %r1", u(f(0)), 0},
	{"cos.approx.f32 %r0, %r1", u(f(0)), f(1)},
	{"lg2.approx.f32 %r0, %r1", u(f(8)), f(3)},
	{"ex2.approx.ftz.f32 %r0, %r1", u(f(-3)), f(0.125)},

	{"tanh.approx.f32 %r0, %r1", u(f(0)), 0},
	{"testp.finite.f32 %p0, %r1", u(f(0)), 1},
	{"testp.infinite.f32 %p0, %r1", u(0x7f800000), 1},
	{"testp.notanumber.f64 %p0, %d1", u(g(math.NaN())), 1},
	{"testp.subnormal.f32 %p0, %r1", u(1), 1},
	{"testp.normal.f32 %p0, %r1", u(1), 0},
	{"testp.number.f32 %p0, %r1", u(nan32), 0},
	{"copysign.f32 %r0, %r1, %r2", u(f(-1), f(3)), f(-3)},

	// Halves and bfloats.
	{"add.f16 %h0, %h1, %h2", u(h(1.5), h(2)), h(3.5)},
	{"add.f16x2 %r0, %r1, %r2", u(hh(1, 2), hh(3, 4)), hh(4, 6)},
	{"add.bf16x2 %r0, %r1, %r2", u(bb(1, 2), bb(3, 4)), bb(4, 6)},
	{"sub.f16 %h0, %h1, %h2", u(h(1.5), h(2)), h(-0.5)},
	{"sub.bf16 %h0, %h1, %h2", u(b(1.5), b(2)), b(-0.5)},
	{"mul.f16x2 %r0, %r1, %r2", u(hh(2, 3), hh(4, 5)), hh(8, 15)},
	{"mul.bf16 %h0, %h1, %h2", u(b(1.5), b(2)), b(3)},
	{"fma.rn.f16 %h0, %h1, %h2, %h3", u(h(2), h(3), h(4)), h(10)},
	{"fma.rn.relu.f16x2 %r0, %r1, %r2, %r3", u(hh(2, -2), hh(3, 3), hh(4, 4)), hh(10, 0)},
	{"fma.rn.bf16x2 %r0, %r1, %r2, %r3", u(bb(2, -2), bb(3, 3), bb(4, 4)), bb(10, -2)},
	{"neg.f16 %h0, %h1", u(h(2)), h(-2)},
	{"neg.bf16x2 %r0, %r1", u(bb(2, -3)), bb(-2, 3)},
	{"abs.f16x2 %r0, %r1", u(hh(-2, 3)), hh(2, 3)},
	{"abs.bf16 %h0, %h1", u(b(-2)), b(2)},
	{"min.f16 %h0, %h1, %h2", u(h(2), h(-3)), h(-3)},
	{"min.NaN.bf16 %h0, %h1, %h2", u(b(2), 0x7fff), 0x7fff},
	{"max.f16x2 %r0, %r1, %r2", u(hh(2, 5), hh(3, 4)), hh(3, 5)},
	{"max.bf16x2 %r0, %r1, %r2", u(bb(2, 5), bb(3, 4)), bb(3, 5)},
	{"ex2.approx.f16 %h0, %h1", u(h(3)), h(8)},
	{"ex2.approx.ftz.bf16x2 %r0, %r1", u(bb(3, -1)), bb(8, 0.5)},

	// Comparison and selection.
	{"setp.lt.s32 %p0, %r1, %r2", u(neg(1, 32), 0), 1},
	{"setp.lt.u32 %p0, %r1, %r2", u(neg(1, 32), 0), 0},
	{"setp.hs.u32 %p0, %r1, %r2", u(3, 3), 1},
	{"setp.gt.s32 %p0|%p3, %r1, %r2", u(4, 3), 1},
	{"setp.ge.and.s32 %p0, %r1, %r2, %p2", u(4, 3), 0},
	{"setp.ge.xor.s32 %p0|%p3, %r1, %r2, !%p1", u(4, 3), 1},
	{"setp.eq.b64 %p0, %d1, %d2", u(1<<40, 1<<40), 1},
	{"setp.ne.or.b32 %p0, %r1, %r2, %p1", u(4, 4), 1},
	{"setp.lt.f32 %p0, %r1, %r2", u(f(1), nan32), 0},
	{"setp.ltu.f32 %p0, %r1, %r2", u(f(1), nan32), 1},
	{"setp.eq.ftz.f32 %p0, %r1, %r2", u(1, 0), 1},
	{"setp.nan.f32 %p0|%p3, %r1, %r2", u(f(1), nan32), 1},
	{"setp.ne.f32 %p0|%p3, %r1, %r2", u(f(1), nan32), 0},
	{"setp.gt.and.f32 %p0, %r1, %r2, %p1", u(f(2), f(1)), 1},
	{"setp.num.f64 %p0, %d1, %d2", u(g(2), g(1)), 1},
	{"selp.b32 %r0, %r1, %r2, %p1", u(2, 1), 2},
	{"selp.f64 %d0, %d1, %d2, %p2", u(2, 1), 1},

	// Logic and shifts.
	{"and.b32 %r0, %r1, %r2", u(0xf0, 0x3c), 0x30},
	{"and.pred %p0, %p1, %p2", nil, 0},
	{"or.b64 %d0, %d1, %d2", u(0xf0, 0x3c), 0xfc},
	{"or.pred %p0, %p1, %p2", nil, 1},
	{"xor.b16 %h0, %h1, %h2", u(0xf0, 0x3c), 0xcc},
	{"xor.pred %p0, %p1, %p1", nil, 0},
	{"not.b16 %h0, %h1", u(0xf0), 0xff0f},
	{"not.pred %p0, %p2", nil, 1},
	{"shl.b32 %r0, %r1, %r2", u(3, 31), 0x80000000},
	{"shl.b32 %r0, %r1, %r2", u(3, 32), 0},
	{"shr.s32 %r0, %r1, %r2", u(0x80000000, 40), 0xffffffff},
	{"shr.u64 %d0, %d1, %r2", u(1<<40, 40), 1},
	{"shf.l.wrap.b32 %r0, %r1, %r2, %r3", u(0x80000000, 1, 33), 3},
	{"shf.r.clamp.b32 %r0, %r1, %r2, %r3", u(0x80000000, 1, 33), 1},
	{"lop3.b32 %r0, %r1, %r2, %r3, 0x96", u(0xf0, 0xcc, 0xaa), 0x96},
	{"prmt.b32 %r0, %r1, %r2, 0x0f31", u(0x33221100, 0xf7665544), 0x00ff3311},

	// Moves and addresses.
	{"mov.u32 %r0, %r1", u(7), 7},
	{"mov.f32 %r0, 0f3F800000", nil, f(1)},
	{"mov.u32 %r0, %ntid.x", nil, 32},
	{"mov.pred %p0, %p1", nil, 1},
	{"mov.b32 %r0, {%h1, %h2}", u(0x1111, 0x2222), 0x22221111},
	{"mov.b64 %d0, {%r1, %r2}", u(1, 2), 2<<32 + 1},
	{"mov.b64 %d0, {%h1, %h2, %h3, %h1}", u(1, 2, 3), 1<<48 + 3<<32 + 2<<16 + 1},
	{"mov.b32 {%h0, %h4}, %r1", u(0x22221111), 0x1111},
	{"mov.b64 {_, %r0}, %d1", u(5 << 32), 5},
	{"mov.b64 {%h4, %h0, %h5, _}, %d1", u(0x4444333322221111), 0x2222},
	{"cvta.shared.u64 %d0, %d1", u(2048), sharedWindow + 2048},
	{"cvta.to.shared.u64 %d0, %d1", u(sharedWindow + 2048), 2048},
	{"cvta.param.u64 %d0, %d1", u(paramWindow), paramWindow},
	{"cvta.to.param.u64 %d0, %d1", u(paramWindow), paramWindow},
	{"isspacep.shared %p0, %d1", u(sharedWindow + 2048), 1},
	{"isspacep.global %p0, %d1", u(sharedWindow + 2048), 0},
	{"mapa.shared::cluster.u32 %r0, %r1, 0", u(2048), 1<<rankShift + 2048},
	{"mapa.u64 %d0, %d1, 0", u(sharedWindow + 2048), sharedWindow + 1<<rankShift + 2048},
	{"getctarank.shared::cluster.u32 %r0, %r1", u(2048), 0},
	{"getctarank.u64 %r0, %d1", u(sharedWindow + 1<<rankShift), 0},
	{"createpolicy.fractional.L2::evict_first.b64 %d0, 0f3F800000", nil, 0x12f0000000000000},

	// Conversions.
	{"cvt.u32.u16 %r0, %h1", u(0xffff), 0xffff},
	{"cvt.s32.s16 %r0, %h1", u(0xffff), 0xffffffff},
	{"cvt.s64.s32 %d0, %r1", u(0xffffffff), neg(1, 64)},
	{"cvt.u64.u32 %d0, %r1", u(0xffffffff), 0xffffffff},
	{"cvt.s32.s8 %r0, %r1", u(0x1ff), 0xffffffff},
	{"cvt.sat.u8.s32 %r0, %r1", u(neg(5, 32)), 0},
	{"cvt.rn.f32.s32 %r0, %r1", u(neg(5, 32)), f(-5)},
	{"cvt.rz.f32.u64 %r0, %d1", u(1<<24 + 1), f(1 << 24)},
	{"cvt.rn.f16.s32 %h0, %r1", u(3), h(3)},
	{"cvt.rn.f64.u32 %d0, %r1", u(3), g(3)},
	{"cvt.rzi.s32.f32 %r0, %r1", u(f(-2.7)), neg(2, 32)},
	{"cvt.rni.f32.f32 %r0, %r1", u(f(2.5)), f(2)},
	{"cvt.rmi.s32.f64 %r0, %d1", u(g(-2.5)), neg(3, 32)},
	{"cvt.rn.f32.f64 %r0, %d1", u(g(0.1)), f(0.1)},
	{"cvt.f64.f32 %d0, %r1", u(f(0.5)), g(0.5)},
	{"cvt.rn.f16.f32 %h0, %r1", u(f(0.1)), h(0.1)},
	{"cvt.f32.f16 %r0, %h1", u(h(0.5)), f(0.5)},
	{"cvt.rn.bf16.f32 %h0, %r1", u(f(0.1)), b(0.1)},
	{"cvt.rn.relu.bf16.f32 %h0, %r1", u(f(-0.1)), 0},
	{"cvt.rn.bf16x2.f32 %r0, %r1, %r2", u(f(1.5), f(-0.1)), bb(1.5, -0.1)},
	{"cvt.rz.f16x2.f32 %r0, %r1, %r2", u(f(1.5), f(2)), hh(1.5, 2)},
	{"cvt.f32.bf16 %r0, %h1", u(b(0.5)), f(0.5)},
	{"cvt.rn.satfinite.e4m3x2.f32 %h0, %r1, %r2", u(f(1), f(1000)), 0x387e},
	{"cvt.rn.satfinite.e5m2x2.f16x2 %h0, %r1", u(hh(1, 2)), 0x3c40},
	{"cvt.rn.f16x2.e4m3x2 %r0, %h1", u(0x387e), hh(1, 448)},
}

// scalarText is the kernel of a scalar test. The result lands in out as 64 bits.
func scalarText(s scalarTest) string {
	var t strings.Builder
	for i, v := range s.in {
		fmt.Fprintf(&t, "\tmov.b32 %%r%d, %d;\n\tmov.b64 %%d%d, %d;\n\tmov.b16 %%h%d, %d;\n", i+1, uint32(v), i+1, int64(v), i+1, uint16(v))
	}
	t.WriteString("\tsetp.eq.u32 %p1, 0, 0;\n\tsetp.ne.u32 %p2, 0, 0;\n\t" + s.text + ";\n")
	_, args, _ := strings.Cut(s.text, " ")
	at := strings.Index(args, "0")
	switch args[at-1] {
	case 'r':
		t.WriteString("\tcvt.u64.u32 %d20, %r0;\n")
	case 'h':
		t.WriteString("\tcvt.u64.u16 %d20, %h0;\n")
	case 'p':
		t.WriteString("\tselp.b64 %d20, 1, 0, %p0;\n")
	default:
		t.WriteString("\tmov.b64 %d20, %d0;\n")
	}
	return t.String() + "\tst.global.b64 [%out], %d20;"
}

func TestScalar(t *testing.T) {
	for _, s := range scalarTests {
		t.Run(s.text, func(t *testing.T) {
			r := newRig(t, scalarText(s))
			words := r.ok(2)
			got := uint64(words[1])<<32 | uint64(words[0])
			if got != s.want {
				t.Errorf("%s of %#x: %#x, want %#x", s.text, s.in, got, s.want)
			}
		})
	}
}

// TestPartialMask runs a binary, a unary and a ternary instruction in some
// lanes only: the others keep their values.
func TestPartialMask(t *testing.T) {
	got := lanesOf(t, `
	mov.u32 %r0, 100;
	and.b32 %r1, %t, 1;
	setp.eq.u32 %p0, %r1, 0;
	@%p0 add.u32 %r0, %r0, %t;
	@!%p0 mad.lo.u32 %r0, %t, 2, 1;
	@%p0 not.b32 %r0, %r0;`)
	for i, v := range got {
		want := ^uint32(100 + i)
		if i%2 == 1 {
			want = uint32(2*i + 1)
		}
		if v != want {
			t.Errorf("lane %d: %d, want %d", i, v, want)
		}
	}
}

func TestSpecialRegisters(t *testing.T) {
	for name, want := range map[string]uint32{
		"%laneid": 5, "%warpid": 1, "%tid.x": 1, "%tid.y": 2, "%tid.z": 1, "%ntid.x": 4, "%ntid.y": 4, "%ntid.z": 3,
		"%ctaid.x": 1, "%ctaid.y": 1, "%nctaid.x": 2, "%nctaid.y": 2, "%clusterid.x": 1, "%nclusterid.y": 2,
		"%cluster_ctarank": 0, "%cluster_nctarank": 1, "%cluster_ctaid.x": 0, "%cluster_nctaid.x": 1,
		"%lanemask_eq": 32, "%lanemask_le": 63, "%lanemask_lt": 31, "%lanemask_ge": 0xffffffe0, "%lanemask_gt": 0xffffffc0,
		"%dynamic_smem_size": 512, "%nwarpid": 64, "%nsmid": 132,
	} {
		// Thread (1, 2, 1) of CTA (1, 1) is linear thread 1 + 4·2 + 16·1 = 25, lane 25 … so use (1,2,1) + 12 = 37: warp 1, lane 5.
		r := newRig(t, `
	mov.u32 %r0, `+name+`;
	mov.u32 %r1, %tid.y;
	mov.u32 %r2, %tid.z;
	mad.lo.u32 %r3, %r2, 16, %t;
	mad.lo.u32 %r3, %r1, 4, %r3;
	mov.u32 %r4, %ctaid.x;
	mov.u32 %r5, %ctaid.y;
	and.b32 %r4, %r4, %r5;
	setp.eq.u32 %p0, %r4, 1;
	setp.eq.and.u32 %p0, %r3, 37, %p0;
	@%p0 st.global.b32 [%out], %r0;`)
		r.grid, r.block, r.smem = Dim{2, 2, 1}, Dim{4, 4, 3}, 512
		got := r.ok(1)[0]
		// Thread 37 = 2·16 + 1·4 + 1.
		switch name {
		case "%tid.x":
			want = 1
		case "%tid.y":
			want = 1
		case "%tid.z":
			want = 2
		}
		if got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

func TestClock(t *testing.T) {
	got := newRig(t, `
	mov.u64 %d1, %clock64;
	mov.u32 %r2, %clock;
	mov.u64 %d2, %globaltimer;
	mov.u64 %d3, %clock64;
	setp.gt.u64 %p0, %d3, %d1;
	selp.b32 %r0, 1, 0, %p0;
	st.global.b32 [%mine], %r0;`).ok(32)
	if got[3] != 1 {
		t.Error("the clock stands still")
	}
}
