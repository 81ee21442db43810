package wgmma

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/ptx/isa"
)

// descriptor assembles a matrix descriptor from the manual's bit fields; mode
// is its swizzle code (0 none, 1 128B, 2 64B, 3 32B).
func descriptor(start, lbo, sbo, mode uint64) uint64 {
	return start>>4 | lbo>>4<<16 | sbo>>4<<32 | mode<<62
}

// layouts places 16-bit elements as the manual's canonical layouts do, written
// out per mode: 8 rows of w bytes make an atom in which row r has its chunks
// xored with its 128-byte line's number.
var layouts = []struct {
	name  string
	mode  uint64
	trans bool
	lbo   uint64
	sbo   uint64
	place func(mn, k int) int // byte offset from the start
}{
	{"K none", 0, false, 4096, 128, func(mn, k int) int { return mn/8*128 + k/8*4096 + mn%8*16 + k%8*2 }},
	{"K none apart", 0, false, 128, 512, func(mn, k int) int { return mn/8*512 + k/8*128 + mn%8*16 + k%8*2 }},
	{"K 32B", 3, false, 16, 256, func(mn, k int) int { return mn*32 + (k/8^mn/4%2)*16 + k%8*2 }},
	{"K 64B", 2, false, 16, 512, func(mn, k int) int { return mn*64 + (k/8^mn/2%4)*16 + k%8*2 }},
	{"K 128B", 1, false, 16, 1024, func(mn, k int) int { return mn*128 + (k/8^mn%8)*16 + k%8*2 }},
	{"K 128B apart", 1, false, 16, 2048, func(mn, k int) int { return mn/8*2048 + mn%8*128 + (k/8^mn%8)*16 + k%8*2 }},
	{"MN none", 0, true, 128, 256, func(mn, k int) int { return mn/8*256 + k/8*128 + k%8*16 + mn%8*2 }},
	{"MN 32B", 3, true, 512, 256, func(mn, k int) int { return mn/16*512 + k*32 + (mn%16/8^k/4%2)*16 + mn%8*2 }},
	{"MN 64B", 2, true, 1024, 512, func(mn, k int) int { return mn/32*1024 + k*64 + (mn%32/8^k/2%4)*16 + mn%8*2 }},
	{"MN 128B", 1, true, 8192, 1024, func(mn, k int) int { return mn/64*8192 + k*128 + (mn%64/8^k%8)*16 + mn%8*2 }},
	{"MN 128B apart", 1, true, 1024, 5120, func(mn, k int) int { return mn/64*1024 + k/8*5120 + k%8*128 + (mn%64/8^k%8)*16 + mn%8*2 }},
}

func TestGather(t *testing.T) {
	const start = 2048
	rng := rand.New(rand.NewPCG(1, 1))
	for _, l := range layouts {
		for _, n := range []int{8, 16, 32, 64, 96, 128, 256} {
			for _, ty := range []isa.Type{isa.BF16, isa.F16} {
				smem := make([]byte, 1<<17)
				for i := 0; i < len(smem); i += 2 { // NaN everywhere else
					binary.LittleEndian.PutUint16(smem[i:], 0x7fff)
				}
				want := make([]float64, n*16)
				var touched []uint32
				for mn := range n {
					for k := range 16 {
						v := rng.IntN(256) - 128
						want[k*n+mn] = float64(v)
						bits := uint16(math.Float32bits(float32(v)) >> 16)
						if ty == isa.F16 {
							bits = halfOf(v)
						}
						at := start + l.place(mn, k)
						binary.LittleEndian.PutUint16(smem[at:], bits)
						touched = append(touched, uint32(at)&^15)
					}
				}
				op := Op{N: n, K: 16, A: ty, B: ty, TransB: l.trans}
				o, err := op.OperandB(descriptor(start, l.lbo, l.sbo, l.mode))
				if err != nil {
					t.Fatalf("%s n%d: %v", l.name, n, err)
				}
				got := make([]float64, n*16)
				if err := o.Gather(got, smem); err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Fatalf("%s n%d %v: %s", l.name, n, ty, d)
				}
				slices.Sort(touched)
				chunks := o.Chunks(nil)
				slices.Sort(chunks)
				if d := cmp.Diff(slices.Compact(touched), chunks); d != "" {
					t.Fatalf("%s n%d chunks: %s", l.name, n, d)
				}
			}
		}
	}
}

