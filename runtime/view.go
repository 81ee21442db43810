package runtime

// view is a tensor's shape and strides in memory of its own, so that a view is
// made without allocating. The tensor is good until the view is made anew.
type view struct{ shape, strides [4]int64 }

// dense makes a view of elements that lie one after the other.
func (v *view) dense(p Ptr, d DType, shape ...int64) Tensor {
	n := copy(v.shape[:], shape)
	stride := int64(1)
	for i := n - 1; i >= 0; i-- {
		v.strides[i] = stride
		stride *= v.shape[i]
	}
	return Tensor{Ptr: p, DType: d, Shape: v.shape[:n], Strides: v.strides[:n]}
}

// columns makes a view of so many elements of t's dimension axis, from the
// first-th on.
func (v *view) columns(t *Tensor, axis, first, count int) Tensor {
	n := copy(v.shape[:], t.Shape)
	for i := range n {
		v.strides[i] = t.stride(i)
	}
	v.strides[n-1] = 1
	v.shape[axis] = int64(count)
	p := t.Ptr
	if first > 0 {
		p += Ptr(int64(first) * v.strides[axis] * t.DType.Bytes())
	}
	return Tensor{Ptr: p, DType: t.DType, Shape: v.shape[:n], Strides: v.strides[:n]}
}

// rows makes a view of so many of t's outermost elements.
func (v *view) rows(t *Tensor, first, count int) Tensor { return v.columns(t, 0, first, count) }
