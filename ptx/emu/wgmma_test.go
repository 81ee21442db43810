package emu

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/ptx/emu/num"
	"github.com/mlagen/mlagen/ptx/hopper"
	"github.com/mlagen/mlagen/ptx/isa"
)

// wgmmaBody multiplies A (64×K, at smem+1024 or in registers) by B (N×K, at
// smem+9216), both copied from the input, twice: D = A·B, then D += A·B. Each
// thread stores its accumulators.
func wgmmaBody(opcode string, n int, dtype string, registers, trans bool) string {
	count := n / 2
	if dtype == "f16" {
		count /= 2
	}
	reg := "f"
	if dtype == "f16" {
		reg = "r"
	}
	var d []string
	for i := range count {
		d = append(d, fmt.Sprintf("%%%s%d", reg, 20+i))
	}
	a, flags := "%d3", ", 1, 1"
	if registers {
		a = "{%r10, %r11, %r12, %r13}"
	}
	if trans {
		flags += ", 0"
		if !registers {
			flags += ", 0"
		}
	}
	mma := func(scale string) string {
		return fmt.Sprintf("\t%s {%s}, %s, %%d4, %s%s;\n", opcode, strings.Join(d, ", "), a, scale, flags)
	}
	s := `
	mov.u32 %r1, smem;
	setp.eq.u32 %p0, %t, 0;
	setp.ne.u32 %p1, %t, 1000;
	setp.eq.u32 %p2, %t, 1000;
	@%p0 mbarrier.init.shared.b64 [%r1], 1;
	fence.mbarrier_init.release.cluster;
	bar.sync 0;
	@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 16384;
	@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+1024], [%out+16384], 16384, [%r1];
	mul.wide.u32 %d1, %t, 4;
	add.u64 %d1, %d1, %out;
	ld.global.b32 %r10, [%d1+16384];
	ld.global.b32 %r11, [%d1+16896];
	ld.global.b32 %r12, [%d1+17408];
	ld.global.b32 %r13, [%d1+17920];
$w:
	mbarrier.try_wait.parity.shared.b64 %p3, [%r1], 0;
	@!%p3 bra $w;
	add.u32 %r2, %r1, 1024;
	shr.u32 %r2, %r2, 4;
	or.b32 %r2, %r2, 0x00080000;
	mov.b64 %d3, {%r2, 0x10};
	add.u32 %r3, %r1, 9216;
	shr.u32 %r3, %r3, 4;
	or.b32 %r3, %r3, 0x00080000;
	mov.b64 %d4, {%r3, 0x10};
	wgmma.fence.sync.aligned;
` + mma("%p2") + mma("%p1") + `	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned 0;
	mul.wide.u32 %d5, %t, 64;
	add.u64 %d5, %d5, %out;
`
	for i, r := range d {
		s += fmt.Sprintf("\tst.global.b32 [%%d5+%d], %s;\n", 40960+4*i, r)
	}
	return s
}

type wgmmaTest struct {
	opcode          string
	n, k            int
	dtype           string
	in              isa.Type
	registers, tran bool
}

var wgmmaTests = []wgmmaTest{
	{"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16", 8, 16, "f32", isa.BF16, false, true},
	{"wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16", 16, 16, "f32", isa.BF16, true, true},
	{"wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16", 16, 16, "f32", isa.F16, false, true},
	{"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", 8, 16, "f32", isa.F16, true, true},
	{"wgmma.mma_async.sync.aligned.m64n16k16.f16.f16.f16", 16, 16, "f16", isa.F16, false, true},
	{"wgmma.mma_async.sync.aligned.m64n16k16.f16.f16.f16", 16, 16, "f16", isa.F16, true, true},
	{"wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3", 16, 32, "f32", isa.E4M3, false, false},
	{"wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3", 16, 32, "f32", isa.E4M3, true, false},
	{"wgmma.mma_async.sync.aligned.m64n16k32.f16.e4m3.e4m3", 16, 32, "f16", isa.E4M3, false, false},
	{"wgmma.mma_async.sync.aligned.m64n16k32.f16.e4m3.e4m3", 16, 32, "f16", isa.E4M3, true, false},
}

