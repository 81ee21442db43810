package random

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/mlagen/mlagen/runtime"
)

// shared is one device that several workers use at a time. A driver's methods
// are called one at a time; a capture keeps all others off the device, for
// while one goes on nothing may wait for the whole of it.
type shared struct {
	driver runtime.Driver
	mu     sync.Mutex   // of the driver's methods, and of a capture
	loads  sync.RWMutex // a capture excludes loading, which goes on beside everything else
}

// handle is a worker's view of a shared device. It keeps memory that was freed
// for the next case, since the driver takes longer to allocate than a kernel
// runs, and fills what it gives out with NaN.
type handle struct {
	*shared
	capturing bool
	live      map[runtime.Ptr]block
	idle      []block // ascending by size
	idleBytes int64
}

// block is memory of the device: size as asked, of room bytes.
type block struct {
	ptr        runtime.Ptr
	name       string
	size, room int64
}

// Bounds of what a handle keeps.
const (
	keepBlock = 256 << 20
	keepTotal = 2 << 30
)

func (s *shared) handle() *handle { return &handle{shared: s, live: map[runtime.Ptr]block{}} }

var (
	_ runtime.Driver  = (*handle)(nil)
	_ runtime.Locator = (*handle)(nil)
)

// do calls f alone on the device.
func (h *handle) do(f func() error) error {
	if !h.capturing {
		h.mu.Lock()
		defer h.mu.Unlock()
	}
	return f()
}

func (h *handle) Name() string                   { return h.driver.Name() }
func (h *handle) Attributes() runtime.Attributes { return h.driver.Attributes() }

// Alloc gives out a block that lies idle, or a new one.
func (h *handle) Alloc(name string, size int64) (runtime.Ptr, error) {
	if size < 0 {
		return 0, fmt.Errorf("allocate %q: size was %d, must not be negative", name, size)
	}
	room := int64(4096)
	for room < size {
		room *= 2
	}
	b := block{room: room}
	if room > keepBlock {
		b.room = size
	}
	if i, ok := slices.BinarySearchFunc(h.idle, room, func(b block, room int64) int { return int(max(-1, min(1, b.room-room))) }); ok {
		b = h.idle[i]
		h.idle = slices.Delete(h.idle, i, i+1)
		h.idleBytes -= b.room
	} else if err := h.do(func() (err error) { b.ptr, err = h.driver.Alloc(name, b.room); return err }); err != nil {
		return 0, err
	}
	b.name, b.size = name, size
	h.live[b.ptr] = b
	return b.ptr, h.Fill(b.ptr, 0xff, b.room)
}

// Free keeps the block for later.
func (h *handle) Free(p runtime.Ptr) error {
	b, ok := h.live[p]
	if !ok {
		return fmt.Errorf("free %#x: not an address that Alloc returned", p)
	}
	delete(h.live, p)
	if b.room > keepBlock || h.idleBytes+b.room > keepTotal {
		return h.do(func() error { return h.driver.Free(p) })
	}
	i, _ := slices.BinarySearchFunc(h.idle, b.room, func(b block, room int64) int { return int(max(-1, min(1, b.room-room))) })
	h.idle = slices.Insert(h.idle, i, b)
	h.idleBytes += b.room
	return nil
}

// release gives the driver back what lies idle.
func (h *handle) release() error {
	var errs []error
	for _, b := range h.idle {
		errs = append(errs, h.do(func() error { return h.driver.Free(b.ptr) }))
	}
	h.idle, h.idleBytes = nil, 0
	return errors.Join(errs...)
}

func (h *handle) Upload(dst runtime.Ptr, src []byte) error {
	return h.do(func() error { return h.driver.Upload(dst, src) })
}

func (h *handle) Download(dst []byte, src runtime.Ptr) error {
	return h.do(func() error { return h.driver.Download(dst, src) })
}

func (h *handle) Fill(dst runtime.Ptr, value byte, size int64) error {
	return h.do(func() error { return h.driver.Fill(dst, value, size) })
}

// Locate knows a block by the size that was asked for, so that a tensor past it
// is refused.
func (h *handle) Locate(p runtime.Ptr) (at runtime.Location, err error) {
	locator, ok := h.driver.(runtime.Locator)
	if !ok {
		return runtime.Location{Local: true, Base: p, Open: true}, nil
	}
	err = h.do(func() error { at, err = locator.Locate(p); return err })
	if b, ok := h.live[at.Base]; ok && at.Local {
		at.Size = b.size
	}
	return at, err
}

