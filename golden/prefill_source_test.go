package golden_test

import (
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

// Prefill implements runtime.PrefillSource.
func (s source) Prefill(shape runtime.PrefillShape) (v runtime.PrefillVariants, err error) {
	spec := templates.Spec{
		Heads: shape.Heads, Nope: shape.Nope, Rope: shape.Rope, Value: shape.Value, DType: string(shape.DType),
		BlockM: s.tune.BlockM, BlockN: s.tune.BlockN, Stages: s.tune.Stages, LineInfo: true,
	}
	if v.Attend, err = buildVariant("expand-prefill", spec); err != nil {
		return v, err
	}
	v.Schedule, err = buildVariant("expand-schedule", spec)
	return v, err
}
