package emu

import (
	"strings"
	"testing"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// testTexts are the kernels that the tests of this package execute and check.
func testTexts() []string {
	var out []string
	for _, s := range scalarTests {
		out = append(out, scalarText(s))
	}
	for _, b := range bodies {
		out = append(out, b)
	}
	for _, c := range wgmmaTests {
		out = append(out, wgmmaBody(c.opcode, c.n, c.dtype, c.registers, c.tran))
	}
	for _, c := range hazardTests {
		out = append(out, c.body)
	}
	return out
}

// TestTable fails for a row of the table that has no semantics or that no test
// executes. Rows that differ only in how an operand is written count as one
// when they share opcode and effect.
func TestTable(t *testing.T) {
	covered := map[*isa.Form]bool{}
	for _, text := range testTexts() {
		mod, err := ptx.Parse("test.ptx", []byte(kernelText(text)))
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range mod.Kernels {
			for _, s := range k.Body {
				if in, ok := s.(*ptx.Instr); ok {
					covered[in.Form] = true
				}
			}
		}
	}
	for _, f := range isa.Table() {
		if semantics[f.Root] == nil {
			t.Errorf("no semantics: %s", f.Grammar)
		} else if !covered[f] {
			t.Errorf("no test executes: %s", f.Grammar)
		}
	}
}

// notEmulated are the slot values that the emulator refuses by name, with the
// reason.
var notEmulated = map[string]string{
	"const": "there are no .const variables",
	"u32":   "cvta of 32-bit addresses; the subset is 64-bit",
}

// TestEveryModifier decodes every value of every slot of every form: it must
// have semantics or be one of notEmulated, never be taken for something else.
func TestEveryModifier(t *testing.T) {
	for _, f := range isa.Table() {
		base := make([]string, len(f.Slots))
		for i, s := range f.Slots {
			if !s.Optional {
				base[i] = s.Values[0]
			}
		}
		tryForm(t, f, base)
		for i, s := range f.Slots {
			for _, v := range s.Values {
				mods := append([]string(nil), base...)
				mods[i] = v
				tryForm(t, f, mods)
			}
		}
	}
}

func tryForm(t *testing.T, f *isa.Form, mods []string) {
	t.Helper()
	in, k := sample(f, mods)
	_, err := Compile(&ptx.Module{Kernels: []*ptx.Kernel{k}})
	if err == nil {
		return
	}
	for _, m := range mods {
		if notEmulated[m] != "" && (m != "u32" || f.Root == "cvta") {
			return
		}
	}
	t.Errorf("%s: %v", in.Opcode(), err)
}

// sample returns an instruction of the form with plausible operands, and a
// kernel that consists of it.
func sample(f *isa.Form, mods []string) (*ptx.Instr, *ptx.Kernel) {
	k := &ptx.Kernel{Name: "k"}
	reg := func(typ isa.Type) *ptx.Reg {
		if typ == isa.NoType {
			typ = isa.B16 // packed 8-bit types
		}
		r := &ptx.Reg{Name: "%x", Type: typ}
		k.Regs = append(k.Regs, r)
		return r
	}
	in := &ptx.Instr{Form: f, Mods: mods}
	for i := range f.Operands {
		o := &f.Operands[i]
		if o.Optional && o.With == "" || o.With != "" && f.Mod(mods, o.With) == "" {
			continue
		}
		typ := f.OperandType(o, mods)
		one := func() ptx.Operand {
			if o.Kinds&isa.Reg == 0 && o.Kinds&isa.Sink != 0 {
				return ptx.Sink{}
			}
			if o.Kinds&isa.Reg == 0 && o.Kinds&isa.Imm != 0 {
				return ptx.Imm(map[string]int64{"imm-reg-count": 64, "cp-size": 16, "imm-scale-a": 1, "imm-scale-b": 1}[o.Name])
			}
			return reg(typ)
		}
		n := f.Elements(o, mods)
		switch {
		case o.Kinds&isa.Label != 0:
			in.Args = append(in.Args, ptx.Label("here"))
		case o.Kinds&isa.Tensor != 0:
			x := ptx.Tensor{Map: reg(isa.B64)}
			for range n {
				x.Coords = append(x.Coords, reg(isa.S32))
			}
			in.Args = append(in.Args, x)
		case o.Kinds&isa.Addr != 0:
			in.Args = append(in.Args, ptx.Addr{Base: reg(isa.B64)})
		case n > 0 || o.Kinds == isa.Vector:
			var v ptx.Vec
			if typ == isa.NoType {
				typ = isa.B32
			}
			for range n {
				v = append(v, one())
			}
			in.Args = append(in.Args, v)
		default:
			in.Args = append(in.Args, one())
		}
	}
	k.Body = []ptx.Stmt{&ptx.LabelStmt{Name: "here"}, in}
	return in, k
}

// TestUnsupported checks that an instruction without semantics is an error
// that names it.
func TestUnsupported(t *testing.T) {
	f := &isa.Form{Root: "dance", Slots: []isa.Slot{{Name: "twice", Values: []string{"twice"}}}}
	_, err := Compile(&ptx.Module{Kernels: []*ptx.Kernel{{Name: "k", Body: []ptx.Stmt{&ptx.Instr{Form: f, Mods: []string{"twice"}, Line: 7}}}}})
	if err == nil || !strings.Contains(err.Error(), "line 7: dance.twice: no semantics") {
		t.Error(err)
	}
}
