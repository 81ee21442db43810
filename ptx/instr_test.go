package ptx_test

import (
	"strings"
	"testing"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

var (
	u32  = &ptx.Reg{Name: "%r0", Type: isa.B32}
	u64  = &ptx.Reg{Name: "%rd0", Type: isa.B64}
	f32  = &ptx.Reg{Name: "%f0", Type: isa.F32}
	half = &ptx.Reg{Name: "%h0", Type: isa.B16}
	pred = &ptx.Reg{Name: "%p0", Type: isa.Pred}
	s32  = &ptx.Reg{Name: "%s0", Type: isa.S32}
)

func TestNewInstr(t *testing.T) {
	tid, err := ptx.NewSpecial("%tid.x")
	if err != nil {
		t.Fatal(err)
	}
	at := ptx.Addr{Base: u64, Offset: -4}
	for _, c := range []struct {
		opcode string
		args   []ptx.Operand
		want   string // the text, or the error after a question mark
	}{
		{"add.u32", []ptx.Operand{u32, s32, ptx.Imm(-1)}, "add.u32 %r0, %s0, -1;"},
		{"add.u32", []ptx.Operand{u32, u64, u32}, "?%rd0 is .b64 where .u32 is needed"},
		{"add.u32", []ptx.Operand{ptx.Imm(1), u32, u32}, "?a constant does not fit"},
		{"add.u32", []ptx.Operand{u32, tid, u32}, "?special register %tid.x does not fit"},
		{"mov.u32", []ptx.Operand{u32, tid}, "mov.u32 %r0, %tid.x;"},
		{"mov.u32", []ptx.Operand{u32, ptx.Symbol("smem")}, "mov.u32 %r0, smem;"},
		{"mov.b64", []ptx.Operand{u64, ptx.Vec{u32, ptx.Imm(0)}}, "mov.b64 %rd0, {%r0, 0};"},
		{"mov.b64", []ptx.Operand{ptx.Vec{ptx.Sink{}, u32}, u64}, "mov.b64 {_, %r0}, %rd0;"},
		{"mov.b64", []ptx.Operand{u64, ptx.Vec{half, half, half, half}}, "mov.b64 %rd0, {%h0, %h0, %h0, %h0};"},
		{"mov.b64", []ptx.Operand{u64, ptx.Vec{u32, u32, u32}}, "?nor does any other"},
		{"mov.f32", []ptx.Operand{f32, ptx.F32(1)}, "mov.f32 %f0, 0f3F800000;"},
		{"mov.f32", []ptx.Operand{f32, ptx.Imm(1)}, "?the integer 1 where .f32 is needed"},
		{"mov.b32", []ptx.Operand{f32, ptx.F32(1)}, "mov.b32 %f0, 0f3F800000;"},
		{"ld.global.u16", []ptx.Operand{u32, at}, "ld.global.u16 %r0, [%rd0+-4];"},
		{"ld.global.f32", []ptx.Operand{u32, at}, "ld.global.f32 %r0, [%rd0+-4];"},
		{"ld.global.f32", []ptx.Operand{s32, at}, "?%s0 is .s32 where .f32 is needed"},
		{"ld.global.u64", []ptx.Operand{u32, at}, "?%r0 is .b32 where .u64 is needed"},
		{"ld.global.v2.f32", []ptx.Operand{ptx.Vec{f32, f32}, at}, "ld.global.v2.f32 {%f0, %f0}, [%rd0+-4];"},
		{"ld.global.v2.f32", []ptx.Operand{f32, at}, "?2 elements in braces are needed"},
		{"ld.global.v4.f32", []ptx.Operand{ptx.Vec{f32, f32}, at}, "?2 elements in braces where the modifiers say 4"},
		{"ld.global.v4.u64", []ptx.Operand{ptx.Vec{u64, u64, u64, u64}, at}, "?more than 128 bits"},
		{"ld.global.f32", []ptx.Operand{ptx.Vec{f32}, at}, "?a brace list does not fit"},
		{"ld.global.f32", []ptx.Operand{f32, u64}, "?a register does not fit"},
		{"ld.global.f32", []ptx.Operand{f32, ptx.Addr{Base: f32}}, "?an address needs a 32- or 64-bit integer register"},
		{"shfl.sync.bfly.b32", []ptx.Operand{f32, f32, ptx.Imm(16), ptx.Imm(31), ptx.Imm(-1)}, "shfl.sync.bfly.b32 %f0, %f0, 16, 31, -1;"},
		{"shfl.sync.bfly.b32", []ptx.Operand{u32, pred, u32, ptx.Imm(16), ptx.Imm(31), ptx.Imm(-1)}, "shfl.sync.bfly.b32 %r0|%p0, %r0, 16, 31, -1;"},
		{"setp.lt.and.f32", []ptx.Operand{pred, f32, ptx.F32(0), ptx.Not{P: pred}}, "setp.lt.and.f32 %p0, %f0, 0f00000000, !%p0;"},
		{"setp.lt.u32", []ptx.Operand{pred, u32, ptx.Not{P: pred}}, "?a negated predicate does not fit"},
		{"elect.sync", []ptx.Operand{ptx.Sink{}, pred, ptx.Imm(-1)}, "elect.sync _|%p0, -1;"},
		{"bra", []ptx.Operand{ptx.Label("L")}, "bra L;"},
		{"bra", []ptx.Operand{ptx.Symbol("L")}, "?symbol L does not fit"},
		{"lop3.b32", []ptx.Operand{u32, u32, u32, u32, ptx.Imm(256)}, "?256 does not fit in .u8"},
		{"cvt.rn.bf16x2.f32", []ptx.Operand{u32, f32, f32}, "cvt.rn.bf16x2.f32 %r0, %f0, %f0;"},
		{"mbarrier.arrive.shared::cluster.b64", []ptx.Operand{ptx.Sink{}, ptx.Addr{Base: u32}}, "mbarrier.arrive.shared::cluster.b64 _, [%r0];"},
		{"mbarrier.arrive.shared::cluster.b64", []ptx.Operand{u64, ptx.Addr{Base: u32}}, "?a register does not fit"},
		{"cp.async.bulk.tensor.2d.global.shared::cta.bulk_group", []ptx.Operand{ptx.Tensor{Map: u64, Coords: ptx.Vec{u32, ptx.Imm(0)}}, ptx.Addr{Base: u32}},
			"cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd0, {%r0, 0}], [%r0];"},
		{"cp.async.bulk.tensor.3d.global.shared::cta.bulk_group", []ptx.Operand{ptx.Tensor{Map: u64, Coords: ptx.Vec{u32, ptx.Imm(0)}}, ptx.Addr{Base: u32}},
			"?2 coordinates where the modifiers say 3"},
		{"ret", []ptx.Operand{u32}, `?1 operands do not fit "ret{.uni}"`},
		{"add.u32", []ptx.Operand{u32, nil, u32}, "?missing"},
		{"add.u32", []ptx.Operand{u32, (*ptx.Reg)(nil), u32}, "?missing register"},
	} {
		i, err := ptx.NewInstr(c.opcode, c.args...)
		if want, bad := strings.CutPrefix(c.want, "?"); bad {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v (%v), want the error %q", c.opcode, i, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.opcode, err)
			continue
		}
		if got := i.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		if err := i.Check(); err != nil {
			t.Errorf("%s: %v", c.want, err)
		}
	}
}

func TestArg(t *testing.T) {
	i, err := ptx.NewInstr("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint",
		ptx.Addr{Base: u32}, ptx.Tensor{Map: u64, Coords: ptx.Vec{u32}}, ptx.Addr{Base: u32, Offset: 8}, u64)
	if err != nil {
		t.Fatal(err)
	}
	if got := i.Arg("cache-policy"); got != u64 {
		t.Errorf("cache-policy %v", got)
	}
	if got := i.Arg("ctaMask"); got != nil {
		t.Errorf("ctaMask %v, was left out", got)
	}
	if ops := i.Operands(); len(ops) != 4 || ops[2].Name != "mbar" {
		t.Errorf("operands %v", ops)
	}
}

func TestMinVersion(t *testing.T) {
	module := func(target string, k *ptx.Kernel) *ptx.Module {
		return &ptx.Module{Target: target, Kernels: []*ptx.Kernel{k}}
	}
	instr := func(opcode string, args ...ptx.Operand) *ptx.Kernel {
		i, err := ptx.NewInstr(opcode, args...)
		if err != nil {
			t.Fatal(err)
		}
		return &ptx.Kernel{Body: []ptx.Stmt{i}}
	}
	rank, err := ptx.NewSpecial("%cluster_ctarank")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		m    *ptx.Module
		want string
	}{
		{module("sm_90a", instr("ret")), "8.0"},
		{module("sm_70", instr("ret")), "6.0"},
		{module("sm_80", instr("redux.sync.add.u32", u32, u32, ptx.Imm(-1))), "7.0"},
		{module("sm_80", instr("mov.u32", u32, rank)), "7.8"},
		{module("sm_80", &ptx.Kernel{ReqNCTAPerClust: [3]int{2, 1, 1}}), "7.8"},
		{module("sm_90a", instr("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32", ptx.Addr{Base: u32}, u32, ptx.Addr{Base: u32})), "8.1"},
	} {
		if got := ptx.MinVersion(c.m).String(); got != c.want {
			t.Errorf("%s, want %s:\n%s", got, c.want, c.m)
		}
	}
}

