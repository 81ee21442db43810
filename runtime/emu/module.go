package emu

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/emu"
	"github.com/mlagen/mlagen/runtime"
)

// Load parses and decodes PTX text.
func (d *Driver) Load(text []byte) (runtime.Module, error) {
	start := time.Now()
	p, err := d.opts.Programs.decode(text)
	if err != nil {
		return nil, err
	}
	return &module{d, p, time.Since(start).Seconds()}, nil
}

// Toolchain names this emulator. Its images are the texts themselves, which no
// file would make cheaper.
func (d *Driver) Toolchain() runtime.Toolchain {
	return runtime.Toolchain{Card: d.Name(), Driver: "1", Options: "none"}
}

// Compile parses and decodes PTX text, and keeps what came of it until the image
// is loaded.
func (d *Driver) Compile(text []byte) (runtime.Image, error) {
	start := time.Now()
	p, err := d.opts.Programs.decode(text)
	if err != nil {
		return runtime.Image{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.programs[sha256.Sum256(text)] = p
	return runtime.Image{Code: text, Seconds: time.Since(start).Seconds()}, nil
}

// LoadImage loads a text that was compiled, in this process or another.
func (d *Driver) LoadImage(text []byte) (runtime.Module, error) {
	key := sha256.Sum256(text)
	d.mu.Lock()
	p := d.programs[key]
	delete(d.programs, key) // it lives as long as its module
	d.mu.Unlock()
	if p == nil {
		return d.Load(text)
	}
	return &module{driver: d, program: p}, nil
}

func compile(text []byte) (*emu.Program, error) {
	m, err := ptx.Parse("kernel.ptx", text)
	if err != nil {
		return nil, err
	}
	return emu.Compile(m)
}

// module is decoded PTX.
type module struct {
	driver  *Driver
	program *emu.Program
	seconds float64
}

// Function returns the kernel called name.
func (m *module) Function(name string) (runtime.Function, error) {
	info, ok := m.program.Kernel(name)
	if !ok {
		return nil, fmt.Errorf("no kernel %q in the module", name)
	}
	return &function{m.driver, m.program, name, info}, nil
}

func (m *module) Log() string             { return "" }
func (m *module) CompileSeconds() float64 { return m.seconds }
func (m *module) Unload() error           { return nil }

// function is a kernel of a module.
type function struct {
	driver  *Driver
	program *emu.Program
	name    string
	info    emu.KernelInfo
}

// Attributes describes the kernel as launched; the emulator does not allocate
// registers, so that their number is the launch's allotment.
func (f *function) Attributes() (runtime.FunctionAttributes, error) {
	return runtime.FunctionAttributes{Registers: f.info.Registers, LocalBytes: f.info.LocalBytes,
		StaticShared: f.info.StaticShared, MaxThreads: f.info.MaxThreads}, nil
}

// SetDynamicShared checks the limit; the launch checks the sum.
func (f *function) SetDynamicShared(bytes int) error {
	const limit = 232448
	if bytes < 0 || bytes+f.info.StaticShared > limit {
		return fmt.Errorf("%s: %d bytes of dynamic and %d of static shared memory, at most %d", f.name, bytes, f.info.StaticShared, limit)
	}
	return nil
}

// Param returns a parameter's place as compiled.
func (f *function) Param(i int) (offset, size int, exists, known bool) {
	if i < 0 || i >= len(f.info.Params) {
		return 0, 0, false, true
	}
	return f.info.Params[i].Offset, f.info.Params[i].Size, true, true
}

// pack lays a launch's parameters out as the kernel declares them; the launch
// names the place of each in its buffer.
func (f *function) pack(l runtime.Launch) []byte {
	if len(l.Offsets) != len(f.info.Params) {
		return l.Params
	}
	var out []byte
	for i, p := range f.info.Params {
		if n := p.Offset + p.Size; n > len(out) {
			out = append(out, make([]byte, n-len(out))...)
		}
		if o := l.Offsets[i]; o >= 0 && o+p.Size <= len(l.Params) {
			copy(out[p.Offset:], l.Params[o:o+p.Size])
		}
	}
	return out
}
