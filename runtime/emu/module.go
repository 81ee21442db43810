package emu

import (
	"fmt"

	"github.com/mlagen/mlagen/ptx/emu"
	"github.com/mlagen/mlagen/runtime"
)

// module is decoded PTX.
type module struct {
	program *emu.Program
	seconds float64
}

// Function returns the kernel called name.
func (m *module) Function(name string) (runtime.Function, error) {
	info, ok := m.program.Kernel(name)
	if !ok {
		return nil, fmt.Errorf("no kernel %q in the module", name)
	}
	return &function{m.program, name, info}, nil
}

func (m *module) Log() string             { return "" }
func (m *module) CompileSeconds() float64 { return m.seconds }
func (m *module) Unload() error           { return nil }

// function is a kernel of a module.
type function struct {
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
