package emu

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

// benchmark runs a loop of 1000 turns on 256 threads and reports millions of
// lane-instructions per second of one core, with and without the observers.
func benchmark(b *testing.B, body string, times int) {
	b.Helper()
	p := compile(b, kernelText(`
	mov.f32 %f0, 0f3F800000;
	mov.f32 %f1, 0f3F000000;
	mov.u32 %r1, 0;
	mov.u32 %r10, smem;
	mad.lo.u32 %r11, %t, 16, %r10;
	st.shared.v4.b32 [%r11], {%t, %t, %t, %t};
$loop:
`+strings.Repeat(body, times)+`	add.u32 %r1, %r1, 1;
	setp.lt.u32 %p0, %r1, 1000;
	@%p0 bra $loop;
	st.global.f32 [%mine], %f0;`))
	bothWays(b, p, LaunchConfig{Block: Dim{256, 1, 1}, Shared: 8192}, "Mlane/s", func(s Stats) float64 { return float64(s.Instructions) / 1e6 })
}

// bothWays times launches with and without the observers, and reports what they
// count a second.
func bothWays(b *testing.B, p *Program, c LaunchConfig, unit string, count func(Stats) float64) {
	b.Helper()
	for _, quiet := range []bool{false, true} {
		b.Run(fmt.Sprintf("hazards=%v", !quiet), func(b *testing.B) {
			m := New(Config{NoHazards: quiet})
			out, err := m.Alloc("out", 4096)
			if err != nil {
				b.Fatal(err)
			}
			c.Params = binary.LittleEndian.AppendUint64(nil, out)
			n := 0.0
			for b.Loop() {
				r, err := m.Launch(p, "k", c)
				if err != nil || len(r.Hazards) > 0 {
					b.Fatal(err, r.Hazards)
				}
				n += count(r.Stats)
			}
			b.ReportMetric(n/b.Elapsed().Seconds(), unit)
		})
	}
}

func BenchmarkArithmetic(b *testing.B) {
	benchmark(b, `	fma.rn.f32 %f2, %f0, %f1, %f1;
	add.f32 %f0, %f2, %f1;
	mul.f32 %f0, %f0, %f1;
	add.s32 %r2, %r1, 7;
	xor.b32 %r3, %r2, %t;
	max.f32 %f3, %f0, %f2;
	ex2.approx.ftz.f32 %f4, %f1;
	mov.b32 %r4, %r3;
`, 4)
}

func BenchmarkSharedMemory(b *testing.B) {
	benchmark(b, `	ld.shared.v4.b32 {%r2, %r3, %r4, %r5}, [%r11];
	add.u32 %r2, %r2, %r3;
	add.u32 %r4, %r4, %r5;
	st.shared.b32 [%r11+4], %r2;
	add.u32 %r2, %r2, %r4;
	fma.rn.f32 %f0, %f0, %f1, %f1;
	shfl.sync.bfly.b32 %r6, %r2, 1, 31, 0xffffffff;
	bar.sync 0;
`, 2)
}

// BenchmarkWgmma multiplies tiles in shared memory, four steps of K to a wait,
// and reports billions of floating-point operations per second.
func BenchmarkWgmma(b *testing.B) {
	var d []string
	for i := range 32 {
		d = append(d, fmt.Sprintf("%%f%d", 20+i))
	}
	mma := "\twgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" + strings.Join(d, ", ") + "}, %d3, %d4, %p1, 1, 1, 0, 0;\n"
	p := compile(b, kernelText(`
	mov.u32 %r10, smem;
	mov.u32 %r2, 0x3f803f80;
	mad.lo.u32 %r11, %t, 16, %r10;
	mov.u32 %r1, 0;
$fill:
	st.shared.v4.b32 [%r11], {%r2, %r2, %r2, %r2};
	add.u32 %r11, %r11, 2048;
	add.u32 %r1, %r1, 1;
	setp.lt.u32 %p0, %r1, 8;
	@%p0 bra $fill;
	fence.proxy.async;
	bar.sync 0;
	shr.u32 %r2, %r10, 4;
	mov.b64 %d3, {%r2, 0x40000040};
	add.u32 %r2, %r2, 512;
	mov.b64 %d4, {%r2, 0x40000040};
	setp.eq.u32 %p1, %t, 1000;
	mov.u32 %r1, 0;
$loop:
	wgmma.fence.sync.aligned;
`+mma+strings.Repeat("\tadd.u64 %d3, %d3, 2;\n\tadd.u64 %d4, %d4, 2;\n\tsetp.ne.u32 %p1, %t, 1000;\n"+mma, 3)+`	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned 0;
	sub.u64 %d3, %d3, 6;
	sub.u64 %d4, %d4, 6;
	add.u32 %r1, %r1, 1;
	setp.lt.u32 %p0, %r1, 100;
	@%p0 bra $loop;
	st.global.f32 [%mine], %f20;`))
	bothWays(b, p, LaunchConfig{Block: Dim{128, 1, 1}, Shared: 17408}, "GFLOP/s", func(s Stats) float64 { return float64(s.WgmmaFLOPs) / 1e9 })
}
