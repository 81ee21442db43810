package golden_test

import (
	"sync"

	"github.com/mlagen/mlagen/golden/faults"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
	"github.com/mlagen/mlagen/templates"
)

// MergeStates implements runtime.StateSource.
func (s source) MergeStates(shape runtime.MergeShape) (runtime.Variant, error) {
	return buildVariant("merge-states", templates.Spec{Value: shape.Width, DType: string(shape.DType), Partial: string(shape.Partial), LineInfo: true})
}

// AppendKV implements runtime.StateSource.
func (s source) AppendKV(shape runtime.AppendShape) (runtime.Variant, error) {
	return buildVariant("append-kv", templates.Spec{
		Latent: shape.Latent, Rope: shape.Rope, Page: shape.Page, DType: string(shape.DType), Rotate: shape.Rotate, LineInfo: true,
	})
}

// What tests of this package have in common: devices the decoded programs of a
// few kernels, sources the texts of all.
var (
	programs = new(emu.Programs)
	built    = map[buildKey]runtime.Variant{}
	building sync.Mutex // held by who reads or writes built
)

type buildKey struct {
	kernel string
	spec   templates.Spec
}

// buildVariant makes a kernel, or another copy of one that was made before: tests
// change manifests.
func buildVariant(kernel string, spec templates.Spec) (runtime.Variant, error) {
	building.Lock()
	defer building.Unlock()
	key := buildKey{kernel, spec}
	v, ok := built[key]
	if !ok {
		out, err := templates.Build(kernel, spec)
		if err != nil {
			return runtime.Variant{}, err
		}
		v = runtime.Variant{Name: kernel, PTX: out.PTX, Manifest: out.Manifest}
		built[key] = v
	}
	m := *v.Manifest
	v.Manifest = &m
	return v, nil
}

// withFault returns the variant with a fault in its text.
func withFault(v runtime.Variant, f faults.Fault) (runtime.Variant, error) {
	text, err := f.Plant(v.PTX)
	if err != nil {
		return v, err
	}
	m := *v.Manifest
	m.PTXSHA256 = ""
	return runtime.Variant{Name: v.Name, PTX: text, Manifest: &m}, nil
}
