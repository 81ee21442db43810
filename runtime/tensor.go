package runtime

import (
	"fmt"
	"math"
	"math/bits"
)

// DType is an element type, spelled as in manifests.
type DType string

// Element types.
const (
	BF16 DType = "bf16"
	FP16 DType = "fp16"
	F32  DType = "f32"
	S32  DType = "s32"
	S64  DType = "s64"
)

// Bytes returns the size of an element, 0 for an unknown type.
func (d DType) Bytes() int64 {
	switch d {
	case BF16, FP16:
		return 2
	case F32, S32:
		return 4
	case S64:
		return 8
	}
	return 0
}

// Tensor is a view of device memory. The runtime never owns it.
type Tensor struct {
	Ptr   Ptr
	DType DType
	Shape []int64 // outermost dimension first
	// Strides are in elements, as in DLPack and PyTorch, one per dimension;
	// nil means dense. The stride of a dimension of size 1 means nothing.
	Strides []int64
}

// Dense returns a tensor whose elements lie one after the other.
func Dense(p Ptr, d DType, shape ...int64) Tensor { return Tensor{Ptr: p, DType: d, Shape: shape} }

// Buffer is a range of device memory without a structure for the caller.
type Buffer struct {
	Ptr   Ptr
	Bytes int64
}

// absent reports that nobody filled t in.
func (t *Tensor) absent() bool { return t.Ptr == 0 && t.DType == "" && len(t.Shape) == 0 }

// empty reports that t has no element.
func (t *Tensor) empty() bool {
	for _, n := range t.Shape {
		if n == 0 {
			return true
		}
	}
	return false
}

// stride returns the distance in elements between neighbours along dimension
// i, 0 where there are none.
func (t *Tensor) stride(i int) int64 {
	if t.Shape[i] <= 1 {
		return 0
	}
	if t.Strides != nil {
		return t.Strides[i]
	}
	stride := int64(1)
	for _, n := range t.Shape[i+1:] {
		stride *= n
	}
	return stride
}

// strideBytes is stride in bytes.
func (t *Tensor) strideBytes(i int) int64 { return t.stride(i) * t.DType.Bytes() }

// same reports whether t and o, of one shape, are one tensor.
func (t *Tensor) same(o *Tensor) bool {
	same := t.Ptr == o.Ptr && t.DType == o.DType
	for i := range t.Shape {
		same = same && t.stride(i) == o.stride(i)
	}
	return same
}

// span returns the bytes from the first element to past the last, for strides
// that are not negative; ok is false when they do not fit 63 bits.
func (t *Tensor) span() (n int64, ok bool) {
	if t.empty() {
		return 0, true
	}
	last, dense := uint64(0), uint64(1)
	for i := len(t.Shape) - 1; i >= 0; i-- {
		stride := dense
		if t.Strides != nil {
			stride = uint64(t.Strides[i])
		}
		if t.Shape[i] > 1 {
			high, step := bits.Mul64(uint64(t.Shape[i]-1), stride)
			sum, carry := bits.Add64(last, step, 0)
			if high != 0 || carry != 0 {
				return 0, false
			}
			last = sum
		}
		var high uint64
		if high, dense = bits.Mul64(dense, uint64(t.Shape[i])); high != 0 {
			return 0, false
		}
	}
	high, end := bits.Mul64(last+1, uint64(t.DType.Bytes()))
	if high != 0 || end > math.MaxInt64 {
		return 0, false
	}
	return int64(end), true
}

// overlaps reports that two elements of t may share memory: some dimension's
// stride is smaller than what the dimensions inside it reach.
func (t *Tensor) overlaps() bool {
	var done uint64 // bit i: dimension i is accounted for
	reach := int64(1)
	for range t.Shape {
		next := -1
		for i := range t.Shape {
			if done&(1<<i) == 0 && (next < 0 || t.stride(i) < t.stride(next)) {
				next = i
			}
		}
		done |= 1 << next
		if t.Shape[next] <= 1 {
			continue
		}
		if t.stride(next) < reach {
			return true
		}
		reach = t.stride(next)*(t.Shape[next]-1) + reach
	}
	return false
}

// ArgumentError is a mistake in the arguments of a call.
type ArgumentError struct {
	Argument string // "kv", as the call's documentation names it
	Was      string // "row stride was 577 elements (1154 bytes)"
	Must     string // "a multiple of 16 bytes"
}

