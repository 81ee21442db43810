package runtime

import (
	"errors"
	"fmt"
	"math"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// Launcher launches one kernel by the rules of its manifest, without knowing
// the kernel. Whoever runs a whole operation is better served by its own type,
// such as Decode, which also makes sure that its kernels fit each other. A
// Launcher must not be used concurrently.
type Launcher struct {
	kernel *Kernel
	driver Driver
	rules  *manifest.Rules
	params *Params
	places places
	list   []launchArgument
	byName map[string]int // of tensors, buffers and reals
	reals  map[string]float64
	tables map[string][]uint64
	maps   []launchMap
}

// launchArgument is an argument of the manifest and what the present call gives.
type launchArgument struct {
	manifest.Argument
	slot    int // among those of its kind
	expect  expectation
	address Ptr
}

// launchMap is a tensor map in use and what it describes.
type launchMap struct {
	valid          bool
	address        Ptr
	sizes, strides []uint64
	encoded        [128]byte
}

// LaunchArguments are the arguments of a launch: of each kind those that the
// manifest lists, in its order. A tensor that may be left out is the zero Tensor.
type LaunchArguments struct {
	Tensors  []Tensor
	Buffers  []Buffer
	Integers []int64
	Reals    []float64
	Tables   [][]uint64 // rows one after the other
}

// LoadLauncher loads a kernel whose manifest has launch rules.
func LoadLauncher(drv Driver, v Variant) (_ *Launcher, err error) {
	k, err := Load(drv, v)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("load %s: %w", v.label(), err), k.Unload())
		}
	}()
	l := &Launcher{kernel: k, driver: drv, params: k.NewParams(), byName: map[string]int{}, reals: map[string]float64{}, tables: map[string][]uint64{}}
	if l.rules, err = v.Manifest.Rules(); err != nil {
		return nil, err
	}
	arguments := v.Manifest.Launch.Arguments
	l.places = newPlaces(drv, len(arguments))
	slots := map[manifest.ArgumentKind]int{}
	for i, a := range arguments {
		x := expectation{name: a.Name, dtype: DType(a.DType), rank: len(a.Shape), align: int64(a.Align), dense: a.Dense, output: a.Output}
		if x.rank > len(x.axes) {
			return nil, fmt.Errorf("argument %q has %d dimensions; this runtime knows up to %d", a.Name, x.rank, len(x.axes))
		}
		l.list = append(l.list, launchArgument{Argument: a, slot: slots[a.Kind], expect: x})
		l.byName[a.Name] = i
		slots[a.Kind]++
	}
	for _, t := range v.Manifest.TensorMaps {
		n := len(t.Box)
		l.maps = append(l.maps, launchMap{sizes: make([]uint64, n), strides: make([]uint64, n-1)})
	}
	return l, nil
}

// Kernel returns the loaded kernel.
func (l *Launcher) Kernel() *Kernel { return l.kernel }

// Close unloads the kernel. It must not be running.
func (l *Launcher) Close() error {
	if l.kernel == nil {
		return nil
	}
	k := l.kernel
	l.kernel = nil
	return k.Unload()
}

// BufferBytes returns the least size of the buffer called name, for the
// integer arguments in the manifest's order, or why they cannot be.
func (l *Launcher) BufferBytes(name string, integers ...int64) (int64, error) {
	i, ok := l.byName[name]
	if !ok || l.list[i].Kind != manifest.BufferArgument {
		return 0, fmt.Errorf("%s takes no buffer %q", l.kernel.label(), name)
	}
	if err := l.integers(integers); err != nil {
		return 0, err
	}
	if err := l.rules.Finish(); err != nil {
		return 0, err
	}
	return l.rules.Eval(l.list[i].Bytes)
}

