package emu

import (
	"sync"
	"sync/atomic"
)

// gridBlock is the granularity at which an allocation remembers which launch
// wrote it last.
const gridBlock = 256

// gridLog remembers the last launch that wrote each block of an allocation.
type gridLog struct {
	once   sync.Once
	blocks []atomic.Int64
}

func (l *gridLog) block(a *allocation, addr uint64) *atomic.Int64 {
	l.once.Do(func() {
		n := (a.size + gridBlock - 1) / gridBlock
		l.blocks = make([]atomic.Int64, min(n, 1<<16)+1) // the blocks of a huge tensor share entries
	})
	return &l.blocks[(addr-a.base)/gridBlock%uint64(len(l.blocks))]
}

// wrote notes that launch number wrote n bytes at addr.
func (l *gridLog) wrote(a *allocation, addr uint64, n int, number int64) {
	for at := addr - addr%gridBlock; at < addr+uint64(n); at += gridBlock {
		l.block(a, max(at, a.base)).Store(number)
	}
}

// writer returns the launch that last wrote the byte at addr, 0 for none.
func (l *gridLog) writer(a *allocation, addr uint64) int64 { return l.block(a, addr).Load() }
