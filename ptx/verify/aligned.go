package verify

import (
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// aligned finds instructions that whole warps or warpgroups must execute
// together where the way there provably lets only a part of each pass: where
// a branch or a guard depends on the lane, as after elect.sync.
func (c *kernelChecker) aligned() {
	reported := map[*ptx.Instr]bool{}
	c.passages(func(p passage) {
		group, name := warp, "warp"
		if p.at.Form.Scope == isa.PerWarpgroup {
			group, name = warpgroup, "warpgroup"
		}
		if reported[p.at] || !together(p.at) || !partial(p.may, group) {
			return
		}
		reported[p.at] = true
		c.report(p.at, "aligned", "%s must be executed by a whole %s, but %s lets a part pass", p.at.Opcode(), name, p.because)
	})
}

// together reports whether i requires its threads to be converged.
func together(i *ptx.Instr) bool {
	switch i.Form.Root {
	case "bar.sync", "bar.arrive", "bar.red":
		return true
	}
	return i.Mod("aligned") != ""
}
