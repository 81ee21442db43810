package runtime

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// fakeDriver records what it is asked to do. Its memory has addresses and no
// contents.
type fakeDriver struct {
	attributes Attributes
	function   FunctionAttributes
	log        string
	layout     []manifest.Param // as compiled, nil = unknown
	blocks     []Location
	foreign    []Location // other memory that Locate knows
	next       Ptr
	encoded    []TensorMap
	unloaded   int
	loads      int
}

func newFake() *fakeDriver {
	return &fakeDriver{
		attributes: Attributes{
			SMs: 132, SharedPerBlock: 232448, ComputeMajor: 9, DriverVersion: 13000, Clusters: true, ProgrammaticLaunch: true,
		},
		function: FunctionAttributes{Registers: 136, MaxThreads: 1024},
		next:     0x7f0000000000,
	}
}

func (d *fakeDriver) Name() string           { return "fake" }
func (d *fakeDriver) Attributes() Attributes { return d.attributes }

func (d *fakeDriver) Alloc(name string, size int64) (Ptr, error) {
	p := d.next
	d.next += Ptr(size+511) / 256 * 256
	d.blocks = append(d.blocks, Location{Local: true, Base: p, Size: size})
	return p, nil
}

func (d *fakeDriver) Free(Ptr) error              { return nil }
func (d *fakeDriver) Upload(Ptr, []byte) error    { return nil }
func (d *fakeDriver) Download([]byte, Ptr) error  { return nil }
func (d *fakeDriver) Fill(Ptr, byte, int64) error { return nil }
func (d *fakeDriver) NewEvent() (Event, error)    { return nil, errors.New("no events") }
func (d *fakeDriver) Close() error                { return nil }
func (d *fakeDriver) NewStream() (Stream, error)  { return &fakeStream{}, nil }

func (d *fakeDriver) Locate(p Ptr) (Location, error) {
	for _, known := range [][]Location{d.blocks, d.foreign} {
		for _, b := range known {
			if p >= b.Base && p < b.Base+Ptr(max(b.Size, 1)) {
				return b, nil
			}
		}
	}
	return Location{Where: "not device memory"}, nil
}

func (d *fakeDriver) EncodeTensorMap(t TensorMap) (out [128]byte, err error) {
	t.Sizes, t.Strides = slices.Clone(t.Sizes), slices.Clone(t.Strides)
	d.encoded = append(d.encoded, t)
	for i := range out {
		out[i] = byte(i) ^ byte(len(d.encoded))
	}
	return out, nil
}

func (d *fakeDriver) Load(ptx []byte) (Module, error) {
	if string(ptx) == "broken" {
		return nil, errors.New("ptxas: line 1; syntax error")
	}
	d.loads++
	return &fakeModule{d}, nil
}

type fakeModule struct{ d *fakeDriver }

func (m *fakeModule) Function(name string) (Function, error) { return &fakeFunction{m.d, name}, nil }
func (m *fakeModule) Log() string                            { return m.d.log }
func (m *fakeModule) CompileSeconds() float64                { return 0.125 }
func (m *fakeModule) Unload() error                          { m.d.unloaded++; return nil }

type fakeFunction struct {
	d    *fakeDriver
	name string
}

func (f *fakeFunction) Attributes() (FunctionAttributes, error) { return f.d.function, nil }
func (f *fakeFunction) SetDynamicShared(n int) error {
	if n > f.d.attributes.SharedPerBlock {
		return fmt.Errorf("%d bytes are too much", n)
	}
	return nil
}

func (f *fakeFunction) Param(i int) (offset, size int, exists, known bool) {
	if f.d.layout == nil {
		return 0, 0, false, false
	}
	if i >= len(f.d.layout) {
		return 0, 0, false, true
	}
	return f.d.layout[i].Offset, f.d.layout[i].Size, true, true
}

// fakeStream keeps the launches with a copy of their parameters.
type fakeStream struct {
	launches  []Launch
	forget    bool
	capturing bool
	fail      error
}

func (s *fakeStream) Launch(l Launch) error {
	if s.fail != nil {
		return s.fail
	}
	if !s.forget {
		l.Params = slices.Clone(l.Params)
		s.launches = append(s.launches, l)
	}
	return nil
}

