package templates

import "github.com/mlagen/mlagen/gen"

// Preset is a kernel that is kept under watch: its PTX is among the goldens.
type Preset struct {
	Name   string `json:"name"`
	Kernel string `json:"kernel"`
	Spec   Spec   `json:"spec"` // with defaults
}

var presets = []Preset{
	{"absorb-decode-h16", "absorb-decode", Spec{Heads: 16}},
	{"absorb-decode-h8", "absorb-decode", Spec{Heads: 8}},
	{"absorb-decode-h128", "absorb-decode", Spec{Heads: 128}},
	{"absorb-decode-h64", "absorb-decode", Spec{Heads: 64}},
	{"absorb-decode-h16-sq5", "absorb-decode", Spec{Heads: 16, SQ: 5}},
	{"absorb-decode-h16-sq5-b40", "absorb-decode", Spec{Heads: 16, SQ: 5, BlockH: 40}},
	{"absorb-decode-h64-b32", "absorb-decode", Spec{Heads: 64, BlockH: 32}},
	{"absorb-decode-h8-fp16", "absorb-decode", Spec{Heads: 8, DType: gen.FP16.Name}},
	{"decode-combine-h16", "decode-combine", Spec{Heads: 16}},
	{"decode-schedule", "decode-schedule", Spec{}},
	{"stream", "stream", Spec{}},
	{"expand-prefill", "expand-prefill", Spec{}},
	{"expand-prefill-h16-fp16", "expand-prefill", Spec{Heads: 16, DType: gen.FP16.Name}},
	{"expand-prefill-m192", "expand-prefill", Spec{BlockM: 192}},
	{"expand-schedule", "expand-schedule", Spec{}},
	{"extend-attend", "extend-attend", Spec{}},
	{"extend-attend-h16-fp16", "extend-attend", Spec{Heads: 16, DType: gen.FP16.Name}},
	{"extend-schedule", "extend-schedule", Spec{}},
	{"merge-states", "merge-states", Spec{}},
	{"merge-states-f32-fp16", "merge-states", Spec{Partial: partialF32, DType: gen.FP16.Name}},
	{"append-kv", "append-kv", Spec{}},
	{"append-kv-interleaved", "append-kv", Spec{Rotate: rotateInterleaved}},
	{"append-kv-half-fp16", "append-kv", Spec{Rotate: rotateHalf, DType: gen.FP16.Name}},
	{"up-project-h128", "up-project", Spec{Heads: 128}},
	{"up-project-h16-fp16", "up-project", Spec{Heads: 16, DType: gen.FP16.Name}},
	{"absorb-q-h128", "absorb-q", Spec{Heads: 128}},
	{"absorb-q-h128-m8", "absorb-q", Spec{Heads: 128, BlockM: 8}},
	{"absorb-q-h128-m64", "absorb-q", Spec{Heads: 128, BlockM: 64}},
	{"absorb-o-h128", "absorb-o", Spec{Heads: 128}},
	{"absorb-o-h128-m16", "absorb-o", Spec{Heads: 128, BlockM: 16}},
	{"layer-groups", "layer-groups", Spec{}},
	{"layer-rows", "layer-rows", Spec{}},
}

// Presets lists the presets in a fixed order.
func Presets() []Preset {
	list := make([]Preset, len(presets))
	for i, p := range presets {
		p.Spec, _ = Defaults(p.Kernel, p.Spec) // a preset's kernel exists: a test builds them all
		list[i] = p
	}
	return list
}
