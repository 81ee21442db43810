package runtime

// extent is the memory that an argument takes: blocks of width bytes, at
// distances of strides. Distances grow from the last dimension to the first, and
// none is left that makes one block of several.
type extent struct {
	first, width int64
	rank         int
	size, stride [4]int64 // bytes between neighbours
}

// extentOf returns the memory of a tensor that has been checked and is not
// empty.
func extentOf(t *Tensor) extent {
	e := extent{first: int64(t.Ptr), width: t.DType.Bytes()}
	for i := range t.Shape {
		stride := t.strideBytes(i)
		if stride == 0 { // one element, or the same again and again
			continue
		}
		at := e.rank
		for ; at > 0 && e.stride[at-1] < stride; at-- {
			e.size[at], e.stride[at] = e.size[at-1], e.stride[at-1]
		}
		e.size[at], e.stride[at] = t.Shape[i], stride
		e.rank++
	}
	for e.rank > 0 && e.stride[e.rank-1] <= e.width { // no gap, or elements that others cover in part
		e.rank--
		e.width += (e.size[e.rank] - 1) * e.stride[e.rank]
	}
	for i := e.rank - 1; i > 0; i-- {
		if e.stride[i-1] != e.stride[i]*e.size[i] {
			continue
		}
		e.size[i-1], e.stride[i-1] = e.size[i-1]*e.size[i], e.stride[i]
		copy(e.size[i:], e.size[i+1:])
		copy(e.stride[i:], e.stride[i+1:])
		e.rank--
	}
	return e
}

// end returns the first address past it.
func (e *extent) end() int64 {
	end := e.first + e.width
	for i := range e.rank {
		end += (e.size[i] - 1) * e.stride[i]
	}
	return end
}

// shares reports whether a byte belongs to both. Two extents so entangled that
// it takes long to tell share memory for all that is known.
func (e *extent) shares(o *extent) bool {
	steps := 1 << 12
	return meet(*e, *o, &steps)
}

// inner returns the first part of e along its outermost dimension.
func (e *extent) inner() extent {
	i := *e
	i.rank--
	copy(i.size[:], e.size[1:])
	copy(i.stride[:], e.stride[1:])
	i.size[3], i.stride[3] = 0, 0
	return i
}

func meet(a, b extent, steps *int) bool {
	if a.end() <= b.first || b.end() <= a.first {
		return false
	}
	if a.rank == 0 && b.rank == 0 {
		return true
	}
	if *steps--; *steps < 0 {
		return true
	}
	if a.rank == 0 || b.rank > 0 && b.stride[0] > a.stride[0] {
		a, b = b, a
	}
	part, stride := a.inner(), a.stride[0]
	other, last := b, a.size[0]-1
	least := int64(0)
	if b.rank > 0 && b.stride[0] == stride {
		// Of parts that are equally far apart it matters only by how many the
		// numbers of two differ.
		other = b.inner()
		least = -(b.size[0] - 1)
	}
	// Part i meets the other while it begins before that ends and ends after it begins.
	from, to := floorDivide(other.first-part.end(), stride)+1, floorDivide(other.end()-1-part.first, stride)
	for i := max(from, least); i <= min(to, last); i++ {
		p := part
		p.first += i * stride
		if meet(p, other, steps) {
			return true
		}
	}
	return false
}

// floorDivide returns n/d rounded down, for d > 0.
func floorDivide(n, d int64) int64 {
	q := n / d
	if n%d < 0 {
		q--
	}
	return q
}
