package emu

import "sync"

// ctaMemory is what a CTA needs of the host's memory. CTAs that start after it
// has ended take it over, as launches have many of them and it is large.
type ctaMemory struct {
	shared []byte
	regs   []vreg
	words  []uint32
	shadow shadow
}

var ctaMemories = sync.Pool{New: func() any { return new(ctaMemory) }}

// zeroed returns n zeros, in the memory of v where they fit.
func zeroed[T any](v []T, n int) []T {
	if cap(v) < n {
		return make([]T, n)
	}
	v = v[:n]
	clear(v)
	return v
}

// cut returns the first n of v and takes them off it.
func cut[T any](v *[]T, n int) []T {
	first := (*v)[:n:n]
	*v = (*v)[n:]
	return first
}

// release gives back the memory of a cluster that has ended.
func (cl *cluster) release() {
	for _, b := range cl.ctas {
		ctaMemories.Put(b.mem)
		b.mem, b.shared, b.shadow, b.warps = nil, nil, nil, nil
	}
	cl.warps = nil
}