// TestWgmma compares with the textbook product. A and B hold small integers;
// the layout in shared memory is the unswizzled one: LBO 128, SBO 256.
func TestWgmma(t *testing.T) {
	for _, c := range wgmmaTests {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%s/registers=%v/seed=%d", c.opcode, c.registers, seed), func(t *testing.T) { c.run(t, seed) })
		}
	}
}

func (c wgmmaTest) run(t *testing.T, seed uint64) {
	size := c.in.Bytes()
	fm := num.FormatOf(c.in)
	// Values that are exact in every format and asymmetric in row and k.
	av := func(m, k int) float64 { return float64((m*3+k*5)%7 - 3) }
	bv := func(n, k int) float64 { return float64((n*2+k*3)%5 - 2) }
	image := make([]byte, 16384)
	put := func(at int, v float64) {
		p := fm.Encode(v, num.RN, true)
		if size == 1 {
			image[at] = byte(p)
		} else {
			binary.LittleEndian.PutUint16(image[at:], uint16(p))
		}
	}
	da := hopper.Descriptor{LeadingBytes: 128, StrideBytes: 256}
	for n := range c.n {
		for k := range c.k {
			put(8192+int(da.KMajorAddress(n, k, size)), bv(n, k))
		}
	}
	for m := range 64 {
		for k := range c.k {
			if !c.registers {
				put(int(da.KMajorAddress(m, k, size)), av(m, k))
				continue
			}
			thread, i := hopper.A16Index(m, k)
			if size == 1 {
				thread, i = hopper.A8Index(m, k)
			}
			per := 4 / size
			put(512*(i/per)+4*thread+size*(i%per), av(m, k))
		}
	}
	r := newRig(t, wgmmaBody(c.opcode, c.n, c.dtype, c.registers, c.tran)).withInput()
	if err := r.m.Write(r.out+inputOffset, image); err != nil {
		t.Fatal(err)
	}
	r.block, r.smem = Dim{128, 1, 1}, 20480
	r.m.SetSeed(seed)
	words := r.ok(16384)
	for thread := range 128 {
		for i := range c.n / 2 {
			row, column := hopper.AccumulatorAt(thread, i)
			want := 0.0
			for k := range c.k {
				want += 2 * av(row, k) * bv(column, k)
			}
			var got float64
			if c.dtype == "f16" {
				w := words[10240+16*thread+i/2]
				got = float64(num.F16ToF32(uint16(w >> (16 * (i % 2)))))
			} else {
				got = float64(math.Float32frombits(words[10240+16*thread+i]))
			}
			if got != want {
				t.Fatalf("thread %d accumulator %d: %v, want %v", thread, i, got, want)
			}
		}
	}
}

var (
	// Matrices go out by stmatrix, back transposed by ldmatrix, and are
	// transposed again by movmatrix.
	matrixMoves = body("matrices", `
	mov.u32 %r1, smem;
	mad.lo.u32 %r2, %t, 16, %r1;
	stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r2], {%t, %t, %t, %t};
	bar.warp.sync 0xffffffff;
	ldmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 {%r3, %r4}, [%r2];
	movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r4;`)

	registersMoved = body("setmaxnreg", `
	shr.u32 %r1, %t, 7;
	setp.eq.u32 %p0, %r1, 0;
	@%p0 bra $producer;
	setmaxnreg.inc.sync.aligned.u32 240;
	mov.u32 %r0, 2;
	bra $end;
$producer:
	setmaxnreg.dec.sync.aligned.u32 24;
	mov.u32 %r0, 1;
$end:`)
)

func TestMatrixMoves(t *testing.T) {
	want(t, runBody(t, matrixMoves, 32, 512), func(i int) uint32 { return uint32(i) })
}

func TestSetMaxNReg(t *testing.T) {
	want(t, runBody(t, registersMoved, 384, 0), func(i int) uint32 {
		if i < 128 {
			return 1
		}
		return 2
	})
}
