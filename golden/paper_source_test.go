package golden_test

import (
	"fmt"

	"github.com/mlagen/mlagen/runtime"
)

// paperSource makes kernels once, and shortens them for devices that run none.
type paperSource struct {
	source
	made  map[string]any
	whole bool // they are not shortened
}

var _ interface {
	runtime.LayerSource
	runtime.PrefillSource
	runtime.StateSource
	runtime.UpProjectSource
} = paperSource{}

// once makes what a kernel's shape asks for when nobody did before.
func once[S, T any](p paperSource, shape S, make func(S) (T, error), variants func(*T) []*runtime.Variant) (T, error) {
	key := fmt.Sprintf("%T %+v", shape, shape)
	if made, ok := p.made[key]; ok {
		return made.(T), nil
	}
	t, err := make(shape)
	if err == nil {
		for _, v := range variants(&t) {
			if p.whole {
				break
			}
			onPaper(v)
		}
		p.made[key] = t
	}
	return t, err
}

func one(v *runtime.Variant) []*runtime.Variant { return []*runtime.Variant{v} }

func several(list *[]runtime.Variant) (all []*runtime.Variant) {
	for i := range *list {
		all = append(all, &(*list)[i])
	}
	return all
}

func (p paperSource) Decode(s runtime.DecodeShape) (runtime.DecodeVariants, error) {
	return once(p, s, p.source.Decode, func(v *runtime.DecodeVariants) []*runtime.Variant {
		return []*runtime.Variant{&v.Decode, &v.Schedule, &v.Combine}
	})
}

func (p paperSource) Prefill(s runtime.PrefillShape) (runtime.PrefillVariants, error) {
	return once(p, s, p.source.Prefill, func(v *runtime.PrefillVariants) []*runtime.Variant { return []*runtime.Variant{&v.Attend, &v.Schedule} })
}

func (p paperSource) Extend(s runtime.ExtendShape) (runtime.ExtendVariants, error) {
	return once(p, s, p.source.Extend, func(v *runtime.ExtendVariants) []*runtime.Variant {
		return []*runtime.Variant{&v.UpProject, &v.Attend, &v.Schedule}
	})
}

func (p paperSource) UpProject(s runtime.UpProjectShape) (runtime.Variant, error) {
	return once(p, s, p.source.UpProject, one)
}

// The two products have one shape.
type (
	absorbQuery  runtime.AbsorbShape
	absorbOutput runtime.AbsorbShape
)

func (p paperSource) AbsorbQuery(s runtime.AbsorbShape) ([]runtime.Variant, error) {
	return once(p, absorbQuery(s), func(s absorbQuery) ([]runtime.Variant, error) { return p.source.AbsorbQuery(runtime.AbsorbShape(s)) }, several)
}

func (p paperSource) AbsorbOutput(s runtime.AbsorbShape) ([]runtime.Variant, error) {
	return once(p, absorbOutput(s), func(s absorbOutput) ([]runtime.Variant, error) {
		return p.source.AbsorbOutput(runtime.AbsorbShape(s))
	}, several)
}

func (p paperSource) MergeStates(s runtime.MergeShape) (runtime.Variant, error) {
	return once(p, s, p.source.MergeStates, one)
}

func (p paperSource) AppendKV(s runtime.AppendShape) (runtime.Variant, error) {
	return once(p, s, p.source.AppendKV, one)
}

func (p paperSource) LayerGroups(page int) (runtime.Variant, error) {
	return once(p, page, p.source.LayerGroups, one)
}

func (p paperSource) LayerRows() (runtime.Variant, error) {
	return once(p, "rows", func(string) (runtime.Variant, error) { return p.source.LayerRows() }, one)
}
