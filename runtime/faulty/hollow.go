package faulty

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mlagen/mlagen/runtime"
)

// Hollow is a device with memory, streams and graphs that loads anything and
// whose kernels do nothing. It takes next to no time.
type Hollow struct {
	Sizes  runtime.Attributes
	blocks map[runtime.Ptr][]byte
	next   runtime.Ptr
	used   int64
}

// NewHollow returns a device with empty memory, 2 GiB of it, otherwise like an H200.
func NewHollow() *Hollow {
	return &Hollow{
		Sizes: runtime.Attributes{
			SMs: 8, SharedPerBlock: 232448, ComputeMajor: 9, L2Bytes: 1 << 20, MemoryBytes: 2 << 30, ClockKHz: 1980000,
			DriverVersion: 13000, UUID: "hollow", GraphCapture: true, Clusters: true, ProgrammaticLaunch: true,
		},
		blocks: map[runtime.Ptr][]byte{}, next: 1 << 32,
	}
}

// Name identifies the device.
func (*Hollow) Name() string { return "hollow" }

// Attributes are its sizes.
func (h *Hollow) Attributes() runtime.Attributes { return h.Sizes }

// Alloc allocates host memory.
func (h *Hollow) Alloc(name string, size int64) (runtime.Ptr, error) {
	if size < 0 || size > h.Sizes.MemoryBytes-h.used {
		return 0, fmt.Errorf("allocate %q, %d bytes: %d of %d are free", name, size, h.Sizes.MemoryBytes-h.used, h.Sizes.MemoryBytes)
	}
	p := h.next
	h.blocks[p] = make([]byte, size)
	h.used += size
	h.next += runtime.Ptr(size+512) &^ 255
	return p, nil
}

// Free frees.
func (h *Hollow) Free(p runtime.Ptr) error {
	b, ok := h.blocks[p]
	if !ok {
		return fmt.Errorf("free %#x: not an address that Alloc returned", p)
	}
	h.used -= int64(len(b))
	delete(h.blocks, p)
	return nil
}

// at returns n bytes of memory.
func (h *Hollow) at(p runtime.Ptr, n int) ([]byte, error) {
	for base, b := range h.blocks {
		if p >= base && p+runtime.Ptr(n) <= base+runtime.Ptr(len(b)) {
			return b[p-base:][:n], nil
		}
	}
	return nil, fmt.Errorf("%d bytes at %#x are not allocated", n, p)
}

// Upload copies to the device.
func (h *Hollow) Upload(dst runtime.Ptr, src []byte) error {
	b, err := h.at(dst, len(src))
	copy(b, src)
	return err
}

// Download copies from the device.
func (h *Hollow) Download(dst []byte, src runtime.Ptr) error {
	b, err := h.at(src, len(dst))
	copy(dst, b)
	return err
}

// Fill sets memory.
func (h *Hollow) Fill(dst runtime.Ptr, value byte, size int64) error {
	b, err := h.at(dst, int(size))
	for i := range b {
		b[i] = value
	}
	return err
}

// Locate says which allocation p lies in.
func (h *Hollow) Locate(p runtime.Ptr) (runtime.Location, error) {
	for base, b := range h.blocks {
		if p >= base && p < base+runtime.Ptr(max(1, len(b))) {
			return runtime.Location{Local: true, Base: base, Size: int64(len(b))}, nil
		}
	}
	return runtime.Location{Where: "not device memory"}, nil
}

// EncodeTensorMap encodes nothing.
func (*Hollow) EncodeTensorMap(runtime.TensorMap) (m [128]byte, err error) { return m, nil }

// Load loads anything.
func (*Hollow) Load([]byte) (runtime.Module, error) { return hollowModule{}, nil }

// NewEvent returns an event; no time passes.
func (*Hollow) NewEvent() (runtime.Event, error) { return hollowEvent{}, nil }

// NewStream returns a stream.
func (h *Hollow) NewStream() (runtime.Stream, error) { return &hollowStream{h: h}, nil }

// Close does nothing: a closed device can be opened again.
func (*Hollow) Close() error { return nil }

type hollowModule struct{}

func (hollowModule) Function(string) (runtime.Function, error) { return hollowFunction{}, nil }
func (hollowModule) Log() string                               { return "" }
func (hollowModule) CompileSeconds() float64                   { return 0 }
func (hollowModule) Unload() error                             { return nil }

type hollowFunction struct{}

func (hollowFunction) Attributes() (runtime.FunctionAttributes, error) {
	return runtime.FunctionAttributes{Registers: 128, MaxThreads: 1024}, nil
}
func (hollowFunction) SetDynamicShared(int) error { return nil }

type hollowEvent struct{}

func (hollowEvent) Synchronize() error                   { return nil }
func (hollowEvent) Since(runtime.Event) (float64, error) { return 1, nil }
func (hollowEvent) Destroy() error                       { return nil }

// hollowStream does its copies at once, or keeps them for a graph.
type hollowStream struct {
	h         *Hollow
	capturing bool
	captured  hollowGraph
}

type hollowGraph []func() error

func (hollowGraph) Destroy() error { return nil }

func (s *hollowStream) do(f func() error) error {
	if s.capturing {
		s.captured = append(s.captured, f)
		return nil
	}
	return f()
}

func (s *hollowStream) Launch(runtime.Launch) error { return nil }
func (s *hollowStream) FillAsync(dst runtime.Ptr, value byte, size int64) error {
	return s.do(func() error { return s.h.Fill(dst, value, size) })
}

func (s *hollowStream) CopyAsync(dst, src runtime.Ptr, size int64) error {
	return s.do(func() error {
		b := make([]byte, size)
		return errors.Join(s.h.Download(b, src), s.h.Upload(dst, b))
	})
}

func (s *hollowStream) Record(runtime.Event) error { return nil }
func (s *hollowStream) Synchronize() error         { return nil }
func (s *hollowStream) Capturing() bool            { return s.capturing }
func (s *hollowStream) Destroy() error             { return nil }

func (s *hollowStream) BeginCapture() error {
	if s.capturing {
		return errors.New("the stream is recording a graph already")
	}
	s.capturing, s.captured = true, nil
	return nil
}

func (s *hollowStream) EndCapture() (runtime.Graph, error) {
	if !s.capturing {
		return nil, errors.New("the stream is not recording a graph")
	}
	s.capturing = false
	return slices.Clone(s.captured), nil
}

func (s *hollowStream) Replay(g runtime.Graph) error {
	for _, f := range g.(hollowGraph) {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}