func TestRegisterDeclarations(t *testing.T) {
	reg := func(ty isa.Type, names ...string) (out []*ptx.Reg) {
		for _, n := range names {
			out = append(out, &ptx.Reg{Name: n, Type: ty})
		}
		return out
	}
	join := func(lists ...[]*ptx.Reg) (out []*ptx.Reg) {
		for _, l := range lists {
			out = append(out, l...)
		}
		return out
	}
	for _, c := range []struct {
		regs []*ptx.Reg
		want string
	}{
		{reg(isa.B32, "%r0", "%r1", "%r2"), "\t.reg .b32 %r<3>;\n"},
		{reg(isa.B32, "%r2", "%r1"), "\t.reg .b32 %r<3>;\n"},
		{reg(isa.B32, "%r1", "%r9"), "\t.reg .b32 %r1, %r9;\n"},
		{reg(isa.B32, "%r01", "%r02"), "\t.reg .b32 %r01, %r02;\n"},
		{reg(isa.B32, "%r"), "\t.reg .b32 %r;\n"},
		{join(reg(isa.B32, "%r0", "%r1"), reg(isa.F32, "%r2")), "\t.reg .b32 %r0, %r1;\n\t.reg .f32 %r2;\n"},
		{join(reg(isa.B32, "%r0"), reg(isa.Pred, "%p0", "%p1"), reg(isa.B32, "%r1", "%x")), "\t.reg .b32 %r<2>;\n\t.reg .b32 %x;\n\t.reg .pred %p<2>;\n"},
		{reg(isa.B32, "a", "b", "c", "d", "e", "f", "g", "h", "i"), "\t.reg .b32 a, b, c, d, e, f, g, h;\n\t.reg .b32 i;\n"},
	} {
		m := &ptx.Module{Version: isa.Version{Major: 8}, Target: "sm_90a", Kernels: []*ptx.Kernel{{Name: "k", Regs: c.regs}}}
		text := m.String()
		_, got, _ := strings.Cut(text, "{\n")
		if got != c.want+"}\n" {
			t.Errorf("%q, want %q", got, c.want)
		}
		again, err := ptx.Parse("k", []byte(text))
		if err != nil || again.String() != text {
			t.Errorf("%v\n%s", err, text)
		}
	}
}

func TestPrintRefusesWhatHasNoSpelling(t *testing.T) {
	i, err := ptx.NewInstr("ret")
	if err != nil {
		t.Fatal(err)
	}
	i.Args = []ptx.Operand{nil}
	var b strings.Builder
	m := &ptx.Module{Kernels: []*ptx.Kernel{{Name: "k", Body: []ptx.Stmt{i}}}}
	if err := ptx.Print(&b, m); err == nil {
		t.Errorf("printed %s", b.String())
	}
	if s := m.String(); !strings.Contains(s, "<<nil>>") {
		t.Error(s)
	}
}
