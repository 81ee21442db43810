//go:build cuda

package cuda

import (
	"testing"

	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/runtime"
)

// header begins every test kernel.
const header = ".version 8.0\n.target sm_90a\n.address_size 64\n"

// echoText writes its parameters, of every size that kernels take, to out: the
// last word of a tensor map, an s64, a u32, an f32 and a u16, as eight u64.
const echoText = header + `
.visible .entry echo(.param .align 64 .b8 map[128], .param .u64 out, .param .s64 wide, .param .u32 word,
                     .param .f32 real, .param .u16 half)
{
	.reg .b64 %rd<8>;
	.reg .b32 %r<4>;
	.reg .b16 %h<2>;
	ld.param.u64 %rd0, [out];
	cvta.to.global.u64 %rd0, %rd0;
	ld.param.u64 %rd1, [map];
	ld.param.u64 %rd2, [map+120];
	ld.param.s64 %rd3, [wide];
	ld.param.u32 %r0, [word];
	ld.param.b32 %r1, [real];
	ld.param.u16 %h0, [half];
	cvt.u64.u32 %rd4, %r0;
	cvt.u64.u32 %rd5, %r1;
	cvt.u64.u16 %rd6, %h0;
	st.global.u64 [%rd0], %rd1;
	st.global.u64 [%rd0+8], %rd2;
	st.global.u64 [%rd0+16], %rd3;
	st.global.u64 [%rd0+24], %rd4;
	st.global.u64 [%rd0+32], %rd5;
	st.global.u64 [%rd0+40], %rd6;
	ret;
}
`

func echoManifest() *manifest.Manifest {
	return &manifest.Manifest{
		Schema: manifest.Schema, Kernel: "echo", PTXVersion: "8.0", Target: "sm_90a", MinDriver: 12000, Threads: 1, Cluster: 1,
		Params: []manifest.Param{
			{Name: "map", Kind: manifest.TensorMapParam, Type: "b8", Size: 128, Align: 64},
			{Name: "out", Kind: manifest.PointerParam, Type: "u64", Size: 8, Align: 8, Offset: 128},
			{Name: "wide", Kind: manifest.ScalarParam, Type: "s64", Size: 8, Align: 8, Offset: 136},
			{Name: "word", Kind: manifest.ScalarParam, Type: "u32", Size: 4, Align: 4, Offset: 144},
			{Name: "real", Kind: manifest.ScalarParam, Type: "f32", Size: 4, Align: 4, Offset: 148},
			{Name: "half", Kind: manifest.ScalarParam, Type: "u16", Size: 2, Align: 2, Offset: 152},
		},
	}
}

// stepText is word = word × 3 + 1, one thread. Launches of it in a chain give
// a number that shows their count and order. It waits for the previous grid
// and lets the next one start early.
const stepText = header + `
.visible .entry step(.param .u64 word)
{
	.reg .b64 %rd0;
	.reg .b32 %r<2>;
	ld.param.u64 %rd0, [word];
	cvta.to.global.u64 %rd0, %rd0;
	griddepcontrol.launch_dependents;
	griddepcontrol.wait;
	ld.global.u32 %r0, [%rd0];
	mad.lo.u32 %r0, %r0, 3, 1;
	st.global.u32 [%rd0], %r0;
	ret;
}
`

func stepManifest() *manifest.Manifest { return oneParam("step", "word", 1) }

// oneParam is the manifest of a kernel whose only parameter is a pointer.
func oneParam(kernel, param string, threads int) *manifest.Manifest {
	return &manifest.Manifest{
		Schema: manifest.Schema, Kernel: kernel, PTXVersion: "8.0", Target: "sm_90a", MinDriver: 12000, Threads: threads, Cluster: 1,
		Params: []manifest.Param{{Name: param, Kind: manifest.PointerParam, Type: "u32", Size: 8, Align: 8}},
	}
}

// sharedText writes through the last word of 200 KB of dynamic shared memory.
const sharedText = header + `
.extern .shared .align 16 .b8 pool[];
.visible .entry shared(.param .u64 out)
{
	.reg .b64 %rd0;
	.reg .b32 %r<3>;
	ld.param.u64 %rd0, [out];
	cvta.to.global.u64 %rd0, %rd0;
	mov.u32 %r0, pool;
	add.u32 %r0, %r0, 204796;
	st.volatile.shared.u32 [%r0], 77;
	ld.volatile.shared.u32 %r1, [%r0];
	st.global.u32 [%rd0], %r1;
	mov.u32 %r2, %dynamic_smem_size;
	st.global.u32 [%rd0+4], %r2;
	ret;
}
`

