package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Schema is the version of the JSON layout.
const Schema = 2

// MaxBytes is the most that Parse reads: some twenty times what the largest
// kernel's manifest takes.
const MaxBytes = 1 << 20

// Manifest is one kernel's description; its JSON is stable to the byte.
type Manifest struct {
	Schema     int    `json:"schema"`
	Kernel     string `json:"kernel"`         // the .entry name
	Spec       any    `json:"spec,omitempty"` // what it was generated for, as the generator names it
	TuningKey  string `json:"tuning_key,omitempty"`
	PTXSHA256  string `json:"ptx_sha256"`
	PTXVersion string `json:"ptx_version"`
	Target     string `json:"target"`
	MinDriver  int    `json:"min_driver"` // CUDA version as cuDriverGetVersion returns it, 12000
	Threads    int    `json:"threads"`    // per CTA
	Cluster    int    `json:"cluster"`    // CTAs per cluster, 1 = none
	Shared     int    `json:"shared"`     // dynamic shared memory in bytes
	MaxNReg    int    `json:"max_registers"`
	Roles      []Role `json:"roles,omitempty"`

	Params     []Param     `json:"params"`
	TensorMaps []TensorMap `json:"tensor_maps,omitempty"`
	Launch     *Launch     `json:"launch,omitempty"`
	Tool       string      `json:"tool"`
}

// Text returns the manifest as JSON, indented, the way files hold it.
func (m *Manifest) Text() ([]byte, error) {
	text, err := json.MarshalIndent(m, "", "  ")
	return append(text, '\n'), err
}

// Parse reads a manifest as files hold it, from a source that need not be
// trusted: it takes no more than MaxBytes, knows every field and validates, and
// asks for the hash of the text and a description of every tensor map.
func Parse(text []byte) (*Manifest, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("manifest: it has %d bytes, must be at most %d", len(text), MaxBytes)
	}
	var version struct {
		Schema *int `json:"schema"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return nil, malformed(err)
	}
	if version.Schema == nil || *version.Schema != Schema {
		was := "is missing"
		if version.Schema != nil {
			was = fmt.Sprintf("was %d", *version.Schema)
		}
		return nil, fmt.Errorf("manifest: schema %s, must be %d: generate the kernel again", was, Schema)
	}
	var m Manifest
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return nil, malformed(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("manifest: there is more text after it")
	}
	if m.PTXSHA256 == "" {
		return nil, errors.New("manifest: ptx_sha256 is missing, must be 64 hexadecimal digits")
	}
	if err := first(m.Validate(), m.described()); err != nil {
		return nil, err
	}
	return &m, nil
}

// malformed is an error of package json, which quotes field names whole.
func malformed(err error) error {
	text := err.Error()
	if len(text) > 2*maxNameBytes {
		text = text[:2*maxNameBytes] + "…"
	}
	return errors.New("manifest: " + text)
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
	Fill   *Fill     `json:"fill,omitempty"`
}

// TensorMap is the static part of a tensor map and, with a launch rule, where
// the rest comes from. What is not said is always the same: no interleave, no
// element strides, elements out of bounds read as 0.
type TensorMap struct {
	Param     string   `json:"param"`     // name of the parameter it is passed in
	DType     string   `json:"dtype"`     // "bf16", "fp16", "f32"
	Dims      []string `json:"dims"`      // names of the dimensions, innermost first
	Box       []int    `json:"box"`       // elements per dimension, innermost first
	Swizzle   int      `json:"swizzle"`   // bytes: 0, 32, 64 or 128
	Promotion int      `json:"promotion"` // L2 promotion in bytes: 0, 64, 128 or 256

	Source  *Source `json:"source,omitempty"`   // the tensor that it describes
	IfEmpty *Source `json:"if_empty,omitempty"` // what it describes instead where one of Source's sizes is 0
}
