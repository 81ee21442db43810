package ptx_test

import (
	"fmt"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// scratch hands out registers of a kernel under construction.
type scratch struct {
	kernel *ptx.Kernel
	byType map[isa.Type]int
}

func newScratch(name string) *scratch {
	return &scratch{kernel: &ptx.Kernel{Name: name}, byType: map[isa.Type]int{}}
}

// declared is the register type that holds values of type t.
func declared(t isa.Type) isa.Type {
	switch t.Bits() {
	case 1:
		return isa.Pred
	case 8:
		return isa.B16
	case 16:
		return isa.B16
	case 32:
		if t == isa.F32 {
			return t
		}
		return isa.B32
	}
	if t == isa.F64 {
		return t
	}
	return isa.B64
}

func (s *scratch) reg(t isa.Type) *ptx.Reg {
	t = declared(t)
	prefix := map[isa.Type]string{isa.Pred: "%p", isa.B16: "%h", isa.B32: "%r", isa.B64: "%rd", isa.F32: "%f", isa.F64: "%fd"}[t]
	r := &ptx.Reg{Name: fmt.Sprintf("%s%d", prefix, s.byType[t]), Type: t}
	s.byType[t]++
	s.kernel.Regs = append(s.kernel.Regs, r)
	return r
}

// operand makes an operand that fits o, preferring registers.
func (s *scratch) operand(f *isa.Form, o *isa.Operand, mods []string) ptx.Operand {
	t := f.OperandType(o, mods)
	n := f.Elements(o, mods)
	switch {
	case o.Kinds&isa.Tensor != 0:
		v := make(ptx.Vec, n)
		for i := range v {
			v[i] = s.reg(isa.B32)
		}
		return ptx.Tensor{Map: s.reg(isa.B64), Coords: v}
	case n > 0:
		v := make(ptx.Vec, n)
		for i := range v {
			v[i] = s.reg(t)
		}
		return v
	case o.Kinds&isa.Addr != 0:
		base := isa.B64
		if space := f.Mod(mods, "space"); space == "param" {
			return ptx.Addr{Base: ptx.Symbol(s.kernel.Name + "_in")}
		}
		return ptx.Addr{Base: s.reg(base), Offset: 16}
	case o.Kinds&isa.Label != 0:
		return ptx.Label("L")
	case o.Kinds&isa.Reg != 0:
		return s.reg(t)
	case o.Kinds == isa.Sink:
		return ptx.Sink{}
	case o.Name == "cp-size":
		return ptx.Imm(16)
	case o.Name == "imm-reg-count":
		return ptx.Imm(96)
	case t == isa.F32:
		return ptx.F32(0.5)
	case o.Kinds&isa.Imm != 0:
		return ptx.Imm(1)
	}
	panic("no operand for " + f.Grammar)
}

// spellings returns modifier choices for a form that together use every value
// of every slot, optional slots both absent and present.
func spellings(f *isa.Form) [][]string {
	base := make([]string, len(f.Slots))
	for i, s := range f.Slots {
		if !s.Optional {
			base[i] = s.Values[0]
		}
	}
	out := [][]string{base}
	for i, s := range f.Slots {
		for _, v := range s.Values {
			if v == base[i] {
				continue
			}
			m := append([]string(nil), base...)
			m[i] = v
			out = append(out, m)
		}
	}
	return out
}

// valid reports whether the manual allows the combination of modifiers; the
// slots of a form are independent but for these.
func valid(f *isa.Form, mods []string) bool {
	mod := func(n string) string { return f.Mod(mods, n) }
	t, _ := isa.ParseType(mod("type"))
	switch {
	case mod("vec") == "v4" && t.Bits() > 32:
		return false
	case f.Root == "cvt" && mod("sat") != "" && mod("dtype") == mod("atype"):
		return false // nothing to saturate
	case f.Root == "createpolicy.fractional" && mod("primary") == "L2::evict_unchanged" && mod("secondary") != "":
		return false
	}
	return true
}

// instance builds one instruction of the form with the given modifiers, with
// or without its optional operands.
func (s *scratch) instance(f *isa.Form, mods []string, optional bool) (*ptx.Instr, error) {
	opcode := f.Root
	for _, m := range mods {
		if m != "" {
			opcode += "." + m
		}
	}
	var args []ptx.Operand
	for i := range f.Operands {
		o := &f.Operands[i]
		if o.With != "" && f.Mod(mods, o.With) == "" || o.With == "" && o.Optional && !optional {
			continue
		}
		args = append(args, s.operand(f, o, mods))
	}
	return ptx.NewInstr(opcode, args...)
}

// tableModule has a kernel per form of the table, with instances of every
// modifier value.
func tableModule() (*ptx.Module, error) {
	m := &ptx.Module{
		Header:  []string{"Every form of the table."},
		Version: isa.Version{Major: 9, Minor: 0}, Target: "sm_90a",
		Vars: []*ptx.Var{{Name: "smem", Space: ptx.Shared, Type: isa.B8, Align: 1024, Extern: true}},
	}
	for n, f := range isa.Table() {
		s := newScratch(fmt.Sprintf("form%d", n))
		k := s.kernel
		k.MaxNTID = [3]int{128, 1, 1}
		k.MinCTAPerSM = 1
		k.Params = []*ptx.Parameter{{Name: k.Name + "_in", Type: isa.B8, Align: 128, Count: 128}}
		k.Body = append(k.Body, &ptx.Comment{Text: f.Grammar})
		for _, mods := range spellings(f) {
			if !valid(f, mods) {
				continue
			}
			for _, optional := range []bool{false, true} {
				i, err := s.instance(f, mods, optional)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", f.Grammar, err)
				}
				if i.Form != f {
					return nil, fmt.Errorf("%s is read as %q, not as %q", i, i.Form.Grammar, f.Grammar)
				}
				k.Body = append(k.Body, i)
				hasOptional := false
				for _, o := range f.Operands {
					hasOptional = hasOptional || o.Optional && o.With == ""
				}
				if !hasOptional {
					break
				}
			}
		}
		k.Body = append(k.Body, &ptx.LabelStmt{Name: "L"})
		ret, err := ptx.NewInstr("ret")
		if err != nil {
			return nil, err
		}
		k.Body = append(k.Body, ret)
		m.Kernels = append(m.Kernels, k)
	}
	return m, nil
}