func (s *fakeStream) FillAsync(Ptr, byte, int64) error { return nil }
func (s *fakeStream) Record(Event) error               { return nil }
func (s *fakeStream) Synchronize() error               { return nil }
func (s *fakeStream) Capturing() bool                  { return s.capturing }
func (s *fakeStream) BeginCapture() error              { return nil }
func (s *fakeStream) EndCapture() (Graph, error)       { return nil, nil }
func (s *fakeStream) Replay(Graph) error               { return nil }
func (s *fakeStream) Destroy() error                   { return nil }

// params lists parameters as "name type", laid out one after the other; "*"
// before a type makes a pointer to it, "map" a tensor map.
func params(list ...string) []manifest.Param {
	sizes := map[string]int{"u32": 4, "s32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8, "u16": 2}
	var out []manifest.Param
	end := 0
	for i := 0; i < len(list); i += 2 {
		p := manifest.Param{Name: list[i], Kind: manifest.ScalarParam, Type: list[i+1], Size: sizes[list[i+1]]}
		switch {
		case p.Type == "map":
			p.Kind, p.Type, p.Size = manifest.TensorMapParam, "b8", 128
		case p.Type[0] == '*':
			p.Kind, p.Type, p.Size = manifest.PointerParam, p.Type[1:], 8
		}
		p.Align = p.Size
		p.Offset = (end + p.Align - 1) / p.Align * p.Align
		end = p.Offset + p.Size
		out = append(out, p)
	}
	return out
}

// variant makes a kernel's text and manifest.
func variant(name string, threads int, spec any, list ...string) Variant {
	text := []byte("// " + name + "\n")
	sum := sha256.Sum256(text)
	return Variant{Name: name, PTX: text, Manifest: &manifest.Manifest{
		Schema: manifest.Schema, Kernel: name, Spec: spec, PTXSHA256: hex.EncodeToString(sum[:]), PTXVersion: "8.0",
		Target: "sm_90a", MinDriver: 12000, Threads: threads, Cluster: 1, Shared: 200 << 10, Params: params(list...),
	}}
}

type fakeSpec struct {
	Heads  int    `json:"heads"`
	SQ     int    `json:"s_q"`
	Latent int    `json:"latent"`
	Rope   int    `json:"rope"`
	Page   int    `json:"page"`
	BlockH int    `json:"block_h"`
	BlockN int    `json:"block_n"`
	Stages int    `json:"stages"`
	DType  string `json:"dtype"`
}

// decodeVariants are kernels with the parameters that the generator gives.
func decodeVariants(heads, sq, blockH int) DecodeVariants {
	spec := fakeSpec{heads, sq, 512, 64, 64, blockH, 64, 2, "bf16"}
	v := DecodeVariants{
		Decode: variant("absorb_decode", 160, spec,
			"kv", "map", "q_latent", "*bf16", "q_rope", "*bf16",
			"q_latent_batch", "s64", "q_latent_token", "s64", "q_latent_head", "s64",
			"q_rope_batch", "s64", "q_rope_token", "s64", "q_rope_head", "s64",
			"block_table", "*s32", "block_table_stride", "s64", "kv_len", "*s32", "part_first", "*s32", "items", "*s32",
			"out", "*b32", "out_batch", "s64", "out_token", "s64", "out_head", "s64", "lse", "*f32",
			"partial_out", "*f32", "partial_state", "*f32", "scale_log2", "f32", "lse_factor", "f32"),
		Schedule: variant("decode_schedule", 1024, nil,
			"kv_len", "*s32", "part_first", "*s32", "items", "*s32", "merges", "*s32",
			"batch", "u32", "parts", "u32", "splits", "u32", "page", "u32"),
		Combine: variant("decode_combine", 128, spec,
			"merges", "*s32", "partial_out", "*f32", "partial_state", "*f32",
			"out", "*bf16", "out_batch", "s64", "out_token", "s64", "out_head", "s64", "lse", "*f32", "lse_factor", "f32"),
	}
	v.Decode.Manifest.TensorMaps = []manifest.TensorMap{{
		Param: "kv", DType: "bf16", Dims: []string{"column", "row", "page"}, Box: []int{64, 64, 1}, Swizzle: 128, Promotion: 128,
	}}
	return v
}
