package runtime

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// AbsorbShape is what the products with the absorbed weights are generated for.
type AbsorbShape struct {
	Heads  int   // heads on this device
	Latent int   // 512
	Rope   int   // 64
	Nope   int   // 128
	Value  int   // 128
	DType  DType // of everything
	Tokens int   // the most that a call has, 0 = any number
}

// AbsorbSource makes variants for a shape, of which a call takes the one with
// the smallest tiles that hold its tokens, or says why they cannot be had.
type AbsorbSource interface {
	AbsorbQuery(AbsorbShape) ([]Variant, error)
	AbsorbOutput(AbsorbShape) ([]Variant, error)
}

// absorb is what AbsorbQuery and AbsorbOutput have in common.
type absorb struct {
	name    string
	places  places
	kernels []*productKernel // by rows of a tile, ascending
	columns int              // of a head's results
	model   ProductModel     // the first one's
	sms     int64
	views   [4]view // parts of joint queries and results
}

// loadAbsorb loads the variants of one kernel, which differ in their tiles.
func loadAbsorb(l *loader, name, kernel string, variants []Variant, pointers, scalars []string) (a *absorb, err error) {
	if len(variants) == 0 {
		return nil, fmt.Errorf("%s: no variant was given", name)
	}
	a = &absorb{name: name}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	for _, v := range variants {
		k, err := loadProduct(l, v, kernel)
		if k != nil {
			a.kernels = append(a.kernels, k)
		}
		if err != nil {
			return a, err
		}
		maps := []string{"rows", "weights"}
		if k.wide() {
			maps = append(maps, "results")
		}
		if err := k.accepts(append(pointers, "out"), append(scalars, "tokens", "out_token", "out_head"), maps); err != nil {
			return a, err
		}
		if first := a.kernels[0]; !k.model.same(first.model) {
			return a, fmt.Errorf("%s was made for %+v, %s for %+v", first.kernel.label(), first.model, k.kernel.label(), k.model)
		}
	}
	slices.SortStableFunc(a.kernels, func(x, y *productKernel) int { return cmp.Compare(x.model.BlockM, y.model.BlockM) })
	a.model = a.kernels[0].model
	a.columns = a.model.Value
	if kernel == "absorb_q" {
		a.columns = a.model.Latent
	}
	a.places, a.sms = newPlaces(l.driver, absorbArguments), int64(max(1, l.driver.Attributes().SMs))
	return a, nil
}

// Model returns what the kernels were generated for; BlockM and BlockN are the
// smallest tile's.
func (a *absorb) Model() ProductModel { return a.model }

// ModelFor returns what the kernel that a call of so many tokens takes was
// generated for.
func (a *absorb) ModelFor(tokens int) ProductModel {
	if a.kernels == nil {
		return a.model // was closed
	}
	return a.forTokens(int64(tokens)).model
}

// Kernels returns the loaded kernels, for their compile times and warnings.
func (a *absorb) Kernels() []*Kernel {
	var kernels []*Kernel
	for _, k := range a.kernels {
		kernels = append(kernels, k.kernel)
	}
	return kernels
}

// Close unloads the kernels. None of them may be running.
func (a *absorb) Close() error {
	var all []error
	for _, k := range a.kernels {
		all = append(all, k.kernel.Unload())
	}
	a.kernels = nil
	return errors.Join(all...)
}

// forTokens returns the kernel for so many tokens: the smallest tiles that hold
// them all, or the largest, but wide ones only where there are enough for half
// of the device.
func (a *absorb) forTokens(tokens int64) *productKernel {
	var chosen *productKernel
	for _, k := range a.kernels {
		if chosen != nil && k.wide() && 2*a.tiles(k, tokens) < a.sms {
			break
		}
		chosen = k
		if int64(k.model.BlockM) >= tokens {
			break
		}
	}
	return chosen
}

// tiles returns how many tiles of k so many tokens make.
func (a *absorb) tiles(k *productKernel, tokens int64) int64 {
	m := &k.model
	return (tokens + int64(m.BlockM) - 1) / int64(m.BlockM) * int64(m.Heads) * int64(a.columns/m.BlockN)
}

// launch launches k for so many tokens.
func (a *absorb) launch(s Stream, k *productKernel, tokens int64) error {
	tiles := a.tiles(k, tokens)
	if k.wide() {
		tiles = min(tiles, a.sms)
	}
	return k.launch(s, tiles)
}

// The arguments whose addresses are looked up.
const (
	absorbRows = iota
	absorbRope
	absorbWeights
	absorbOut
	absorbRopeOut
	absorbArguments
)

// rows is what a tensor of an absorb product looks like.
func (a *absorb) rows(name string, tokens int64, width string, columns int, output bool) expectation {
	m := &a.kernels[0].model
	return expectation{
		name: name, dtype: m.DType, rank: 3, align: rowAlign, output: output,
		axes: [4]axis{{"tokens", tokens}, {"heads", int64(m.Heads)}, {width, int64(columns)}},
	}
}

// weights checks the weights of heads.
func (a *absorb) weights(w *Tensor, rows string, n int) error {
	m := &a.kernels[0].model
	x := expectation{
		name: "weights", dtype: m.DType, rank: 3, align: rowAlign,
		axes: [4]axis{{"heads", int64(m.Heads)}, {rows, int64(n)}, {"latent", int64(m.Latent)}},
	}
	if err := a.places.tensor(absorbWeights, &x, w); err != nil {
		return err
	}
	return mapStrides(&x, w)
}

// source checks rows that a tensor map describes.
func (a *absorb) source(index int, e *expectation, t *Tensor) error {
	if err := a.places.tensor(index, e, t); err != nil {
		return err
	}
	if err := mapStrides(e, t); err != nil {
		return err
	}
	return checkRows(e.name, t.Shape[0])
}

// destination checks where the product goes.
func (a *absorb) destination(e *expectation, t *Tensor) error {
	if err := a.places.tensor(absorbOut, e, t); err != nil {
		return err
	}
	return mapStrides(e, t)
}
