package golden_test

import (
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

var _ runtime.LayerSource = source{}

// LayerGroups implements runtime.LayerSource.
func (s source) LayerGroups(page int) (runtime.Variant, error) {
	return buildVariant("layer-groups", templates.Spec{Page: page, LineInfo: true})
}

// LayerRows implements runtime.LayerSource.
func (s source) LayerRows() (runtime.Variant, error) {
	return buildVariant("layer-rows", templates.Spec{LineInfo: true})
}

// AbsorbQuery implements runtime.AbsorbSource.
func (s source) AbsorbQuery(shape runtime.AbsorbShape) ([]runtime.Variant, error) {
	return absorbVariants("absorb-q", shape, shape.Rope)
}

// AbsorbOutput implements runtime.AbsorbSource.
func (s source) AbsorbOutput(shape runtime.AbsorbShape) ([]runtime.Variant, error) {
	return absorbVariants("absorb-o", shape, 0)
}

func absorbVariants(kernel string, shape runtime.AbsorbShape, rope int) (variants []runtime.Variant, err error) {
	for _, rows := range templates.AbsorbRows(kernel, shape.Tokens) {
		v, err := buildVariant(kernel, templates.Spec{
			Heads: shape.Heads, Latent: shape.Latent, Rope: rope, Nope: shape.Nope, Value: shape.Value, BlockM: rows, DType: string(shape.DType), LineInfo: true,
		})
		if err != nil {
			return nil, err
		}
		variants = append(variants, v)
	}
	return variants, nil
}
