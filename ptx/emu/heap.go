package emu

import (
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
)

const (
	pageShift = 16
	pageBytes = 1 << pageShift

	heapBase = 0x7000_0000_0000
	// guardBytes lies between two allocations, so that an index that runs out
	// of one tensor does not land in the next.
	guardBytes = 1 << 24
	allocAlign = 1 << 12
)

// page is a piece of an allocation's backing, with one bit per byte that tells
// whether the byte has been written.
type page struct {
	data   [pageBytes]byte
	init   [pageBytes / 64]uint64
	shared bool // one of the heap's fill pages, copied before it is written
}

// allocation is one tensor in global memory. Pages appear when first written,
// so that pools larger than the host's memory can be addressed.
type allocation struct {
	name  string
	base  uint64
	size  uint64
	freed bool
	pages []atomic.Pointer[page]

	grids gridLog // which launch wrote what last; for programmatic launches
}

func (a *allocation) end() uint64 { return a.base + a.size }

// heap is global memory.
type heap struct {
	mu     sync.Mutex
	allocs []*allocation // by base
	next   uint64
	fills  [256]*page
}

func newHeap() *heap { return &heap{next: heapBase} }

func (h *heap) alloc(name string, size uint64) (uint64, error) {
	if size > 1<<44 {
		return 0, fmt.Errorf("emu: allocation %q of %d bytes is larger than the address space", name, size)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	a := &allocation{name: name, base: h.next, size: size}
	a.pages = make([]atomic.Pointer[page], (size+pageBytes-1)/pageBytes)
	h.allocs = append(h.allocs, a)
	h.next = (a.end()+guardBytes+allocAlign-1)/allocAlign*allocAlign + guardBytes
	return a.base, nil
}

func (h *heap) free(addr uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.find(addr)
	if a == nil || a.base != addr {
		return fmt.Errorf("emu: free of %#x, which is not the start of an allocation", addr)
	}
	if a.freed {
		return fmt.Errorf("emu: %q freed twice", a.name)
	}
	a.freed, a.pages = true, nil
	a.grids = gridLog{}
	const keep = 4096 // freed allocations remembered to name a use after free
	if dead := slices.IndexFunc(h.allocs, func(a *allocation) bool { return a.freed }); dead >= 0 && len(h.allocs) > keep {
		h.allocs = slices.Delete(h.allocs, dead, dead+1)
	}
	return nil
}

// find returns the last allocation that starts at or below addr.
func (h *heap) find(addr uint64) *allocation {
	i := sort.Search(len(h.allocs), func(i int) bool { return h.allocs[i].base > addr })
	if i == 0 {
		return nil
	}
	return h.allocs[i-1]
}

// locate returns the allocation that holds [addr, addr+n), or what is wrong.
func (h *heap) locate(addr, n uint64) (*allocation, string) {
	a := h.find(addr)
	switch {
	case a == nil:
		if len(h.allocs) > 0 && h.allocs[0].base-addr <= guardBytes {
			return nil, before(addr, h.allocs[0])
		}
		return nil, fmt.Sprintf("address %#x is in no allocation", addr)
	case a.freed && addr < a.end():
		return nil, fmt.Sprintf("address %#x is in %q, which has been freed", addr, a.name)
	case addr+n > a.end():
		text := fmt.Sprintf("address %#x is %d bytes past the end of %q (%d bytes)", addr, addr+n-a.end(), a.name, a.size)
		if i := slices.Index(h.allocs, a); addr >= a.end() && i+1 < len(h.allocs) && h.allocs[i+1].base-addr < addr-a.end() {
			text = before(addr, h.allocs[i+1])
		}
		return nil, text
	}
	return a, ""
}

func before(addr uint64, a *allocation) string {
	return fmt.Sprintf("address %#x is %d bytes before %q (%d bytes)", addr, a.base-addr, a.name, a.size)
}

// peek returns the n bytes at offset off of a for reading; they lie in one
// page. ok is false when some of them were never written.
func (a *allocation) peek(off, n uint64) (b []byte, ok bool) {
	p := a.pages[off>>pageShift].Load()
	if p == nil {
		return zeroPage[:n], false
	}
	o := off & (pageBytes - 1)
	return p.data[o : o+n], p.initialised(o, n)
}

var zeroPage [pageBytes]byte

// poke returns the n bytes at offset off of a for writing, marked as written;
// they lie in one page.
func (a *allocation) poke(off, n uint64) []byte {
	p := a.writable(off >> pageShift)
	o := off & (pageBytes - 1)
	p.mark(o, n)
	return p.data[o : o+n]
}

func (a *allocation) writable(i uint64) *page {
	slot := &a.pages[i]
	for {
		p := slot.Load()
		if p != nil && !p.shared {
			return p
		}
		fresh := new(page)
		if p != nil {
			fresh.data, fresh.init = p.data, p.init
		}
		if slot.CompareAndSwap(p, fresh) {
			return fresh
		}
	}
}

func (p *page) initialised(o, n uint64) bool {
	for n > 0 {
		w, bit := o/64, o%64
		k := min(64-bit, n)
		mask := (^uint64(0) >> (64 - k)) << bit
		if atomic.LoadUint64(&p.init[w])&mask != mask {
			return false
		}
		o, n = o+k, n-k
	}
	return true
}

func (p *page) mark(o, n uint64) {
	for n > 0 {
		w, bit := o/64, o%64
		k := min(64-bit, n)
		mask := (^uint64(0) >> (64 - k)) << bit
		if atomic.LoadUint64(&p.init[w])&mask != mask {
			atomic.OrUint64(&p.init[w], mask)
		}
		o, n = o+k, n-k
	}
}

// each calls f with the pieces of [addr, addr+n) that lie in one page.
func (h *heap) each(what string, addr, n uint64, f func(a *allocation, off, done, n uint64)) error {
	if n == 0 {
		return nil
	}
	a, wrong := h.locate(addr, n)
	if a == nil {
		return fmt.Errorf("emu: %s of %d bytes: %s", what, n, wrong)
	}
	off := addr - a.base
	for done := uint64(0); done < n; {
		k := min(pageBytes-(off+done)&(pageBytes-1), n-done)
		f(a, off+done, done, k)
		done += k
	}
	return nil
}

func (h *heap) write(addr uint64, src []byte) error {
	return h.each("write", addr, uint64(len(src)), func(a *allocation, off, done, n uint64) {
		copy(a.poke(off, n), src[done:])
	})
}

func (h *heap) read(dst []byte, addr uint64) error {
	return h.each("read", addr, uint64(len(dst)), func(a *allocation, off, done, n uint64) {
		b, _ := a.peek(off, n)
		copy(dst[done:], b)
	})
}

func (h *heap) fill(addr uint64, value byte, n uint64) error {
	return h.each("fill", addr, n, func(a *allocation, off, _, n uint64) {
		if n == pageBytes {
			a.pages[off>>pageShift].Store(h.fillPage(value))
			return
		}
		b := a.poke(off, n)
		for i := range b {
			b[i] = value
		}
	})
}

// fillPage returns the shared page of value.
func (h *heap) fillPage(value byte) *page {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.fills[value]
	if p == nil {
		p = &page{shared: true}
		for i := range p.data {
			p.data[i] = value
		}
		p.mark(0, pageBytes)
		h.fills[value] = p
	}
	return p
}

// resident returns the bytes of host memory that back the heap.
func (h *heap) resident() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	var n uint64
	for _, a := range h.allocs {
		for i := range a.pages {
			if p := a.pages[i].Load(); p != nil && !p.shared {
				n += pageBytes + pageBytes/8
			}
		}
	}
	return n
}
