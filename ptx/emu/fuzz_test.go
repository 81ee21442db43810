package emu

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
	"github.com/mlagen/mlagen/ptx/verify"
)

// straightForms are the forms that a random kernel may have anywhere: no
// memory, no control flow, no barriers.
var straightForms = func() (out []*isa.Form) {
	skip := map[string]bool{"ret": true, "exit": true, "trap": true, "wgmma.fence": true, "wgmma.commit_group": true,
		"wgmma.wait_group": true, "setmaxnreg": true, "mapa": true, "elect.sync": true, "griddepcontrol": true,
		"barrier.cluster.arrive": true, "barrier.cluster.wait": true, "mbarrier.pending_count": true}
	for _, f := range isa.Table() {
		ok := !skip[f.Root] && f.Scope != isa.PerCTA && f.Scope != isa.PerWarpgroup
		for _, o := range f.Operands {
			ok = ok && o.Kinds&(isa.Addr|isa.Tensor|isa.Label) == 0 && o.Kinds != isa.Symbol
		}
		if ok {
			out = append(out, f)
		}
	}
	return out
}()

// bytesource deals the fuzzer's bytes, zeros when they are used up.
type bytesource struct{ b []byte }

func (s *bytesource) n(limit int) int {
	var v int
	for limit > 0 {
		v <<= 8
		if len(s.b) > 0 {
			v, s.b = v|int(s.b[0]), s.b[1:]
		}
		if limit <= 256 {
			return v % limit
		}
		limit >>= 8
	}
	return 0
}

// randomInstruction writes one instruction on registers %r0…3, %d0…3, %h0…3
// and %p0…3.
func randomInstruction(s *bytesource) string {
	f := straightForms[s.n(len(straightForms))]
	mods := make([]string, len(f.Slots))
	opcode := f.Root
	for i, slot := range f.Slots {
		k := s.n(len(slot.Values) + 1)
		if k == len(slot.Values) {
			if slot.Optional {
				continue
			}
			k = 0
		}
		mods[i] = slot.Values[k]
		opcode += "." + mods[i]
	}
	var args strings.Builder
	for i := range f.Operands {
		o := &f.Operands[i]
		if o.With != "" && f.Mod(mods, o.With) == "" || o.With == "" && o.Optional && s.n(2) == 0 {
			continue
		}
		switch {
		case args.Len() == 0:
		case o.Bar:
			args.WriteString("|")
		default:
			args.WriteString(", ")
		}
		typ := f.OperandType(o, mods)
		one := func() string {
			bits := 16
			if typ != isa.NoType {
				bits = typ.Bits()
			}
			switch {
			case o.Name == "membermask":
				return "0xffffffff"
			case o.Kinds&isa.Imm != 0 && (o.Kinds&isa.Reg == 0 || s.n(4) == 0):
				if o.Kinds&isa.Reg == 0 {
					return fmt.Sprint(s.n(256))
				}
				return fmt.Sprint(s.n(65536))
			}
			class := map[int]string{1: "p", 8: "r", 16: "h", 32: "r", 64: "d"}[bits]
			return fmt.Sprintf("%%%s%d", class, s.n(4))
		}
		n := f.Elements(o, mods)
		if n == 0 {
			args.WriteString(one())
			continue
		}
		var v []string
		for range n {
			v = append(v, one())
		}
		args.WriteString("{" + strings.Join(v, ", ") + "}")
	}
	guard := ""
	if s.n(5) == 0 && f.Scope == isa.PerThread {
		guard = []string{"@%p0 ", "@!%p1 "}[s.n(2)]
	}
	return "\t" + guard + opcode + " " + args.String() + ";\n"
}

// randomKernel returns a kernel of up to 40 instructions that stores all its
// registers, and whether the parser takes every instruction.
func randomKernel(s *bytesource) string {
	var b strings.Builder
	for i := range 4 {
		fmt.Fprintf(&b, "\tmad.lo.u32 %%r%d, %%t, %d, %d;\n\tmul.wide.u32 %%d%d, %%r%d, %d;\n\tcvt.u16.u32 %%h%d, %%r%d;\n\tsetp.gt.u32 %%p%d, %%r%d, 1000;\n",
			i, s.n(1<<16), s.n(1<<16), i, i, 1+s.n(1<<16), i, i, i, i)
	}
	for range 1 + s.n(40) {
		line := randomInstruction(s)
		if _, err := ptx.Parse("one.ptx", []byte(kernelText(line))); err == nil {
			b.WriteString(line)
		}
	}
	b.WriteString("\tmul.wide.u32 %d20, %t, 64;\n\tadd.u64 %d20, %d20, %out;\n")
	for i := range 4 {
		fmt.Fprintf(&b, "\tst.global.b32 [%%d20+%d], %%r%d;\n\tst.global.b64 [%%d20+%d], %%d%d;\n\tst.global.b16 [%%d20+%d], %%h%d;\n", 4*i, i, 16+8*i, i, 48+2*i, i)
		fmt.Fprintf(&b, "\tselp.b32 %%r9, 1, 0, %%p%d;\n\tst.global.b8 [%%d20+%d], %%r9;\n", i, 56+i)
	}
	return kernelText(b.String())
}

// execute runs kernel k of text and returns what it stored.
func execute(t *testing.T, text string) []byte {
	t.Helper()
	mod, err := ptx.Parse("fuzz.ptx", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	p, err := Compile(mod)
	if err != nil {
		if strings.Contains(err.Error(), "no semantics") { // refused by name
			return nil
		}
		t.Fatalf("%v\n%s", err, text)
	}
	m := New(Config{})
	out, err := m.Alloc("out", 2048)
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.Launch(p, "k", LaunchConfig{Block: Dim{32, 1, 1}, Params: binary.LittleEndian.AppendUint64(nil, out)})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if len(r.Errors()) > 0 {
		t.Fatalf("%v\n%s", r.Hazards, text)
	}
	b := make([]byte, 2048)
	if err := m.Read(b, out); err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzStraightLine executes a random kernel, prints and parses it, and
// executes it again: it must not fail and must store the same. The verifier
// must take it without panic.
func FuzzStraightLine(f *testing.F) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 60 {
		b := make([]byte, 600)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		text := randomKernel(&bytesource{b})
		first := execute(t, text)
		mod, err := ptx.Parse("fuzz.ptx", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		verify.Module("fuzz.ptx", mod, nil)
		if d := cmp.Diff(first, execute(t, mod.String())); d != "" {
			t.Errorf("printed and parsed again, it stores something else: %s\n%s", d, text)
		}
	})
}
