package random

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
)

func shareEmulator(t *testing.T) (*emu.Driver, func() *handle) {
	t.Helper()
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	open := Share(d)
	return d, func() *handle {
		h, err := open(Group{})
		if err != nil {
			t.Fatal(err)
		}
		return h.(compiling).handle // the emulator compiles
	}
}

// TestMemoryIsKeptAndPoisoned: a handle gives out what was freed, as NaN.
func TestMemoryIsKeptAndPoisoned(t *testing.T) {
	_, open := shareEmulator(t)
	h := open()
	p, err := h.Alloc("a", 5000)
	if err != nil {
		t.Fatal(err)
	}
	if at, err := h.Locate(p + 7); err != nil || at.Size != 5000 || at.Base != p {
		t.Errorf("%+v, %v: its size is not the one that was asked for", at, err)
	}
	ones := bytes.Repeat([]byte{0xff}, 5000)
	got := make([]byte, 5000)
	if err := errors.Join(h.Download(got, p), h.Upload(p, make([]byte, 5000)), h.Free(p)); err != nil || !bytes.Equal(got, ones) {
		t.Errorf("fresh memory: %v", err)
	}
	q, err := h.Alloc("b", 6000)
	if err != nil || q != p {
		t.Errorf("%#x was freed and %#x given out, %v", p, q, err)
	}
	if err := h.Download(got, q); err != nil || !bytes.Equal(got, ones) {
		t.Errorf("memory that was used: %v", err)
	}
	if other, err := h.Alloc("c", 6000); err != nil || other == q {
		t.Errorf("given out twice: %v", err)
	}
	if err := h.Free(q + 8); err == nil {
		t.Error("freed what was not given out")
	}
	if _, err := h.Alloc("d", -1); err == nil {
		t.Error("allocated −1 bytes")
	}
	if err := errors.Join(h.Free(q), h.Close()); err != nil || h.idleBytes != 0 {
		t.Errorf("%d bytes kept after Close, %v", h.idleBytes, err)
	}
}

// counting is a device that knows how many calls are under way.
type counting struct {
	runtime.Driver
	under, most atomic.Int32
}

func (c *counting) Upload(p runtime.Ptr, b []byte) error {
	n := c.under.Add(1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	time.Sleep(time.Millisecond)
	c.under.Add(-1)
	return c.Driver.Upload(p, b)
}

// TestCallsComeOneAtATime, and none while another worker captures.
func TestCallsComeOneAtATime(t *testing.T) {
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := &counting{Driver: d}
	open := Share(c)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			h, _ := open(Group{})
			p, err := h.Alloc("x", 16)
			for range 5 {
				err = errors.Join(err, h.Upload(p, make([]byte, 16)))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if c.most.Load() != 1 {
		t.Errorf("%d calls at a time", c.most.Load())
	}

	a, _ := open(Group{})
	b, _ := open(Group{})
	p, err := b.Alloc("x", 16)
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []func(s runtime.Stream) error{
		func(s runtime.Stream) error { _, err := s.EndCapture(); return errors.Join(err, s.Destroy()) },
		func(s runtime.Stream) error { return s.Destroy() }, // a launch in it failed
	} {
		s, err := a.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.BeginCapture(); err != nil || !s.(runtime.Capturer).Capturing() {
			t.Fatal(err)
		}
		if _, err := a.EncodeTensorMap(runtime.TensorMap{}); err == nil {
			t.Error("encoded nothing") // but the capturing worker is let through
		}
		done := make(chan error)
		go func() { done <- b.Upload(p, make([]byte, 16)) }()
		select {
		case <-done:
			t.Error("another worker was let onto the device during a capture")
		case <-time.After(20 * time.Millisecond):
		}
		if err := end(s); err != nil || s.(runtime.Capturer).Capturing() {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// wholes is a device that loads what it compiles.
type wholes struct{ runtime.Driver }

type wholesModule struct{ runtime.Module }

func (wholes) Toolchain() runtime.Toolchain { return runtime.Toolchain{} }
func (wholes) Compile([]byte) (runtime.Image, error) {
	return runtime.Image{Module: wholesModule{}}, nil
}
func (wholes) LoadImage([]byte) (runtime.Module, error) {
	return nil, errors.New("there are no images")
}

// TestWholeProgramsAreNotLoadedDuringACapture, other texts are compiled; what
// was loaded is called like everything of a shared device.
func TestWholeProgramsAreNotLoadedDuringACapture(t *testing.T) {
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	open := Share(wholes{d})
	a, _ := open(Group{})
	b, _ := open(Group{})
	s, err := a.NewStream()
	if err == nil {
		err = s.BeginCapture()
	}
	if err != nil {
		t.Fatal(err)
	}
	compile := func(text string) chan error {
		done := make(chan error, 1)
		go func() {
			m, err := b.(runtime.Compiler).Compile([]byte(text))
			if _, ok := m.Module.(*sharedModule); !ok {
				err = errors.Join(err, errors.New("the module is not a shared device's"))
			}
			done <- err
		}()
		return done
	}
	if err := <-compile("mov.u32 a, b;"); err != nil {
		t.Error(err)
	}
	whole := compile("setmaxnreg.inc.sync.aligned.u32 240;")
	select {
	case <-whole:
		t.Fatal("a module was loaded during a capture")
	case <-time.After(20 * time.Millisecond):
	}
	if err := errors.Join(s.Destroy(), <-whole); err != nil {
		t.Error(err)
	}
}