func (e *ArgumentError) Error() string {
	return fmt.Sprintf("%s: %s, must be %s", e.Argument, e.Was, e.Must)
}

func argumentError(argument, must, was string, args ...any) error {
	return &ArgumentError{Argument: argument, Was: fmt.Sprintf(was, args...), Must: must}
}

// axis is one dimension that an argument must have.
type axis struct {
	name string
	size int64 // < 0 = any
}

// expectation is what a tensor argument must be.
type expectation struct {
	name   string
	dtype  DType
	axes   [4]axis
	rank   int
	align  int64 // bytes, of the address and of every stride but the innermost
	dense  bool  // no gaps
	apart  bool  // elements of a row may lie apart
	output bool  // written: elements must not share memory
}

func (x *expectation) shape() string {
	s := "["
	for i, a := range x.axes[:x.rank] {
		if i > 0 {
			s += ", "
		}
		if s += a.name; a.size >= 0 {
			s += fmt.Sprintf(" %d", a.size)
		}
	}
	return s + "]"
}

// check holds t against x. An empty tensor may have a null address.
func (x *expectation) check(t *Tensor) error {
	if t.absent() {
		return argumentError(x.name, fmt.Sprintf("a %s tensor %s", x.dtype, x.shape()), "was not given")
	}
	if t.DType != x.dtype {
		return argumentError(x.name, string(x.dtype), "dtype was %q", string(t.DType))
	}
	if err := x.checkShape(t); err != nil {
		return err
	}
	if t.empty() {
		return nil
	}
	if t.Ptr == 0 {
		return argumentError(x.name, "an address in device memory", "address was null")
	}
	if align := max(x.align, t.DType.Bytes()); int64(t.Ptr)%align != 0 {
		return argumentError(x.name, fmt.Sprintf("aligned to %d bytes", align), "address was %#x", t.Ptr)
	}
	return x.checkStrides(t)
}

func (x *expectation) checkShape(t *Tensor) error {
	fits := len(t.Shape) == x.rank
	for i := 0; fits && i < x.rank; i++ {
		fits = t.Shape[i] >= 0 && (x.axes[i].size < 0 || t.Shape[i] == x.axes[i].size)
	}
	if !fits {
		return argumentError(x.name, x.shape(), "shape was %v", t.Shape)
	}
	if t.Strides != nil && len(t.Strides) != x.rank {
		return argumentError(x.name, fmt.Sprintf("%d strides, or none for a dense tensor", x.rank), "strides were %v", t.Strides)
	}
	return nil
}

func (x *expectation) checkStrides(t *Tensor) error {
	inner := x.rank - 1
	dense := int64(1)
	for i := inner; i >= 0; i-- {
		stride := t.stride(i)
		bytes := stride * t.DType.Bytes()
		switch {
		case t.Shape[i] <= 1:
			// no neighbour, no requirement
		case stride < 0 || stride > math.MaxInt64/t.DType.Bytes():
			return argumentError(x.name, "at least 0 and less than 2^63 bytes", "%s stride was %d elements", x.axes[i].name, stride)
		case i == inner && stride != 1 && !x.apart:
			return argumentError(x.name, "1 element", "%s stride was %d elements", x.axes[i].name, stride)
		case x.dense && stride != dense:
			return argumentError(x.name, fmt.Sprintf("dense, %d elements", dense), "%s stride was %d elements", x.axes[i].name, stride)
		case i != inner && bytes%max(x.align, 1) != 0:
			return argumentError(x.name, fmt.Sprintf("a multiple of %d bytes", x.align), "%s stride was %d elements (%d bytes)", x.axes[i].name, stride, bytes)
		}
		dense *= t.Shape[i]
	}
	size, ok := t.span()
	if !ok || t.Ptr > maxAddress-Ptr(size) {
		return argumentError(x.name, "a tensor that ends below 2^63 bytes", "shape was %v with strides %v at %#x", t.Shape, t.Strides, t.Ptr)
	}
	if x.output && t.overlaps() {
		return argumentError(x.name, "strides that give every element a place of its own, for it is written", "shape was %v with strides %v", t.Shape, t.Strides)
	}
	return nil
}
