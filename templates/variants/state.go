package variants

import (
	"fmt"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

// MergeStates implements runtime.StateSource.
func (s Source) MergeStates(shape runtime.MergeShape) (runtime.Variant, error) {
	spec := templates.Spec{Value: shape.Width, DType: string(shape.DType), Partial: string(shape.Partial), LineInfo: s.Tune.LineInfo}
	return buildState("merge-states", spec, fmt.Sprintf("width=%d %s from %s", shape.Width, shape.DType, shape.Partial))
}

// AppendKV implements runtime.StateSource.
func (s Source) AppendKV(shape runtime.AppendShape) (runtime.Variant, error) {
	spec := templates.Spec{
		Latent: shape.Latent, Rope: shape.Rope, Page: shape.Page, DType: string(shape.DType), Rotate: shape.Rotate, LineInfo: s.Tune.LineInfo,
	}
	return buildState("append-kv", spec, fmt.Sprintf("%d+%d %s %s", shape.Latent, shape.Rope, shape.DType, shape.Rotate))
}

func buildState(kernel string, spec templates.Spec, what string) (runtime.Variant, error) {
	out, err := templates.Build(kernel, spec)
	if err != nil {
		return runtime.Variant{}, fmt.Errorf("%s: %w", kernel, err)
	}
	return runtime.Variant{Name: kernel + " " + what, PTX: out.PTX, Manifest: out.Manifest}, nil
}
