package runtime

import (
	"math"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// ruled is a kernel with launch rules of every kind.
func ruled() Variant {
	v := variant("k", 64, nil, "m", "map", "p", "*f32", "n", "s32", "f", "f32", "out", "*f32")
	m := v.Manifest
	fill := func(i int, f manifest.Fill) { m.Params[i].Fill = &f }
	fill(1, manifest.Fill{Address: "work", Offset: "count * 16"})
	fill(2, manifest.Fill{Value: "x.stride.row / 2"})
	fill(3, manifest.Fill{Real: "scale", Factor: 2})
	fill(4, manifest.Fill{Address: "y"})
	m.TensorMaps = []manifest.TensorMap{{Param: "m", DType: "bf16", Dims: []string{"column", "row"}, Box: []int{64, 8},
		Source:  &manifest.Source{Address: "x", Sizes: []string{"64", "x.size.row"}, Strides: []string{"x.stride.row"}},
		IfEmpty: &manifest.Source{Address: "y", Sizes: []string{"32", "1"}, Strides: []string{"128"}}}}
	m.Launch = &manifest.Launch{
		Operation: "o", Steps: []manifest.Step{{Kernel: "k", Once: manifest.OncePerStep}},
		Arguments: []manifest.Argument{
			{Name: "count", Kind: manifest.IntegerArgument, Min: "0", Max: "sms"},
			{Name: "x", Kind: manifest.TensorArgument, DType: "bf16", Align: 16, Shape: []manifest.Dimension{{Name: "row"}, {Name: "column", Size: "64"}}},
			{Name: "y", Kind: manifest.TensorArgument, DType: "f32", Align: 16, Dense: true, Output: true, Shape: []manifest.Dimension{{Name: "column", Size: "count + 1"}}},
			{Name: "work", Kind: manifest.BufferArgument, Align: 16, Bytes: "bytes"},
			{Name: "scale", Kind: manifest.RealArgument},
		},
		Quantities: []manifest.Quantity{{Name: "bytes", Value: "32 * count"}},
		When:       "count", Grid: [3]string{"count * 2", "1", "1"}, Programmatic: true,
	}
	return v
}

func loadRuled(t *testing.T, d *fakeDriver) (*Launcher, LaunchArguments) {
	t.Helper()
	l, err := LoadLauncher(d, ruled())
	if err != nil {
		t.Fatal(err)
	}
	alloc := func(size int64) Ptr {
		p, _ := d.Alloc("", size)
		return p
	}
	return l, LaunchArguments{
		Tensors:  []Tensor{Dense(alloc(10*128), BF16, 10, 64), Dense(alloc(16), F32, 4)},
		Buffers:  []Buffer{{alloc(96), 96}},
		Integers: []int64{3}, Reals: []float64{0.25},
	}
}

func TestLauncher(t *testing.T) {
	d := newFake()
	l, a := loadRuled(t, d)
	var s fakeStream
	for range 2 {
		if err := l.Launch(&s, a); err != nil {
			t.Fatal(err)
		}
	}
	if len(d.encoded) != 1 || d.encoded[0].Strides[0] != 128 || d.encoded[0].Sizes[1] != 10 {
		t.Errorf("encoded %+v", d.encoded)
	}
	got := s.launches[1]
	want := l.kernel.NewParams().TensorMap("m", &l.maps[0].encoded).Pointer("p", a.Buffers[0].Ptr+48).Int("n", 64).Float("f", 0.5).Pointer("out", a.Tensors[1].Ptr)
	if got.Grid != (Dim3{6, 1, 1}) || !got.Programmatic || string(got.Params) != string(want.bytes) {
		t.Errorf("launched %+v", got)
	}
	if n, err := l.BufferBytes("work", 5); n != 160 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	a.Tensors[0].Shape = []int64{0, 64}
	if err := l.Launch(&s, a); err != nil || d.encoded[1].Address != a.Tensors[1].Ptr || d.encoded[1].Sizes[0] != 32 {
		t.Errorf("%v, encoded %+v", err, d.encoded)
	}
	a.Integers[0], a.Tensors[1].Shape = 0, []int64{1}
	if err := l.Launch(&s, a); err != nil || len(s.launches) != 3 {
		t.Errorf("%v, %d launches", err, len(s.launches))
	}
	if err := l.Close(); err != nil || l.Close() != nil || d.unloaded != 1 {
		t.Errorf("%v, %d unloaded", err, d.unloaded)
	}
	if err := l.Launch(&s, a); err == nil || !strings.Contains(err.Error(), "was closed, must be loaded") {
		t.Error(err)
	}
}

func TestLauncherRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*LaunchArguments)
		want   string
	}{
		"count":     {func(a *LaunchArguments) { a.Integers[0] = 133 }, "launch k: count: was 133, must be at most 132"},
		"negative":  {func(a *LaunchArguments) { a.Integers[0] = -1 }, "count: was -1, must be at least 0"},
		"none":      {func(a *LaunchArguments) { a.Integers = nil }, "0 arguments were given that are integer, must be 1"},
		"many":      {func(a *LaunchArguments) { a.Reals = []float64{1, 2} }, "2 arguments were given that are real, must be 1"},
		"dtype":     {func(a *LaunchArguments) { a.Tensors[0].DType = FP16 }, `x: dtype was "fp16", must be bf16`},
		"shape":     {func(a *LaunchArguments) { a.Tensors[1].Shape[0] = 3 }, "y: shape was [3], must be [column 4]"},
		"stride":    {func(a *LaunchArguments) { a.Tensors[0].Strides = []int64{65, 1} }, "x: row stride was 65 elements (130 bytes), must be a multiple of 16 bytes"},
		"null":      {func(a *LaunchArguments) { a.Tensors[0].Ptr = 0 }, "x: address was null"},
		"buffer":    {func(a *LaunchArguments) { a.Buffers[0].Bytes = 95 }, "work: size was 95 bytes, must be at least 96"},
		"NaN":       {func(a *LaunchArguments) { a.Reals[0] = math.NaN() }, "scale: was NaN, must be finite"},
		"too large": {func(a *LaunchArguments) { a.Reals[0] = 1e300 }, "scale: was 1e+300, must be small enough"},
	} {
		l, a := loadRuled(t, newFake())
		c.change(&a)
		var s fakeStream
		if err := l.Launch(&s, a); err == nil || !strings.Contains(err.Error(), c.want) || len(s.launches) > 0 {
			t.Errorf("%s: %v, %d launches, want %s", name, err, len(s.launches), c.want)
		}
	}
	l, a := loadRuled(t, newFake())
	if err := l.Launch(nil, a); err == nil {
		t.Error("launched on no stream")
	}
	if _, err := l.BufferBytes("scale", 1); err == nil {
		t.Error("scale has a size")
	}
	v := ruled()
	v.Manifest.Launch = nil
	d := newFake()
	if _, err := LoadLauncher(d, v); err == nil || !strings.Contains(err.Error(), "it has no launch rules") || d.unloaded != 1 {
		t.Errorf("%v, %d unloaded", err, d.unloaded)
	}
}
