package ptxas

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestComplaints(t *testing.T) {
	const (
		kernel = "ptxas info    : Compiling entry function 'k' for 'sm_90a'\nptxas info    : Function properties for k\n"
		clean  = "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
	)
	for _, c := range []struct {
		name, log string
		want      []string
	}{
		{"clean", kernel + clean + "ptxas info    : Used 64 registers, used 2 barriers\n", nil},
		{"spill", kernel + "    16 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads\n", []string{"16 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads"}},
		{"tens of bytes", kernel + "    10 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n", []string{"10 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"}},
		{"serialised", "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized\n" + kernel + clean,
			[]string{"ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized"}},
		{"setmaxnreg", "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored\n" + kernel + clean,
			[]string{"ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored"}},
		{"one is silent", kernel + clean + kernel, []string{"1 of 2 kernels are reported without stack frame and spills"}},
		{"nothing", "", []string{"0 of 0 kernels are reported without stack frame and spills"}},
	} {
		if d := cmp.Diff(c.want, Complaints(c.log)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

// The assembler is asked for what Complaints reads: a kernel that indexes
// registers needs a stack frame.
func TestAssemble(t *testing.T) {
	assembler := Find(t)
	text := func(body string) []byte {
		return []byte(".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n" + body + "\n\tret;\n}\n")
	}
	log, err := Assemble(assembler, text(""))
	if c := Complaints(log); err != nil || c != nil {
		t.Errorf("an empty kernel: %v, %v", c, err)
	}
	log, err = Assemble(assembler, text(`	.local .align 4 .b8 a[64];
	.reg .b64 %rd<4>; .reg .b32 %r<2>;
	ld.param.u64 %rd0, [p];
	cvta.to.global.u64 %rd0, %rd0;
	mov.u64 %rd1, a;
	ld.global.u32 %r0, [%rd0];
	and.b32 %r0, %r0, 15;
	mul.wide.u32 %rd2, %r0, 4;
	add.u64 %rd3, %rd1, %rd2;
	st.local.u32 [%rd3], %r0;
	ld.local.u32 %r1, [%rd1+8];
	st.global.u32 [%rd0], %r1;`))
	if c := Complaints(log); err != nil || len(c) != 1 || !strings.Contains(c[0], "bytes stack frame") {
		t.Errorf("a kernel with an array: %v, %v", c, err)
	}
	if _, err := Assemble(assembler, text("\tnonsense;")); err == nil || !strings.Contains(err.Error(), "line 6") {
		t.Errorf("nonsense: %v", err)
	}
}
