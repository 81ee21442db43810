package variants

import (
	"fmt"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

var _ runtime.LayerSource = Source{}

// LayerGroups implements runtime.LayerSource.
func (s Source) LayerGroups(page int) (runtime.Variant, error) {
	return buildState("layer-groups", templates.Spec{Page: page, LineInfo: s.Tune.LineInfo}, fmt.Sprintf("page=%d", page))
}

// LayerRows implements runtime.LayerSource.
func (s Source) LayerRows() (runtime.Variant, error) {
	return buildState("layer-rows", templates.Spec{LineInfo: s.Tune.LineInfo}, "")
}
