package ptx_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// same compares modules up to the position of their text. Forms are rows of
// the one table, hence equal only when identical.
var same = cmp.Options{
	cmp.Comparer(func(a, b *isa.Form) bool { return a == b }),
	cmp.Comparer(func(a, b *ptx.Reg) bool { return a == b || a != nil && b != nil && *a == *b }),
	cmpopts.IgnoreFields(ptx.Instr{}, "Line", "Col"),
	cmpopts.IgnoreFields(ptx.LabelStmt{}, "Line"),
	cmpopts.EquateEmpty(),
}

// declaredOrder compares registers as a set: Print groups them by type.
var declaredOrder = cmpopts.SortSlices(func(a, b *ptx.Reg) bool { return a.Name < b.Name })

func TestParseOfPrintIsTheModule(t *testing.T) {
	m, err := tableModule()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := ptx.Print(&b, m); err != nil {
		t.Fatal(err)
	}
	got, err := ptx.Parse("table.ptx", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(m, got, same, declaredOrder); d != "" {
		t.Errorf("parsed module differs (-built +parsed):\n%s", d)
	}
	if d := cmp.Diff(b.String(), got.String()); d != "" {
		t.Errorf("reprinted text differs:\n%s", d)
	}
}

const sample = `// scale: y = 2 x
// rows 128
.version 8.0
.target sm_90a
.address_size 64
.file 1 "scale.go"

.extern .shared .align 1024 .b8 smem[];
.global .align 4 .b32 counter;

.visible .entry scale(
	.param .u64 x,
	.param .align 128 .b8 map[128]
)
.explicitcluster
.reqnctapercluster 2, 1, 1
.maxntid 128, 1, 1
.minnctapersm 1
.maxnreg 168
{
	.reg .b64 %rd<3>;
	.reg .b32 %r<4>;
	.reg .pred %p, %done;
	.reg .f32 %f0, %f2, %f9;
	.shared .align 8 .b64 full[4];

	// addresses
	ld.param.u64 %rd0, [x];
	mov.u32 %r0, %tid.x; // this thread
	mov.u32 %r1, smem;
	mul.wide.u32 %rd1, %r0, 4;
	add.s64 %rd2, %rd0, %rd1;
	.loc 1 12 3
loop:
	ld.global.nc.v2.f32 {%f0, %f2}, [%rd2+-8];
	fma.rn.f32 %f9, %f0, 0f40000000, %f2;
	setp.lt.and.u32 %p|%done, %r0, 17, !%p;
	elect.sync _|%done, -1;
	cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0, {%r2, 0}], [full+8];
	@%p bra loop;
	//
	@!%done st.global.f32 [%rd2], %f9;
	ret;
}
`

func TestPrintOfParseIsTheText(t *testing.T) {
	m, err := ptx.Parse("sample.ptx", []byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sample, m.String()); d != "" {
		t.Errorf("(-text +reprinted):\n%s", d)
	}
	k := m.Kernels[0]
	if got, want := len(k.Regs), 3+4+2+3; got != want {
		t.Errorf("%d registers, want %d", got, want)
	}
	first := k.Body[1].(*ptx.Instr)
	if first.Line != 28 || first.Col != 2 {
		t.Errorf("ld.param at %d:%d, want 28:2", first.Line, first.Col)
	}
	if got := k.Body[2].(*ptx.Instr).Comment; got != "this thread" {
		t.Errorf("comment %q", got)
	}
}

func TestParseAcceptsOtherLayouts(t *testing.T) {
	text := `.version 8.0 .target sm_90a .address_size 64
.entry k(.param .u32 n) .maxntid 32 {
.reg .b32 %a, %b<2>; ld.param.u32 %a,[n+0x0];add.u32 %b0 ,%a , 0xFFFFFFFF; // sum
add.u32 %b1, %a, 010U; ld.shared.u32 %a, [%b1 - 4];
ret; }`
	want := `.version 8.0
.target sm_90a
.address_size 64

.visible .entry k(
	.param .u32 n
)
.maxntid 32, 1, 1
{
	.reg .b32 %b<2>;
	.reg .b32 %a;

	ld.param.u32 %a, [n];
	add.u32 %b0, %a, 4294967295; // sum
	add.u32 %b1, %a, 8;
	ld.shared.u32 %a, [%b1+-4];
	ret;
}
`
	m, err := ptx.Parse("k.ptx", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, m.String()); d != "" {
		t.Error(d)
	}
}

func TestParseErrors(t *testing.T) {
	const head = ".version 8.0\n.target sm_90a\n.address_size 64\n"
	kernel := func(body string) string {
		return head + ".visible .entry k()\n{\n\t.reg .b32 %r<4>;\n\t.reg .pred %p;\n" + body + "\n}\n"
	}
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", `1:1: the text must start with .version, .target and .address_size 64; .version is missing`},
		{"32 bits", ".version 8.0\n.target sm_90a\n.address_size 32\n", "3:17: .address_size 32: only 64 is known"},
		{"directive", head + ".func f()", "4:1: unknown directive .func"},
		{"text", head + "hello", `4:1: expected a directive, found "hello"`},
		{"unclosed", head + ".entry k() {", "4:13: the kernel k has no closing brace"},
		{"mnemonic", kernel("\tfoo.u32 %r0, %r1;"), `8:2: unknown instruction "foo.u32"`},
		{"modifier", kernel("\tmul.u32 %r0, %r1, %r2;"), `8:2: no form of mul is spelled "mul.u32"; known: mul.mode.type; `},
		{"operand count", kernel("\tadd.u32 %r0, %r1;"), `8:2: add.u32: 2 operands do not fit "add.type d, a, b"`},
		{"type", kernel("\tadd.f32 %r0, %r1, %p;"), "8:2: add.f32: operand 3 (b): %p is .pred where .f32 is needed"},
		{"undeclared", kernel("\tadd.u32 %r0, %r1, %r4;"), "8:20: undeclared register %r4"},
		{"special", kernel("\tmov.u32 %r0, %tid.w;"), "8:15: undeclared register %tid.w"},
		{"range", kernel("\tadd.u32 %r0, %r1, 4294967296;"), "8:2: add.u32: operand 3 (b): 4294967296 does not fit in .u32"},
		{"constant", kernel("\tadd.u32 %r0, %r1, 1.5;"), `8:21: expected ',', found "."`},
		{"float", kernel("\tmov.f32 %r0, 0f1;"), "8:15: malformed constant 0f1"},
		{"twice", kernel("\t.reg .b32 %r1;"), "8:12: register %r1 declared twice"},
		{"guard", kernel("\t@%r1 ret;"), "8:3: %r1 is no predicate"},
		{"bar", kernel("\telect.sync %r0, %p, -1;"), "8:2: elect.sync: comma and bar between operands are mixed up"},
		{"semicolon", kernel("\tret"), `9:1: expected an operand, found "}"`},
		{"file", kernel("\t.loc 1 2 3"), "8:2: .loc of the undeclared file 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := ptx.Parse("x.ptx", []byte(c.text))
			var e *ptx.Error
			if !errors.As(err, &e) {
				t.Fatalf("error %v (module %v), want an *Error", err, m)
			}
			if got := strings.TrimPrefix(e.Error(), "x.ptx:"); !strings.HasPrefix(got, c.want) {
				t.Errorf("error %q, want %q", got, c.want)
			}
		})
	}
}

