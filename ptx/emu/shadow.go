package emu

// Shadow of a CTA's shared memory: for every 4-byte word who wrote it last and
// who has read it since, and for every byte whether it has been written.

const wordBytes = 4

// cell is the history of one word, or of one byte where bytes of a word have
// been accessed alone.
type cell struct {
	writer uint32 // component + 1, 0 = nobody
	wclock uint32
	wop    int32
	flags  uint8
	block  uint16 // the reader's component / 32
	mask   uint32 // readers of the block, 0 = nobody
	rclock uint32
	rop    int32
	more   int32 // index + 1 of further readers
}

const (
	asyncWrite uint8 = 1 << iota // by a copy
	threadCopy                   // by a cp.async, which goes through the generic proxy
	atomicWrite
	atomicRead
	asyncReads
	mbarrierCell // a live mbarrier
	splitCell    // the word's bytes have cells of their own
)

// reader is a further set of readers of a cell.
type reader struct {
	block  uint16
	mask   uint32
	rclock uint32
	rop    int32
	async  bool
}

type shadow struct {
	words []cell
	bytes map[uint32]*[wordBytes]cell
	init  []uint64
	more  [][]reader
	spare []int32
}

func newShadow(bytes int) *shadow {
	return &shadow{
		words: make([]cell, (bytes+wordBytes-1)/wordBytes+1),
		bytes: map[uint32]*[wordBytes]cell{},
		init:  make([]uint64, bytes/64+1),
	}
}

// each calls f for the cells of n bytes at off.
func (s *shadow) each(off uint32, n int, f func(c *cell)) {
	end := off + uint32(n)
	for a := off; a < end; {
		i := a / wordBytes
		c := &s.words[i]
		start, stop := i*wordBytes, min(end, (i+1)*wordBytes)
		if whole := a == start && stop == start+wordBytes; whole && c.flags&splitCell == 0 {
			f(c)
			a = stop
			continue
		}
		sub := s.bytes[i]
		if sub == nil {
			sub = new([wordBytes]cell)
			for k := range sub {
				sub[k] = *c
				if c.more != 0 {
					sub[k].more = s.addMore(append([]reader(nil), s.more[c.more-1]...))
				}
			}
			s.bytes[i] = sub
			c.flags |= splitCell
		}
		for ; a < stop; a++ {
			f(&sub[a-start])
		}
	}
}

func (s *shadow) addMore(r []reader) int32 {
	if k := len(s.spare); k > 0 {
		i := s.spare[k-1]
		s.spare = s.spare[:k-1]
		s.more[i-1] = r
		return i
	}
	s.more = append(s.more, r)
	return int32(len(s.more))
}

func (s *shadow) dropMore(c *cell) {
	if c.more != 0 {
		s.more[c.more-1] = s.more[c.more-1][:0]
		s.spare = append(s.spare, c.more)
		c.more = 0
	}
}

// written marks n bytes at off as initialised.
func (s *shadow) written(off uint32, n int) {
	for k := uint32(n); k > 0; {
		bit := off % 64
		step := min(64-bit, k)
		s.init[off/64] |= ^uint64(0) >> (64 - step) << bit
		off, k = off+step, k-step
	}
}

// initialised reports whether all n bytes at off have been written.
func (s *shadow) initialised(off uint32, n int) bool {
	for k := uint32(n); k > 0; {
		bit := off % 64
		step := min(64-bit, k)
		mask := ^uint64(0) >> (64 - step) << bit
		if s.init[off/64]&mask != mask {
			return false
		}
		off, k = off+step, k-step
	}
	return true
}
