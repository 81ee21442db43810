package wgmma

import (
	"fmt"
	"testing"

	"github.com/mlagen/mlagen/ptx/hopper"
	"github.com/mlagen/mlagen/ptx/isa"
)

// BenchmarkExecute is a whole instruction: both operands gathered, multiplied.
func BenchmarkExecute(b *testing.B) {
	smem := make([]byte, 1<<17)
	for i := range smem {
		smem[i] = byte(i*7) & 0x3f
	}
	for _, n := range []int{16, 64, 256} {
		for _, trans := range []bool{false, true} {
			b.Run(fmt.Sprintf("n%d/transA=%v", n, trans), func(b *testing.B) {
				op := Op{N: n, K: 16, A: isa.BF16, B: isa.BF16, TransA: trans}
				a := hopper.Descriptor{Start: 0, LeadingBytes: 16, StrideBytes: 1024, Swizzle: hopper.Swizzle128}.Encode()
				d := newFragments(op)
				var tmp Scratch
				x, y := make([]float64, 64*16), make([]float64, 256*16)
				for range b.N {
					oa, err := op.OperandA(a)
					if err != nil {
						b.Fatal(err)
					}
					ob, err := op.OperandB(a)
					if err != nil {
						b.Fatal(err)
					}
					if err := oa.Gather(x, smem); err != nil {
						b.Fatal(err)
					}
					if err := ob.Gather(y, smem); err != nil {
						b.Fatal(err)
					}
					op.Multiply(&tmp, d.of, x, y, true)
				}
			})
		}
	}
}