// Heads are those of the whole module, whatever the bodies hold.
func TestParseHeads(t *testing.T) {
	m, err := tableModule()
	if err != nil {
		t.Fatal(err)
	}
	heads, err := ptx.ParseHeads("table.ptx", []byte(m.String()))
	if err != nil || len(heads.Kernels) != len(m.Kernels) {
		t.Fatalf("%d of %d kernels, %v", len(heads.Kernels), len(m.Kernels), err)
	}
	for i, k := range heads.Kernels {
		if whole := m.Kernels[i]; k.Name != whole.Name || len(k.Body) != 0 {
			t.Errorf("%s with %d statements, want %s with none", k.Name, len(k.Body), whole.Name)
		}
		if diff := cmp.Diff(m.Kernels[i].Params, k.Params); diff != "" {
			t.Errorf("%s (-whole +head):\n%s", k.Name, diff)
		}
	}
	const head = ".version 8.0\n.target sm_90a\n.address_size 64\n.entry a(.param .u64 p) {"
	for body, want := range map[string]string{
		"\n\tfoo %x, {1, {2}}; // }\n /* } */ .pragma \"}\";\n\tx / y;\n}\n.entry b() { }\n\t.func": "10:2: unknown directive .func",
		"{ }":        "4:26: no closing brace follows",
		"/* }":       "4:26: no closing brace follows",
		"\" }":       "4:26: no closing brace follows",
		"// }":       "4:26: no closing brace follows",
		"} .entry b": `4:36: expected '(', found the end of the text`,
	} {
		_, err := ptx.ParseHeads("x.ptx", []byte(head+body))
		if err == nil || err.Error() != "x.ptx:"+want {
			t.Errorf("%q: got %v, want %s", body, err, want)
		}
	}
}

func TestParseIsFast(t *testing.T) {
	m, err := tableModule()
	if err != nil {
		t.Fatal(err)
	}
	text := []byte(m.String())
	best := time.Hour
	for range 5 {
		start := time.Now()
		if _, err := ptx.Parse("table.ptx", text); err != nil {
			t.Fatal(err)
		}
		best = min(best, time.Since(start))
	}
	t.Logf("%d bytes in %v", len(text), best)
	// 300 KB must take well under 50 ms; allow for slow and busy machines.
	if limit := 200 * time.Millisecond; best > limit {
		t.Errorf("%d bytes took %v, more than %v", len(text), best, limit)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(sample))
	if m, err := tableModule(); err == nil {
		for i, k := range m.Kernels {
			if i%8 != 0 {
				continue
			}
			one := *m
			one.Kernels = []*ptx.Kernel{k}
			if s := one.String(); len(s) < 2000 {
				f.Add([]byte(s))
			}
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := ptx.Parse("fuzz.ptx", text)
		if err != nil {
			var e *ptx.Error
			if !errors.As(err, &e) || e.Line < 1 || e.Col < 1 {
				t.Fatalf("error without a position: %v", err)
			}
			return
		}
		printed := m.String()
		again, err := ptx.Parse("again.ptx", []byte(printed))
		if err != nil {
			t.Fatalf("reprinted text does not parse: %v\n%s", err, printed)
		}
		if s := again.String(); s != printed {
			t.Fatal(cmp.Diff(printed, s))
		}
		// A range %r<N> also declares the few numbers that were left out.
		for i, k := range again.Kernels {
			k.Regs = slices.DeleteFunc(k.Regs, func(r *ptx.Reg) bool {
				return !slices.ContainsFunc(m.Kernels[i].Regs, func(o *ptx.Reg) bool { return o.Name == r.Name })
			})
		}
		if d := cmp.Diff(m, again, same, declaredOrder); d != "" {
			t.Fatalf("(-first +again):\n%s\n%s", d, printed)
		}
	})
}
