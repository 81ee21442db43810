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

// AbsorbQuery brings queries into the latent space: q_nope · W_UK, head by head.
// It is loaded for one shape and serves any number of tokens. Its methods
// allocate nothing and never wait for the device; they must not be called
// concurrently.
type AbsorbQuery struct{ absorb }

// LoadAbsorbQuery loads variants that differ in their tiles.
func LoadAbsorbQuery(drv Driver, variants ...Variant) (*AbsorbQuery, error) {
	return loadAhead(drv, nil, variants, func(l *loader) (*AbsorbQuery, error) { return loadAbsorbQuery(l, variants) })
}

func loadAbsorbQuery(l *loader, variants []Variant) (*AbsorbQuery, error) {
	a, err := loadAbsorb(l, "absorbed query", "absorb_q", variants,
		[]string{"q_rope", "rope_out"}, []string{"copy_rope", "q_rope_token", "q_rope_head", "rope_out_token", "rope_out_head"})
	if err != nil {
		return nil, err
	}
	return &AbsorbQuery{*a}, nil
}

// AbsorbQueryArgs are the arguments of AbsorbQuery.Run. Queries are either Q, or
// QNope and, where rope parts are wanted, QRope; the result is either Out, rope
// parts included, or OutLatent, and OutRope where they are wanted. All are of
// the model's type; addresses are aligned to 16 bytes, the innermost stride is
// 1 element, the others are multiples of 16 bytes.
type AbsorbQueryArgs struct {
	Q     Tensor // [tokens, heads, nope+rope]
	QNope Tensor // [tokens, heads, nope]
	QRope Tensor // [tokens, heads, rope]

	Weights Tensor // [heads, nope, latent]: the key rows of W_kv_b, see SplitWeights

	Out       Tensor // [tokens, heads, latent+rope]: what Decode takes as Q
	OutLatent Tensor // [tokens, heads, latent]
	OutRope   Tensor // [tokens, heads, rope]
}

// Run multiplies. A mistake in the arguments is an ArgumentError and launches
// nothing; no tokens launch nothing. Weights are read before the kernel before
// it in the stream has ended, if that lets its dependents start early.
func (a *AbsorbQuery) Run(s Stream, x AbsorbQueryArgs) error {
	if a.kernels == nil {
		return errors.New("absorbed query: " + closed)
	}
	if err := a.run(s, &x); err != nil {
		return fmt.Errorf("absorbed query: %w", err)
	}
	return nil
}

func (a *AbsorbQuery) run(s Stream, x *AbsorbQueryArgs) error {
	if s == nil {
		return noStream()
	}
	m := &a.kernels[0].model
	a.places.begin()
	tokens, err := a.query(x, m)
	if err != nil {
		return err
	}
	if err := a.weights(&x.Weights, "nope", m.Nope); err != nil {
		return err
	}
	if err := a.result(x, m, tokens); err != nil || tokens == 0 {
		return err
	}
	if err := apart(&a.places); err != nil {
		return err
	}
	k := a.forTokens(tokens)
	if err := k.describeTensor("rows", &x.QNope, 0, 1); err != nil {
		return err
	}
	if err := k.describeTensor("weights", &x.Weights, 1, 0); err != nil {
		return err
	}
	k.params.Int("tokens", tokens)
	if err := k.result(&x.OutLatent); err != nil {
		return err
	}
	rope := !x.OutRope.absent()
	k.params.Int("copy_rope", flag(rope, 1))
	if !rope {
		x.QRope, x.OutRope = Tensor{}, Tensor{}
		k.params.Pointer("q_rope", 0).Int("q_rope_token", 0).Int("q_rope_head", 0)
		k.params.Pointer("rope_out", 0).Int("rope_out_token", 0).Int("rope_out_head", 0)
	} else {
		k.strided("q_rope", "q_rope_token", "q_rope_head", &x.QRope)
		k.strided("rope_out", "rope_out_token", "rope_out_head", &x.OutRope)
	}
	return a.launch(s, k, tokens)
}

