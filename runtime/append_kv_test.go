package runtime

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// appendVariant is a kernel with the parameters that the generator gives.
func appendVariant(rotate string) Variant {
	list := []string{"latent", "*b32", "latent_row", "s64", "rope", "*b32", "rope_row", "s64", "kv", "*b32", "kv_page", "s64", "kv_row", "s64",
		"slots", "*s64", "slot_count", "s64", "tokens", "s32"}
	if rotate != "" {
		list = append(list, "positions", "*s32", "position_count", "s32", "cos", "*f32", "cos_row", "s64", "sin", "*f32", "sin_row", "s64")
	}
	return variant("append_kv", 256, AppendShape{512, 64, 64, BF16, rotate}, list...)
}

type appendRig struct {
	*rig
	append *AppendKV
	args   AppendArgs
}

// newAppendRig is a loaded append with 1000 tokens for a cache of 40 pages.
func newAppendRig(t *testing.T, rotate string) *appendRig {
	t.Helper()
	r := &appendRig{rig: &rig{t: t, driver: newFake(), stream: &fakeStream{}}}
	var err error
	if r.append, err = LoadAppendKV(r.driver, appendVariant(rotate)); err != nil {
		t.Fatal(err)
	}
	r.args = AppendArgs{
		Latent: r.tensor("latent", BF16, 1000, 512), RopeKey: r.tensor("rope", BF16, 1000, 64), KV: r.tensor("kv", BF16, 40, 64, 576),
		Slots: r.tensor("slots", S64, 1000),
	}
	if rotate != "" {
		r.args.Positions, r.args.Cos, r.args.Sin = r.tensor("positions", S32, 1000), r.tensor("cos", F32, 500, 32), r.tensor("sin", F32, 500, 32)
	}
	return r
}

