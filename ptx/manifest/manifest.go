// Package manifest describes a generated kernel to those who launch it: what
// its parameters are, which tensor maps to encode and how, how much shared
// memory and how many threads it needs. It is derived by the generator, never
// written by hand, and read by the runtime and the emulator.
package manifest

import "encoding/json"

// Schema is the version of the JSON layout.
const Schema = 1

// Manifest is one kernel's description; its JSON is stable to the byte.
type Manifest struct {
	Schema     int         `json:"schema"`
	Kernel     string      `json:"kernel"` // the .entry name
	Spec       any         `json:"spec,omitempty"`
	PTXSHA256  string      `json:"ptx_sha256"`
	PTXVersion string      `json:"ptx_version"`
	Target     string      `json:"target"`
	MinDriver  int         `json:"min_driver"` // CUDA version as cuDriverGetVersion returns it, 12000
	Threads    int         `json:"threads"`    // per CTA
	Cluster    int         `json:"cluster"`    // CTAs per cluster, 1 = none
	Shared     int         `json:"shared"`     // dynamic shared memory in bytes
	MaxNReg    int         `json:"max_registers"`
	Roles      []Role      `json:"roles,omitempty"`
	Params     []Param     `json:"params"`
	TensorMaps []TensorMap `json:"tensor_maps,omitempty"`
	Tool       string      `json:"tool"`
}

// Text returns the manifest as JSON, indented, the way files hold it.
func (m *Manifest) Text() ([]byte, error) {
	text, err := json.MarshalIndent(m, "", "  ")
	return append(text, '\n'), err
}

// Role is a group of warps with one job.
type Role struct {
	Name      string `json:"name"`
	FirstWarp int    `json:"first_warp"`
	Warps     int    `json:"warps"`
	Registers int    `json:"registers,omitempty"` // setmaxnreg target; 0 = untouched
}

// ParamKind says how the host fills a parameter.
type ParamKind string

// Parameter kinds.
const (
	PointerParam   ParamKind = "pointer"    // 64-bit global address
	ScalarParam    ParamKind = "scalar"     // by value
	TensorMapParam ParamKind = "tensor_map" // 128-byte tensor map by value
	TableParam     ParamKind = "table"      // rows of 64-bit fields by value
)

// Param is one kernel parameter.
type Param struct {
	Name   string    `json:"name"`
	Kind   ParamKind `json:"kind"`
	Type   string    `json:"type"` // PTX type of the scalar, or of the pointer's elements
	Size   int       `json:"size"`
	Align  int       `json:"align"`
	Offset int       `json:"offset"` // in the parameter buffer
}

// TensorMap is the static part of a tensor map: everything but the address,
// the dimensions and the strides.
type TensorMap struct {
	Param     string   `json:"param"`     // name of the parameter it is passed in
	DType     string   `json:"dtype"`     // "bf16", "fp16", "f32"
	Dims      []string `json:"dims"`      // names of the dimensions, innermost first
	Box       []int    `json:"box"`       // elements per dimension, innermost first
	Swizzle   int      `json:"swizzle"`   // bytes: 0, 32, 64 or 128
	Promotion int      `json:"promotion"` // L2 promotion in bytes: 0, 64, 128 or 256
}
