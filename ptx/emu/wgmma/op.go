// Package wgmma is the emulator's tensor core: the warpgroup matrix multiply
// with its operands in shared memory or registers, and the warp-level matrix
// moves ldmatrix, stmatrix and movmatrix.
//
// # Numerics
//
// The hardware's accumulation is not specified to the bit. Here the products
// of one instruction (16 or 32 per result) are exact and summed in float64 in
// ascending k, the f32 accumulator is added, and the sum is rounded once to
// nearest even. Hardware aligns the products to the largest one and truncates,
// so it may differ in the last bits of the largest term; with 8-bit operands
// it keeps fewer bits of the sum than f32 has.
package wgmma

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mlagen/mlagen/ptx/isa"
)

const (
	// Rows is M of every wgmma.
	Rows = 64
	// Threads is the number of threads of a warpgroup.
	Threads = 128
	// MaxN is the largest N.
	MaxN = 256
)

// Op is a wgmma.mma_async with f32 accumulators: D = A·B or D = A·B + D.
type Op struct {
	N, K             int
	A, B             isa.Type
	NegateA, NegateB bool // imm-scale-a, imm-scale-b are −1
	TransA, TransB   bool // imm-trans: the operand is MN-major in shared memory
}

// Parse returns the operation that the shape ("m64n16k16") and the types of
// D, A and B name; negation and transposition are left for the caller to set.
// Forms that the emulator does not have are errors.
func Parse(shape string, d, a, b isa.Type) (Op, error) {
	var op Op
	var ok bool
	if op.N, op.K, ok = parseShape(shape); !ok {
		return Op{}, fmt.Errorf("wgmma shape: was %q, must be m64nNkK", shape)
	}
	op.A, op.B = a, b
	if d != isa.F32 {
		return Op{}, fmt.Errorf("wgmma: .%v accumulators are not emulated, only .f32", d)
	}
	return op, op.Validate()
}

func parseShape(s string) (n, k int, ok bool) {
	s, ok = strings.CutPrefix(s, "m64n")
	if !ok {
		return 0, 0, false
	}
	ns, ks, ok := strings.Cut(s, "k")
	if !ok {
		return 0, 0, false
	}
	n, err1 := strconv.Atoi(ns)
	k, err2 := strconv.Atoi(ks)
	return n, k, err1 == nil && err2 == nil
}

// Validate reports a shape, a pair of types or a modifier that wgmma does not have.
func (op Op) Validate() error {
	if op.N < 8 || op.N > MaxN || op.N%8 != 0 {
		return fmt.Errorf("wgmma N: was %d, must be a multiple of 8 from 8 to %d", op.N, MaxN)
	}
	k := 0
	switch {
	case op.A == op.B && (op.A == isa.BF16 || op.A == isa.F16):
		k = 16
	case fp8(op.A) && fp8(op.B):
		k = 32
		if op.TransA || op.TransB {
			return fmt.Errorf("wgmma: operands of type .%v and .%v cannot be transposed", op.A, op.B)
		}
	default:
		return fmt.Errorf("wgmma: .%v × .%v is not emulated, only bf16, f16, and e4m3 or e5m2", op.A, op.B)
	}
	if op.K != k {
		return fmt.Errorf("wgmma K: was %d, must be %d for .%v", op.K, k, op.A)
	}
	return nil
}

func fp8(t isa.Type) bool { return t == isa.E4M3 || t == isa.E5M2 }

// Values returns the number of f32 accumulators per thread.
func (op Op) Values() int { return op.N / 2 }

// ARegisters is the number of 32-bit registers per thread of an operand A in
// registers.
const ARegisters = 4
