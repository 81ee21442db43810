package runtime

import (
	"errors"
	"fmt"
)

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
