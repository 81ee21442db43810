package tma

import (
	"fmt"

	"github.com/mlagen/mlagen/ptx/hopper"
	"github.com/mlagen/mlagen/ptx/isa"
)

// CheckBulk reports operands that a one-dimensional bulk copy does not accept:
// both addresses and the size are multiples of 16. Size 0 copies nothing.
func CheckBulk(dst, src, size uint64) error {
	for _, c := range []struct {
		name string
		v    uint64
	}{{"destination", dst}, {"source", src}, {"size", size}} {
		if c.v%hopper.BulkAlign != 0 {
			return fmt.Errorf("bulk copy: %s %#x is not a multiple of %d", c.name, c.v, hopper.BulkAlign)
		}
	}
	return nil
}

// BulkReduce combines src into dst, both of the same length, as
// cp.reduce.async.bulk does with elements of type t.
func BulkReduce(op ReduceOp, t isa.Type, dst, src []byte) error {
	f, err := op.combiner(t)
	if err != nil {
		return err
	}
	if len(dst) != len(src) || len(src)%t.Bytes() != 0 {
		return fmt.Errorf("bulk reduction: %d bytes into %d, must be equal and whole .%v", len(src), len(dst), t)
	}
	f(dst, src)
	return nil
}
