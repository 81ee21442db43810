package runtime

import (
	"fmt"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// decodeValues is everything that the decode kernels can ask for.
type decodeValues struct {
	kv                                    [128]byte
	qLatent, qRope, blockTable, kvLen     Ptr
	qLatentStride, qRopeStride, outStride [3]int64 // bytes: batch, token, head
	blockTableStride                      int64    // elements
	partFirst, items, merges, arrivals    Ptr
	out, lse                              Ptr
	partialOut, partialState              Ptr
	batch, parts, splits, page, newTokens int64
	scaleLog2, lseFactor                  float64
}

// hostParam is a parameter that this runtime knows how to fill. Exactly one of
// the functions is there.
type hostParam struct {
	pointer func(*decodeValues) Ptr
	integer func(*decodeValues) int64
	float   func(*decodeValues) float64
	mapped  func(*decodeValues) *[128]byte
}

// hostParams lists the decode kernels' parameters by name. A kernel takes
// those of them that it needs.
var hostParams = map[string]hostParam{
	"kv":                 {mapped: func(v *decodeValues) *[128]byte { return &v.kv }},
	"q_latent":           {pointer: func(v *decodeValues) Ptr { return v.qLatent }},
	"q_rope":             {pointer: func(v *decodeValues) Ptr { return v.qRope }},
	"q_latent_batch":     {integer: func(v *decodeValues) int64 { return v.qLatentStride[0] }},
	"q_latent_token":     {integer: func(v *decodeValues) int64 { return v.qLatentStride[1] }},
	"q_latent_head":      {integer: func(v *decodeValues) int64 { return v.qLatentStride[2] }},
	"q_rope_batch":       {integer: func(v *decodeValues) int64 { return v.qRopeStride[0] }},
	"q_rope_token":       {integer: func(v *decodeValues) int64 { return v.qRopeStride[1] }},
	"q_rope_head":        {integer: func(v *decodeValues) int64 { return v.qRopeStride[2] }},
	"block_table":        {pointer: func(v *decodeValues) Ptr { return v.blockTable }},
	"block_table_stride": {integer: func(v *decodeValues) int64 { return v.blockTableStride }},
	"kv_len":             {pointer: func(v *decodeValues) Ptr { return v.kvLen }},
	"part_first":         {pointer: func(v *decodeValues) Ptr { return v.partFirst }},
	"items":              {pointer: func(v *decodeValues) Ptr { return v.items }},
	"merges":             {pointer: func(v *decodeValues) Ptr { return v.merges }},
	"arrivals":           {pointer: func(v *decodeValues) Ptr { return v.arrivals }},
	"out":                {pointer: func(v *decodeValues) Ptr { return v.out }},
	"out_batch":          {integer: func(v *decodeValues) int64 { return v.outStride[0] }},
	"out_token":          {integer: func(v *decodeValues) int64 { return v.outStride[1] }},
	"out_head":           {integer: func(v *decodeValues) int64 { return v.outStride[2] }},
	"lse":                {pointer: func(v *decodeValues) Ptr { return v.lse }},
	"partial_out":        {pointer: func(v *decodeValues) Ptr { return v.partialOut }},
	"partial_state":      {pointer: func(v *decodeValues) Ptr { return v.partialState }},
	"batch":              {integer: func(v *decodeValues) int64 { return v.batch }},
	"parts":              {integer: func(v *decodeValues) int64 { return v.parts }},
	"splits":             {integer: func(v *decodeValues) int64 { return v.splits }},
	"new_tokens":         {integer: func(v *decodeValues) int64 { return v.newTokens }},
	"page":               {integer: func(v *decodeValues) int64 { return v.page }},
	"scale_log2":         {float: func(v *decodeValues) float64 { return v.scaleLog2 }},
	"lse_factor":         {float: func(v *decodeValues) float64 { return v.lseFactor }},
}

// boundKernel is a kernel whose parameters have been matched with values.
type boundKernel struct {
	kernel *Kernel
	params *Params
	values []hostParam // one per parameter
}

// bindKernel matches a kernel's parameters with hostParams by name, kind and
// type, so that launching only copies.
func bindKernel(k *Kernel) (boundKernel, error) {
	b := boundKernel{kernel: k, params: k.NewParams()}
	for i, m := range k.Manifest.Params {
		h, ok := hostParams[m.Name]
		if !ok {
			return b, fmt.Errorf("%s takes a parameter %q, which this runtime does not know", k.label(), m.Name)
		}
		want := manifest.ScalarParam
		switch {
		case h.pointer != nil:
			want = manifest.PointerParam
		case h.mapped != nil:
			want = manifest.TensorMapParam
		}
		if m.Kind != want {
			return b, fmt.Errorf("%s takes %q as a %s; this runtime passes a %s", k.label(), m.Name, m.Kind, want)
		}
		b.values = append(b.values, h)
		b.fill(i, &decodeValues{})
	}
	return b, b.params.Err() // of a type that cannot hold the value
}

// fill writes the i-th parameter.
func (b *boundKernel) fill(i int, v *decodeValues) {
	switch h := &b.values[i]; {
	case h.pointer != nil:
		b.params.put(i, uint64(h.pointer(v)))
	case h.integer != nil:
		b.params.putInt(i, h.integer(v))
	case h.float != nil:
		b.params.putFloat(i, h.float(v))
	default:
		b.params.putMap(i, h.mapped(v))
	}
}

// launch fills the parameters from v and launches blocks blocks.
func (b *boundKernel) launch(s Stream, blocks int, v *decodeValues) error {
	b.params.err = nil
	for i := range b.values {
		b.fill(i, v)
	}
	return b.kernel.Launch(s, Dim3{X: blocks}, b.params, true)
}