// Launch launches the kernel, or nothing where the rules say that there is
// nothing to do. A mistake in the arguments launches nothing.
func (l *Launcher) Launch(s Stream, a LaunchArguments) error {
	if l.kernel == nil {
		return errors.New("launch: kernel " + closed)
	}
	if s == nil {
		return noStream()
	}
	grid, err := l.prepare(&a)
	if err != nil {
		return fmt.Errorf("launch %s: %w", l.kernel.label(), err)
	}
	if grid.X == 0 {
		return nil
	}
	return l.kernel.Launch(s, grid, l.params, l.rules.Launch().Programmatic)
}

// prepare fills the parameters and returns the grid, none where nothing is to
// be launched.
func (l *Launcher) prepare(a *LaunchArguments) (grid Dim3, err error) {
	l.places.begin()
	if err := l.integers(a.Integers); err != nil {
		return grid, err
	}
	if err := errors.Join(l.readTables(a.Tables), l.tensors(a.Tensors)); err != nil {
		return grid, err
	}
	if err := l.rules.Finish(); err != nil {
		return grid, err
	}
	launch := l.rules.Launch()
	if launch.When != "" {
		if n, err := l.rules.Eval(launch.When); err != nil || n == 0 {
			return grid, err
		}
	}
	if err := errors.Join(l.buffers(a.Buffers), l.readReals(a.Reals)); err != nil {
		return grid, err
	}
	if err := apart(&l.places); err != nil {
		return grid, err
	}
	if err := errors.Join(l.describe(), l.fill()); err != nil {
		return grid, err
	}
	for i, to := range []*int{&grid.X, &grid.Y, &grid.Z} {
		n, err := l.rules.Eval(launch.Grid[i])
		if err != nil {
			return Dim3{}, err
		}
		if n < 1 || n > maxGridX {
			return Dim3{}, fmt.Errorf("grid %q was %d, must be 1 to %d", launch.Grid[i], n, maxGridX)
		}
		*to = int(n)
	}
	return grid, nil
}

// each calls f with the arguments of a kind, of which given were given.
func (l *Launcher) each(kind manifest.ArgumentKind, given int, f func(i, slot int) error) error {
	count := 0
	for i := range l.list {
		x := &l.list[i]
		if x.Kind != kind {
			continue
		}
		if count++; x.slot < given {
			if err := f(i, x.slot); err != nil {
				return err
			}
		}
	}
	if count != given {
		return fmt.Errorf("%d arguments were given that are %s, must be %d", given, kind, count)
	}
	return nil
}

func (l *Launcher) integers(values []int64) error {
	l.rules.Begin(max(1, l.driver.Attributes().SMs))
	return l.each(manifest.IntegerArgument, len(values), func(i, slot int) error { return l.rules.Integer(i, values[slot]) })
}

func (l *Launcher) tensors(tensors []Tensor) error {
	return l.each(manifest.TensorArgument, len(tensors), func(i, slot int) error {
		x, t := &l.list[i], &tensors[slot]
		if x.Optional && t.absent() {
			x.address = 0
			return l.rules.Absent(i)
		}
		for d, dim := range x.Shape {
			size := int64(-1)
			if dim.Size != "" {
				var err error
				if size, err = l.rules.Eval(dim.Size); err != nil {
					return fmt.Errorf("%s: size of %s: %w", x.Name, dim.Name, err)
				}
			}
			x.expect.axes[d] = axis{dim.Name, size}
		}
		if err := l.places.tensor(i, &x.expect, t); err != nil {
			return err
		}
		for d := range x.Shape {
			if err := l.rules.Tensor(i, d, t.Shape[d], t.strideBytes(d)); err != nil {
				return err
			}
		}
		x.address = t.Ptr
		return nil
	})
}

func (l *Launcher) buffers(buffers []Buffer) error {
	return l.each(manifest.BufferArgument, len(buffers), func(i, slot int) error {
		x := &l.list[i]
		size, err := l.rules.Eval(x.Bytes)
		if err != nil {
			return fmt.Errorf("%s: %w", x.Name, err)
		}
		x.address = buffers[slot].Ptr
		return l.places.buffer(i, x.Name, buffers[slot], size)
	})
}

