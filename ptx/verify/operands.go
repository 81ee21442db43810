package verify

import (
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// operands checks that instructions fit their forms, that registers are of
// declarable types, and that symbols name something big enough.
func (c *kernelChecker) operands() {
	declared := map[*ptx.Reg]bool{}
	names := map[string]bool{}
	for _, r := range c.k.Regs {
		declared[r] = true
		if names[r.Name] {
			c.report(nil, "operands", "two registers are named %s", r.Name)
		}
		names[r.Name] = true
		if !declarable(r.Type) {
			c.report(nil, "operands", "register %s: no register has type .%s", r.Name, r.Type)
		}
	}
	symbols := c.symbols()
	for _, i := range c.g.instrs {
		if err := i.Check(); err != nil {
			c.report(i, "operands", "%v", err)
			continue
		}
		eachRegister(i, func(r *ptx.Reg, _ *isa.Operand, _ isa.Access) {
			if !declared[r] {
				declared[r] = true // once
				c.report(i, "operands", "register %s is not declared", r.Name)
			}
		})
		if i.Guard.P != nil && i.Guard.P.Type != isa.Pred {
			c.report(i, "operands", "the guard %s is .%s", i.Guard.P.Name, i.Guard.P.Type)
		}
		for k, o := range i.Operands() {
			switch a := i.Args[k].(type) {
			case ptx.Symbol:
				if _, ok := symbols[a]; !ok {
					c.report(i, "operands", "nothing is named %s", a)
				}
			case ptx.Addr:
				if s, ok := a.Base.(ptx.Symbol); ok {
					c.addressed(i, o, s, a.Offset, symbols)
				}
			}
		}
	}
}

// symbol is what a name stands for.
type symbol struct {
	space ptx.Space
	size  int // bytes; 0 when unsized
}

func (c *kernelChecker) symbols() map[ptx.Symbol]symbol {
	out := map[ptx.Symbol]symbol{}
	for _, v := range c.m.Vars {
		out[ptx.Symbol(v.Name)] = symbol{v.Space, size(v)}
	}
	for _, v := range c.k.Vars {
		out[ptx.Symbol(v.Name)] = symbol{v.Space, size(v)}
	}
	for _, p := range c.k.Params {
		out[ptx.Symbol(p.Name)] = symbol{ptx.Param, p.Size()}
	}
	return out
}

// addressed checks an access to a named variable or parameter.
func (c *kernelChecker) addressed(i *ptx.Instr, o *isa.Operand, name ptx.Symbol, offset int64, symbols map[ptx.Symbol]symbol) {
	s, ok := symbols[name]
	if !ok {
		c.report(i, "operands", "nothing is named %s", name)
		return
	}
	if space := i.Mod("space"); i.Form.Root == "ld" && space == "param" != (s.space == ptx.Param) {
		c.report(i, "operands", "%s lies in .%s", name, s.space)
		return
	}
	bytes := int64(i.Form.OperandType(o, i.Mods).Bytes())
	switch i.Mod("vec") {
	case "v2":
		bytes *= 2
	case "v4":
		bytes *= 4
	}
	if s.size > 0 && (offset < 0 || offset+bytes > int64(s.size)) {
		c.report(i, "operands", "%d bytes at offset %d of %s, which has %d", bytes, offset, name, s.size)
	}
}

// size returns a variable's bytes, 0 when it is unsized.
func size(v *ptx.Var) int {
	if v.Count > 0 {
		return v.Count * v.Type.Bytes()
	}
	if v.Extern {
		return 0
	}
	return v.Type.Bytes()
}

func declarable(t isa.Type) bool {
	switch t {
	case isa.BF16, isa.BF16x2, isa.E4M3, isa.E5M2, isa.E4M3x2, isa.NoType:
		return false
	}
	return true
}
