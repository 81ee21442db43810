package golden_test

import (
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

// UpProject implements runtime.UpProjectSource.
func (s source) UpProject(shape runtime.UpProjectShape) (runtime.Variant, error) {
	return buildVariant("up-project", templates.Spec{
		Heads: shape.Heads, Latent: shape.Latent, Nope: shape.Nope, Rope: shape.Rope, Value: shape.Value, Page: shape.Page, DType: string(shape.DType),
		BlockN: s.tune.BlockN, Stages: s.tune.Stages, Cluster: s.tune.Cluster, LineInfo: true,
	})
}

// AbsorbQuery implements runtime.AbsorbSource.
func (s source) AbsorbQuery(shape runtime.AbsorbShape) ([]runtime.Variant, error) {
	return s.absorb("absorb-q", shape, s.tune.BlockN)
}

// AbsorbOutput implements runtime.AbsorbSource. Its tiles are no wider than a
// head's values.
func (s source) AbsorbOutput(shape runtime.AbsorbShape) ([]runtime.Variant, error) {
	columns := s.tune.BlockN
	if columns > 0 && shape.Value%columns != 0 {
		columns = 0
	}
	return s.absorb("absorb-o", shape, columns)
}

func (s source) absorb(kernel string, shape runtime.AbsorbShape, columns int) (list []runtime.Variant, err error) {
	rows := templates.AbsorbRows(kernel, shape.Tokens)
	if s.tune.BlockM > 0 {
		rows = []int{s.tune.BlockM}
	}
	for _, m := range rows {
		spec := templates.Spec{
			Heads: shape.Heads, Latent: shape.Latent, Nope: shape.Nope, Value: shape.Value, DType: string(shape.DType),
			BlockM: m, BlockN: columns, Stages: s.tune.Stages, LineInfo: true,
		}
		if kernel == "absorb-q" {
			spec.Rope = shape.Rope
		}
		v, err := buildVariant(kernel, spec)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}
