package runtime

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// ProductModel is what a kernel that multiplies rows by the weights of heads
// was generated for, read from its manifest's spec.
type ProductModel struct {
	Heads   int   `json:"heads"`
	Latent  int   `json:"latent"`
	Rope    int   `json:"rope"` // 0 where the kernel copies none
	Nope    int   `json:"nope"`
	Value   int   `json:"value"`
	Page    int   `json:"page"`    // tokens per page, 0 where the kernel reads no cache
	BlockM  int   `json:"block_m"` // rows of a tile
	BlockN  int   `json:"block_n"` // columns of a tile
	Cluster int   `json:"cluster"` // CTAs of a cluster
	DType   DType `json:"dtype"`
}

// same reports whether two kernels compute the same, whatever their tiles.
func (m ProductModel) same(o ProductModel) bool {
	m.BlockM, m.BlockN, m.Cluster = o.BlockM, o.BlockN, o.Cluster
	return m == o
}

// productKernel is a loaded kernel of a product with its parameters.
type productKernel struct {
	kernel *Kernel
	params *Params
	model  ProductModel
	maps   map[string]*productMap
}

// productMap is a tensor map and what it describes.
type productMap struct {
	valid   bool
	address Ptr
	sizes   [3]uint64
	strides [2]uint64
	encoded [128]byte
}

// loadProduct loads a variant of the kernel called name.
func loadProduct(l *loader, v Variant, name string) (*productKernel, error) {
	if m := v.Manifest; m != nil && m.Kernel != name {
		return nil, fmt.Errorf("%s is kernel %q, must be %q", v.label(), m.Kernel, name)
	}
	k, err := l.load(v)
	if err != nil {
		return nil, err
	}
	p := &productKernel{kernel: k, params: k.NewParams(), maps: map[string]*productMap{}}
	if err := p.readModel(); err != nil {
		return p, err
	}
	for _, t := range k.Manifest.TensorMaps {
		if len(t.Box) != 3 || t.DType != string(p.model.DType) {
			return p, fmt.Errorf("%s reads %s as %s in boxes of %v; this runtime describes it as %s in three dimensions",
				name, t.Param, t.DType, t.Box, p.model.DType)
		}
		p.maps[t.Param] = &productMap{}
	}
	return p, nil
}

func (p *productKernel) readModel() error {
	text, err := json.Marshal(p.kernel.Manifest.Spec)
	if err == nil {
		err = json.Unmarshal(text, &p.model)
	}
	if err != nil {
		return fmt.Errorf("spec of %s: %w", p.kernel.Manifest.Kernel, err)
	}
	m := &p.model
	if m.Heads < 1 || m.Latent < 1 || m.Nope < 1 || m.Value < 1 || m.BlockM < 1 || m.BlockN < 1 || m.Rope < 0 || m.DType.Bytes() == 0 {
		return fmt.Errorf("spec of %s has heads %d, latent %d, nope %d, value %d, rope %d, block_m %d, block_n %d, dtype %q: not a product's",
			p.kernel.Manifest.Kernel, m.Heads, m.Latent, m.Nope, m.Value, m.Rope, m.BlockM, m.BlockN, string(m.DType))
	}
	return nil
}

// accepts makes sure that the kernel takes exactly the named parameters, so
// that a launch cannot fail for one.
func (p *productKernel) accepts(pointers, scalars, maps []string) error {
	known := map[string]manifest.ParamKind{}
	for kind, names := range map[manifest.ParamKind][]string{
		manifest.PointerParam: pointers, manifest.ScalarParam: scalars, manifest.TensorMapParam: maps,
	} {
		for _, n := range names {
			known[n] = kind
		}
	}
	m := p.kernel.Manifest
	for _, q := range m.Params {
		want, ok := known[q.Name]
		if !ok {
			return fmt.Errorf("%s takes a parameter %q, which this runtime does not know", m.Kernel, q.Name)
		}
		if q.Kind != want {
			return fmt.Errorf("%s takes %q as a %s; this runtime passes a %s", m.Kernel, q.Name, q.Kind, want)
		}
		delete(known, q.Name)
	}
	for name := range known {
		return fmt.Errorf("%s takes no parameter %q, which this runtime passes", m.Kernel, name)
	}
	return nil
}