// Load compiles beside what others do.
func (h *handle) Load(ptx []byte) (runtime.Module, error) {
	h.loads.RLock()
	defer h.loads.RUnlock()
	m, err := h.driver.Load(ptx)
	if err != nil {
		return nil, err
	}
	return &sharedModule{m, h}, nil
}

func (h *handle) EncodeTensorMap(t runtime.TensorMap) (m [128]byte, err error) {
	err = h.do(func() error { m, err = h.driver.EncodeTensorMap(t); return err })
	return m, err
}

func (h *handle) NewStream() (runtime.Stream, error) {
	var s runtime.Stream
	err := h.do(func() (err error) { s, err = h.driver.NewStream(); return err })
	if err != nil {
		return nil, err
	}
	return &sharedStream{Stream: s, h: h}, nil
}

func (h *handle) NewEvent() (runtime.Event, error) {
	return nil, errors.New("a shared device has no events: nothing is timed on it")
}

// compiling is a view of a device whose driver compiles apart from loading,
// which it does for several at a time.
type compiling struct {
	*handle
	compiler runtime.Compiler
}

func (c compiling) Toolchain() runtime.Toolchain { return c.compiler.Toolchain() }

// Compile compiles beside everything else, but a text that may be loaded to be
// compiled not beside a capture.
func (c compiling) Compile(ptx []byte) (runtime.Image, error) {
	if runtime.WholeProgram(ptx) {
		c.loads.RLock()
		defer c.loads.RUnlock()
	}
	m, err := c.compiler.Compile(ptx)
	if m.Module != nil {
		m.Module = &sharedModule{m.Module, c.handle}
	}
	return m, err
}

func (c compiling) LoadImage(code []byte) (m runtime.Module, err error) {
	if err = c.do(func() error { m, err = c.compiler.LoadImage(code); return err }); err != nil {
		return nil, err
	}
	return &sharedModule{m, c.handle}, nil
}

// Close leaves the device to the others.
func (h *handle) Close() error { return h.release() }

type sharedModule struct {
	runtime.Module
	h *handle
}

func (m *sharedModule) Function(name string) (f runtime.Function, err error) {
	err = m.h.do(func() error { f, err = m.Module.Function(name); return err })
	return f, err
}

func (m *sharedModule) Unload() error { return m.h.do(m.Module.Unload) }

// sharedStream is a stream of a shared device. From the beginning of a capture
// to its end, or to the stream's, its worker has the device for itself.
type sharedStream struct {
	runtime.Stream
	h         *handle
	capturing bool
}

// Capturing reports whether the stream is recording a graph.
func (s *sharedStream) Capturing() bool { return s.capturing }

func (s *sharedStream) Launch(l runtime.Launch) error {
	return s.h.do(func() error { return s.Stream.Launch(l) })
}

func (s *sharedStream) FillAsync(dst runtime.Ptr, value byte, size int64) error {
	return s.h.do(func() error { return s.Stream.FillAsync(dst, value, size) })
}

// CopyAsync copies where the driver's streams can.
func (s *sharedStream) CopyAsync(dst, src runtime.Ptr, size int64) error {
	c, ok := s.Stream.(runtime.Copier)
	if !ok {
		return fmt.Errorf("a stream of %s cannot copy", s.h.Name())
	}
	return s.h.do(func() error { return c.CopyAsync(dst, src, size) })
}

func (s *sharedStream) Synchronize() error { return s.h.do(s.Stream.Synchronize) }

func (s *sharedStream) Replay(g runtime.Graph) error {
	return s.h.do(func() error { return s.Stream.Replay(g.(*sharedGraph).Graph) })
}

func (s *sharedStream) BeginCapture() error {
	s.h.loads.Lock()
	s.h.mu.Lock()
	if err := s.Stream.BeginCapture(); err != nil {
		s.h.mu.Unlock()
		s.h.loads.Unlock()
		return err
	}
	s.h.capturing, s.capturing = true, true
	return nil
}

func (s *sharedStream) ended() {
	if s.capturing {
		s.h.capturing, s.capturing = false, false
		s.h.mu.Unlock()
		s.h.loads.Unlock()
	}
}

func (s *sharedStream) EndCapture() (runtime.Graph, error) {
	defer s.ended()
	g, err := s.Stream.EndCapture()
	if err != nil {
		return nil, err
	}
	return &sharedGraph{g, s.h}, nil
}

// Destroy ends a capture that failed on the way.
func (s *sharedStream) Destroy() error {
	defer s.ended()
	return s.h.do(s.Stream.Destroy)
}

type sharedGraph struct {
	runtime.Graph
	h *handle
}

func (g *sharedGraph) Destroy() error { return g.h.do(g.Graph.Destroy) }
