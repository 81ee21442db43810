// Package variants makes the runtime's kernels from the templates: it is the
// source that package runtime's loaders of layers and package runtime/tune ask
// for kernels, and the Chooser of row blocks and pieces.
package variants

import (
	"fmt"
	"sync"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/tune"
	"github.com/mlagen/mlagen/templates"
)

// Source makes the runtime's kernels from the templates.
type Source struct {
	Tune templates.Spec // fields that override the template's defaults
	made *sync.Map      // by madeKernel: shapes have kernels in common; nil keeps none
}

// Keeping returns a source that keeps what it has made, since shapes have kernels
// in common.
func Keeping() Source { return Source{made: new(sync.Map)} }

// madeKernel identifies a decode kernel.
type madeKernel struct {
	kernel string
	spec   templates.Spec // with defaults
}

// build makes a kernel, or returns the one that was made. It may be called
// concurrently.
func (s Source) build(kernel string, spec templates.Spec) (runtime.Variant, error) {
	if s.made == nil {
		return Build(kernel, spec)
	}
	whole := spec.WithDefaults()
	once, _ := s.made.LoadOrStore(madeKernel{kernel, whole}, sync.OnceValues(func() (runtime.Variant, error) { return Build(kernel, whole) }))
	return once.(func() (runtime.Variant, error))()
}

// Decode implements runtime.Source.
func (s Source) Decode(shape runtime.DecodeShape) (runtime.DecodeVariants, error) {
	spec := s.Tune
	spec.Heads, spec.SQ, spec.Latent, spec.Rope, spec.Page = shape.Heads, shape.SQ, shape.Latent, shape.Rope, shape.Page
	spec.DType = string(shape.DType)
	if spec.BlockH == 0 {
		spec.BlockH = shape.BlockH
	}
	if shape.Teams > 0 {
		spec.Teams = shape.Teams
	}
	attend, schedule := spec, spec
	attend.Evict = shape.Evict
	if shape.PieceCost > 0 {
		schedule.PieceCost = shape.PieceCost
	}
	if shape.Cluster > 0 {
		attend.Cluster = shape.Cluster
	}
	var v runtime.DecodeVariants
	for _, k := range []struct {
		name string
		spec templates.Spec
		to   *runtime.Variant
	}{
		{"absorb-decode", attend, &v.Decode}, {"decode-schedule", schedule, &v.Schedule}, {"decode-combine", spec, &v.Combine},
	} {
		variant, err := s.build(k.name, k.spec)
		if err != nil {
			return v, err
		}
		*k.to = variant
	}
	return v, nil
}

// BlockH implements runtime.Chooser.
func (s Source) BlockH(shape runtime.DecodeShape, batch, tokens, sms int) int {
	return s.fitting(shape, templates.ChooseBlockH(shape.Heads*shape.SQ, batch, tokens, sms))
}

// Splits implements runtime.Chooser.
func (s Source) Splits(shape runtime.DecodeShape, batch, tokens, sms int) int {
	rows := shape.Heads * shape.SQ
	block := shape.BlockH
	if block == 0 {
		block = s.BlockH(shape, batch, tokens, sms)
	}
	return templates.ChooseSplits(rows, block, batch, tokens, sms)
}

// RowBlocks implements tune.Source.
func (s Source) RowBlocks(shape runtime.DecodeShape) []int {
	s.Tune.Latent, s.Tune.Rope = shape.Latent, shape.Rope
	return s.rowBlocks(shape.Heads, shape.SQ)
}

// Estimate implements tune.Estimator.
func (s Source) Estimate(shape runtime.DecodeShape, batch, tokens, splits, sms int) float64 {
	return templates.EstimateDecode(shape.Heads*shape.SQ, shape.BlockH, batch, tokens, splits, sms)
}

var (
	_ tune.Source    = Source{}
	_ tune.Estimator = Source{}
)

// fitting returns the row block, or the shape's default where the widths leave no
// room for it in shared memory.
func (s Source) fitting(shape runtime.DecodeShape, block int) int {
	spec := templates.Spec{Heads: shape.Heads, SQ: shape.SQ, Latent: shape.Latent, Rope: shape.Rope, DType: string(shape.DType), BlockH: block}
	if spec.WithDefaults().Validate() == nil {
		return block
	}
	spec.BlockH = 0
	return spec.WithDefaults().BlockH
}

const (
	mostBlockH    = 128
	mostRowBlocks = 16 // each reads the whole cache
	wideBlockH    = 64 // and above: rows on wgmma's M
)

// rowBlocks returns the row blocks worth trying for heads × sq rows: those that
// can be built and are smaller than the rows, the smallest that holds them all,
// and wide ones of which more than half is used.
func (s Source) rowBlocks(heads, sq int) (blocks []int) {
	rows, covered := heads*sq, false
	for h := 8; h <= mostBlockH; h += 8 {
		spec := s.Tune
		spec.Heads, spec.SQ, spec.BlockH = heads, sq, h
		if spec.WithDefaults().Validate() != nil || (rows+h-1)/h > mostRowBlocks {
			continue
		}
		if !covered || h >= wideBlockH && h < 2*rows {
			blocks = append(blocks, h)
		}
		covered = covered || h >= rows
	}
	return blocks
}

// Build generates one kernel for the runtime.
func Build(kernel string, spec templates.Spec) (runtime.Variant, error) {
	out, err := templates.Build(kernel, spec)
	if err != nil {
		return runtime.Variant{}, fmt.Errorf("%s: %w", kernel, err)
	}
	name := fmt.Sprintf("%s heads=%d s_q=%d %s", kernel, spec.Heads, spec.SQ, spec.DType)
	if spec.BlockH > 0 {
		name = fmt.Sprintf("%s block=%d", name, spec.BlockH)
	}
	return runtime.Variant{Name: name, PTX: out.PTX, Manifest: out.Manifest}, nil
}
