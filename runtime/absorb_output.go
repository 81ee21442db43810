package runtime

import (
	"errors"
	"fmt"
)

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
