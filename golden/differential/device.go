package differential

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

// Pair is two devices that are to agree. It keeps kernels built and loaded
// until Close.
type Pair struct {
	A, B runtime.Driver

	built  map[variant]runtime.Variant
	loaded map[loading]runtime.Module
}

// loading is a text on a device.
type loading struct {
	driver runtime.Driver
	text   string
}

// Close unloads the kernels. The devices stay open.
func (p *Pair) Close() (err error) {
	for _, m := range p.loaded {
		err = errors.Join(err, m.Unload())
	}
	p.loaded = nil
	return err
}

// variant is a kernel of the templates.
type variant struct {
	kernel string
	spec   templates.Spec
}

// build returns a kernel, the same bytes for both devices.
func (p *Pair) build(kernel string, spec templates.Spec) (runtime.Variant, error) {
	key := variant{kernel, spec.WithDefaults()}
	if v, ok := p.built[key]; ok {
		return v, nil
	}
	out, err := templates.Build(kernel, spec)
	if err != nil {
		return runtime.Variant{}, err
	}
	if p.built == nil {
		p.built = map[variant]runtime.Variant{}
	}
	p.built[key] = runtime.Variant{Name: kernel, PTX: out.PTX, Manifest: out.Manifest}
	return p.built[key], nil
}

// each runs f on both devices, each in fresh memory, planning for so many
// multiprocessors, and returns both results.
func each[T any](p *Pair, sms int, f func(*device) (T, error)) (results [2]T, err error) {
	for i, drv := range []runtime.Driver{p.A, p.B} {
		d := &device{Driver: drv, pair: p, sms: sms}
		if d.stream, err = d.NewStream(); err == nil {
			results[i], err = f(d)
			err = errors.Join(err, d.free(), d.stream.Destroy())
		}
		if err != nil {
			return results, fmt.Errorf("%s: %w", drv.Name(), err)
		}
	}
	return results, nil
}

// poison fills results before a kernel writes them: a NaN in every type.
const poison = 0xff

// device is a driver that plans for a given number of multiprocessors, owns
// the memory of a run and notes what kernels are given.
type device struct {
	runtime.Driver
	pair     *Pair
	sms      int
	stream   runtime.Stream
	memory   []runtime.Ptr
	launches []runtime.Launch
}

// Attributes are the driver's, but for the multiprocessors.
func (d *device) Attributes() runtime.Attributes {
	a := d.Driver.Attributes()
	a.SMs = d.sms
	return a
}

// Load compiles a text that the driver has not seen before; a GPU takes seconds
// for some.
func (d *device) Load(text []byte) (runtime.Module, error) {
	key := loading{d.Driver, string(text)}
	if m, ok := d.pair.loaded[key]; ok {
		return keptModule{m}, nil
	}
	m, err := d.Driver.Load(text)
	if err != nil {
		return nil, err
	}
	if d.pair.loaded == nil {
		d.pair.loaded = map[loading]runtime.Module{}
	}
	d.pair.loaded[key] = m
	return keptModule{m}, nil
}

// keptModule is a module that stays loaded.
type keptModule struct{ runtime.Module }

func (keptModule) Unload() error { return nil }

// NewStream returns a stream that notes launches.
func (d *device) NewStream() (runtime.Stream, error) {
	s, err := d.Driver.NewStream()
	if err != nil {
		return nil, err
	}
	return &notingStream{s, d}, nil
}

type notingStream struct {
	runtime.Stream
	d *device
}

func (s *notingStream) Launch(l runtime.Launch) error {
	noted := l
	noted.Params = slices.Clone(l.Params)
	s.d.launches = append(s.d.launches, noted)
	return s.Stream.Launch(l)
}

// given returns the address that launch number i of a kernel was given as the
// parameter called name.
func (d *device) given(i int, m *manifest.Manifest, name string) (runtime.Ptr, error) {
	if i >= len(d.launches) {
		return 0, fmt.Errorf("%d launches, fewer than %d", len(d.launches), i+1)
	}
	for _, p := range m.Params {
		if p.Name == name && p.Kind == manifest.PointerParam {
			return runtime.Ptr(binary.LittleEndian.Uint64(d.launches[i].Params[p.Offset:])), nil
		}
	}
	return 0, fmt.Errorf("%s takes no address %q", m.Kernel, name)
}

// alloc returns poisoned memory.
func (d *device) alloc(name string, size int64) (runtime.Buffer, error) {
	p, err := d.Alloc(name, size)
	if err != nil {
		return runtime.Buffer{}, err
	}
	d.memory = append(d.memory, p)
	return runtime.Buffer{Ptr: p, Bytes: size}, d.Fill(p, poison, size)
}

// upload returns memory that holds data.
func (d *device) upload(name string, data []byte) (runtime.Buffer, error) {
	b, err := d.alloc(name, int64(len(data)))
	if err == nil && len(data) > 0 {
		err = d.Upload(b.Ptr, data)
	}
	return b, err
}

func (d *device) download(b runtime.Buffer) ([]byte, error) {
	data := make([]byte, b.Bytes)
	if b.Bytes == 0 {
		return data, nil
	}
	return data, d.Download(data, b.Ptr)
}

// floats downloads values of a type.
func (d *device) floats(t dtype.Type, b runtime.Buffer) ([]float32, error) {
	data, err := d.download(b)
	return t.Decode(make([]float32, 0, len(data)/t.Size()), data), err
}

func (d *device) free() (err error) {
	for _, p := range d.memory {
		err = errors.Join(err, d.Free(p))
	}
	d.memory = nil
	return err
}