// clusterText writes each block's rank in its cluster, and the cluster's size
// times 100.
const clusterText = header + `
.visible .entry cluster(.param .u64 out)
{
	.reg .b64 %rd<2>;
	.reg .b32 %r<3>;
	ld.param.u64 %rd0, [out];
	cvta.to.global.u64 %rd0, %rd0;
	mov.u32 %r0, %ctaid.x;
	mul.wide.u32 %rd1, %r0, 4;
	add.u64 %rd0, %rd0, %rd1;
	mov.u32 %r1, %cluster_nctaid.x;
	mov.u32 %r2, %cluster_ctaid.x;
	mad.lo.u32 %r1, %r1, 100, %r2;
	st.global.u32 [%rd0], %r1;
	ret;
}
`

// boxText reads a box of 32 × 4 bf16 at column 32, row 2 of a tensor and
// writes it as it lies in shared memory, 256 bytes.
const boxText = header + `
.visible .entry box(.param .align 64 .b8 map[128], .param .u64 out)
{
	.reg .b64 %rd<6>;
	.reg .b32 %r<6>;
	.reg .pred %p<2>;
	.shared .align 128 .b8 tile[256];
	.shared .align 8 .b64 full;
	ld.param.u64 %rd0, [out];
	cvta.to.global.u64 %rd0, %rd0;
	mov.b64 %rd1, map;
	cvta.param.u64 %rd1, %rd1;
	mov.u32 %r0, tile;
	mov.u32 %r1, full;
	mov.u32 %r2, %tid.x;
	setp.ne.u32 %p0, %r2, 0;
	@%p0 bra issued;
	mbarrier.init.shared::cta.b64 [%r1], 1;
	fence.mbarrier_init.release.cluster;
	fence.proxy.async.shared::cta;
	mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;
	cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd1, {32, 2}], [%r1];
issued:
	bar.sync 0;
wait:
	mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;
	@!%p1 bra wait;
	shl.b32 %r3, %r2, 3;
	add.u32 %r0, %r0, %r3;
	ld.shared.b64 %rd2, [%r0];
	cvt.u64.u32 %rd3, %r3;
	add.u64 %rd0, %rd0, %rd3;
	st.global.b64 [%rd0], %rd2;
	ret;
}
`

func boxManifest() *manifest.Manifest {
	m := oneParam("box", "out", 32)
	m.Params[0].Offset = 128
	m.Params = append([]manifest.Param{{Name: "map", Kind: manifest.TensorMapParam, Type: "b8", Size: 128, Align: 64}}, m.Params...)
	m.TensorMaps = []manifest.TensorMap{{
		Param: "map", DType: "bf16", Dims: []string{"column", "row"}, Box: []int{32, 4}, Promotion: 128,
	}}
	return m
}

// localText keeps an array in local memory by indexing it with data.
const localText = header + `
.visible .entry local(.param .u64 out)
{
	.local .align 8 .b8 array[256];
	.reg .b64 %rd<6>;
	.reg .b32 %r<6>;
	.reg .pred %p0;
	ld.param.u64 %rd0, [out];
	cvta.to.global.u64 %rd0, %rd0;
	mov.u64 %rd1, array;
	mov.u32 %r0, 0;
fill:
	ld.global.u32 %r1, [%rd0+4];
	and.b32 %r2, %r1, 63;
	mul.wide.u32 %rd2, %r2, 4;
	add.u64 %rd2, %rd1, %rd2;
	st.local.u32 [%rd2], %r1;
	add.u32 %r0, %r0, 1;
	setp.lt.u32 %p0, %r0, %r1;
	@%p0 bra fill;
	ld.global.u32 %r3, [%rd0];
	and.b32 %r3, %r3, 63;
	mul.wide.u32 %rd3, %r3, 4;
	add.u64 %rd3, %rd1, %rd3;
	ld.local.u32 %r4, [%rd3];
	st.global.u32 [%rd0], %r4;
	ret;
}
`

// brokenText has a mistake in its fifth line.
const brokenText = header + `.visible .entry broken(.param .u64 p)
	{ nonsense.u32 1; ret; }
`

// load loads a test kernel or ends the test.
func load(t *testing.T, d runtime.Driver, text string, m *manifest.Manifest) *runtime.Kernel {
	t.Helper()
	k, err := runtime.Load(d, runtime.Variant{PTX: []byte(text), Manifest: m})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Unload(); err != nil {
			t.Error(err)
		}
	})
	return k
}
