package verify

import (
	"github.com/mlagen/mlagen/ptx"
)

// passage is an instruction that provably not every thread of the CTA passes:
// it stands under a guard, or between a branch and the place where the
// branch's ways meet again.
type passage struct {
	at      *ptx.Instr
	may     []bool // may[t]: thread t may pass; the others provably do not
	because string // "the branch on %p0"

	// others are the instructions that those who do not pass may execute until
	// the ways meet, and after those they may execute from there to the
	// kernel's end.
	others, after func(yield func(*ptx.Instr) bool)
}

// passages calls f for the passages of the kernel's control flow whose
// predicate is a function of the thread index. It needs a CTA of whole warps,
// one-dimensional, and otherwise finds none.
func (c *kernelChecker) passages(f func(passage)) {
	for _, d := range [][3]int{c.k.ReqNTID, c.k.MaxNTID} {
		if d[1] > 1 || d[2] > 1 {
			return // lanes are not consecutive in x
		}
	}
	threads := c.threads()
	if threads == 0 {
		threads = 1024
	}
	if threads < 32 || threads > 1024 {
		return // with less than a warp, parts are the whole
	}
	v := &threadValues{g: c.g, threads: threads, ints: map[*ptx.Reg][]uint32{}, preds: map[*ptx.Reg]*choice{}}
	taken := func(p *ptx.Reg, value bool) []bool {
		k := v.predicate(p, evalDepth)
		if k == nil {
			return nil
		}
		if value {
			return k.yes
		}
		return k.no
	}
	nobody := func(func(*ptx.Instr) bool) {}
	for at, i := range c.g.instrs {
		if i.Guard.P == nil || branches(i) {
			continue
		}
		if may := taken(i.Guard.P, !i.Guard.Negate); partial(may, warpgroup) {
			f(passage{i, may, "its guard " + i.Guard.P.Name, nobody, func(yield func(*ptx.Instr) bool) { c.g.from(at+1, yield) }})
		}
	}
	meets := c.g.postdominators()
	for _, b := range c.g.order {
		blk := c.g.blocks[b]
		if ends(c.g.instrs[blk.end-1]) || meets[b] == none {
			continue
		}
		for n, e := range blk.succ {
			if e.p == nil {
				continue
			}
			may := taken(e.p, e.value)
			if !partial(may, warpgroup) {
				continue // nor is it of warps
			}
			others := func(yield func(*ptx.Instr) bool) {
				c.g.in(c.g.region(blk.succ[1-n].to, meets[b]), yield)
			}
			after := nobody
			if meets[b] != exit {
				after = func(yield func(*ptx.Instr) bool) { c.g.from(c.g.blocks[meets[b]].first, yield) }
			}
			c.g.in(c.g.region(e.to, meets[b]), func(i *ptx.Instr) bool {
				f(passage{i, may, "the branch on " + e.p.Name, others, after})
				return true
			})
		}
	}
}

// in yields the instructions of blocks.
func (g *graph) in(blocks []int, yield func(*ptx.Instr) bool) bool {
	for _, b := range blocks {
		for _, i := range g.instrs[g.blocks[b].first:g.blocks[b].end] {
			if !yield(i) {
				return false
			}
		}
	}
	return true
}

// from yields the instructions that may be executed from index at on, that one
// included, in no particular order.
func (g *graph) from(at int, yield func(*ptx.Instr) bool) {
	if at >= len(g.instrs) {
		return
	}
	b := g.blockOf[at]
	for _, i := range g.instrs[at:g.blocks[b].end] {
		if !yield(i) {
			return
		}
	}
	for _, e := range g.blocks[b].succ {
		if !g.in(g.region(e.to, exit), yield) {
			return
		}
	}
}

// Threads that execute some instructions together.
const (
	warp      = 32
	warpgroup = 128
)

// partial reports whether, in every group of that many threads that has a
// member in set, others are outside it.
func partial(set []bool, group int) bool {
	some := false
	for at := 0; at < len(set); at += group {
		in, out := false, false
		for _, x := range set[at:min(at+group, len(set))] {
			in, out = in || x, out || !x
		}
		if in && !out {
			return false
		}
		some = some || in
	}
	return some
}
