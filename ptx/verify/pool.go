package verify

import (
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/hopper"
)

// registerPool checks setmaxnreg: each count by itself, the directives without
// which the assembler ignores it, and with a manifest the sum over the roles.
func (c *kernelChecker) registerPool() {
	var first *ptx.Instr
	for _, i := range c.g.instrs {
		if i.Form.Root != "setmaxnreg" {
			continue
		}
		if first == nil {
			first = i
		}
		if n, ok := i.Arg("imm-reg-count").(ptx.Imm); ok && (n < 24 || n > 256 || n%8 != 0) {
			c.report(i, "register-pool", "setmaxnreg to %d: a multiple of 8 from 24 to 256 is needed", int64(n))
		}
	}
	if first == nil {
		return
	}
	// ptxas: "setmaxnreg ignored; unable to determine register count at entry".
	if c.k.MaxNTID == [3]int{} && c.k.ReqNTID == [3]int{} {
		c.report(first, "register-pool", "setmaxnreg needs .maxntid or .reqntid")
	}
	if c.k.MinCTAPerSM == 0 && c.k.MaxNReg == 0 {
		c.report(first, "register-pool", "setmaxnreg needs .minnctapersm or .maxnreg")
	}
	if c.man == nil || len(c.man.Roles) == 0 {
		return
	}
	threads := c.threads()
	if threads < 1 || threads > hopper.MaxThreads {
		return
	}
	launched := c.k.MaxNReg
	if launched == 0 {
		launched = hopper.RegistersPerThread(threads, max(c.k.MinCTAPerSM, 1))
	}
	var shares []hopper.Share
	warps := 0
	for _, r := range c.man.Roles {
		if r.FirstWarp != warps {
			return // overlapping roles or gaps: not a partition to add up
		}
		warps += r.Warps
		shares = append(shares, hopper.Share{Role: r.Name, Warps: r.Warps, Registers: r.Registers})
	}
	if err := hopper.CheckPool(launched, shares...); err != nil {
		c.report(first, "register-pool", "%v", err)
	}
}

// threads returns the threads per CTA, 0 when unknown.
func (c *kernelChecker) threads() int {
	if c.man != nil && c.man.Threads > 0 {
		return c.man.Threads
	}
	d := c.k.ReqNTID
	if d == [3]int{} {
		d = c.k.MaxNTID
	}
	return d[0] * d[1] * d[2]
}
