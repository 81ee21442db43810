package emu

// Shadow of a CTA's shared memory: who wrote each part of it last and who has
// read it since, and for every byte whether it has been written. The parts are
// lines of 16 bytes, which is what copies and multiplications move, while they
// are accessed as a whole; a line of which less is accessed is split into words,
// and a word into bytes.

const (
	lineBytes = 16
	wordBytes = 4
)

// cell is the history of a line, of a word of a split line or of a byte of a
// split word.
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
	splitCell    // its parts have cells of their own
)

// reader is a further set of readers of a cell.
type reader struct {
	block  uint16
	mask   uint32
	rclock uint32
	rop    int32
	async  bool
}

// parts are the cells of a split one.
type parts [4]cell

type shadow struct {
	lines []cell
	words []int32 // by line, index + 1 of its words once it has been split
	split []parts
	bytes map[uint32]*parts // of split words, by word
	init  []uint64
	more  [][]reader
	spare []int32
}

// reset makes s the shadow of memory that nobody has touched.
func (s *shadow) reset(bytes int) {
	n := bytes/lineBytes + 1
	s.lines, s.words, s.init = zeroed(s.lines, n), zeroed(s.words, n), zeroed(s.init, bytes/64+1)
	s.split = s.split[:0]
	if s.bytes == nil {
		s.bytes = map[uint32]*parts{}
	}
	clear(s.bytes)
	s.spare = s.spare[:0]
	for i := range s.more {
		s.spare = append(s.spare, int32(i+1))
	}
}

// each calls f for the cells of n bytes at off.
func (s *shadow) each(off uint32, n int, f func(c *cell)) {
	end := off + uint32(n)
	for a := off; a < end; {
		i := a / lineBytes
		c := &s.lines[i]
		stop := min(end, (i+1)*lineBytes)
		switch whole := stop-a == lineBytes; {
		case whole && c.flags&splitCell == 0:
			f(c)
		default:
			s.eachWord(i, a, stop, f)
			if whole {
				if p := &s.split[s.words[i]-1]; p.same() {
					*c = p[0]
				}
			}
		}
		a = stop
	}
}

// eachWord calls f for the cells of line i from byte a to stop, as words.
func (s *shadow) eachWord(i, a, stop uint32, f func(c *cell)) {
	if c := &s.lines[i]; c.flags&splitCell == 0 {
		if s.words[i] == 0 {
			s.split = append(s.split, parts{})
			s.words[i] = int32(len(s.split))
		}
		s.divide(c, &s.split[s.words[i]-1])
	}
	words := &s.split[s.words[i]-1]
	for a < stop {
		word := a / wordBytes
		c, begin := &words[word%4], word*wordBytes
		end := min(stop, begin+wordBytes)
		if whole := end-a == wordBytes; whole && c.flags&splitCell == 0 {
			f(c)
			a = end
			continue
		}
		sub := s.bytes[word]
		if sub == nil {
			sub = new(parts)
			s.bytes[word] = sub
		}
		if c.flags&splitCell == 0 {
			s.divide(c, sub)
		}
		whole := end-a == wordBytes
		for ; a < end; a++ {
			f(&sub[a-begin])
		}
		if whole && sub.same() {
			*c = sub[0]
		}
	}
}

// divide gives the history of c to its parts.
func (s *shadow) divide(c *cell, to *parts) {
	for k := range to {
		to[k] = *c
		if k > 0 && c.more != 0 {
			to[k].more = s.addMore(s.more[c.more-1]...)
		}
	}
	c.flags |= splitCell
	c.more = 0
}

// same reports whether all parts have the same history, so that their whole
// may have it.
func (p *parts) same() bool {
	return p[0] == p[1] && p[0].more == 0 && p[0].flags&splitCell == 0 && p[0] == p[2] && p[0] == p[3]
}

// addMore keeps further readers.
func (s *shadow) addMore(r ...reader) int32 {
	if k := len(s.spare); k > 0 {
		i := s.spare[k-1]
		s.spare = s.spare[:k-1]
		s.more[i-1] = append(s.more[i-1][:0], r...)
		return i
	}
	s.more = append(s.more, append([]reader(nil), r...))
	return int32(len(s.more))
}

func (s *shadow) dropMore(c *cell) {
	if c.more != 0 {
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

// lineInitialised reports whether all bytes of line i have been written.
func (s *shadow) lineInitialised(i uint32) bool {
	return uint16(s.init[i/4]>>(i%4*lineBytes)) == 1<<lineBytes-1
}