func TestAppendRun(t *testing.T) {
	r := newAppendRig(t, RotateHalf)
	joint := r.tensor("joint", BF16, 1000, 576)
	r.args.Latent = Tensor{joint.Ptr, BF16, []int64{1000, 512}, []int64{576, 1}}
	r.args.RopeKey = Tensor{joint.Ptr + 1024, BF16, []int64{1000, 64}, []int64{576, 1}}
	if err := r.append.Run(r.stream, r.args); err != nil {
		t.Fatal(err)
	}
	l := r.stream.launches[0]
	if want := (Dim3{X: 141}); l.Grid != want || !l.Programmatic { // 1000 × 1152 bytes, 32 a thread
		t.Errorf("grid %v, want %v", l.Grid, want)
	}
	a := &r.args
	if diff := cmp.Diff(map[string]uint64{
		"latent": uint64(joint.Ptr), "latent_row": 1152, "rope": uint64(joint.Ptr) + 1024, "rope_row": 1152,
		"kv": uint64(a.KV.Ptr), "kv_page": 73728, "kv_row": 1152, "slots": uint64(a.Slots.Ptr), "slot_count": 2560, "tokens": 1000,
		"positions": uint64(a.Positions.Ptr), "position_count": 500, "cos": uint64(a.Cos.Ptr), "cos_row": 128, "sin": uint64(a.Sin.Ptr), "sin_row": 128,
	}, r.values(r.append.kernel, l)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	plain := newAppendRig(t, "")
	plain.args.KV.Strides = []int64{64 * 640, 640, 1}
	plain.args.KV.Ptr = plain.tensor("strided", BF16, 40*64*640).Ptr
	if err := plain.append.Run(plain.stream, plain.args); err != nil {
		t.Fatal(err)
	}
	if v := plain.values(plain.append.kernel, plain.stream.launches[0]); v["kv_page"] != 81920 || v["kv_row"] != 1280 {
		t.Errorf("strides of the cache: %v", v)
	}
	none := AppendArgs{Latent: Dense(0, BF16, 0, 512), RopeKey: Dense(0, BF16, 0, 64), KV: plain.args.KV, Slots: Dense(0, S64, 0)}
	if err := plain.append.Run(plain.stream, none); err != nil || len(plain.stream.launches) != 1 {
		t.Errorf("no tokens: %v, %d launches", err, len(plain.stream.launches))
	}
}

func TestAppendMisuse(t *testing.T) {
	for name, c := range map[string]struct {
		rotate string
		change func(*appendRig, *AppendArgs)
		want   string
	}{
		"latent":        {"", func(_ *appendRig, a *AppendArgs) { a.Latent = Tensor{} }, "latent: was not given, must be a bf16 tensor [tokens, latent 512]"},
		"latent stride": {"", func(_ *appendRig, a *AppendArgs) { a.Latent.Strides = []int64{513, 1} }, "latent: tokens stride was 513 elements (1026 bytes), must be a multiple of 16 bytes"},
		"many tokens": {"", func(r *appendRig, a *AppendArgs) {
			a.Latent.Shape, a.Latent.Strides = []int64{1<<22 + 1, 512}, []int64{0, 1}
		}, "latent: shape was [4194305 512], must be at most 4194304 tokens"},
		"rope key":  {"", func(r *appendRig, a *AppendArgs) { a.RopeKey = r.tensor("rope", BF16, 999, 64) }, "rope_key: shape was [999 64], must be [tokens 1000, rope 64]"},
		"cache":     {"", func(r *appendRig, a *AppendArgs) { a.KV = r.tensor("kv", BF16, 40, 32, 576) }, "kv: shape was [40 32 576], must be [pages, page 64, latent+rope 576]"},
		"one row":   {"", func(_ *appendRig, a *AppendArgs) { a.KV.Strides = []int64{36864, 0, 1} }, "kv: shape was [40 64 576] with strides [36864 0 1], must be strides that give"},
		"slots":     {"", func(r *appendRig, a *AppendArgs) { a.Slots = r.tensor("slots", S32, 1000) }, `slots: dtype was "s32", must be s64`},
		"unused":    {"", func(r *appendRig, a *AppendArgs) { a.Cos = r.tensor("cos", F32, 5, 32) }, "cos: was given, must be absent: the kernel was made for keys that are rotated already"},
		"positions": {RotateHalf, func(_ *appendRig, a *AppendArgs) { a.Positions = Tensor{} }, "positions: was not given, must be a s32 tensor [tokens 1000]"},
		"cos":       {RotateHalf, func(r *appendRig, a *AppendArgs) { a.Cos = r.tensor("cos", F32, 500, 64) }, "cos: shape was [500 64], must be [positions, rope/2 32]"},
		"sin":       {RotateInterleaved, func(r *appendRig, a *AppendArgs) { a.Sin = r.tensor("sin", F32, 499, 32) }, "sin: shape was [499 32], must be [positions 500, rope/2 32]"},
		"sin stride": {RotateInterleaved, func(_ *appendRig, a *AppendArgs) { a.Sin.Strides = []int64{33, 1} },
			"sin: positions stride was 33 elements (132 bytes), must be a multiple of 16 bytes"},
		"elsewhere": {"", func(_ *appendRig, a *AppendArgs) { a.KV.Ptr = 1 << 12 }, "kv: address 0x1000 was not device memory, must be memory of fake"},
	} {
		r := newAppendRig(t, c.rotate)
		c.change(r, &r.args)
		err := r.append.Run(r.stream, r.args)
		var argument *ArgumentError
		if !errors.As(err, &argument) || err.Error()[:10] != "append kv:" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want append kv: %s", name, err, c.want)
		}
		if len(r.stream.launches) > 0 {
			t.Errorf("%s: launched", name)
		}
	}
	r := newAppendRig(t, "")
	if err := r.append.Run(nil, r.args); err == nil || !strings.Contains(err.Error(), "stream: was nil") {
		t.Error(err)
	}
	if err := errors.Join(r.append.Close(), r.append.Close()); err != nil || r.driver.unloaded != 1 {
		t.Errorf("close: %v, %d unloaded", err, r.driver.unloaded)
	}
	if err := r.append.Run(r.stream, r.args); err == nil || err.Error() != "append kv: was closed, must be loaded" {
		t.Error(err)
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	r := newAppendRig(t, RotateInterleaved)
	r.stream.forget = true
	n := testing.AllocsPerRun(100, func() {
		if err := r.append.Run(r.stream, r.args); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations per call", n)
	}
}

func TestLoadAppendRefuses(t *testing.T) {
	strange := appendVariant("")
	strange.Manifest.Spec = AppendShape{512, 64, 64, BF16, "backwards"}
	wide := appendVariant("")
	wide.Manifest.Spec = math.Pi
	for want, v := range map[string]Variant{
		`must be "append_kv"`:          mergeVariant(MergeShape{128, BF16, BF16}, 4),
		"not an append kernel's":       strange,
		"spec of append_kv":            wide,
		"parameters not set: surprise": surprised(appendVariant("")),
		`no parameter "positions"`: func() Variant {
			v := appendVariant("")
			v.Manifest.Spec = AppendShape{512, 64, 64, BF16, RotateHalf}
			return v
		}(),
	} {
		d := newFake()
		if _, err := LoadAppendKV(d, v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if d.loads != d.unloaded {
			t.Errorf("%s: %d loaded, %d unloaded", want, d.loads, d.unloaded)
		}
	}
}
