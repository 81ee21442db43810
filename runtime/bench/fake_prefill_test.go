package bench

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/mlagen/mlagen/golden/oracle"
	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/runtime"
)

// hostPrefills are the fake prefills that nobody has looked at.
type hostPrefills struct {
	schedule []byte            // parameters of the last schedule
	pending  map[uint64][]byte // of the last call for an output, by its address
}

// The fake kernels' parameters, 128 bytes apart: those that the fakes read
// come first.
var (
	attendParams = []string{"q_nope", "k_nope", "k_rope", "out", "lse", "q_rope", "v", "scale_log2", "query_tokens",
		"work_head", "work_blocks", "out_token", "out_head", "lse_factor"}
	expandScheduleParams = []string{"cu_q", "cu_k", "sequences", "causal", "query_tokens", "key_tokens", "work_head", "work_before", "work_blocks", "most_blocks"}
)

// param reads word i of a parameter.
func param(params []byte, index, i int) int {
	return int(binary.LittleEndian.Uint64(params[128*index+8*i:]))
}

func (h *hostPrefills) pend(params []byte) {
	if h.pending == nil {
		h.pending = map[uint64][]byte{}
	}
	h.pending[uint64(param(params, 3, 0))] = params
}

// Prefill implements runtime.PrefillSource for up to eight heads.
func (fakeSource) Prefill(s runtime.PrefillShape) (v runtime.PrefillVariants, err error) {
	if s.Heads > 8 {
		return v, errors.New("no such kernel")
	}
	make := func(kernel string, names []string) runtime.Variant {
		m := &manifest.Manifest{
			Schema: manifest.Schema, Kernel: kernel, PTXVersion: "8.0", Target: "sm_90a", Threads: 128, Cluster: 1,
			Spec: runtime.PrefillModel{Heads: s.Heads, Nope: s.Nope, Rope: s.Rope, Value: s.Value, BlockM: 128, BlockN: 96, DType: s.DType},
		}
		for i, name := range names {
			p := manifest.Param{Name: name, Kind: manifest.PointerParam, Type: "b16", Size: 8, Align: 8, Offset: 128 * i}
			switch name {
			case "q_nope", "q_rope", "k_nope", "k_rope", "v":
				p.Kind, p.Size, p.Align = manifest.TensorMapParam, 128, 64
				m.TensorMaps = append(m.TensorMaps, manifest.TensorMap{Param: name, DType: "bf16", Dims: []string{"c", "h", "t"}, Box: []int{64, 1, 96}})
			case "scale_log2", "lse_factor":
				p.Kind, p.Type, p.Size, p.Align = manifest.ScalarParam, "f32", 4, 4
			case "sequences", "query_tokens", "key_tokens", "causal", "most_blocks", "out_token", "out_head":
				p.Kind, p.Type = manifest.ScalarParam, "u64"
			}
			m.Params = append(m.Params, p)
		}
		return runtime.Variant{Name: kernel, PTX: []byte("x"), Manifest: m}
	}
	return runtime.PrefillVariants{Attend: make("expand_prefill", attendParams), Schedule: make("expand_schedule", expandScheduleParams)}, nil
}

// attend computes the prefills that are pending.
func (d *hostDriver) attend() {
	for _, params := range d.prefills.pending {
		d.prefill(params)
	}
	d.prefills.pending = nil
}

func (d *hostDriver) prefill(params []byte) {
	memory := func(params []byte, index int) []byte { return d.from(runtime.Ptr(param(params, index, 0))) }
	schedule := d.prefills.schedule
	places := func(index int) (cu []int) {
		for i := range param(schedule, 2, 0) + 1 {
			cu = append(cu, int(binary.LittleEndian.Uint32(memory(schedule, index)[4*i:])))
		}
		return cu
	}
	floats := func(raw []byte, first, count int) []float32 {
		x := make([]float32, count)
		for i := range x {
			x[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw[2*(first+i):])) << 16)
		}
		return x
	}
	heads := param(params, 0, 1)
	q, up, rope64 := memory(params, 0), memory(params, 1), memory(params, 2)
	p := oracle.Prefill[float32]{
		Heads: heads, Nope: nope, Rope: rope, Value: value, Scale: softmaxScale, Causal: param(schedule, 3, 0) != 0,
		CuQ: places(0), CuK: places(1),
		Q:     func(token, head int) []float32 { return floats(q, (token*heads+head)*keyColumns, keyColumns) },
		Up:    func(token, head int) []float32 { return floats(up, (token*heads+head)*upColumns, upColumns) },
		KRope: func(token int) []float32 { return floats(rope64, token*rope, rope) },
	}
	r := p.Run()
	out, lse := memory(params, 3), memory(params, 4)
	for i, v := range r.Out {
		binary.LittleEndian.PutUint16(out[2*i:], bf16(float32(v)))
	}
	for i, v := range r.LSE {
		binary.LittleEndian.PutUint32(lse[4*i:], math.Float32bits(float32(v)))
	}
	if d.spoil != nil {
		d.spoil(out, lse)
	}
}
