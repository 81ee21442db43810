// Package faulty wraps a device so that its n-th call fails, and keeps account of
// what it was asked for and not given back. Tests run everything that owns
// device memory on it, with n = 1, 2, 3 and so on.
package faulty

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/mlagen/mlagen/runtime"
)

// Err is the fault that a call reports.
var Err = errors.New("injected fault")

// Driver passes calls on to a device and fails one of them, or all from that one
// on. A call that fails does nothing, but one that gives something back does so
// all the same, as a GPU's driver does in an error state.
type Driver struct {
	device runtime.Driver

	mu     sync.Mutex
	calls  int
	at     int
	sticky bool
	failed string
	held   map[any]string
}

// New wraps a device, which does not fail until FailAt is called.
func New(device runtime.Driver) *Driver { return &Driver{device: device, held: map[any]string{}} }

// Device is the wrapped device as what it is: a Compiler where the device is one.
func (d *Driver) Device() runtime.Driver {
	if c, ok := d.device.(runtime.Compiler); ok {
		return &compiling{d, c}
	}
	return d
}

// FailAt has the n-th call from now on fail, none with n 0, and with sticky every
// call after it as well.
func (d *Driver) FailAt(n int, sticky bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls, d.at, d.sticky, d.failed = 0, n, sticky, ""
}

// Failed names the first call that failed, "" when none did.
func (d *Driver) Failed() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// Held lists what was not given back.
func (d *Driver) Held() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []string
	for _, what := range d.held {
		list = append(list, what)
	}
	slices.Sort(list)
	return list
}

// call counts a call, and returns the fault that it is due.
func (d *Driver) call(format string, args ...any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	if d.at == 0 || d.calls < d.at || d.calls > d.at && !d.sticky {
		return nil
	}
	what := fmt.Sprintf(format, args...)
	if d.failed == "" {
		d.failed = what
	}
	return fmt.Errorf("%s: %w", what, Err)
}

// hold notes that something was handed out.
func (d *Driver) hold(key any, format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held[key] = fmt.Sprintf(format, args...)
}

// release notes that something came back, once, and reports the call's fault.
func (d *Driver) release(key any, what string, release func() error) error {
	fault := d.call("%s", what)
	d.mu.Lock()
	_, held := d.held[key]
	delete(d.held, key)
	d.mu.Unlock()
	if !held {
		return errors.Join(fault, fmt.Errorf("%s: it is not held", what))
	}
	return errors.Join(fault, release())
}

// Name identifies the device.
func (d *Driver) Name() string { return d.device.Name() }

// Attributes are the device's.
func (d *Driver) Attributes() runtime.Attributes { return d.device.Attributes() }

// Alloc allocates.
func (d *Driver) Alloc(name string, size int64) (runtime.Ptr, error) {
	if err := d.call("alloc %q", name); err != nil {
		return 0, err
	}
	p, err := d.device.Alloc(name, size)
	if err == nil {
		d.hold(p, "memory %q", name)
	}
	return p, err
}

// Free frees.
func (d *Driver) Free(p runtime.Ptr) error {
	return d.release(p, "free", func() error { return d.device.Free(p) })
}

// Upload copies to the device.
func (d *Driver) Upload(dst runtime.Ptr, src []byte) error {
	if err := d.call("upload"); err != nil {
		return err
	}
	return d.device.Upload(dst, src)
}

// Download copies from the device.
func (d *Driver) Download(dst []byte, src runtime.Ptr) error {
	if err := d.call("download"); err != nil {
		return err
	}
	return d.device.Download(dst, src)
}

// Fill sets memory.
func (d *Driver) Fill(dst runtime.Ptr, value byte, size int64) error {
	if err := d.call("fill"); err != nil {
		return err
	}
	return d.device.Fill(dst, value, size)
}

// Locate says where p lies, anywhere when the device cannot tell.
func (d *Driver) Locate(p runtime.Ptr) (runtime.Location, error) {
	l, ok := d.device.(runtime.Locator)
	if !ok {
		return runtime.Location{Local: true, Base: p, Open: true}, nil
	}
	if err := d.call("locate"); err != nil {
		return runtime.Location{}, err
	}
	return l.Locate(p)
}

// EncodeTensorMap encodes.
func (d *Driver) EncodeTensorMap(t runtime.TensorMap) ([128]byte, error) {
	if err := d.call("encode tensor map %s", t.Param); err != nil {
		return [128]byte{}, err
	}
	return d.device.EncodeTensorMap(t)
}

// Load compiles and loads.
func (d *Driver) Load(text []byte) (runtime.Module, error) {
	if err := d.call("load"); err != nil {
		return nil, err
	}
	return d.module(d.device.Load(text))
}

// Close closes the device.
func (d *Driver) Close() error { return errors.Join(d.call("close"), d.device.Close()) }

// Meter opens the device's meter.
func (d *Driver) Meter() (runtime.Meter, error) {
	m, ok := d.device.(runtime.Metered)
	if !ok {
		return nil, errors.New("the device has no meter")
	}
	if err := d.call("open meter"); err != nil {
		return nil, err
	}
	inner, err := m.Meter()
	if err != nil {
		return nil, err
	}
	w := &meter{inner, d}
	d.hold(w, "meter")
	return w, nil
}

type meter struct {
	runtime.Meter
	d *Driver
}

func (m *meter) Read() (runtime.Reading, error) {
	if err := m.d.call("read meter"); err != nil {
		return runtime.Reading{}, err
	}
	return m.Meter.Read()
}

func (m *meter) Close() error { return m.d.release(m, "close meter", m.Meter.Close) }

// compiling is a device that compiles apart from loading.
type compiling struct {
	*Driver
	compiler runtime.Compiler
}

func (c *compiling) Toolchain() runtime.Toolchain { return c.compiler.Toolchain() }

func (c *compiling) Compile(text []byte) (runtime.Image, error) {
	if err := c.call("compile"); err != nil {
		return runtime.Image{}, err
	}
	m, err := c.compiler.Compile(text)
	if m.Module != nil { // it was loaded to be compiled
		m.Module, err = c.module(m.Module, err)
	}
	return m, err
}

func (c *compiling) LoadImage(code []byte) (runtime.Module, error) {
	if err := c.call("load image"); err != nil {
		return nil, err
	}
	return c.module(c.compiler.LoadImage(code))
}
