package golden_test

import (
	"github.com/mlagen/mlagen/runtime"
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

func buildVariant(kernel string, spec templates.Spec) (runtime.Variant, error) {
	out, err := templates.Build(kernel, spec)
	if err != nil {
		return runtime.Variant{}, err
	}
	return runtime.Variant{Name: kernel, PTX: out.PTX, Manifest: out.Manifest}, nil
}