// query checks the queries and leaves them in QNope and QRope.
func (a *AbsorbQuery) query(x *AbsorbQueryArgs, m *ProductModel) (tokens int64, err error) {
	split := !x.QNope.absent() || !x.QRope.absent()
	if joint := !x.Q.absent(); joint == split {
		was := "was not given"
		if joint {
			was = "was given beside q_nope or q_rope"
		}
		return 0, argumentError("q", "either one tensor, or q_nope and, for rope parts, q_rope", "%s", was)
	}
	if !split {
		e := a.rows("q", -1, "nope+rope", m.Nope+m.Rope, false)
		if err := a.source(absorbRows, &e, &x.Q); err != nil {
			return 0, err
		}
		x.QNope, x.QRope = a.views[0].columns(&x.Q, 2, 0, m.Nope), a.views[1].columns(&x.Q, 2, m.Nope, m.Rope)
		return x.Q.Shape[0], nil
	}
	e := a.rows("q_nope", -1, "nope", m.Nope, false)
	if err := a.source(absorbRows, &e, &x.QNope); err != nil {
		return 0, err
	}
	tokens = x.QNope.Shape[0]
	if !x.QRope.absent() {
		e := a.rows("q_rope", tokens, "rope", m.Rope, false)
		return tokens, a.places.tensor(absorbRope, &e, &x.QRope)
	}
	return tokens, nil
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

// result checks where the result goes and leaves it in OutLatent and OutRope.
func (a *AbsorbQuery) result(x *AbsorbQueryArgs, m *ProductModel, tokens int64) error {
	split := !x.OutLatent.absent() || !x.OutRope.absent()
	if joint := !x.Out.absent(); joint == split {
		was := "was not given"
		if joint {
			was = "was given beside out_latent or out_rope"
		}
		return argumentError("out", "either one tensor, or out_latent and, for rope parts, out_rope", "%s", was)
	}
	if !split {
		e := a.rows("out", tokens, "latent+rope", m.Latent+m.Rope, true)
		if err := a.destination(&e, &x.Out); err != nil {
			return err
		}
		x.OutLatent, x.OutRope = a.views[2].columns(&x.Out, 2, 0, m.Latent), a.views[3].columns(&x.Out, 2, m.Latent, m.Rope)
	} else {
		e := a.rows("out_latent", tokens, "latent", m.Latent, true)
		if err := a.destination(&e, &x.OutLatent); err != nil {
			return err
		}
		if !x.OutRope.absent() {
			e := a.rows("out_rope", tokens, "rope", m.Rope, true)
			if err := a.places.tensor(absorbRopeOut, &e, &x.OutRope); err != nil {
				return err
			}
		}
	}
	if !x.OutRope.absent() && x.QRope.absent() {
		return argumentError("q_rope", "given where the result has rope parts", "was not given")
	}
	return nil
}

// AbsorbOutput brings attended latents out of the latent space: o_latent ·
// W_UVᵀ, head by head. It is loaded for one shape and serves any number of
// tokens. Its methods allocate nothing and never wait for the device; they must
// not be called concurrently.
type AbsorbOutput struct{ absorb }

// LoadAbsorbOutput loads variants that differ in their tiles.
func LoadAbsorbOutput(drv Driver, variants ...Variant) (*AbsorbOutput, error) {
	return loadAhead(drv, nil, variants, func(l *loader) (*AbsorbOutput, error) { return loadAbsorbOutput(l, variants) })
}

func loadAbsorbOutput(l *loader, variants []Variant) (*AbsorbOutput, error) {
	a, err := loadAbsorb(l, "absorbed output", "absorb_o", variants, nil, nil)
	if err != nil {
		return nil, err
	}
	return &AbsorbOutput{*a}, nil
}

// AbsorbOutputArgs are the arguments of AbsorbOutput.Run. All tensors are of the
// model's type; addresses are aligned to 16 bytes, the innermost stride is 1
// element, the others are multiples of 16 bytes.
type AbsorbOutputArgs struct {
	Latent  Tensor // [tokens, heads, latent]: Decode's Out
	Weights Tensor // [heads, value, latent]: the value rows of W_kv_b, see SplitWeights
	Out     Tensor // [tokens, heads, value]
}

// Run multiplies. A mistake in the arguments is an ArgumentError and launches
// nothing; no tokens launch nothing. Weights are read before the kernel before
// it in the stream has ended, if that lets its dependents start early.
func (a *AbsorbOutput) Run(s Stream, x AbsorbOutputArgs) error {
	if a.kernels == nil {
		return errors.New("absorbed output: " + closed)
	}
	if err := a.run(s, &x); err != nil {
		return fmt.Errorf("absorbed output: %w", err)
	}
	return nil
}

func (a *AbsorbOutput) run(s Stream, x *AbsorbOutputArgs) error {
	if s == nil {
		return noStream()
	}
	m := &a.kernels[0].model
	a.places.begin()
	e := a.rows("latent", -1, "latent", m.Latent, false)
	if err := a.source(absorbRows, &e, &x.Latent); err != nil {
		return err
	}
	tokens := x.Latent.Shape[0]
	if err := a.weights(&x.Weights, "value", m.Value); err != nil {
		return err
	}
	e = a.rows("out", tokens, "value", m.Value, true)
	if err := a.destination(&e, &x.Out); err != nil || tokens == 0 {
		return err
	}
	if err := apart(&a.places); err != nil {
		return err
	}
	k := a.forTokens(tokens)
	if err := k.describeTensor("rows", &x.Latent, 0, 1); err != nil {
		return err
	}
	if err := k.describeTensor("weights", &x.Weights, 1, 0); err != nil {
		return err
	}
	k.params.Int("tokens", tokens)
	if err := k.result(&x.Out); err != nil {
		return err
	}
	return a.launch(s, k, tokens)
}
