package variants

import (
	"fmt"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

var (
	_ runtime.UpProjectSource = Source{}
	_ runtime.AbsorbSource    = Source{}
)

// UpProject implements runtime.UpProjectSource.
func (s Source) UpProject(shape runtime.UpProjectShape) (runtime.Variant, error) {
	spec := s.Tune
	spec.Heads, spec.Latent, spec.Rope, spec.Nope, spec.Value, spec.Page = shape.Heads, shape.Latent, shape.Rope, shape.Nope, shape.Value, shape.Page
	spec.DType = string(shape.DType)
	return buildProduct("up-project", spec)
}

// AbsorbQuery implements runtime.AbsorbSource.
func (s Source) AbsorbQuery(shape runtime.AbsorbShape) ([]runtime.Variant, error) {
	return s.absorb("absorb-q", shape)
}

// AbsorbOutput implements runtime.AbsorbSource.
func (s Source) AbsorbOutput(shape runtime.AbsorbShape) ([]runtime.Variant, error) {
	return s.absorb("absorb-o", shape)
}

// absorb builds a kernel with each of the tiles that suit calls of up to
// shape.Tokens tokens, or the one that tune names.
func (s Source) absorb(kernel string, shape runtime.AbsorbShape) (variants []runtime.Variant, err error) {
	spec := s.Tune
	spec.Heads, spec.Latent, spec.Nope, spec.Value, spec.DType = shape.Heads, shape.Latent, shape.Nope, shape.Value, string(shape.DType)
	if kernel == "absorb-q" {
		spec.Rope = shape.Rope
	}
	rows := templates.AbsorbRows(kernel, shape.Tokens)
	if s.Tune.BlockM > 0 {
		rows = []int{s.Tune.BlockM}
	}
	for _, spec.BlockM = range rows {
		v, err := buildProduct(kernel, spec)
		if err != nil {
			return nil, err
		}
		variants = append(variants, v)
	}
	return variants, nil
}

// buildProduct generates one of the products for the runtime.
func buildProduct(kernel string, spec templates.Spec) (runtime.Variant, error) {
	out, err := templates.Build(kernel, spec)
	if err != nil {
		return runtime.Variant{}, fmt.Errorf("%s: %w", kernel, err)
	}
	full, _ := templates.Defaults(kernel, spec) // it exists: it was built
	name := fmt.Sprintf("%s heads=%d %s block=%dx%d", kernel, full.Heads, full.DType, full.BlockM, full.BlockN)
	return runtime.Variant{Name: name, PTX: out.PTX, Manifest: out.Manifest}, nil
}
