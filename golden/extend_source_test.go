package golden_test

import (
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

// Extend implements runtime.ExtendSource.
func (s source) Extend(shape runtime.ExtendShape) (v runtime.ExtendVariants, err error) {
	spec := templates.Spec{
		Heads: shape.Heads, Nope: shape.Nope, Rope: shape.Rope, Value: shape.Value, DType: string(shape.DType),
		BlockM: s.tune.BlockM, BlockN: s.tune.BlockN, Stages: s.tune.Stages, LineInfo: true,
	}
	up := templates.Spec{
		Heads: shape.Heads, Latent: shape.Latent, Nope: shape.Nope, Rope: shape.Rope, Value: shape.Value, Page: shape.Page, DType: string(shape.DType), LineInfo: true,
	}
	for _, k := range []struct {
		name string
		spec templates.Spec
		to   *runtime.Variant
	}{{"up-project", up, &v.UpProject}, {"extend-attend", spec, &v.Attend}, {"extend-schedule", spec, &v.Schedule}} {
		if *k.to, err = buildVariant(k.name, k.spec); err != nil {
			return v, err
		}
	}
	return v, nil
}
