package wgmma

import (
	"strings"
	"testing"

	"github.com/mlagen/mlagen/ptx/isa"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		shape   string
		d, a, b isa.Type
		want    Op
		err     string
	}{
		{"m64n16k16", isa.F32, isa.BF16, isa.BF16, Op{N: 16, K: 16, A: isa.BF16, B: isa.BF16}, ""},
		{"m64n256k16", isa.F32, isa.F16, isa.F16, Op{N: 256, K: 16, A: isa.F16, B: isa.F16}, ""},
		{"m64n8k32", isa.F32, isa.E4M3, isa.E5M2, Op{N: 8, K: 32, A: isa.E4M3, B: isa.E5M2}, ""},
		{"m64n12k16", isa.F32, isa.BF16, isa.BF16, Op{}, "multiple of 8"},
		{"m64n264k16", isa.F32, isa.BF16, isa.BF16, Op{}, "multiple of 8"},
		{"m64n16k32", isa.F32, isa.BF16, isa.BF16, Op{}, "K: was 32"},
		{"m64n16k16", isa.F32, isa.E4M3, isa.E4M3, Op{}, "K: was 16"},
		{"m64n16k16", isa.F16, isa.F16, isa.F16, Op{}, "accumulators"},
		{"m64n16k16", isa.F32, isa.F16, isa.BF16, Op{}, "not emulated"},
		{"m64n16k8", isa.F32, isa.F32, isa.F32, Op{}, "not emulated"},
		{"m32n16k16", isa.F32, isa.BF16, isa.BF16, Op{}, "shape"},
		{"m64n16", isa.F32, isa.BF16, isa.BF16, Op{}, "shape"},
	} {
		op, err := Parse(c.shape, c.d, c.a, c.b)
		switch {
		case c.err == "" && (err != nil || op != c.want):
			t.Errorf("%s: %+v, %v", c.shape, op, err)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s %v %v %v: error %v, want %q", c.shape, c.d, c.a, c.b, err, c.err)
		}
	}
	op := Op{N: 8, K: 32, A: isa.E4M3, B: isa.E4M3, TransB: true}
	if err := op.Validate(); err == nil {
		t.Error("a transposed 8-bit operand was accepted")
	}
	if got := (Op{N: 64}).Values(); got != 32 {
		t.Errorf("Values = %d", got)
	}
}
