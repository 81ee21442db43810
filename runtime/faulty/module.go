package faulty

import "github.com/mlagen/mlagen/runtime"

type module struct {
	runtime.Module
	d *Driver
}

// module wraps a loaded module.
func (d *Driver) module(m runtime.Module, err error) (runtime.Module, error) {
	if err != nil {
		return nil, err
	}
	w := &module{m, d}
	d.hold(w, "module")
	return w, nil
}

func (m *module) Function(name string) (runtime.Function, error) {
	if err := m.d.call("function %q", name); err != nil {
		return nil, err
	}
	f, err := m.Module.Function(name)
	if err != nil {
		return nil, err
	}
	return &function{f, m.d, name}, nil
}

func (m *module) Unload() error { return m.d.release(m, "unload", m.Module.Unload) }

type function struct {
	runtime.Function
	d    *Driver
	name string
}

func (f *function) Attributes() (runtime.FunctionAttributes, error) {
	if err := f.d.call("attributes of %s", f.name); err != nil {
		return runtime.FunctionAttributes{}, err
	}
	return f.Function.Attributes()
}

func (f *function) SetDynamicShared(bytes int) error {
	if err := f.d.call("shared memory of %s", f.name); err != nil {
		return err
	}
	return f.Function.SetDynamicShared(bytes)
}

// Param cannot fail: a driver that cannot say says so.
func (f *function) Param(index int) (offset, size int, exists, known bool) {
	if l, ok := f.Function.(runtime.ParamLocator); ok {
		return l.Param(index)
	}
	return 0, 0, false, false
}
