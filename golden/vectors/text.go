package vectors

import (
	"fmt"
	"strings"
)

// kernel assembles PTX text of an entry with a register file that is large
// enough for all experiments.
type kernel struct {
	name   string
	params []string // declarations, such as ".param .u32 bytes"
	body   strings.Builder
}

// line appends one statement or label.
func (k *kernel) line(format string, args ...any) {
	fmt.Fprintf(&k.body, "\t"+format+"\n", args...)
}

// load reads a parameter into a register.
func (k *kernel) load(typ, register, param string) {
	k.line("ld.param.%s %s, [%s];", typ, register, param)
}

func (k *kernel) label(name string) { fmt.Fprintf(&k.body, "%s:\n", name) }

func (k *kernel) String() string {
	var params string
	if len(k.params) > 0 {
		params = "\n\t" + strings.Join(k.params, ",\n\t") + "\n"
	}
	return fmt.Sprintf(`.visible .entry %s(%s)
{
	.reg .pred %%p<8>;
	.reg .b16 %%h<8>;
	.reg .b32 %%r<64>;
	.reg .f32 %%f<160>;
	.reg .b64 %%rd<24>;
%s	ret;
}
`, k.name, params, k.body.String())
}

// module joins kernels into a translation unit.
func module(kernels ...*kernel) string {
	var b strings.Builder
	b.WriteString(".version 8.0\n.target sm_90a\n.address_size 64\n\n.extern .shared .align 1024 .b8 smem[];\n")
	for _, k := range kernels {
		b.WriteString("\n" + k.String())
	}
	return b.String()
}

// The registers that prologue sets.
const (
	tid     = "%r0"
	barrier = "%r1" // shared address of 8 bytes for an mbarrier
	region  = "%r2" // shared address of regionBytes bytes, 1024-aligned
)

// prologue sets the common registers. The dynamic shared memory is aligned by
// hand: nothing promises where it starts.
func (k *kernel) prologue() {
	k.line("mov.u32 %s, %%tid.x;", tid)
	k.line("mov.u32 %s, smem;", barrier)
	k.line("add.u32 %s, %s, 1023;", barrier, barrier)
	k.line("and.b32 %s, %s, -1024;", barrier, barrier)
	k.line("add.u32 %s, %s, 1024;", region, barrier)
}

// each runs body for the words tid, tid+threads, … below the count in register
// words; r10 holds the byte offset of the word.
func (k *kernel) each(label string, threads int, words string, body func()) {
	k.line("mov.u32 %%r11, %s;", tid)
	k.line("setp.ge.u32 %%p7, %%r11, %s;", words)
	k.line("@%%p7 bra %s_end;", label)
	k.label(label)
	k.line("shl.b32 %%r10, %%r11, 2;")
	body()
	k.line("add.u32 %%r11, %%r11, %d;", threads)
	k.line("setp.lt.u32 %%p7, %%r11, %s;", words)
	k.line("@%%p7 bra %s;", label)
	k.label(label + "_end")
}

// addressInto sets a 64-bit register to global base + r10.
func (k *kernel) addressInto(register, base string) {
	k.line("cvt.u64.u32 %s, %%r10;", register)
	k.line("add.u64 %s, %s, %s;", register, base, register)
}

// fill copies an image of the region from global memory: words of it, and
// makes it visible to the async proxy.
func (k *kernel) fill(threads int, image, words string) {
	k.each("fill", threads, words, func() {
		k.addressInto("%rd20", image)
		k.line("ld.global.u32 %%r12, [%%rd20];")
		k.line("add.u32 %%r13, %s, %%r10;", region)
		k.line("st.shared.u32 [%%r13], %%r12;")
	})
	k.line("fence.proxy.async.shared::cta;")
	k.line("bar.sync 0;")
}

// dump copies words of the region to global memory.
func (k *kernel) dump(threads int, out, words string) {
	k.line("bar.sync 0;")
	k.each("dump", threads, words, func() {
		k.line("add.u32 %%r13, %s, %%r10;", region)
		k.line("ld.shared.u32 %%r12, [%%r13];")
		k.addressInto("%rd20", out)
		k.line("st.global.u32 [%%rd20], %%r12;")
	})
}
