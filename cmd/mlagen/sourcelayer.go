package main

import (
	"fmt"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

var _ runtime.LayerSource = source{}

// LayerGroups implements runtime.LayerSource.
func (s source) LayerGroups(page int) (runtime.Variant, error) {
	return buildState("layer-groups", templates.Spec{Page: page, LineInfo: s.tune.LineInfo}, fmt.Sprintf("page=%d", page))
}

// LayerRows implements runtime.LayerSource.
func (s source) LayerRows() (runtime.Variant, error) {
	return buildState("layer-rows", templates.Spec{LineInfo: s.tune.LineInfo}, "")
}
