package emu

import (
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
