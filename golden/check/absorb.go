package check

import (
	"errors"
	"path/filepath"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/oracle"
	"github.com/mlagen/mlagen/runtime"
)

// The results of an absorb case.
const (
	absorbedQuery = iota
	absorbedOutput
)

// runAbsorb runs both products with the absorbed weights.
func (r *Runner) runAbsorb(c *cases.Case) (Outcome, error) {
	if err := productLimits(c, r.Options, c.QueryTokens()); err != nil {
		return Outcome{}, err
	}
	in, err := c.Absorb()
	if err != nil {
		return Outcome{}, err
	}
	plain := *c
	plain.Graph = nil // launches depend on the shapes alone
	return r.overSchedules(c, func() ([][]byte, error) { return r.absorb(&plain, in) }, func(results [][]byte) (float64, error) {
		worst, err := judgeAbsorb(in, results)
		if err == nil && r.Dump != "" {
			err = dumpAbsorb(filepath.Join(r.Dump, c.Name), in, results)
		}
		return worst, err
	})
}

func judgeAbsorb(in *cases.Absorb, results [][]byte) (float64, error) {
	c, m := in.Case, in.Case.Model
	w, width := c.OracleWeights(in.Weights), m.Nope+m.Rope
	query, err := differRows(c, "absorbed query", results[absorbedQuery], in.Tokens*m.Heads, func(i int) []float64 {
		q := oracle.AbsorbQuery(w, i%m.Heads, in.Q[i*width:(i+1)*width])
		if c.Layout.Q == "split" {
			q = q[:m.Latent]
		}
		return q
	})
	if err != nil {
		return query, err
	}
	out, err := differRows(c, "absorbed output", results[absorbedOutput], in.Tokens*m.Heads, func(i int) []float64 {
		return oracle.AbsorbOutput(w, i%m.Heads, in.Attended[i*m.Latent:(i+1)*m.Latent])
	})
	return max(query, out), err
}

// absorb runs both products in fresh memory. A split query has no rope parts in
// its result; a joint one has.
func (r *Runner) absorb(c *cases.Case, in *cases.Absorb) (results [][]byte, err error) {
	query, output, err := r.openAbsorb(c, in.Tokens)
	if err != nil {
		return nil, err
	}
	m := &memory{driver: r.Driver}
	defer func() { err = errors.Join(err, m.free()) }()
	mod, dtype := c.Model, runtime.DType(c.DType)
	tokens, heads := int64(in.Tokens), int64(mod.Heads)
	width := mod.Latent
	if c.Layout.Q != "split" {
		width += mod.Rope
	}
	outs := make([]rowsOut, 2)
	rows, gap := in.Tokens*mod.Heads, outGapOf(c)
	if outs[absorbedQuery], err = placeRows(m, c, "q", rows, rows, width, gap); err != nil {
		return nil, err
	}
	if outs[absorbedOutput], err = placeRows(m, c, "out", rows, rows, mod.Value, gap); err != nil {
		return nil, err
	}
	of := func(o rowsOut) runtime.Tensor {
		stride := int64(o.stride)
		return runtime.Tensor{Ptr: o.ptr, DType: dtype, Shape: []int64{tokens, heads, int64(o.width)}, Strides: []int64{heads * stride, stride, 1}}
	}
	up := inputs{m: m}
	keys, values := runtime.SplitWeights(runtime.Dense(up.values(c, "weights", in.Weights), dtype, heads, int64(mod.Nope+mod.Value), int64(mod.Latent)), mod.Nope)
	q := runtime.AbsorbQueryArgs{Weights: keys}
	joint := runtime.Dense(up.values(c, "q", in.Q), dtype, tokens, heads, int64(mod.Nope+mod.Rope))
	if c.Layout.Q == "split" {
		q.QNope = joint
		q.QNope.Shape, q.QNope.Strides = []int64{tokens, heads, int64(mod.Nope)}, []int64{heads * int64(mod.Nope+mod.Rope), int64(mod.Nope + mod.Rope), 1}
		q.OutLatent = of(outs[absorbedQuery])
	} else {
		q.Q, q.Out = joint, of(outs[absorbedQuery])
	}
	o := runtime.AbsorbOutputArgs{
		Latent:  runtime.Dense(up.values(c, "o", in.Attended), dtype, tokens, heads, int64(mod.Latent)),
		Weights: values,
		Out:     of(outs[absorbedOutput]),
	}
	if up.err != nil {
		return nil, up.err
	}
	results, err = r.once(c, m, outs, nil, func(s runtime.Stream) error {
		if err := query.Run(s, q); err != nil {
			return err
		}
		return output.Run(s, o)
	})
	if err != nil {
		return nil, err
	}
	return results, up.intact()
}

// absorbs are the two products for a shape.
type absorbs struct {
	query  *runtime.AbsorbQuery
	output *runtime.AbsorbOutput
}

// Close implements io.Closer.
func (a absorbs) Close() error { return errors.Join(a.query.Close(), a.output.Close()) }

func (r *Runner) openAbsorb(c *cases.Case, tokens int) (*runtime.AbsorbQuery, *runtime.AbsorbOutput, error) {
	shape := runtime.AbsorbShape{
		Heads: c.Model.Heads, Latent: c.Model.Latent, Rope: c.Model.Rope, Nope: c.Model.Nope, Value: c.Model.Value,
		DType: runtime.DType(c.DType), Tokens: tokens,
	}
	a, err := load(r, shape, func() (a absorbs, err error) {
		from, ok := r.Source.(runtime.AbsorbSource)
		if !ok {
			return a, errors.New("the source of kernels makes no absorb products")
		}
		queries, err := from.AbsorbQuery(shape)
		if err != nil {
			return a, err
		}
		outputs, err := from.AbsorbOutput(shape)
		if err != nil {
			return a, err
		}
		if a.query, err = runtime.LoadAbsorbQuery(r.Driver, queries...); err != nil {
			return a, err
		}
		if a.output, err = runtime.LoadAbsorbOutput(r.Driver, outputs...); err != nil {
			return a, errors.Join(err, a.query.Close())
		}
		for _, k := range append(a.query.Kernels(), a.output.Kernels()...) {
			for _, w := range k.Warnings {
				if r.Warn != nil {
					r.Warn(w)
				}
			}
		}
		return a, nil
	})
	return a.query, a.output, err
}

// dumpAbsorb writes an absorb case's inputs and outputs.
func dumpAbsorb(dir string, in *cases.Absorb, results [][]byte) error {
	c, m := in.Case, in.Case.Model
	query := c.DType.Decode(nil, results[absorbedQuery])
	width := m.Latent
	if c.Layout.Q != "split" {
		width += m.Rope
	}
	return dumpTensors(dir,
		dumped{"q", []int{in.Tokens, m.Heads, m.Nope + m.Rope}, in.Q},
		dumped{"o_latent", []int{in.Tokens, m.Heads, m.Latent}, in.Attended},
		dumped{"w_kv_b", []int{m.Heads, m.Nope + m.Value, m.Latent}, in.Weights},
		dumped{"q_latent", []int{in.Tokens, m.Heads, width}, query},
		dumped{"out", []int{in.Tokens, m.Heads, m.Value}, c.DType.Decode(nil, results[absorbedOutput])})
}
