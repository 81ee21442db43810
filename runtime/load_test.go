package runtime

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mlagen/mlagen/ptx/manifest"
)

func TestLoad(t *testing.T) {
	d := newFake()
	d.log = "ptxas info    : 0 bytes gmem\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n" +
		"info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to a function call\n" +
		"warning : unused thing\n    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
	k, err := Load(d, variant("k", 128, nil, "a", "*f32"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Warning{
		{"k", Serialised, "info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to a function call"},
		{"k", Other, "warning : unused thing"},
		{"k", Spill, "16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"},
	}
	if diff := cmp.Diff(want, k.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if k.CompileSeconds != 0.125 || k.Attributes.Registers != 136 {
		t.Errorf("compile seconds %v, registers %d", k.CompileSeconds, k.Attributes.Registers)
	}
	if err := k.Unload(); err != nil || d.unloaded != 1 {
		t.Errorf("unload: %v, %d modules unloaded", err, d.unloaded)
	}
}

// kernelText is a kernel k with the given parameters.
func kernelText(params string) []byte {
	return []byte(".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(" + params + ")\n{\n\tret;\n}\n")
}

func TestLoadRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*fakeDriver, *Variant)
		want   string
	}{
		"no manifest": {func(d *fakeDriver, v *Variant) { v.Manifest = nil }, "load k on fake: it has no manifest"},
		"no text":     {func(d *fakeDriver, v *Variant) { v.PTX = nil }, "it has no PTX"},
		"other text": {func(d *fakeDriver, v *Variant) { v.PTX = []byte("// other\n") },
			"the manifest describes another text"},
		"newer schema": {func(d *fakeDriver, v *Variant) { v.Manifest.Schema = 3 }, "manifest: schema was 3, must be 2"},
		"overlapping parameters": {func(d *fakeDriver, v *Variant) { v.Manifest.Params[1].Offset = 4 },
			"manifest: params[1].offset was 4, must be a multiple of 4, at least 8, where the parameter before ends"},
		"old driver": {func(d *fakeDriver, v *Variant) { d.attributes.DriverVersion = 11080 },
			"PTX 8.0 needs a driver for CUDA 12.0 or later; this one is for 11.8"},
		"other device": {func(d *fakeDriver, v *Variant) { d.attributes.ComputeMajor = 10 },
			"target sm_90a needs compute capability 9.0; the device has 10.0"},
		"shared memory": {func(d *fakeDriver, v *Variant) { v.Manifest.Shared = 232449 },
			"it needs 232449 bytes of shared memory; the device allows 232448 per block"},
		"static shared memory": {func(d *fakeDriver, v *Variant) { d.function.StaticShared = 30 << 10 },
			"it needs 204800 bytes of dynamic and 30720 of static shared memory; the device allows 232448 per block"},
		"clusters": {func(d *fakeDriver, v *Variant) { v.Manifest.Cluster, d.attributes.Clusters = 2, false },
			"it runs in clusters of 2 blocks; the device has none"},
		"syntax": {func(d *fakeDriver, v *Variant) { v.PTX, v.Manifest.PTXSHA256 = []byte("broken"), "" },
			"ptxas: line 1; syntax error"},
		"local memory": {func(d *fakeDriver, v *Variant) {
			d.function.LocalBytes = 96
			d.log = "    96 bytes stack frame, 88 bytes spill stores, 104 bytes spill loads"
		}, "the compiler gave each thread 96 bytes of local memory (spills or a stack frame); a kernel must not need any\n  96 bytes stack frame, 88"},
		"registers": {func(d *fakeDriver, v *Variant) { d.function.MaxThreads = 96 },
			"it launches 128 threads per block; as compiled (136 registers) at most 96 fit"},
		"layout": {func(d *fakeDriver, v *Variant) { d.layout = params("a", "*f32", "n", "u64") },
			`parameter "n" has 8 bytes as compiled; the manifest says 4`},
		"fewer parameters": {func(d *fakeDriver, v *Variant) { d.layout = params("a", "*f32") },
			"the manifest lists 2 parameters; the kernel takes 1"},
		"more parameters": {func(d *fakeDriver, v *Variant) {
			v.PTX, v.Manifest.PTXSHA256 = kernelText(".param .u64 a, .param .u32 n, .param .u32 m"), ""
		}, "the manifest lists 2 parameters; the kernel takes 3"},
		"other parameters": {func(d *fakeDriver, v *Variant) {
			v.PTX, v.Manifest.PTXSHA256 = kernelText(".param .u64 a, .param .u32 m"), ""
		}, `parameter 1 is "m" in the text; the manifest says "n"`},
	} {
		t.Run(name, func(t *testing.T) {
			d, v := newFake(), variant("k", 128, nil, "a", "*f32", "n", "u32")
			test.change(d, &v)
			_, err := Load(d, v)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
			if d.unloaded != d.loads {
				t.Errorf("%d modules loaded, %d unloaded", d.loads, d.unloaded)
			}
		})
	}
}