// describe sets a tensor map parameter, encoding it only when the tensor is
// another than last time. sizes are in elements, innermost first; strides in
// bytes, 0 where a dimension has one element.
func (p *productKernel) describe(name string, address Ptr, sizes [3]uint64, strides [2]uint64) error {
	dense := sizes[0] * uint64(p.model.DType.Bytes())
	for i := range strides {
		if strides[i] == 0 {
			strides[i] = dense
		}
		dense = strides[i] * sizes[i+1]
	}
	m := p.maps[name]
	if !m.valid || m.address != address || m.sizes != sizes || m.strides != strides {
		all, apart := sizes, strides // these are the driver's to keep
		encoded, err := p.kernel.EncodeTensorMap(name, address, all[:], apart[:])
		m.valid = err == nil
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		m.address, m.sizes, m.strides, m.encoded = address, sizes, strides, encoded
	}
	p.params.TensorMap(name, &m.encoded)
	return nil
}

// describeTensor describes a tensor [a, b, c] of which the map's dimensions are
// c, then those that second and third name.
func (p *productKernel) describeTensor(name string, t *Tensor, second, third int) error {
	stride := func(axis int) uint64 {
		if t.Shape[axis] == 1 {
			return 0 // whatever the caller says
		}
		return uint64(t.strideBytes(axis))
	}
	return p.describe(name, t.Ptr, [3]uint64{uint64(t.Shape[2]), uint64(t.Shape[second]), uint64(t.Shape[third])}, [2]uint64{stride(second), stride(third)})
}

// strided sets the parameters of a tensor [token, head, …]: its address and
// its strides.
func (p *productKernel) strided(name, token, head string, t *Tensor) {
	p.params.Pointer(name, t.Ptr).Int(token, t.strideBytes(0)).Int(head, t.strideBytes(1))
}

// wide reports whether the kernel's CTAs run through many tiles, and write them
// through a tensor map. The others have one tile each.
func (p *productKernel) wide() bool { return p.model.BlockM >= wideBlock }

// wideBlock is the least BlockM of wide kernels.
const wideBlock = 128

// result sets the parameters that say where the product goes.
func (p *productKernel) result(t *Tensor) error {
	p.strided("out", "out_token", "out_head", t)
	if !p.wide() {
		return nil
	}
	return p.describeTensor("results", t, 0, 1)
}

// launch launches so many blocks.
func (p *productKernel) launch(s Stream, blocks int64) error {
	if blocks > maxGridX {
		return fmt.Errorf("%s: %d blocks, must be at most %d", p.kernel.label(), blocks, maxGridX)
	}
	return p.kernel.Launch(s, Dim3{X: int(blocks)}, p.params, true)
}

// mapStrides holds a tensor's strides against what a tensor map can say.
func mapStrides(x *expectation, t *Tensor) error {
	for i := range t.Shape[:len(t.Shape)-1] {
		if n := t.strideBytes(i); t.Shape[i] > 1 && (n <= 0 || n >= tensorMapStride) {
			return argumentError(x.name, fmt.Sprintf("more than 0 and less than %d bytes", int64(tensorMapStride)),
				"%s stride was %d elements (%d bytes)", x.axes[i].name, t.stride(i), n)
		}
	}
	return nil
}

// maxProductRows is the most rows of a product: row numbers, and a tile past
// the last, fit 31 bits.
const maxProductRows = math.MaxInt32 - 1024

func checkRows(name string, rows int64) error {
	if rows > maxProductRows {
		return argumentError(name, fmt.Sprintf("at most %d", maxProductRows), "it had %d rows", rows)
	}
	return nil
}

// SplitWeights returns the key rows and the value rows of W_kv_b [heads,
// nope+value, latent], as AbsorbQuery and AbsorbOutput take them.
func SplitWeights(w Tensor, nope int) (keys, values Tensor) {
	keys, values = w, w
	if len(w.Shape) != 3 || w.Strides != nil && len(w.Strides) != 3 {
		return keys, values // a mistake that the call will name
	}
	strides := []int64{w.stride(0), w.stride(1), 1}
	keys.Shape, keys.Strides = []int64{w.Shape[0], int64(nope), w.Shape[2]}, strides
	values.Shape, values.Strides = []int64{w.Shape[0], w.Shape[1] - int64(nope), w.Shape[2]}, strides
	values.Ptr += Ptr(int64(nope) * w.strideBytes(1))
	return keys, values
}
