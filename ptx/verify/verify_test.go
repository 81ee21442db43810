package verify

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
	"github.com/mlagen/mlagen/ptx/manifest"
)

// header precedes a kernel body in the tests; the body's first line is line 15.
const header = `.version 8.0
.target sm_90a
.address_size 64

.extern .shared .align 1024 .b8 smem[];

.visible .entry k(
	.param .u64 x,
	.param .align 128 .b8 map[128]
)
.maxntid 256, 1, 1
.minnctapersm 1
{
	.reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .f32 %f<8>; .reg .pred %p<8>;
`

func module(t *testing.T, body string) *ptx.Module {
	t.Helper()
	m, err := ptx.Parse("k.ptx", []byte(header+body+"\n}\n"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// bodyCase is a kernel body and the findings of one rule on it, as
// "line: text", lines counted within the body; without a line, of the kernel.
type bodyCase struct {
	name string
	body string
	want []string
}

func checkBodies(t *testing.T, rule string, man *manifest.Manifest, cases []bodyCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, d := range Module("k.ptx", module(t, c.body), man) {
				if d.Rule != rule {
					continue
				}
				s := d.Text
				if d.Line > 14 { // relative to the body
					s = fmt.Sprintf("%02d: %s", d.Line-14, d.Text)
				}
				got = append(got, s)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestDiagnosticFormat(t *testing.T) {
	m := module(t, "\tmov.u32 %r0, %r1;\n\tret;")
	var got []string
	for _, d := range Module("dir/k.ptx", m, nil) {
		got = append(got, d.String())
	}
	want := []string{"dir/k.ptx:15:2: registers: register %r1 is never written"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A built module has no lines; its findings get those of the printed text.
func TestPositionsOfBuiltModule(t *testing.T) {
	r := []*ptx.Reg{{Name: "%r0", Type: isa.B32}, {Name: "%r1", Type: isa.B32}}
	add, err := ptx.NewInstr("add.u32", r[0], r[1], ptx.Imm(1))
	if err != nil {
		t.Fatal(err)
	}
	ret, _ := ptx.NewInstr("ret")
	m := &ptx.Module{
		Version: isa.Version{Major: 8}, Target: "sm_90a",
		Kernels: []*ptx.Kernel{{Name: "k", Regs: r, Body: []ptx.Stmt{&ptx.Comment{Text: "two\nlines"}, add, ret}}},
	}
	ds := Module("k.ptx", m, nil)
	if len(ds) != 1 {
		t.Fatalf("findings %v, want one", ds)
	}
	lines := strings.Split(m.String(), "\n")
	if l := lines[ds[0].Line-1]; l != "\tadd.u32 %r0, %r1, 1;" || ds[0].Col != 2 {
		t.Errorf("%v points at %q", ds[0], l)
	}
}

func TestOperands(t *testing.T) {
	checkBodies(t, "operands", nil, []bodyCase{
		{"clean", "\tld.param.u64 %rd0, [x];\n\tmov.u32 %r0, smem;\n\tst.shared.b32 [smem+8], %r0;\n\tret;", nil},
		{"symbol", "\tmov.u32 %r0, other;\n\tret;", []string{"01: nothing is named other"}},
		{"address", "\tld.param.u64 %rd0, [other];\n\tret;", []string{"01: nothing is named other"}},
		{"bounds", "\tld.param.u64 %rd0, [x+4];\n\tret;", []string{"01: 8 bytes at offset 4 of x, which has 8"}},
		{"space", "\tld.shared.u64 %rd0, [x];\n\tret;", []string{"01: x lies in .param"}},
		{"type", "\t.reg .bf16x2 %b0;\n\tret;", []string{"register %b0: no register has type .bf16x2"}},
	})
	m := module(t, "\tret;")
	bad := &ptx.Instr{Form: m.Kernels[0].Body[0].(*ptx.Instr).Form, Args: []ptx.Operand{ptx.Imm(1)}}
	m.Kernels[0].Body = append([]ptx.Stmt{bad}, m.Kernels[0].Body...)
	if ds := Module("k.ptx", m, nil); len(ds) != 1 || ds[0].Rule != "operands" {
		t.Errorf("an operand too many: %v", ds)
	}
}

func TestLabels(t *testing.T) {
	checkBodies(t, "labels", nil, []bodyCase{
		{"clean", "L:\n\tbra L;", nil},
		{"undefined", "\tbra M;\n\tret;", []string{"01: label M is not defined"}},
		{"twice", "L:\n\tbra L;\nL:\n\tret;", []string{"03: label L is defined twice"}},
		{"unused", "L:\n\tret;", []string{"01: no branch goes to label L"}},
	})
}

func TestVersions(t *testing.T) {
	body := "\tmov.u32 %r0, smem;\n\tfence.proxy.async;\n\tfence.proxy.async;\n\tmov.u32 %r1, %cluster_ctarank;\n\tret;"
	for _, c := range []struct {
		version, target string
		want            []string
	}{
		{"8.0", "sm_90a", nil},
		{"7.8", "sm_90a", []string{
			"1: target sm_90a needs PTX 8.0; .version is 7.8",
			"16: fence.proxy.async needs PTX 8.0; .version is 7.8",
		}},
		{"8.0", "sm_80", []string{
			"16: fence.proxy.async needs target sm_90; .target is sm_80",
			"18: %cluster_ctarank needs target sm_90; .target is sm_80",
		}},
		{"8.0", "sm_12", []string{"1: unknown target sm_12"}},
	} {
		m := module(t, body)
		m.Target = c.target
		m.Version = isa.Version{Major: int(c.version[0] - '0'), Minor: int(c.version[2] - '0')}
		var got []string
		for _, d := range Module("k", m, nil) {
			got = append(got, fmt.Sprintf("%d: %s", d.Line, d.Text))
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s %s:\n%s", c.version, c.target, d)
		}
	}
}

func TestRegisters(t *testing.T) {
	checkBodies(t, "registers", nil, []bodyCase{
		{"clean", "\tmov.u32 %r0, 1;\nL:\n\tadd.u32 %r0, %r0, 1;\n\tsetp.lt.u32 %p0, %r0, 9;\n\t@%p0 bra L;\n\tret;", nil},
		{"never", "\tadd.u32 %r0, %r1, 1;\n\tadd.u32 %r0, %r1, 1;\n\tret;", []string{"01: register %r1 is never written"}},
		{"guard never", "\t@%p0 ret;\n\tret;", []string{"01: register %p0 is never written"}},
		{"later", "\tadd.u32 %r0, %r1, 1;\n\tmov.u32 %r1, 1;\n\tret;", []string{"01: register %r1 may be read before it is written"}},
		{"one branch", `	mov.u32 %r0, %tid.x;
	setp.eq.u32 %p0, %r0, 0;
	@%p0 bra L;
	mov.u32 %r1, 1;
L:
	add.u32 %r0, %r1, 1;
	ret;`, []string{"06: register %r1 may be read before it is written"}},
		{"both branches", `	mov.u32 %r0, %tid.x;
	setp.eq.u32 %p0, %r0, 0;
	@%p0 bra L;
	mov.u32 %r1, 1;
	bra M;
L:
	mov.u32 %r1, 2;
M:
	add.u32 %r0, %r1, 1;
	ret;`, nil},
		{"same guard", `	mov.u32 %r0, %tid.x;
	setp.eq.u32 %p0, %r0, 0;
	@%p0 bra L;
	mov.u32 %r1, 1;
L:
	@!%p0 add.u32 %r0, %r1, 1;
	@%p0 bra N;
	add.u32 %r0, %r1, 1;
N:
	ret;`, nil},
		{"other guard", `	mov.u32 %r0, %tid.x;
	setp.eq.u32 %p0, %r0, 0;
	@%p0 bra L;
	mov.u32 %r1, 1;
L:
	@%p0 add.u32 %r0, %r1, 1;
	ret;`, []string{"06: register %r1 may be read before it is written"}},
		{"predicate changed", `	mov.u32 %r0, %tid.x;
	setp.eq.u32 %p0, %r0, 0;
	@%p0 bra L;
	mov.u32 %r1, 1;
L:
	setp.eq.u32 %p0, %r0, 1;
	@!%p0 add.u32 %r0, %r1, 1;
	ret;`, []string{"07: register %r1 may be read before it is written"}},
		{"guarded write", "\tmov.u32 %r0, %tid.x;\n\tsetp.eq.u32 %p0, %r0, 0;\n\t@%p0 mov.u32 %r1, 1;\n\tadd.u32 %r0, %r1, 1;\n\tret;", nil},
	})
}

func TestAligned(t *testing.T) {
	checkBodies(t, "aligned", nil, []bodyCase{
		{"clean", "\tbar.sync 0;\n\tret;", nil},
		{"elected", `	elect.sync _|%p0, -1;
	@!%p0 bra L;
	bar.sync 0;
L:
	bar.sync 1;
	ret;`, []string{"03: bar.sync must be executed by a whole warp, but the branch on %p0 lets a part pass"}},
		{"elected, with a vote", `	elect.sync _|%p0, -1;
	@!%p0 bra L;
	bar.red.or.pred %p1, 0, %p0;
L:
	ret;`, []string{"03: bar.red.or.pred must be executed by a whole warp, but the branch on %p0 lets a part pass"}},
		{"warp", `	mov.u32 %r0, %tid.x;
	shr.u32 %r1, %r0, 5;
	setp.ne.u32 %p0, %r1, 0;
	@%p0 bra L;
	bar.sync 0, 32;
L:
	ret;`, nil},
		{"lane", `	mov.u32 %r0, %tid.x;
	and.b32 %r1, %r0, 31;
	setp.ne.u32 %p0, %r1, 0;
	@%p0 bra L;
	bar.warp.sync -1;
	bar.sync 0, 32;
L:
	ret;`, []string{"06: bar.sync must be executed by a whole warp, but the branch on %p0 lets a part pass"}},
		{"thread below a multiple", `	mov.u32 %r0, %tid.x;
	setp.ge.u32 %p0, %r0, 128;
	@%p0 bra L;
	bar.sync 0, 128;
L:
	ret;`, nil},
		{"thread below an odd number", `	mov.u32 %r0, %tid.x;
	setp.ge.u32 %p0, %r0, 8;
	@%p0 bra L;
	bar.sync 0, 128;
L:
	ret;`, []string{"04: bar.sync must be executed by a whole warp, but the branch on %p0 lets a part pass"}},
		{"leader's rest", `	mov.u32 %r0, %tid.x;
	setp.eq.u32 %p0, %r0, 0;
	@%p0 bra L;
	bar.sync 1, 224;
L:
	ret;`, nil}, // wrong only in warp 0, which may never come here
		{"warp of a warpgroup", `	mov.u32 %r0, %tid.x;
	shr.u32 %r1, %r0, 5;
	shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;
	setp.ne.u32 %p0, %r2, 4;
	@%p0 bra L;
	wgmma.fence.sync.aligned;
L:
	ret;`, []string{"06: wgmma.fence.sync.aligned must be executed by a whole warpgroup, but the branch on %p0 lets a part pass"}},
		{"warpgroup", `	mov.u32 %r0, %tid.x;
	shr.u32 %r1, %r0, 7;
	setp.ne.u32 %p0, %r1, 1;
	@%p0 bra L;
	wgmma.fence.sync.aligned;
L:
	ret;`, nil},
		{"guard", `	mov.u32 %r0, %laneid;
	setp.lt.u32 %p0, %r0, 4;
	setp.lt.u32 %p1, %r0, 32;
	@%p0 bar.sync 0;
	@%p1 bar.sync 0;
	ret;`, []string{"04: bar.sync must be executed by a whole warp, but its guard %p0 lets a part pass"}},
		{"elected and something", `	elect.sync _|%p0, -1;
	ld.param.u64 %rd0, [x];
	setp.eq.u64 %p1, %rd0, 0;
	and.pred %p2, %p0, %p1;
	@!%p2 bra L;
	bar.sync 0;
	bra M;
L:
	bar.sync 1;
M:
	ret;`, []string{"06: bar.sync must be executed by a whole warp, but the branch on %p2 lets a part pass"}},
		{"loaded condition", `	ld.param.u32 %r0, [x];
	setp.ne.u32 %p0, %r0, 0;
	@%p0 bra L;
	bar.sync 0;
L:
	ret;`, nil},
		{"endless", "L:\n\telect.sync _|%p0, -1;\n\t@%p0 bra L;\n\tbra L;", nil},
	})
}

func TestSharedMemory(t *testing.T) {
	for _, c := range []struct {
		static  string
		dynamic int
		want    []string
	}{
		{"", 232448, nil},
		{"", 232449, []string{"232449 bytes of shared memory (0 static, 232449 dynamic); at most 232448"}},
		{".shared .align 8 .b64 full[4];", 232416, nil},
		{".shared .b8 one; .shared .align 8 .b64 full[4];", 232416, []string{"232456 bytes of shared memory (40 static, 232416 dynamic); at most 232448"}},
		{".shared .b8 a[49153];", 0, []string{"49153 bytes of static shared memory; at most 49152"}},
	} {
		checkBodies(t, "shared", &manifest.Manifest{Kernel: "k", Shared: c.dynamic}, []bodyCase{{c.static, c.static + "\n\tret;", c.want}})
	}
}

func TestRegisterPool(t *testing.T) {
	body := "\tsetmaxnreg.inc.sync.aligned.u32 240;\n\tret;"
	checkBodies(t, "register-pool", nil, []bodyCase{
		{"clean", body, nil},
		{"range", "\tsetmaxnreg.dec.sync.aligned.u32 20;\n\tret;", []string{"01: setmaxnreg to 20: a multiple of 8 from 24 to 256 is needed"}},
		{"multiple", "\tsetmaxnreg.dec.sync.aligned.u32 100;\n\tret;", []string{"01: setmaxnreg to 100: a multiple of 8 from 24 to 256 is needed"}},
	})
	roles := func(producer, consumer int) *manifest.Manifest {
		return &manifest.Manifest{Kernel: "k", Threads: 256, Roles: []manifest.Role{
			{Name: "load", FirstWarp: 0, Warps: 4, Registers: producer}, {Name: "attend", FirstWarp: 4, Warps: 4, Registers: consumer},
		}}
	}
	findings := func(man *manifest.Manifest, change func(*ptx.Kernel)) int {
		m := module(t, body)
		change(m.Kernels[0])
		n := 0
		for _, d := range Module("k", m, man) {
			if d.Rule == "register-pool" {
				n++
			}
		}
		return n
	}
	as := func(*ptx.Kernel) {}
	capped := func(k *ptx.Kernel) { k.MinCTAPerSM, k.MaxNReg = 0, 128 }
	for _, c := range []struct {
		name   string
		man    *manifest.Manifest
		change func(*ptx.Kernel)
		want   int
	}{
		{"fits", roles(24, 240), as, 0},
		{"exactly", roles(24, 232), capped, 0},
		{"too many", roles(32, 232), capped, 1},
		{"no thread count", nil, func(k *ptx.Kernel) { k.MaxNTID = [3]int{} }, 1},
		{"no register count", nil, func(k *ptx.Kernel) { k.MinCTAPerSM = 0 }, 1},
	} {
		if got := findings(c.man, c.change); got != c.want {
			t.Errorf("%s: %d findings, want %d", c.name, got, c.want)
		}
	}
}

// described is a manifest that fits the tests' kernel.
func described() *manifest.Manifest {
	return &manifest.Manifest{
		Kernel: "k", PTXVersion: "8.0", Target: "sm_90a", Threads: 256,
		Params: []manifest.Param{
			{Name: "x", Kind: manifest.PointerParam, Size: 8, Align: 8},
			{Name: "map", Kind: manifest.TensorMapParam, Size: 128, Align: 128, Offset: 128},
		},
		TensorMaps: []manifest.TensorMap{{
			Param: "map", DType: "bf16", Dims: []string{"column", "row"}, Box: []int{64, 64}, Swizzle: 128, Promotion: 128,
		}},
	}
}

func TestManifest(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*manifest.Manifest)
		want   []string
	}{
		{"fits", func(*manifest.Manifest) {}, nil},
		{"other kernel", func(m *manifest.Manifest) { m.Kernel, m.Threads = "other", 9999 }, []string{
			`the manifest is for kernel "other"; the text has no such kernel`}},
		{"threads", func(m *manifest.Manifest) { m.Threads = 512 }, []string{"512 threads; .maxntid allows 256"}},
		{"version", func(m *manifest.Manifest) { m.PTXVersion = "8.1" }, []string{"ptx_version 8.1; the text has 8.0"}},
		{"offset", func(m *manifest.Manifest) { m.Params[1].Offset = 8 }, []string{
			"parameter 1 is map, 128 bytes at 8; the kernel has map, 128 bytes at 128"}},
		{"count", func(m *manifest.Manifest) { m.Params = m.Params[:1] }, []string{"1 parameters; the kernel has 2"}},
	} {
		man := described()
		c.change(man)
		checkBodies(t, "manifest", man, []bodyCase{{c.name, "\tret;", c.want}})
	}
}

// Nothing that parses makes the verifier panic.
func FuzzModule(f *testing.F) {
	f.Add(header + load + "\tret;\n}\n")
	f.Add(header + "L:\n\t@%p0 bra L;\n\tbra M;\nM:\n\twgmma.wait_group.sync.aligned 0;\n\tsetp.lt.and.u32 %p0|%p1, %r0, 3, !%p2;\n}\n")
	f.Add(header + "\tsetmaxnreg.inc.sync.aligned.u32 240;\n\tmbarrier.arrive.expect_tx.b64 _, [%r0], 1;\n\tshfl.sync.idx.b32 %r0, %r1, 99, 31, -1;\n@%p0 ret;\n}\n")
	f.Add(header + "\tcp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%rd1], 256, [8];\n}\n")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ptx.Parse("fuzz", []byte(text))
		if err != nil {
			return
		}
		man := described()
		if len(m.Kernels) > 0 {
			man.Kernel = m.Kernels[0].Name
		}
		Module("fuzz", m, nil)
		Module("fuzz", m, man)
	})
}
