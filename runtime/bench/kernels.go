package bench

import (
	"bytes"
	"errors"
	"slices"
	"sync"

	"github.com/mlagen/mlagen/runtime"
)

// kernels are the decode kernels that shapes share, and what the source made of
// shapes that may never be loaded.
type kernels struct {
	decodes map[runtime.DecodeShape]*runtime.Decode
	made    map[runtime.DecodeShape]made
}

// made is what the source makes of a shape.
type made struct {
	variants runtime.DecodeVariants
	err      error
	failed   error // of loading it
}

func newKernels() kernels {
	return kernels{map[runtime.DecodeShape]*runtime.Decode{}, map[runtime.DecodeShape]made{}}
}

// make has the source make shapes, each once and side by side.
func (b *Bench) make(shapes []runtime.DecodeShape) {
	var missing []runtime.DecodeShape
	for _, s := range shapes {
		if _, ok := b.made[s]; !ok && !slices.Contains(missing, s) {
			missing = append(missing, s)
		}
	}
	results := make([]made, len(missing))
	var group sync.WaitGroup
	for i, s := range missing {
		group.Go(func() { results[i].variants, results[i].err = b.Source.Decode(s) })
	}
	group.Wait()
	for i, s := range missing {
		b.made[s] = results[i]
	}
}

// Load loads kernels for contests, made and compiled side by side where the driver
// can: the source must bear several calls at a time. What is loaded already is not
// loaded again, be it for another shape.
func (b *Bench) Load(shapes []runtime.DecodeShape) error {
	b.make(shapes)
	var missing []runtime.DecodeShape
	var variants []runtime.DecodeVariants
	var errs []error
	for _, s := range shapes {
		if b.decodes[s] == nil && !slices.Contains(missing, s) {
			missing, variants, errs = append(missing, s), append(variants, b.made[s].variants), append(errs, b.made[s].err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return &LoadError{err}
	}
	decodes, err := runtime.LoadDecodes(b.Driver, variants, runtime.WithLoaded(b.loaded()...))
	if err != nil {
		if len(missing) == 1 { // it is known which; nobody waits for that again
			b.made[missing[0]] = made{variants: variants[0], failed: err}
		}
		return &LoadError{err}
	}
	for i, d := range decodes {
		b.keep(missing[i], d)
	}
	return nil
}

// keep notes a shape's kernels.
func (b *Bench) keep(s runtime.DecodeShape, d *runtime.Decode) {
	b.decodes[s] = d
	for _, k := range d.Kernels() {
		if !slices.Contains(b.compiled, k) {
			b.compiled = append(b.compiled, k)
		}
	}
}

// loaded lists the decode kernels, those that shapes share more than once.
func (b *Bench) loaded() (all []*runtime.Kernel) {
	for _, d := range b.decodes {
		all = append(all, d.Kernels()...)
	}
	return all
}

// Whole reports of each shape whether loading it compiles a whole program (see
// runtime.WholeProgram), of which the driver compiles one after another: not where
// that was loaded for another shape, nor where the source does not make it.
func (b *Bench) Whole(shapes []runtime.DecodeShape) []bool {
	b.make(shapes)
	whole := make([]bool, len(shapes))
	for i, s := range shapes {
		v := b.made[s].variants.Decode
		whole[i] = runtime.WholeProgram(v.PTX) && !slices.ContainsFunc(b.loaded(), func(k *runtime.Kernel) bool { return bytes.Equal(k.PTX, v.PTX) })
	}
	return whole
}

// Loaded returns the kernels of a shape, nil where they were not loaded.
func (b *Bench) Loaded(s runtime.DecodeShape) *runtime.Decode { return b.decodes[s] }

// decode returns the kernels for a shape, loading them on first use.
func (b *Bench) decode(s Shape, set Setting) (*runtime.Decode, error) {
	shape := b.shape(s, set)
	if c, ok := b.Source.(runtime.Chooser); ok && shape.BlockH == 0 && !set.AnyLoad {
		shape.BlockH = c.BlockH(shape, s.Batch, s.meanTokens(), b.Driver.Attributes().SMs)
	}
	return b.load(shape)
}

// load loads kernels on first use.
func (b *Bench) load(shape runtime.DecodeShape) (*runtime.Decode, error) {
	if d := b.decodes[shape]; d != nil {
		return d, nil
	}
	if err := b.made[shape].failed; err != nil {
		return nil, &LoadError{err}
	}
	v, err := b.Source.Decode(shape)
	if err != nil {
		return nil, &LoadError{err}
	}
	d, err := runtime.LoadDecode(b.Driver, v)
	if err != nil {
		return nil, &LoadError{err}
	}
	b.keep(shape, d)
	return d, nil
}
