package main

import (
	"fmt"
	"sync"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/tune"
	"github.com/mlagen/mlagen/templates"
)

// source makes the runtime's kernels from the templates.
type source struct {
	tune templates.Spec // fields that override the template's defaults
	made *sync.Map      // by madeKernel: shapes have kernels in common; nil keeps none
}

// madeKernel identifies a decode kernel.
type madeKernel struct {
	kernel string
	spec   templates.Spec // with defaults
}

// build makes a kernel, or returns the one that was made. It may be called
// concurrently.
func (s source) build(kernel string, spec templates.Spec) (runtime.Variant, error) {
	if s.made == nil {
		return build(kernel, spec)
	}
	whole := spec.WithDefaults()
	once, _ := s.made.LoadOrStore(madeKernel{kernel, whole}, sync.OnceValues(func() (runtime.Variant, error) { return build(kernel, whole) }))
	return once.(func() (runtime.Variant, error))()
}

// Decode implements runtime.Source.
func (s source) Decode(shape runtime.DecodeShape) (runtime.DecodeVariants, error) {
	spec := s.tune
	spec.Heads, spec.SQ, spec.Latent, spec.Rope, spec.Page = shape.Heads, shape.SQ, shape.Latent, shape.Rope, shape.Page
	spec.DType = string(shape.DType)
	if spec.BlockH == 0 {
		spec.BlockH = shape.BlockH
	}
	attend, schedule := spec, spec
	attend.Evict, schedule.PieceCost = shape.Evict, shape.PieceCost
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
func (s source) BlockH(shape runtime.DecodeShape, batch, tokens, sms int) int {
	return s.fitting(shape, templates.ChooseBlockH(shape.Heads*shape.SQ, batch, tokens, sms))
}

// Splits implements runtime.Chooser.
func (s source) Splits(shape runtime.DecodeShape, batch, tokens, sms int) int {
	rows := shape.Heads * shape.SQ
	block := shape.BlockH
	if block == 0 {
		block = s.BlockH(shape, batch, tokens, sms)
	}
	return templates.ChooseSplits(rows, block, batch, tokens, sms)
}

// RowBlocks implements tune.Source.
func (s source) RowBlocks(shape runtime.DecodeShape) []int {
	s.tune.Latent, s.tune.Rope = shape.Latent, shape.Rope
	return s.rowBlocks(shape.Heads, shape.SQ)
}

// Estimate implements tune.Estimator.
func (s source) Estimate(shape runtime.DecodeShape, batch, tokens, splits, sms int) float64 {
	return templates.EstimateDecode(shape.Heads*shape.SQ, shape.BlockH, batch, tokens, splits, sms)
}

var (
	_ tune.Source    = source{}
	_ tune.Estimator = source{}
)

// fitting returns the row block, or the shape's default where the widths leave no
// room for it in shared memory.
func (s source) fitting(shape runtime.DecodeShape, block int) int {
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
func (s source) rowBlocks(heads, sq int) (blocks []int) {
	rows, covered := heads*sq, false
	for h := 8; h <= mostBlockH; h += 8 {
		spec := s.tune
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

// build generates one kernel for the runtime.
func build(kernel string, spec templates.Spec) (runtime.Variant, error) {
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
