//go:build cuda

package cuda

import (
	"fmt"

	"gorgonia.org/cu"

	"github.com/mlagen/mlagen/runtime"
)

type module struct {
	driver  *Driver
	module  cu.Module
	log     string
	seconds float64
}

// Load compiles PTX text with the GPU driver's compiler. The driver keeps
// results in a cache of its own, and a text that it finds there compiles in no
// time and without a log; CUDA_CACHE_DISABLE=1 turns that off.
func (d *Driver) Load(ptx []byte) (runtime.Module, error) {
	if err := d.usable("load"); err != nil {
		return nil, err
	}
	l, err := shimLoad(d.context, ptx)
	log := joinLogs(l.info, l.errors)
	if err != nil {
		return nil, d.compileError(err, log)
	}
	return &module{driver: d, module: l.module, log: log, seconds: l.seconds}, nil
}

func (m *module) Function(name string) (runtime.Function, error) {
	f := &function{driver: m.driver}
	err := m.driver.do("cuModuleGetFunction", func() (err error) {
		f.function, err = m.module.Function(name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("kernel %q: %w", name, err)
	}
	return f, nil
}

func (m *module) Log() string             { return m.log }
func (m *module) CompileSeconds() float64 { return m.seconds }
func (m *module) Unload() error           { return m.driver.do("cuModuleUnload", m.module.Unload) }

type function struct {
	driver   *Driver
	function cu.Function
}

var _ runtime.ParamLocator = (*function)(nil)

func (f *function) Attributes() (runtime.FunctionAttributes, error) {
	var a runtime.FunctionAttributes
	for _, want := range []struct {
		attribute cu.FunctionAttribute
		to        *int
	}{
		{cu.NumRegs, &a.Registers},
		{cu.LocalSizeBytes, &a.LocalBytes},
		{cu.SharedSizeBytes, &a.StaticShared},
		{cu.FnMaxThreadsPerBlock, &a.MaxThreads},
	} {
		err := f.driver.do("cuFuncGetAttribute", func() (err error) {
			*want.to, err = f.function.Attribute(want.attribute)
			return err
		})
		if err != nil {
			return a, err
		}
	}
	return a, nil
}

func (f *function) SetDynamicShared(bytes int) error {
	if err := f.driver.usable("set dynamic shared memory"); err != nil {
		return err
	}
	return shimSetDynamicShared(f.driver.context, f.function, bytes)
}

func (f *function) Param(index int) (offset, size int, exists, known bool) {
	if !shimHasParam() {
		return 0, 0, false, false
	}
	offset, size, exists = shimParam(f.driver.context, f.function, index)
	return offset, size, exists, true
}
