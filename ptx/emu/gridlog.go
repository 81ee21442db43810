package emu

import (
	"sync"
	"sync/atomic"
)

// gridLog remembers, for every word of an allocation, the last launch that
// wrote it. Pages appear when first written.
type gridLog struct {
	once  sync.Once
	pages []atomic.Pointer[gridPage]
}

type gridPage [pageBytes / wordBytes]atomic.Int64

func (l *gridLog) page(a *allocation, off uint64, create bool) *gridPage {
	l.once.Do(func() { l.pages = make([]atomic.Pointer[gridPage], (a.size+pageBytes-1)/pageBytes) })
	slot := &l.pages[off>>pageShift]
	p := slot.Load()
	if p == nil && create {
		p = new(gridPage)
		if !slot.CompareAndSwap(nil, p) {
			p = slot.Load()
		}
	}
	return p
}

// wrote notes that launch number wrote n bytes at addr.
func (l *gridLog) wrote(a *allocation, addr uint64, n int, number int64) {
	off := addr - a.base
	for at := off &^ (wordBytes - 1); at < off+uint64(n); at += wordBytes {
		l.page(a, at, true)[at%pageBytes/wordBytes].Store(number)
	}
}

// writer returns the launch that last wrote a word of the n bytes at addr, 0
// for none.
func (l *gridLog) writer(a *allocation, addr uint64, n int) (last int64) {
	off := addr - a.base
	for at := off &^ (wordBytes - 1); at < off+uint64(n); at += wordBytes {
		if p := l.page(a, at, false); p != nil {
			last = max(last, p[at%pageBytes/wordBytes].Load())
		}
	}
	return last
}