// halfOf is the fp16 pattern of an integer below 2048 in magnitude.
func halfOf(v int) uint16 {
	if v == 0 {
		return 0
	}
	s := uint16(0)
	if v < 0 {
		s, v = 0x8000, -v
	}
	e := 0
	for v>>(e+1) != 0 {
		e++
	}
	return s | uint16(e+15)<<10 | uint16(v<<10>>e)&0x3ff
}

// TestGatherStep: a later k within a 128-byte row is a later start.
func TestGatherStep(t *testing.T) {
	smem := make([]byte, 16384)
	place := func(mn, k int) int { return mn*128 + (k/8^mn%8)*16 + k%8*2 }
	for mn := range 64 {
		for k := range 64 {
			binary.LittleEndian.PutUint16(smem[place(mn, k):], halfOf(mn+k))
		}
	}
	op := Op{N: 8, K: 16, A: isa.F16, B: isa.F16, NegateA: true}
	o, err := op.OperandA(descriptor(96, 16, 1024, 1))
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float64, 64*16)
	if err := o.Gather(got, smem); err != nil {
		t.Fatal(err)
	}
	for mn := range 64 {
		for k := range 16 {
			if got[mn*16+k] != -float64(mn+48+k) {
				t.Fatalf("(%d, %d) = %v", mn, k, got[mn*16+k])
			}
		}
	}
}

func TestGather8(t *testing.T) {
	smem := make([]byte, 8192)
	op := Op{N: 16, K: 32, A: isa.E4M3, B: isa.E5M2}
	for mn := range 16 { // 32B swizzle: rows of 32 values
		for k := range 32 {
			smem[mn*32+(k/16^mn/4%2)*16+k%16] = 0x3c + byte(mn%4) // e5m2 1, 1.25, 1.5, 1.75
		}
	}
	smem[2*32+0] = 0xbc // (2, 0) = −1
	o, err := op.OperandB(descriptor(0, 16, 256, 3))
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float64, 16*32)
	if err := o.Gather(got, smem); err != nil {
		t.Fatal(err)
	}
	for mn := range 16 {
		for k := range 32 {
			want := 1 + float64(mn%4)/4
			if mn == 2 && k == 0 {
				want = -1
			}
			if got[k*16+mn] != want {
				t.Fatalf("(%d, %d) = %v, want %v", mn, k, got[k*16+mn], want)
			}
		}
	}
}

func TestDescriptorErrors(t *testing.T) {
	op := Op{N: 128, K: 16, A: isa.BF16, B: isa.BF16}
	trans := op
	trans.TransB = true
	for _, c := range []struct {
		op   Op
		desc uint64
		want string
	}{
		{op, descriptor(1024, 16, 1024, 1) | 1<<14, "reserved"},
		{op, descriptor(1024, 16, 1024, 1) | 1<<61, "reserved"},
		{op, 0xdeadbeefdeadbeef, "reserved"},
		{op, descriptor(1024, 16, 1024, 1) | 1<<49, "BaseOffset"},
		{op, descriptor(1024+128, 16, 1024, 1), "pattern"},
		{op, descriptor(512+64, 16, 512, 2), "pattern"},
		{op, descriptor(256+32, 16, 256, 3), "pattern"},
		{op, descriptor(1024+112, 16, 1024, 1), "leave"},
		{op, descriptor(1024, 16, 512, 1), "stride offset"},
		{trans, descriptor(1024, 8192, 512, 1), "stride offset"},
		{trans, descriptor(1024, 128, 1024, 1), "leading offset"},
		{trans, descriptor(1024+32, 1024, 1024, 1), "into a row"},
	} {
		_, err := c.op.OperandB(c.desc)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "operand B") {
			t.Errorf("%#x: error %v, want %q", c.desc, err, c.want)
		}
	}
	o, err := op.OperandB(descriptor(1024, 16, 1024, 1))
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]float64, 128*16)
	if err := o.Gather(dst, make([]byte, 1024+16384)); err != nil {
		t.Error(err)
	}
	for _, size := range []int{0, 8, 1024, 1024 + 16384 - 128} {
		if err := o.Gather(dst, make([]byte, size)); err == nil || !strings.Contains(err.Error(), "outside") {
			t.Errorf("%d bytes of shared memory: %v", size, err)
		}
	}
}

