package variants

import (
	"fmt"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

// Extend implements runtime.ExtendSource.
func (s Source) Extend(shape runtime.ExtendShape) (v runtime.ExtendVariants, err error) {
	v.UpProject, err = Source{Tune: templates.Spec{LineInfo: s.Tune.LineInfo}}.UpProject(runtime.UpProjectShape(shape))
	if err != nil {
		return v, err
	}
	spec := templates.Spec{
		Heads: shape.Heads, Nope: shape.Nope, Rope: shape.Rope, Value: shape.Value, DType: string(shape.DType),
		BlockM: s.Tune.BlockM, BlockN: s.Tune.BlockN, Stages: s.Tune.Stages, LineInfo: s.Tune.LineInfo,
	}
	for _, k := range []struct {
		name string
		to   *runtime.Variant
	}{{"extend-attend", &v.Attend}, {"extend-schedule", &v.Schedule}} {
		out, err := templates.Build(k.name, spec)
		if err != nil {
			return v, fmt.Errorf("%s: %w", k.name, err)
		}
		*k.to = runtime.Variant{Name: fmt.Sprintf("%s heads=%d %s", k.name, spec.Heads, spec.DType), PTX: out.PTX, Manifest: out.Manifest}
	}
	return v, nil
}
