package wgmma

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mlagen/mlagen/ptx/isa"
)

// TestMultiply compares with the textbook product, the accumulator's place
// written out as in the manual (#wgmma-64n16-d).
func TestMultiply(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, k := range []int{16, 32} {
		for n := 8; n <= MaxN; n += 8 {
			op := Op{N: n, K: k, A: isa.BF16, B: isa.BF16}
			a, b := make([]float64, 64*k), make([]float64, n*k)
			for i := range a {
				a[i] = float64(rng.IntN(17) - 8)
			}
			for i := range b {
				b[i] = float64(rng.IntN(17) - 8)
			}
			d := make([]float32, n/2*Threads)
			for _, accumulate := range []bool{false, true} {
				before := make([]float32, len(d))
				for i := range d {
					d[i] = float32(rng.IntN(100))
					if !accumulate {
						d[i] = float32(math.NaN()) // must not be read
					}
				}
				copy(before, d)
				op.Multiply(d, a, b, accumulate)
				for thread := range Threads {
					for i := range n / 2 {
						row := thread/32*16 + thread%32/4 + 8*(i/2%2)
						column := i/4*8 + thread%4*2 + i%2
						want := float32(0)
						for j := range k {
							want += float32(a[row*k+j] * b[column*k+j])
						}
						if accumulate {
							want += before[i*Threads+thread]
						}
						if got := d[i*Threads+thread]; got != want {
							t.Fatalf("n%d k%d thread %d register %d: %v, want %v", n, k, thread, i, got, want)
						}
					}
				}
			}
		}
	}
}

// TestFragmentPoints has places of D read off the manual's figure.
func TestFragmentPoints(t *testing.T) {
	op := Op{N: 16, K: 16, A: isa.BF16, B: isa.BF16}
	for _, c := range []struct{ row, column, thread, register int }{
		{0, 0, 0, 0}, {0, 1, 0, 1}, {0, 2, 1, 0}, {0, 7, 3, 1}, {0, 8, 0, 4}, {0, 15, 3, 5},
		{1, 0, 4, 0}, {7, 6, 31, 0}, {8, 0, 0, 2}, {15, 7, 31, 3}, {16, 0, 32, 0}, {63, 15, 127, 7},
	} {
		a, b := make([]float64, 64*16), make([]float64, 16*16)
		a[c.row*16+5], b[c.column*16+5] = 3, 7
		d := make([]float32, 8*Threads)
		op.Multiply(d, a, b, false)
		for i, v := range d {
			want := float32(0)
			if i == c.register*Threads+c.thread {
				want = 21
			}
			if v != want {
				t.Errorf("one at (%d, %d): register %d of thread %d is %v", c.row, c.column, i/Threads, i%Threads, v)
			}
		}
	}
}

func TestMultiplyRounding(t *testing.T) {
	op := Op{N: 8, K: 16, A: isa.BF16, B: isa.BF16}
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		name string
		a, b [3]float64
		d    float32
		want uint32
	}{
		// 2^24 + 1 + 1: in f32 each one alone would be lost.
		{"one rounding", [3]float64{1 << 24, 1, 1}, [3]float64{1, 1, 1}, 0, 0x4b800001},
		{"accumulator included", [3]float64{1, 1, 0}, [3]float64{1, 1, 0}, 1 << 24, 0x4b800001},
		{"cancellation", [3]float64{1 << 40, -1 << 40, 3}, [3]float64{1, 1, 1}, 0, 0x40400000},
		{"overflow", [3]float64{0x1p127, 0x1p127, 0}, [3]float64{1, 1, 0}, 0, 0x7f800000},
		{"inf", [3]float64{inf, 1, 1}, [3]float64{1, 1, 1}, -1, 0x7f800000},
		{"inf − inf", [3]float64{inf, inf, 1}, [3]float64{1, -1, 1}, 0, 0x7fffffff},
		{"0 · inf", [3]float64{inf, 1, 1}, [3]float64{0, 1, 1}, 0, 0x7fffffff},
		{"nan", [3]float64{nan, 1, 1}, [3]float64{1, 1, 1}, 0, 0x7fffffff},
		{"subnormal", [3]float64{0x1p-100, 0, 0}, [3]float64{0x1p-40, 0, 0}, 0, 1 << 9},
	} {
		a, b := make([]float64, 64*16), make([]float64, 8*16)
		copy(a[63*16:], c.a[:])
		copy(b[7*16:], c.b[:])
		d := make([]float32, 4*Threads)
		d[3*Threads+127] = c.d
		op.Multiply(d, a, b, true)
		if got := math.Float32bits(d[3*Threads+127]); got != c.want {
			t.Errorf("%s: %#08x, want %#08x", c.name, got, c.want)
		}
	}
}
