package verify

import (
	"strings"
	"testing"

	"github.com/mlagen/mlagen/ptx/manifest"
)

const load = `	mov.b64 %rd0, map;
	cvta.param.u64 %rd1, %rd0;
	mov.u32 %r0, smem;
	mov.u32 %r1, 0;
`

func TestTensorMaps(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*manifest.TensorMap)
		want   int
	}{
		{"fits", func(*manifest.TensorMap) {}, 0},
		{"box", func(m *manifest.TensorMap) { m.Box = []int{64, 257} }, 1},
		{"inner bytes", func(m *manifest.TensorMap) { m.Box = []int{65, 64} }, 1},
		{"swizzle span", func(m *manifest.TensorMap) { m.Swizzle = 64 }, 1},
		{"swizzle", func(m *manifest.TensorMap) { m.Swizzle = 48 }, 1},
		{"rank", func(m *manifest.TensorMap) { m.Box, m.Dims = make([]int, 6), make([]string, 6) }, 1},
		{"dimensions", func(m *manifest.TensorMap) { m.Dims = m.Dims[:1] }, 1},
		{"promotion", func(m *manifest.TensorMap) { m.Promotion = 512 }, 1},
		{"type", func(m *manifest.TensorMap) { m.DType = "int4" }, 1},
		{"parameter", func(m *manifest.TensorMap) { m.Param = "y" }, 1},
		{"not a map", func(m *manifest.TensorMap) { m.Param = "x" }, 1},
	} {
		man := described()
		c.change(&man.TensorMaps[0])
		got := 0
		for _, d := range Module("k", module(t, "\tret;"), man) {
			if d.Rule == "tensor-map" {
				got++
			}
		}
		if got != c.want {
			t.Errorf("%s: %d findings, want %d", c.name, got, c.want)
		}
	}
	checkBodies(t, "tensor-map", described(), []bodyCase{
		{"rank used", load + "\tcp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%rd1, {%r1, %r1, %r1}], [smem];\n\tret;",
			[]string{"05: a copy of 3 dimensions from map, which has 2"}},
	})
}

func TestTransactions(t *testing.T) {
	copies := func(n int, guard, bar string) string {
		return strings.Repeat("\t"+guard+"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%rd1, {%r1, %r1}], ["+bar+"];\n", n)
	}
	expect := func(guard, bar, bytes string) string {
		return "\t" + guard + "mbarrier.arrive.expect_tx.shared::cta.b64 _, [" + bar + "], " + bytes + ";\n"
	}
	const elect = "\telect.sync _|%p0, -1;\n"
	checkBodies(t, "expect-tx", described(), []bodyCase{
		{"equal", load + expect("", "%r0+8", "16384") + copies(2, "", "%r0+8") + "\tret;", nil},
		{"too many", load + expect("", "%r0+8", "16384") + copies(3, "", "%r0+8") + "\tret;",
			[]string{"05: 16384 bytes expected, but the 3 copies that follow bring 24576"}},
		{"too few", load + expect("", "%r0+8", "16384") + copies(1, "", "%r0+8") + "\tret;",
			[]string{"05: 16384 bytes expected, but the 1 copies that follow bring 8192"}},
		{"in a register", load + "\tmov.u32 %r2, 8192;\n" + expect("", "%r0", "%r2") + copies(2, "", "%r0") + "\tret;",
			[]string{"06: 8192 bytes expected, but the 2 copies that follow bring 16384"}},
		{"two barriers", load + expect("", "%r0", "8192") + copies(1, "", "%r0") + expect("", "%r0+8", "8192") + copies(1, "", "%r0+8") + "\tret;", nil},
		{"elsewhere", load + expect("", "%r0", "16384") + copies(1, "", "%r0") + "\tbra L;\nL:\n" + copies(1, "", "%r0") + "\tret;", nil},
		{"other guard", load + elect + expect("@%p0 ", "%r0", "16384") + copies(1, "", "%r0") + "\tret;", nil},
		{"alias", load + "\tmov.u32 %r3, %r0;\n" + expect("", "%r0", "16384") + copies(1, "", "%r0") + copies(1, "", "%r3") + "\tret;", nil},
		{"unknown bytes", load + "\tld.param.u32 %r2, [x];\n" + expect("", "%r0", "%r2") + copies(1, "", "%r0") + "\tret;", nil},
		{"moved on", load + expect("", "%r0", "8192") + copies(1, "", "%r0") + "\tadd.u32 %r0, %r0, 8;\n" + expect("", "%r0", "4096") + copies(1, "", "%r0") + "\tret;",
			[]string{"08: 4096 bytes expected, but the 1 copies that follow bring 8192"}},
		{"plain copy", load + expect("", "%r0", "512") + "\tcp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%rd1], 256, [%r0];\n\tret;",
			[]string{"05: 512 bytes expected, but the 1 copies that follow bring 256"}},
	})
}
