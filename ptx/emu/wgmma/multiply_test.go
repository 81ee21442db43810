package wgmma

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mlagen/mlagen/ptx/isa"
)

// fragments are the accumulators of a warpgroup.
type fragments []Registers

func newFragments(op Op) fragments { return make(fragments, 4*op.Values()) }

func (f fragments) of(i, warp int) *Registers { return &f[4*i+warp] }

func (f fragments) at(i, thread int) *uint64 { return &f[4*i+thread/32][thread%32] }

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
			d := newFragments(op)
			for _, accumulate := range []bool{false, true} {
				for i := range d {
					for l := range d[i] {
						d[i][l] = uint64(math.Float32bits(float32(rng.IntN(100))))
						if !accumulate {
							d[i][l] = 0x7fc00000 // must not be read
						}
					}
				}
				before := slices.Clone(d)
				op.Multiply(new(Scratch), d.of, a, b, accumulate)
				for thread := range Threads {
					for i := range n / 2 {
						row := thread/32*16 + thread%32/4 + 8*(i/2%2)
						column := i/4*8 + thread%4*2 + i%2
						want := float32(0)
						for j := range k {
							want += float32(a[row*k+j] * b[j*n+column])
						}
						if accumulate {
							want += math.Float32frombits(uint32(*before.at(i, thread)))
						}
						if got := math.Float32frombits(uint32(*d.at(i, thread))); got != want {
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
		a[c.row*16+5], b[5*16+c.column] = 3, 7
		d := newFragments(op)
		op.Multiply(new(Scratch), d.of, a, b, false)
		for i := range op.Values() {
			for thread := range Threads {
				want := float32(0)
				if i == c.register && thread == c.thread {
					want = 21
				}
				if v := math.Float32frombits(uint32(*d.at(i, thread))); v != want {
					t.Errorf("one at (%d, %d): register %d of thread %d is %v", c.row, c.column, i, thread, v)
				}
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
		for k, v := range c.b {
			b[k*8+7] = v
		}
		d := newFragments(op)
		*d.at(3, 127) = uint64(math.Float32bits(c.d))
		op.Multiply(new(Scratch), d.of, a, b, true)
		if got := uint32(*d.at(3, 127)); got != c.want {
			t.Errorf("%s: %#08x, want %#08x", c.name, got, c.want)
		}
	}
}

// TestProducts compares the processor's own instructions, where they are used,
// with Go's, to the bit.
func TestProducts(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	special := []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), 0x1p-133, -0x1p127, 0x1.fep127}
	factor := func() float64 {
		if rng.IntN(50) == 0 {
			return special[rng.IntN(len(special))]
		}
		return math.Ldexp(float64(rng.IntN(1<<12)-1<<11), rng.IntN(60)-30)
	}
	for _, k := range []int{16, 32} {
		for n := 8; n <= MaxN; n += 8 {
			a, b := make([]float64, warpRows*k), make([]float64, k*n)
			for i := range a {
				a[i] = factor()
			}
			for i := range b {
				b[i] = factor()
			}
			got, want := make([]float64, warpRows*n), make([]float64, warpRows*n)
			products(got, a, b, n, k)
			productsGo(want, a, b, n, k)
			for i := range want {
				if math.Float64bits(got[i]) != math.Float64bits(want[i]) && !(math.IsNaN(got[i]) && math.IsNaN(want[i])) {
					t.Fatalf("n%d k%d, row %d column %d: %v, want %v", n, k, i/n, i%n, got[i], want[i])
				}
			}
		}
	}
}
