package emu

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// covered collects the forms that the tests have executed.
var covered = map[*isa.Form]bool{}

// rig runs one test kernel.
type rig struct {
	t     *testing.T
	m     *Machine
	prog  *Program
	grid  Dim
	block Dim
	clust Dim
	smem  int
	out   uint64 // set when it was allocated before the launch
}

const header = ".version 8.6\n.target sm_90a\n.address_size 64\n"

// compile parses and compiles PTX text, counting its forms as covered.
func compile(t testing.TB, text string) *Program {
	t.Helper()
	if !strings.Contains(text, ".version") {
		text = header + text
	}
	mod, err := ptx.Parse("test.ptx", []byte(text))
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
	p, err := Compile(mod)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// kernelText wraps a body into a kernel k with one pointer parameter "out",
// whose address is in %out, and some registers of every type.
func kernelText(body string) string {
	return header + `.extern .shared .align 1024 .b8 smem[];
.visible .entry k(.param .u64 out)
{
	.reg .pred %p<16>;
	.reg .b16 %h<16>;
	.reg .b32 %r<64>;
	.reg .f32 %f<64>;
	.reg .b64 %d<32>;
	.reg .f64 %g<16>;
	.reg .b64 %out;
	.reg .b32 %t;
	.reg .b64 %mine;
	ld.param.u64 %out, [out];
	mov.u32 %t, %tid.x;
	mad.wide.u32 %mine, %t, 4, %out;
` + body + `
	ret;
}
`
}

// newRig prepares a machine for kernelText(body).
func newRig(t *testing.T, body string) *rig {
	t.Helper()
	return &rig{t: t, m: New(Config{}), prog: compile(t, kernelText(body)), grid: Dim{1, 1, 1}, block: Dim{32, 1, 1}}
}

// launch runs kernel k with n words of output and returns them.
func (r *rig) launch(n int) ([]uint32, *Report, error) {
	r.t.Helper()
	out, err := r.out, error(nil)
	if out == 0 {
		out, err = r.m.Alloc("out", uint64(4*n))
	}
	if err != nil {
		r.t.Fatal(err)
	}
	params := binary.LittleEndian.AppendUint64(nil, out)
	rep, err := r.m.Launch(r.prog, "k", LaunchConfig{Grid: r.grid, Block: r.block, Cluster: r.clust, Shared: r.smem, Params: params})
	b := make([]byte, 4*n)
	if e := r.m.Read(b, out); e != nil {
		r.t.Fatal(e)
	}
	words := make([]uint32, n)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return words, rep, err
}

// ok is launch for a run without error or proven hazard.
func (r *rig) ok(n int) []uint32 {
	r.t.Helper()
	words, rep, err := r.launch(n)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, h := range rep.Errors() {
		r.t.Error(h)
	}
	return words
}

// hazard is launch for a run that must find rule.
func (r *rig) hazard(rule Rule) Hazard {
	r.t.Helper()
	_, rep, err := r.launch(4096)
	var seen []string
	for _, h := range rep.Hazards {
		if h.Rule == rule {
			return h
		}
		seen = append(seen, h.String())
	}
	r.t.Fatalf("no %s; found %q, error %v", rule, seen, err)
	return Hazard{}
}

// lane0 runs body on one warp and returns what lane 0 and lane 7 stored with
// `st.global.b32 [%mine], %r0`, which is appended.
func lanesOf(t *testing.T, body string) []uint32 {
	t.Helper()
	return newRig(t, body+"\n\tst.global.b32 [%mine], %r0;").ok(32)
}

func TestStraightLine(t *testing.T) {
	got := lanesOf(t, `
	add.s32 %r1, %t, 5;
	mul.lo.s32 %r2, %r1, %r1;
	sub.u32 %r3, %r2, 1;
	mov.b32 %r0, %r3;`)
	for i, v := range got {
		if want := uint32((i+5)*(i+5) - 1); v != want {
			t.Errorf("lane %d: %d, want %d", i, v, want)
		}
	}
}

func TestDivergence(t *testing.T) {
	// Collatz steps: every lane loops its own number of times, with a branch inside.
	got := lanesOf(t, `
	mov.u32 %r1, %t;
	add.u32 %r1, %r1, 1;
	mov.u32 %r0, 0;
$loop:
	setp.eq.u32 %p0, %r1, 1;
	@%p0 bra $done;
	and.b32 %r2, %r1, 1;
	setp.eq.u32 %p1, %r2, 0;
	@%p1 bra $even;
	mad.lo.u32 %r1, %r1, 3, 1;
	bra $next;
$even:
	shr.u32 %r1, %r1, 1;
$next:
	add.u32 %r0, %r0, 1;
	bra $loop;
$done:
	setp.eq.u32 %p3, 0, 0;
	vote.sync.ballot.b32 %r5, %p3, 0xffffffff;
	setp.ne.u32 %p2, %r5, 0xffffffff;
	@%p2 mov.u32 %r0, 9999;`)
	for i, v := range got {
		n, want := i+1, uint32(0)
		for n != 1 {
			if n%2 == 0 {
				n /= 2
			} else {
				n = 3*n + 1
			}
			want++
		}
		if v != want {
			t.Errorf("lane %d: %d, want %d", i, v, want)
		}
	}
}
