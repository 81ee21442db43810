//go:build cuda

// These tests need a GPU of compute capability 9.0. Build them with
// `go test -c -tags cuda ./runtime/cuda` and run the binary where one is.
package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/runtime"
)

// open opens the first GPU. A machine without one fails the test: whoever runs
// these tests means to have it.
func open(t *testing.T) runtime.Driver {
	t.Helper()
	d, err := Open(0)
	if err != nil {
		t.Fatalf("these tests need a GPU: %v", err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func newStream(t *testing.T, d runtime.Driver) runtime.Stream {
	t.Helper()
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Destroy(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func alloc(t *testing.T, d runtime.Driver, size int64) runtime.Ptr {
	t.Helper()
	p, err := d.Alloc(t.Name(), size)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func download(t *testing.T, d runtime.Driver, p runtime.Ptr, size int) []byte {
	t.Helper()
	b := make([]byte, size)
	if err := d.Download(b, p); err != nil {
		t.Fatal(err)
	}
	return b
}

func words(b []byte) []uint32 {
	out := make([]uint32, len(b)/4)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return out
}

func try(t *testing.T, all ...error) {
	t.Helper()
	if err := errors.Join(all...); err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v\nwant an error that says %q", err, part)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, ordinal := range []int{-1, 1000} {
		_, err := Open(ordinal)
		wantError(t, err, "does not exist: the driver sees")
	}
}

func TestAttributes(t *testing.T) {
	d := open(t)
	a := d.Attributes()
	t.Logf("%s: %+v", d.Name(), a)
	if d.Name() == "" || a.SMs < 16 || a.SharedPerBlock != 232448 || a.ComputeMajor != 9 || a.ComputeMinor != 0 ||
		a.L2Bytes < 1<<20 || a.MemoryBytes < 1<<30 || a.ClockKHz < 100_000 || a.DriverVersion < 12000 ||
		!strings.HasPrefix(a.UUID, "GPU-") || !a.GraphCapture || !a.Clusters || !a.ProgrammaticLaunch {
		t.Errorf("implausible: %+v", a)
	}
}

func TestMemory(t *testing.T) {
	d := open(t)
	const size = 1<<20 + 3
	p := alloc(t, d, size)
	if p%256 != 0 {
		t.Errorf("address %#x is not aligned to 256 bytes", p)
	}
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i * 7)
	}
	try(t, d.Upload(p, data))
	if !bytes.Equal(download(t, d, p, size), data) {
		t.Error("what was downloaded is not what was uploaded")
	}
	try(t, d.Fill(p+1, 0x5a, 5))
	copy(data[1:6], bytes.Repeat([]byte{0x5a}, 5))
	if !bytes.Equal(download(t, d, p, size), data) {
		t.Error("fill wrote something else than five bytes")
	}
	try(t, d.Free(p))

	empty := alloc(t, d, 0)
	if other := alloc(t, d, 0); empty == 0 || other == empty {
		t.Errorf("empty allocations at %#x and %#x", empty, other)
	}
	try(t, d.Upload(empty, nil), d.Download(nil, empty), d.Fill(empty, 1, 0), d.Free(empty))

	wantError(t, d.Free(p), "not an address that Alloc returned")
	wantError(t, d.Fill(empty, 0, -1), "size is -1 bytes")
	_, err := d.Alloc("minus", -1)
	wantError(t, err, `allocate "minus": size is -1 bytes`)
	_, err = d.Alloc("everything", math.MaxInt64/2)
	wantError(t, err, `allocate "everything"`, "bytes free", "CUDA_ERROR_OUT_OF_MEMORY")
	var call *Error
	if !errors.As(err, &call) || call.Call != "cuMemAlloc" || call.Code != 2 {
		t.Errorf("got %#v", call)
	}
	small := alloc(t, d, 2<<20)
	wantError(t, d.Upload(small, make([]byte, 64<<20)), "cuMemcpyHtoD: ", "CUDA_ERROR_INVALID_VALUE")
}

func TestStreamOrder(t *testing.T) {
	d := open(t)
	s := newStream(t, d)
	p, q := alloc(t, d, 64), alloc(t, d, 64)
	try(t, d.Fill(q, 0, 64))
	try(t, s.FillAsync(p, 3, 64), s.FillAsync(p+1, 4, 6), s.(runtime.Copier).CopyAsync(q+8, p, 16), s.FillAsync(p, 9, 64), s.Synchronize())
	want := append(make([]byte, 8), 3, 4, 4, 4, 4, 4, 4, 3, 3, 3, 3, 3, 3, 3, 3, 3, 0, 0)
	if diff := cmp.Diff(want, download(t, d, q, 26)); diff != "" {
		t.Errorf("copy (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(bytes.Repeat([]byte{9}, 64), download(t, d, p, 64)); diff != "" {
		t.Errorf("fill (-want +got):\n%s", diff)
	}
}

func TestParametersOfEverySize(t *testing.T) {
	d := open(t)
	s := newStream(t, d)
	k := load(t, d, echoText, echoManifest())
	out := alloc(t, d, 64)
	var m [128]byte
	for i := range m {
		m[i] = byte(i + 1)
	}
	p := k.NewParams().TensorMap("map", &m).Pointer("out", out).Int("wide", -3).Int("word", 0xfedcba98).Float("real", -2).Int("half", 0xbeef)
	try(t, k.Launch(s, runtime.Dim3{X: 1}, p, false), s.Synchronize())
	got := download(t, d, out, 48)
	var want []byte
	for _, v := range []uint64{0x0807060504030201, 0x807f7e7d7c7b7a79, math.MaxUint64 - 2, 0xfedcba98, uint64(math.Float32bits(-2)), 0xbeef} {
		want = binary.LittleEndian.AppendUint64(want, v)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
	if k.Attributes.Registers == 0 || k.Attributes.MaxThreads == 0 {
		t.Errorf("attributes %+v", k.Attributes)
	}
}

func TestLoadErrors(t *testing.T) {
	d := open(t)
	loadError := func(text string, m *manifest.Manifest) error {
		_, err := runtime.Load(d, runtime.Variant{PTX: []byte(text), Manifest: m})
		return err
	}
	wantError(t, loadError(brokenText, oneParam("broken", "p", 1)), "compile PTX: cuModuleLoadDataEx", "CUDA_ERROR_INVALID_PTX", "line 5", "nonsense")
	wantError(t, loadError(stepText, oneParam("absent", "word", 1)), `kernel "absent"`, "CUDA_ERROR_NOT_FOUND")
	wantError(t, loadError(localText, oneParam("local", "out", 1)), "local memory")

	if d.Attributes().DriverVersion >= 12040 {
		m := echoManifest()
		m.Params[3].Size, m.Params[4].Offset, m.Params[5].Offset = 8, 152, 156
		wantError(t, loadError(echoText, m), `parameter "word" has 4 bytes as compiled; the manifest says 8`)
	}
	m := echoManifest()
	m.Params = m.Params[:5]
	wantError(t, loadError(echoText, m), "the manifest lists 5 parameters; the kernel takes 6")
	m = oneParam("step", "word", 1)
	m.Shared = 232449
	wantError(t, loadError(stepText, m), "the device allows 232448 per block")
}

func TestDynamicShared(t *testing.T) {
	d := open(t)
	s := newStream(t, d)
	m := oneParam("shared", "out", 1)
	m.Shared = 200 << 10
	k := load(t, d, sharedText, m)
	out := alloc(t, d, 8)
	try(t, k.Launch(s, runtime.Dim3{X: 1}, k.NewParams().Pointer("out", out), false), s.Synchronize())
	if diff := cmp.Diff([]uint32{77, 200 << 10}, words(download(t, d, out, 8))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestClusters(t *testing.T) {
	d := open(t)
	s := newStream(t, d)
	m := oneParam("cluster", "out", 32)
	m.Cluster = 4
	k := load(t, d, clusterText, m)
	out := alloc(t, d, 32)
	try(t, k.Launch(s, runtime.Dim3{X: 8}, k.NewParams().Pointer("out", out), true), s.Synchronize())
	if diff := cmp.Diff([]uint32{400, 401, 402, 403, 400, 401, 402, 403}, words(download(t, d, out, 32))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// steps is what n launches of step make of 0.
func steps(n int) (v uint32) {
	for range n {
		v = v*3 + 1
	}
	return v
}

func TestProgrammaticChain(t *testing.T) {
	d := open(t)
	s := newStream(t, d)
	k := load(t, d, stepText, stepManifest())
	word := alloc(t, d, 4)
	p := k.NewParams().Pointer("word", word)
	try(t, s.FillAsync(word, 0, 4))
	for range 200 {
		try(t, k.Launch(s, runtime.Dim3{X: 1}, p, true))
	}
	try(t, s.Synchronize())
	if got := words(download(t, d, word, 4))[0]; got != steps(200) {
		t.Errorf("got %d, want %d", got, steps(200))
	}
}

func TestEvents(t *testing.T) {
	d := open(t)
	s := newStream(t, d)
	start, err1 := d.NewEvent()
	end, err2 := d.NewEvent()
	try(t, err1, err2)
	p := alloc(t, d, 256<<20)
	try(t, s.FillAsync(p, 0, 256<<20), s.Synchronize())
	try(t, s.Record(start), s.FillAsync(p, 1, 256<<20), s.Record(end))
	us, err := end.Since(start) // of work that may still be running
	try(t, err)
	if us < 20 || us > 100_000 { // 256 MB at 4 TB/s are 64 µs
		t.Errorf("filling 256 MB took %v µs", us)
	}
	t.Logf("filling 256 MB: %.1f µs", us)
	try(t, start.Synchronize(), start.Destroy(), end.Destroy())
}

func TestGraph(t *testing.T) {
	d := open(t)
	s := newStream(t, d)
	k := load(t, d, stepText, stepManifest())
	word, seed := alloc(t, d, 4), alloc(t, d, 4)
	p := k.NewParams().Pointer("word", word)
	try(t, d.Fill(word, 0xff, 4), d.Fill(seed, 0, 4))

	try(t, s.BeginCapture(), s.(runtime.Copier).CopyAsync(word, seed, 4))
	for range 5 {
		try(t, k.Launch(s, runtime.Dim3{X: 1}, p, true))
	}
	p.Pointer("word", 0) // the graph keeps the parameters that it was captured with
	g, err := s.EndCapture()
	try(t, err, s.Synchronize())
	if got := words(download(t, d, word, 4))[0]; got != 0xffffffff {
		t.Errorf("capturing ran the kernels: got %d", got)
	}
	for i := range 3 {
		try(t, d.Upload(seed, []byte{byte(i), 0, 0, 0}), s.Replay(g), s.Synchronize())
		if got, want := words(download(t, d, word, 4))[0], uint32(i*243)+steps(5); got != want {
			t.Errorf("replay %d: got %d, want %d", i, got, want)
		}
	}
	try(t, g.Destroy(), g.Destroy())
	wantError(t, s.Replay(g), "destroyed")

	_, err = s.EndCapture()
	wantError(t, err, "cuStreamEndCapture")
	p.Pointer("word", word)
	try(t, k.Launch(s, runtime.Dim3{X: 1}, p, true), s.Synchronize()) // the stream still works
}

func TestLocate(t *testing.T) {
	d := open(t)
	locator := d.(runtime.Locator)
	const size = 5 << 20
	p := alloc(t, d, size)
	l, err := locator.Locate(p + 12345)
	try(t, err)
	if want := (runtime.Location{Local: true, Base: p, Size: size, Open: l.Open}); l != want {
		t.Errorf("got %+v, want %+v", l, want)
	}
	t.Logf("memory of cuMemAlloc: %+v", l)
	host := make([]byte, 4096)
	l, err = locator.Locate(runtime.Ptr(uintptr(unsafe.Pointer(&host[0]))))
	try(t, err)
	if l.Local || l.Where != "not device memory" {
		t.Errorf("host memory: got %+v", l)
	}
}

func TestLaunchErrors(t *testing.T) {
	d := open(t)
	s := newStream(t, d)
	k := load(t, d, stepText, stepManifest())
	word := alloc(t, d, 4)
	p := k.NewParams().Pointer("word", word)
	wantError(t, k.Launch(s, runtime.Dim3{X: 1 << 40}, p, false), "must be at most")
	wantError(t, s.Launch(runtime.Launch{Function: nil, Grid: runtime.Dim3{X: 1}}), "another device's")
	wantError(t, s.Record(nil), "of another driver")
	wantError(t, s.Replay(nil), "of another driver")
	wantError(t, k.Launch(s, runtime.Dim3{X: 1}, k.NewParams(), false), "parameters not set: word")

	m := stepManifest()
	m.Threads, m.MaxNReg = 1024, 0
	big := load(t, d, stepText, m)
	try(t, big.Launch(s, runtime.Dim3{X: 1}, big.NewParams().Pointer("word", word), false), s.Synchronize())
}

func TestClosed(t *testing.T) {
	d, err := Open(0)
	if err != nil {
		t.Fatalf("these tests need a GPU: %v", err)
	}
	p, err := d.Alloc("left over", 1024)
	try(t, err, d.Close(), d.Close())
	wantError(t, d.Fill(p, 0, 4), "GPU 0 is closed")
	_, err = d.Load([]byte(stepText))
	wantError(t, err, "GPU 0 is closed")
	_, err = d.NewStream()
	wantError(t, err, "GPU 0 is closed")
}
