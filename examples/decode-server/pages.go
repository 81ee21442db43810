package main

import "math/rand/v2"

// pagePool gives out the pages of the cache. The page that came back last goes
// out first, so that what its former owner left would be found.
type pagePool struct {
	free     []int32
	promised int // pages that those who were admitted may still take
	returned int // pages that came back so far
}

// newPagePool has so many pages, in no order.
func newPagePool(pages int, seed uint64) *pagePool {
	p := &pagePool{}
	for _, id := range rand.New(rand.NewPCG(seed, 3)).Perm(pages) {
		p.free = append(p.free, int32(id))
	}
	return p
}

// promise sets pages aside, so that take cannot fail, and reports whether there
// are as many.
func (p *pagePool) promise(pages int) bool {
	if len(p.free)-p.promised < pages {
		return false
	}
	p.promised += pages
	return true
}

// take gives out one of the pages that were promised.
func (p *pagePool) take() int32 {
	last := len(p.free) - 1
	id := p.free[last]
	p.free = p.free[:last]
	p.promised--
	return id
}

// put takes pages back.
func (p *pagePool) put(pages []int32) {
	p.free = append(p.free, pages...)
	p.returned += len(pages)
}
