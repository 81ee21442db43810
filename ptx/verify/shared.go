package verify

import (
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/hopper"
)

// staticLimit is the most shared memory that variables may take without
// asking for more at launch (CUDA programming guide, technical specifications
// per compute capability).
const staticLimit = 48 << 10

// sharedMemory checks that static and dynamic shared memory fit a CTA.
func (c *kernelChecker) sharedMemory() {
	static := 0
	for _, vars := range [][]*ptx.Var{c.m.Vars, c.k.Vars} {
		for _, v := range vars {
			if v.Space != ptx.Shared || v.Extern {
				continue
			}
			if align := max(v.Align, v.Type.Bytes(), 1); static%align != 0 {
				static += align - static%align
			}
			static += size(v)
		}
	}
	if static > staticLimit {
		c.report(nil, "shared", "%d bytes of static shared memory; at most %d", static, staticLimit)
	}
	if c.man == nil {
		return
	}
	if total := static + c.man.Shared; total > hopper.SharedLimit {
		c.report(nil, "shared", "%d bytes of shared memory (%d static, %d dynamic); at most %d", total, static, c.man.Shared, hopper.SharedLimit)
	}
}
