package vectors

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/runtime"
)

// experiment is one launch of a small kernel.
type experiment struct {
	name    string // of the array in its file
	entry   string // of the kernel
	threads int
	blocks  int
	params  []any // *buffer, tensor, uint32, int32 or uint64, in the kernel's order
	// probe marks a launch that hardware may refuse: then there is no record
	// of it, and that is no error.
	probe bool
	// check compares what a device left in the out buffers, one after another,
	// with what the units say.
	check func(got []byte) error
}

// buffer is device memory with its contents before the launch. Those with an
// elem are outputs: they are read back and recorded as integers of elem bytes.
type buffer struct {
	name string
	data []byte
	elem int
}

// tensor is a tensor map over a buffer, passed by value.
type tensor struct {
	buffer         *buffer
	dtype          string
	sizes, strides []uint64
	box            []int
	swizzle        int
}

// dynamicShared is what every kernel is launched with: a barrier and a region
// that starts 1024-aligned.
const dynamicShared = 2048 + regionBytes

// regionBytes is the size of the shared memory that experiments use.
const regionBytes = 65536

// family is a module of kernels with its experiments and its file.
type family struct {
	name        string
	ptx         string
	experiments []experiment
}

// families returns all experiments, the same ones on every call.
func families() []family {
	return []family{tmaFamily(), wgmmaFamily(), matrixFamily(), scalarFamily()}
}

// outputs returns the buffers that are recorded.
func (e *experiment) outputs() (out []*buffer) {
	for _, b := range e.buffers() {
		if b.elem > 0 {
			out = append(out, b)
		}
	}
	return
}

func (e *experiment) buffers() (list []*buffer) {
	for _, p := range e.params {
		b, ok := p.(*buffer)
		if t, isTensor := p.(tensor); isTensor {
			b, ok = t.buffer, true
		}
		if ok && !slices.Contains(list, b) {
			list = append(list, b)
		}
	}
	return
}

// inputs is a digest of everything that the result depends on but the kernel:
// records made from other inputs are refused.
func (e *experiment) inputs() [8]byte {
	h := sha256.New()
	for _, p := range e.params {
		switch v := p.(type) {
		case *buffer:
			h.Write(v.data)
		case tensor:
			fmt.Fprintln(h, v.dtype, v.sizes, v.strides, v.box, v.swizzle)
			h.Write(v.buffer.data)
		default:
			fmt.Fprintln(h, v)
		}
	}
	return [8]byte(h.Sum(nil))
}

// run executes the experiment and returns the outputs.
func (e *experiment) run(d runtime.Driver, m runtime.Module, s runtime.Stream) ([]byte, error) {
	address := map[*buffer]runtime.Ptr{}
	defer func() {
		for _, p := range address {
			_ = d.Free(p) // the result is read; a fault shows in the next call
		}
	}()
	for _, b := range e.buffers() {
		p, err := d.Alloc(b.name, int64(len(b.data)))
		if err != nil {
			return nil, err
		}
		address[b] = p
		if err := d.Upload(p, b.data); err != nil {
			return nil, err
		}
	}

	l := runtime.Launch{Grid: runtime.Dim3{X: e.blocks}, Block: runtime.Dim3{X: e.threads}, Shared: dynamicShared}
	put := func(b []byte, align int) {
		for len(l.Params)%align != 0 {
			l.Params = append(l.Params, 0)
		}
		l.Offsets = append(l.Offsets, len(l.Params))
		l.Params = append(l.Params, b...)
	}
	le := binary.LittleEndian
	for _, p := range e.params {
		switch v := p.(type) {
		case *buffer:
			put(le.AppendUint64(nil, uint64(address[v])), 8)
		case uint64:
			put(le.AppendUint64(nil, v), 8)
		case uint32:
			put(le.AppendUint32(nil, v), 4)
		case int32:
			put(le.AppendUint32(nil, uint32(v)), 4)
		case tensor:
			static := manifest.TensorMap{Param: "map", DType: v.dtype, Box: v.box, Swizzle: v.swizzle}
			for i := range v.box {
				static.Dims = append(static.Dims, fmt.Sprintf("d%d", i))
			}
			b, err := d.EncodeTensorMap(runtime.TensorMap{TensorMap: static, Address: address[v.buffer], Sizes: v.sizes, Strides: v.strides})
			if err != nil {
				return nil, err
			}
			put(b[:], 64)
		default:
			return nil, fmt.Errorf("parameter of type %T", p)
		}
	}
	f, err := m.Function(e.entry)
	if err != nil {
		return nil, err
	}
	if err := f.SetDynamicShared(dynamicShared); err != nil {
		return nil, err
	}
	l.Function = f
	if err := s.Launch(l); err != nil {
		return nil, err
	}
	if err := s.Synchronize(); err != nil {
		return nil, err
	}
	var out []byte
	for _, b := range e.outputs() {
		got := make([]byte, len(b.data))
		if err := d.Download(got, address[b]); err != nil {
			return nil, err
		}
		out = append(out, got...)
	}
	return out, nil
}
