package verify

import (
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// aligned finds instructions that whole warps or warpgroups must execute
// together where the way there provably lets only a part of each pass: where
// a branch or a guard depends on the lane, as after elect.sync.
func (c *kernelChecker) aligned() {
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
	reported := map[*ptx.Instr]bool{}
	report := func(i *ptx.Instr, set []bool, because string) {
		group, name := 32, "warp"
		if i.Form.Scope == isa.PerWarpgroup {
			group, name = 128, "warpgroup"
		}
		if reported[i] || !together(i) || !partial(set, group) {
			return
		}
		reported[i] = true
		c.report(i, "aligned", "%s must be executed by a whole %s, but %s lets a part pass", i.Opcode(), name, because)
	}
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
	for _, i := range c.g.instrs {
		if i.Guard.P != nil && together(i) {
			report(i, taken(i.Guard.P, !i.Guard.Negate), "its guard "+i.Guard.P.Name)
		}
	}
	meets := c.g.postdominators()
	for _, b := range c.g.order {
		last := c.g.instrs[c.g.blocks[b].end-1]
		if ends(last) || meets[b] == none {
			continue
		}
		for _, e := range c.g.blocks[b].succ {
			if e.p == nil {
				continue
			}
			set := taken(e.p, e.value)
			if !partial(set, 128) {
				continue // nor is it of warps
			}
			for _, r := range c.g.region(e.to, meets[b]) {
				blk := c.g.blocks[r]
				for _, i := range c.g.instrs[blk.first:blk.end] {
					report(i, set, "the branch on "+e.p.Name)
				}
			}
		}
	}
}

// together reports whether i requires its threads to be converged.
func together(i *ptx.Instr) bool {
	switch i.Form.Root {
	case "bar.sync", "bar.arrive":
		return true
	}
	return i.Mod("aligned") != ""
}