func (l *Launcher) readReals(reals []float64) error {
	return l.each(manifest.RealArgument, len(reals), func(i, slot int) error {
		v := reals[slot]
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return argumentError(l.list[i].Name, "finite", "was %v", v)
		}
		l.reals[l.list[i].Name] = v
		return nil
	})
}

func (l *Launcher) readTables(tables [][]uint64) error {
	return l.each(manifest.TableArgument, len(tables), func(i, slot int) error {
		a := &l.list[i]
		if n := len(tables[slot]); n%len(a.Fields) != 0 {
			return argumentError(a.Name, fmt.Sprintf("whole rows of %d words", len(a.Fields)), "had %d words", n)
		}
		l.tables[a.Name] = tables[slot]
		return l.rules.Table(i, len(tables[slot])/len(a.Fields))
	})
}

// place returns an argument's address and an offset to it.
func (l *Launcher) place(address, offset string) (Ptr, error) {
	at, err := l.rules.Eval(offset)
	return l.list[l.byName[address]].address + Ptr(at), err
}

// fill fills all parameters but tensor maps.
func (l *Launcher) fill() error {
	l.params.err = nil
	for i := range l.kernel.Manifest.Params {
		p := &l.kernel.Manifest.Params[i]
		f := p.Fill
		switch {
		case f == nil: // a tensor map
		case f.Address != "":
			at, err := l.place(f.Address, f.Offset)
			if err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
			l.params.put(i, uint64(at))
		case f.Table != "":
			clear(l.params.bytes[p.Offset : p.Offset+p.Size]) // the rows of a call before
			l.params.Table(p.Name, l.tables[f.Table])
		case f.Value != "":
			v, err := l.rules.Eval(f.Value)
			if err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
			l.params.putInt(i, v)
		default:
			v := l.reals[f.Real]
			if f.Factor != 0 {
				v *= f.Factor
			}
			if p.Type == "f32" && math.IsInf(float64(float32(v)), 0) {
				return argumentError(f.Real, "small enough for the kernel's f32", "was %v", l.reals[f.Real])
			}
			l.params.putFloat(i, v)
		}
	}
	return nil
}

// describe brings the tensor maps up to date, encoding those that describe
// something else than last time.
func (l *Launcher) describe() error {
	for i := range l.maps {
		t, m := &l.kernel.Manifest.TensorMaps[i], &l.maps[i]
		empty, err := l.describeOne(m, t.Source)
		if err == nil && empty && t.IfEmpty != nil {
			_, err = l.describeOne(m, t.IfEmpty)
		}
		if err == nil && !m.valid {
			m.encoded, err = l.kernel.EncodeTensorMap(t.Param, m.address, m.sizes, m.strides)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", t.Param, err)
		}
		m.valid = true
		l.params.TensorMap(t.Param, &m.encoded)
	}
	return nil
}

// describeOne reads a source into a map, which stays valid where nothing
// changes, and reports whether a size is 0.
func (l *Launcher) describeOne(m *launchMap, s *manifest.Source) (empty bool, err error) {
	address, err := l.place(s.Address, s.Offset)
	if err != nil {
		return false, err
	}
	if m.address != address {
		m.address, m.valid = address, false
	}
	element := DType("")
	if a := &l.list[l.byName[s.Address]]; a.Kind == manifest.TensorArgument {
		element = a.expect.dtype
	}
	dense := element.Bytes()
	for d, text := range s.Sizes {
		size, err := l.rules.Eval(text)
		if err != nil {
			return false, err
		}
		if d > 0 {
			stride, err := l.rules.Eval(s.Strides[d-1])
			if err != nil {
				return false, err
			}
			if stride == 0 {
				stride = dense
			}
			dense = stride
			if m.strides[d-1] != uint64(stride) {
				m.strides[d-1], m.valid = uint64(stride), false
			}
		}
		dense *= size
		if m.sizes[d] != uint64(size) {
			m.sizes[d], m.valid = uint64(size), false
		}
		empty = empty || size == 0
	}
	return empty, nil
}
