package hopper

import "fmt"

// Limits of tensor maps (cuda.h, cuTensorMapEncodeTiled; interleave none).
const (
	TensorMapBytes = 128
	TensorMapAlign = 64 // of the map as a kernel parameter
	MaxRank        = 5
	MaxBox         = 256 // elements per box dimension
	MaxDim         = 1 << 32
	MaxStride      = 1<<40 - 1 // bytes

	// BulkAlign is the unit in which bulk copies address and count bytes.
	BulkAlign = 16
	// TileAlign is the alignment of a tensor copy's shared-memory address; a
	// swizzled tile needs Swizzle.AtomBytes.
	TileAlign = 128
)

// TensorMap is what a tensor map encodes. Lists are innermost first.
type TensorMap struct {
	Address        uint64
	ElemBytes      int
	Dims           []uint64 // elements
	Strides        []uint64 // bytes, of every dimension but the innermost
	Box            []int    // elements
	ElementStrides []int    // nil = all 1
	Swizzle        Swizzle
}

// Validate reports the first argument that cuTensorMapEncodeTiled refuses.
func (m TensorMap) Validate() error {
	if m.Address%BulkAlign != 0 {
		return wrong("tensor map address", fmt.Sprintf("%#x", m.Address), "a multiple of %d", BulkAlign)
	}
	if err := CheckBox(m.Box, m.ElemBytes, m.Swizzle); err != nil {
		return err
	}
	rank := len(m.Box)
	if len(m.Dims) != rank {
		return wrong("tensor map dimensions", len(m.Dims), "as many as the box has, %d", rank)
	}
	for i, d := range m.Dims {
		if d < 1 || d > MaxDim {
			return wrong(fmt.Sprintf("tensor map dimension %d", i), d, "1 to 4294967296 elements")
		}
	}
	if len(m.Strides) != rank-1 {
		return wrong("tensor map strides", len(m.Strides), "one less than the dimensions, %d", rank-1)
	}
	for i, s := range m.Strides {
		if s%BulkAlign != 0 || s > MaxStride {
			return wrong(fmt.Sprintf("tensor map stride of dimension %d", i+1), s, "a multiple of 16 bytes below 2^40")
		}
	}
	if m.ElementStrides == nil {
		return nil
	}
	if len(m.ElementStrides) != rank {
		return wrong("tensor map element strides", len(m.ElementStrides), "as many as the box has dimensions, %d", rank)
	}
	for i, s := range m.ElementStrides {
		if s < 1 || s > 8 {
			return wrong(fmt.Sprintf("tensor map element stride %d", i), s, "1 to 8")
		}
	}
	return nil
}

// CheckBox reports what is wrong with the static part of a tensor map: the
// box, innermost first, the bytes of an element and the swizzle.
func CheckBox(box []int, elemBytes int, s Swizzle) error {
	switch elemBytes {
	case 1, 2, 4, 8:
	default:
		return wrong("tensor map element bytes", elemBytes, "1, 2, 4 or 8")
	}
	if s > Swizzle128 {
		return wrong("tensor map swizzle", uint8(s), "a known mode")
	}
	if len(box) < 1 || len(box) > MaxRank {
		return wrong("tensor map rank", len(box), "1 to %d", MaxRank)
	}
	for i, n := range box {
		if n < 1 || n > MaxBox {
			return wrong(fmt.Sprintf("box dimension %d", i), n, "1 to %d elements", MaxBox)
		}
	}
	inner := box[0] * elemBytes
	if inner%BulkAlign != 0 {
		return wrong("box dimension 0", fmt.Sprintf("%d elements = %d bytes", box[0], inner), "a multiple of %d bytes", BulkAlign)
	}
	if s != SwizzleNone && inner > s.Bytes() {
		return wrong("box dimension 0", fmt.Sprintf("%d elements = %d bytes", box[0], inner), "at most %d bytes with the %s swizzle", s.Bytes(), s)
	}
	if n := BoxBytes(box, elemBytes); n > SharedLimit {
		return wrong("box", fmt.Sprintf("%v = %d bytes", box, n), "at most %d bytes of shared memory", SharedLimit)
	}
	return nil
}

// BoxBytes returns the bytes of one box. A copy counts all of them towards
// complete_tx, those outside the tensor (filled with zero) included.
func BoxBytes(box []int, elemBytes int) int {
	n := elemBytes
	for _, b := range box {
		n *= b
	}
	return n
}
