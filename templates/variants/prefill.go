package variants

import (
	"fmt"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

// Prefill implements runtime.PrefillSource.
func (s Source) Prefill(shape runtime.PrefillShape) (runtime.PrefillVariants, error) {
	spec := templates.Spec{
		Heads: shape.Heads, Nope: shape.Nope, Rope: shape.Rope, Value: shape.Value, DType: string(shape.DType),
		BlockM: s.Tune.BlockM, BlockN: s.Tune.BlockN, Stages: s.Tune.Stages, LineInfo: s.Tune.LineInfo,
	}
	var v runtime.PrefillVariants
	for _, k := range []struct {
		name string
		to   *runtime.Variant
	}{{"expand-prefill", &v.Attend}, {"expand-schedule", &v.Schedule}} {
		out, err := templates.Build(k.name, spec)
		if err != nil {
			return v, fmt.Errorf("%s: %w", k.name, err)
		}
		*k.to = runtime.Variant{Name: fmt.Sprintf("%s heads=%d %s", k.name, spec.Heads, spec.DType), PTX: out.PTX, Manifest: out.Manifest}
	}
	return v, nil
}
