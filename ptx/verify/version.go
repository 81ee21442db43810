package verify

import (
	"fmt"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// targets are the known .target names, from the least to the most capable.
var targets = map[string]isa.Target{
	"sm_70": isa.SM70, "sm_75": isa.SM75, "sm_80": isa.SM80, "sm_90": isa.SM90, "sm_90a": isa.SM90a,
}

// header checks the module's own directives.
func (c *checker) header() {
	if _, ok := targets[c.m.Target]; !ok {
		c.findings = append(c.findings, finding{rule: "version", text: fmt.Sprintf("unknown target %s", c.m.Target)})
	}
	if need := ptx.MinVersion(&ptx.Module{Target: c.m.Target}); c.m.Version.Less(need) {
		c.findings = append(c.findings, finding{rule: "version", text: fmt.Sprintf("target %s needs PTX %s; .version is %s", c.m.Target, need, c.m.Version)})
	}
}

// versions checks that .version and .target have every instruction and
// special register; each spelling is reported once.
func (c *kernelChecker) versions() {
	target, known := targets[c.m.Target]
	if (c.k.ExplicitCluster || c.k.ReqNCTAPerClust != [3]int{}) && known && target < isa.SM90 {
		c.report(nil, "version", "cluster directives need target %s; .target is %s", isa.SM90, c.m.Target)
	}
	seen := map[string]bool{}
	check := func(i *ptx.Instr, name string, v isa.Version, t isa.Target) {
		old, weak := c.m.Version.Less(v), known && target < t
		if !old && !weak || seen[name] {
			return
		}
		seen[name] = true
		if old {
			c.report(i, "version", "%s needs PTX %s; .version is %s", name, v, c.m.Version)
		}
		if weak {
			c.report(i, "version", "%s needs target %s; .target is %s", name, t, c.m.Target)
		}
	}
	for _, i := range c.g.instrs {
		if c.m.Version.Less(i.Form.PTX) || known && target < i.Form.Target {
			check(i, i.Opcode(), i.Form.PTX, i.Form.Target)
		}
		for _, a := range i.Args {
			if s, ok := a.(ptx.Special); ok {
				if d, ok := isa.LookupSpecial(s.Name); ok {
					check(i, d.Name, d.PTX, d.Target)
				}
			}
		}
	}
}