func TestParams(t *testing.T) {
	k, err := Load(newFake(), variant("k", 64, nil,
		"m", "map", "p", "*f32", "n", "u32", "s", "s64", "f", "f32", "h", "u16", "d", "f64"))
	if err != nil {
		t.Fatal(err)
	}
	var m [128]byte
	m[0], m[127] = 1, 2
	p := k.NewParams().TensorMap("m", &m).Pointer("p", 0x1122334455667788).Int("n", 1<<32-1).Int("s", -2).
		Float("f", 1.5).Int("h", 0xabcd).Float("d", -1)
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	want := append(m[:],
		0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
		0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0,
		0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		0, 0, 0xc0, 0x3f, 0xcd, 0xab, 0, 0,
		0, 0, 0, 0, 0, 0, 0xf0, 0xbf)
	if diff := cmp.Diff(want, p.bytes); diff != "" {
		t.Errorf("buffer (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{0, 128, 136, 144, 152, 156, 160}, k.offsets); diff != "" {
		t.Errorf("offsets (-want +got):\n%s", diff)
	}
}

func TestParamsMisuse(t *testing.T) {
	var m [128]byte
	for name, test := range map[string]struct {
		fill func(*Params)
		want string
	}{
		"unknown":  {func(p *Params) { p.Int("q", 1) }, `k: no parameter "q"; it has m, p, n, f, s`},
		"missing":  {func(p *Params) { p.Int("n", 1).Int("s", 0) }, "k: parameters not set: m, p, f"},
		"kind":     {func(p *Params) { p.Int("p", 1) }, `k: parameter "p" is a pointer, not a scalar`},
		"map":      {func(p *Params) { p.TensorMap("n", &m) }, `k: parameter "n" is a scalar, not a tensor_map`},
		"negative": {func(p *Params) { p.Int("n", -1) }, `k: parameter "n" was -1, must be 0 to 4294967295 (u32)`},
		"large":    {func(p *Params) { p.Int("s", 1<<31) }, `k: parameter "s" was 2147483648, must be -2147483648 to 2147483647 (s32)`},
		"int":      {func(p *Params) { p.Int("f", 1) }, `k: parameter "f" is f32, not an integer`},
		"float":    {func(p *Params) { p.Float("n", 1) }, `k: parameter "n" is u32, not f32 or f64`},
	} {
		t.Run(name, func(t *testing.T) {
			k, err := Load(newFake(), variant("k", 64, nil, "m", "map", "p", "*f32", "n", "u32", "f", "f32", "s", "s32"))
			if err != nil {
				t.Fatal(err)
			}
			p := k.NewParams()
			test.fill(p)
			if err := p.Err(); err == nil || err.Error() != test.want {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
			var s fakeStream
			if k.Launch(&s, Dim3{X: 1}, p, false) == nil || len(s.launches) > 0 {
				t.Error("launched all the same")
			}
		})
	}
}

func TestLaunch(t *testing.T) {
	v := variant("k", 64, nil, "n", "u32")
	v.Manifest.Cluster = 4
	k, err := Load(newFake(), v)
	if err != nil {
		t.Fatal(err)
	}
	var s fakeStream
	p := k.NewParams().Int("n", 7)
	if err := k.Launch(&s, Dim3{X: 8, Y: 2}, p, true); err != nil {
		t.Fatal(err)
	}
	l := s.launches[0]
	if l.Grid != (Dim3{X: 8, Y: 2}) || l.Block != (Dim3{X: 64}) || l.Cluster != (Dim3{X: 4}) || l.Shared != 200<<10 || !l.Programmatic {
		t.Errorf("launched %+v", l)
	}
	other, err := Load(newFake(), variant("other", 64, nil, "n", "u32"))
	if err != nil {
		t.Fatal(err)
	}
	for want, launch := range map[string]error{
		"grid was 6 blocks wide, must be a multiple of the cluster of 4":          k.Launch(&s, Dim3{X: 6}, p, true),
		"grid was 2147483648 × 0 × 0, must be at most 2147483647 × 65535 × 65535": k.Launch(&s, Dim3{X: 1 << 31}, p, true),
		"grid was 4 × 65536 × 0, must be at most 2147483647 × 65535 × 65535":      k.Launch(&s, Dim3{X: 4, Y: 65536}, p, true),
		"launch other: the parameters were made for k":                            other.Launch(&s, Dim3{X: 1}, p, true),
	} {
		if launch == nil || !strings.Contains(launch.Error(), want) {
			t.Errorf("got  %v\nwant %s", launch, want)
		}
	}
}

func TestKernelEncodesItsTensorMaps(t *testing.T) {
	d, v := newFake(), variant("k", 64, nil, "kv", "map")
	v.Manifest.TensorMaps = []manifest.TensorMap{{Param: "kv", DType: "bf16", Dims: []string{"column", "row"}, Box: []int{64, 8}, Swizzle: 128}}
	k, err := Load(d, v)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.EncodeTensorMap("kv", 256, []uint64{64, 8}, []uint64{128}); err != nil {
		t.Fatal(err)
	}
	want := []TensorMap{{TensorMap: v.Manifest.TensorMaps[0], Address: 256, Sizes: []uint64{64, 8}, Strides: []uint64{128}}}
	if diff := cmp.Diff(want, d.encoded); diff != "" {
		t.Errorf("encoded (-want +got):\n%s", diff)
	}
	if _, err := k.EncodeTensorMap("q", 0, nil, nil); err == nil || err.Error() != `k has no tensor map "q"` {
		t.Errorf("got %v", err)
	}
}
