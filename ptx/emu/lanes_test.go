package emu

import (
	"fmt"
	"strings"
	"testing"
)

// TestWholeWarp: what a loop over a whole warp computes, which is written out for
// some instructions, is what the loop over some of its lanes computes.
func TestWholeWarp(t *testing.T) {
	values := []string{"0f00000000", "0f80000000", "0f7F800000", "0fFF800000", "0f7FC00001", "0f00000001", "0f7F7FFFFF", "0fBF99999A"}
	var setup strings.Builder
	for i, v := range values {
		fmt.Fprintf(&setup, "\tand.b32 %%r1, %%t, 7;\n\tsetp.eq.u32 %%p0, %%r1, %d;\n\t@%%p0 mov.f32 %%f1, %s;\n", i, v)
		fmt.Fprintf(&setup, "\tshr.u32 %%r1, %%t, 2;\n\tsetp.eq.u32 %%p0, %%r1, %d;\n\t@%%p0 mov.f32 %%f2, %s;\n", i, v)
	}
	setup.WriteString("\tmov.b32 %r2, %f1;\n\tmov.b32 %r3, %f2;\n\tmov.b64 %d1, {%r2, %r3};\n\tmov.b64 %d2, {%r3, %r2};\n\tsetp.ne.u32 %p1, %t, 31;\n")
	for _, c := range []struct{ opcode, class, operands string }{
		{"add.f32", "f", "%f1, %f2"}, {"sub.f32", "f", "%f1, %f2"}, {"mul.f32", "f", "%f1, %f2"}, {"fma.rn.f32", "f", "%f1, %f2, %f1"},
		{"add.ftz.f32", "f", "%f1, %f2"}, {"mul.rz.f32", "f", "%f1, %f2"}, {"sub.sat.f32", "f", "%f1, %f2"},
		{"add.s32", "r", "%r2, %r3"}, {"add.u64", "d", "%d1, %d2"}, {"mov.b32", "r", "%r2"},
	} {
		text := setup.String() + fmt.Sprintf("\t%s %%%s5, %s;\n\tmov.b%d %%%s6, %%%s5;\n\t@%%p1 %s %%%s6, %s;\n", c.opcode, c.class, c.operands,
			map[string]int{"f": 32, "r": 32, "d": 64}[c.class], c.class, c.class, c.opcode, c.class, c.operands)
		if c.class == "d" {
			text += "\tsetp.eq.u64 %p2, %d5, %d6;\n"
		} else {
			text += fmt.Sprintf("\tmov.b32 %%r5, %%%s5;\n\tmov.b32 %%r6, %%%s6;\n\tsetp.eq.u32 %%p2, %%r5, %%r6;\n", c.class, c.class)
		}
		for lane, same := range lanesOf(t, text+"\tselp.b32 %r0, 1, 0, %p2;") {
			if same != 1 {
				t.Errorf("%s of all lanes differs from that of 31 in lane %d", c.opcode, lane)
			}
		}
	}
}
