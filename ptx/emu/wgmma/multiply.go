package wgmma

import (
	"math"

	"github.com/mlagen/mlagen/ptx/hopper"
)

// Registers are a register of the 32 lanes of a warp, each an f32 in the low
// half of 64 bits.
type Registers = [hopper.WarpThreads]uint64

// Scratch is what Multiply needs for a while.
type Scratch struct{ sums [warpRows * MaxN]float64 }

// Multiply computes D = A·B, plus D when accumulate (scale-d) is true.
//
// a is 64×K and b is K×N, by rows, as Gather and RegistersA write
// them. d returns accumulator i < Values() of a warp of the warpgroup.
func (op Op) Multiply(tmp *Scratch, d func(i, warp int) *Registers, a, b []float64, accumulate bool) {
	n, k := op.N, op.K
	sums := tmp.sums[:]
	for warp := range 4 {
		products(sums, a[warp*warpRows*k:], b, n, k)
		// Of every eight columns, lane l has columns 2(l%4) and 2(l%4)+1 of
		// rows l/4 and l/4+8 (PTX manual, #wgmma-64n16-d).
		for i := range op.Values() {
			to := d(i, warp)
			from := sums[i/2%2*8*n+i/4*8+i%2:]
			for line := range 8 {
				row, v := from[line*n:][:7], to[4*line:][:4]
				if accumulate {
					v[0] = round(row[0] + value(v[0]))
					v[1] = round(row[2] + value(v[1]))
					v[2] = round(row[4] + value(v[2]))
					v[3] = round(row[6] + value(v[3]))
					continue
				}
				v[0] = round(row[0])
				v[1] = round(row[2])
				v[2] = round(row[4])
				v[3] = round(row[6])
			}
		}
	}
}

func value(v uint64) float64 { return float64(math.Float32frombits(uint32(v))) }

// round rounds a sum to f32.
func round(sum float64) uint64 {
	v := float32(sum)
	if v != v {
		return 0x7fff_ffff
	}
	return uint64(math.Float32bits(v))
}
