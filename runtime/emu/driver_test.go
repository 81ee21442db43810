package emu_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/ptx/emu"
	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/runtime"
	device "github.com/mlagen/mlagen/runtime/emu"
)

const text = `.version 8.0
.target sm_90a
.address_size 64
.visible .entry scale(.param .u32 factor, .param .u64 x)
{
	.reg .b32 %r<8>;
	.reg .b64 %d<8>;
	ld.param.u32 %r1, [factor];
	ld.param.u64 %d1, [x];
	mov.u32 %r2, %tid.x;
	mul.wide.u32 %d2, %r2, 4;
	add.u64 %d1, %d1, %d2;
	ld.global.u32 %r3, [%d1];
	mul.lo.u32 %r3, %r3, %r1;
	st.global.u32 [%d1], %r3;
	ret;
}
`

// open returns a driver, the kernel and a stream.
func open(t *testing.T) (*device.Driver, runtime.Function, runtime.Stream) {
	t.Helper()
	d, err := device.Open(device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Load([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.Function("scale")
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	return d, f, s
}

// launch multiplies 32 words at x by factor. The factor is behind the pointer
// in the launch's buffer, unlike in the kernel: the offsets say so.
func launch(f runtime.Function, x runtime.Ptr, factor uint32) runtime.Launch {
	params := binary.LittleEndian.AppendUint64(nil, uint64(x))
	params = binary.LittleEndian.AppendUint32(params, factor)
	return runtime.Launch{Function: f, Grid: runtime.Dim3{X: 1}, Block: runtime.Dim3{X: 32}, Params: params, Offsets: []int{8, 0}}
}

func words(t *testing.T, d runtime.Driver, p runtime.Ptr) (v [32]uint32) {
	t.Helper()
	var b [128]byte
	if err := d.Download(b[:], p); err != nil {
		t.Fatal(err)
	}
	for i := range v {
		v[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return v
}

func TestLaunchAndGraph(t *testing.T) {
	d, f, s := open(t)
	x, err := d.Alloc("x", 128)
	if err != nil {
		t.Fatal(err)
	}
	if x%256 != 0 {
		t.Errorf("address %#x is not aligned", x)
	}
	start := make([]byte, 128)
	for i := range 32 {
		start[4*i] = byte(i)
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(factor uint32) {
		t.Helper()
		var w [32]uint32
		for i := range w {
			w[i] = uint32(i) * factor
		}
		if d := cmp.Diff(w, words(t, d, x)); d != "" {
			t.Error(d)
		}
	}
	check(d.Upload(x, start))
	check(s.Launch(launch(f, x, 3)))
	check(s.Synchronize())
	want(3)

	l := launch(f, x, 2)
	check(s.BeginCapture())
	check(s.Launch(l))
	check(s.Launch(launch(f, x, 5)))
	clear(l.Params) // a graph keeps the values of its recording
	g, err := s.EndCapture()
	check(err)
	want(3)
	check(s.Replay(g))
	want(30)
	check(s.Replay(g))
	want(300)

	y, err := d.Alloc("y", 128)
	check(err)
	check(s.(runtime.Copier).CopyAsync(y, x, 128))
	if words(t, d, y) != words(t, d, x) {
		t.Error("the copy differs")
	}
	check(s.FillAsync(y, 1, 64))
	if v := words(t, d, y); v[15] != 0x01010101 || v[16] == 0x01010101 {
		t.Errorf("%x", v)
	}
	if n := d.Total().Instructions; n == 0 || len(d.Reports()) != 5 || len(d.Reports()) != 0 {
		t.Errorf("%d instructions", n)
	}
	for _, e := range []error{d.Free(x), s.Destroy(), g.Destroy(), d.Close()} {
		check(e)
	}
	if err := d.Free(x); err == nil {
		t.Error("freed twice")
	}
}

func TestHazardsFail(t *testing.T) {
	d, f, s := open(t)
	x, err := d.Alloc("scores", 128)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Launch(launch(f, x, 3)) // never written
	var hazard *device.HazardError
	if !errors.As(err, &hazard) || hazard.Hazards[0].Rule != emu.RuleUninitGlobal || !strings.Contains(err.Error(), "scores") {
		t.Fatal(err)
	}
	if again := s.Synchronize(); again != err {
		t.Errorf("Synchronize returned %v", again)
	}
	if err := s.Synchronize(); err != nil {
		t.Error(err)
	}
	// Past the end: the run stops.
	if err := s.Launch(launch(f, x+4, 3)); err == nil || !strings.Contains(err.Error(), `past the end of "scores"`) {
		t.Error(err)
	}
	quiet, _ := device.Open(device.Options{KeepGoing: true})
	m, err := quiet.Load([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	qf, _ := m.Function("scale")
	y, _ := quiet.Alloc("y", 128)
	qs, _ := quiet.NewStream()
	if err := qs.Launch(launch(qf, y, 3)); err != nil {
		t.Error(err)
	}
	if r := quiet.Reports(); len(r) != 1 || len(r[0].Errors()) == 0 {
		t.Errorf("%+v", r)
	}
}

func TestLoadErrors(t *testing.T) {
	d, _, _ := open(t)
	for _, bad := range []string{"", strings.Replace(text, "mul.lo", "mul.no", 1), strings.Replace(text, "add.u64 %d1", "add.u64 %d77", 1)} {
		if _, err := d.Load([]byte(bad)); err == nil {
			t.Errorf("loaded %.60q", bad)
		}
	}
	m, err := d.Load([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Function("other"); err == nil {
		t.Error("found a kernel that is not there")
	}
}

func TestPlaces(t *testing.T) {
	d, f, _ := open(t)
	x, _ := d.Alloc("x", 1000)
	at, err := d.Locate(x + 999)
	if err != nil || !at.Local || at.Base != x || at.Size != 1000 {
		t.Errorf("%+v %v", at, err)
	}
	if at, err = d.Locate(x + 1000); err != nil || at.Local {
		t.Errorf("%+v %v", at, err)
	}
	offset, size, exists, known := f.(runtime.ParamLocator).Param(1)
	if offset != 8 || size != 8 || !exists || !known {
		t.Error(offset, size, exists, known)
	}
	if _, _, exists, known = f.(runtime.ParamLocator).Param(2); exists || !known {
		t.Error(exists, known)
	}
	if a, err := f.Attributes(); err != nil || a.MaxThreads != 1024 || a.LocalBytes != 0 {
		t.Errorf("%+v %v", a, err)
	}
	if f.SetDynamicShared(232448) != nil || f.SetDynamicShared(232449) == nil {
		t.Error("the limit of shared memory is not 232448")
	}
}

func TestTensorMap(t *testing.T) {
	d, _, _ := open(t)
	x, _ := d.Alloc("x", 1<<16)
	m := runtime.TensorMap{TensorMap: manifest.TensorMap{Param: "x", DType: "bf16", Box: []int{64, 8}, Swizzle: 128}, Address: x,
		Sizes: []uint64{64, 64}, Strides: []uint64{128}}
	if _, err := d.EncodeTensorMap(m); err != nil {
		t.Error(err)
	}
	m.Strides[0] = 120
	if _, err := d.EncodeTensorMap(m); err == nil {
		t.Error("encoded a stride of 120 bytes")
	}
}