// TestRegistersA checks points read off the manual's figures of A fragments.
func TestRegistersA(t *testing.T) {
	for _, c := range []struct {
		op                        Op
		thread, reg, part, row, k int
	}{
		{Op{K: 16, A: isa.F16}, 0, 0, 0, 0, 0}, {Op{K: 16, A: isa.F16}, 0, 0, 1, 0, 1}, {Op{K: 16, A: isa.F16}, 0, 1, 0, 8, 0},
		{Op{K: 16, A: isa.F16}, 0, 2, 0, 0, 8}, {Op{K: 16, A: isa.F16}, 0, 3, 1, 8, 9}, {Op{K: 16, A: isa.F16}, 3, 0, 1, 0, 7},
		{Op{K: 16, A: isa.F16}, 31, 0, 0, 7, 6}, {Op{K: 16, A: isa.F16}, 127, 3, 1, 63, 15}, {Op{K: 16, A: isa.F16}, 36, 0, 0, 17, 0},
		{Op{K: 32, A: isa.E4M3}, 0, 0, 3, 0, 3}, {Op{K: 32, A: isa.E4M3}, 1, 0, 0, 0, 4}, {Op{K: 32, A: isa.E4M3}, 0, 1, 0, 8, 0},
		{Op{K: 32, A: isa.E4M3}, 0, 2, 0, 0, 16}, {Op{K: 32, A: isa.E4M3}, 127, 3, 3, 63, 31},
	} {
		regs := make([]uint32, ARegisters*Threads)
		if c.op.K == 16 {
			regs[c.reg*Threads+c.thread] = 0x3c00 << (16 * c.part)
		} else {
			regs[c.reg*Threads+c.thread] = 0x38 << (8 * c.part)
		}
		dst := make([]float64, 64*c.op.K)
		c.op.RegistersA(dst, regs)
		for i, v := range dst {
			want := 0.0
			if i == c.row*c.op.K+c.k {
				want = 1
			}
			if v != want {
				t.Errorf("%v thread %d register %d part %d: (%d, %d) = %v", c.op.A, c.thread, c.reg, c.part, i/c.op.K, i%c.op.K, v)
			}
		}
	}
}

func FuzzOperand(f *testing.F) {
	f.Add(descriptor(1024, 16, 1024, 1), uint8(31), true)
	f.Add(descriptor(0, 8192, 1024, 1), uint8(3), false)
	f.Fuzz(func(t *testing.T, desc uint64, n uint8, trans bool) {
		op := Op{N: 8 + int(n)%32*8, K: 16, A: isa.BF16, B: isa.BF16, TransB: trans}
		smem := make([]byte, 65536)
		o, err := op.OperandB(desc)
		if err != nil {
			return
		}
		inside := true
		for _, c := range o.Chunks(nil) {
			if c%16 != 0 {
				t.Fatalf("chunk %#x", c)
			}
			inside = inside && int(c)+16 <= len(smem)
		}
		if err := o.Gather(make([]float64, op.N*op.K), smem); (err == nil) != inside {
			t.Fatalf("inside %v, error %v", inside, err)
		}
	})
}
