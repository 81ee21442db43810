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
