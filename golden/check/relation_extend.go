package check

import (
	"errors"
	"fmt"

	"github.com/mlagen/mlagen/golden/cases"
)

// inMemory runs f in memory of its own.
func (r *Runner) inMemory(f func(m *memory) error) (err error) {
	m := &memory{driver: r.Driver}
	defer func() { err = errors.Join(err, m.free()) }()
	return f(m)
}

// newToken names the rows of requests that lie end to end.
func newToken(in *cases.Extend) func(row int) string {
	return func(row int) string {
		token, request := row/in.Case.Model.Heads, 0
		for int(in.CuQ[request+1]) <= token {
			request++
		}
		return fmt.Sprintf("request %d (%d new of %d), new token %d, head %d", request, in.CuQ[request+1]-in.CuQ[request], in.KVLen[request],
			token-int(in.CuQ[request]), row%in.Case.Model.Heads)
	}
}

// relateExtend holds a relation against extend.
func (r *Runner) relateExtend(relation string, c *cases.Case) error {
	x := newRelated(c, (*cases.Case).Extend, func(in *cases.Extend) (a answer, err error) {
		err = r.inMemory(func(m *memory) error {
			results, _, err := r.extendOnce(in, m)
			if err != nil {
				return err
			}
			a = answer{t: c.DType, width: c.Model.Value, lse: results[1], name: newToken(in)}
			a.out, err = outRows(c, in.Tokens(), a.width).gather(c, results[0], a.name)
			return err
		})
		return a, err
	})
	heads, sequences := count(c.Model.Heads), count(len(c.KVLen))
	switch relation {
	case cases.PagesPermuted:
		return x.pagesPermuted()
	case cases.RequestsPermuted:
		return x.permuted(x.r.Perm(len(sequences)), heads, permuteExtend, true)
	case cases.HeadsPermuted:
		return x.permuted(sequences, x.r.Perm(len(heads)), permuteExtend, true)
	}
	return x.foreignNaN(spoilCache)
}

func spoilCache(in *cases.Extend, victim int) { spoilPages(in.Decode, victim) }

// permuteExtend has sequences and heads in another order.
func permuteExtend(in *cases.Extend, sequences, heads []int) *cases.Extend {
	d := permuteDecode(in.Decode, sequences, heads)
	to := &cases.Extend{UpProject: &cases.UpProject{Decode: d}}
	to.CuQ, to.Q, d.Case.QLen = permuteQueries(in.Case, in.CuQ, in.Q, sequences, heads)
	m := in.Case.Model
	size := (m.Nope + m.Value) * m.Latent
	for _, h := range heads {
		to.Weights = append(to.Weights, in.Weights[h*size:][:size]...)
	}
	return to
}

// relateLayer holds a relation against a layer.
func (r *Runner) relateLayer(relation string, c *cases.Case) error {
	x := newRelated(c, (*cases.Case).Extend, func(in *cases.Extend) (a answer, err error) {
		err = r.inMemory(func(m *memory) error {
			results, _, err := r.layerOnce(in, m)
			if err != nil {
				return err
			}
			a = answer{t: c.DType, width: c.Model.Value, name: newToken(in)}
			a.out, err = outRows(c, in.Tokens(), a.width).gather(c, results[0], a.name)
			return err
		})
		return a, err
	})
	switch relation {
	case cases.PagesPermuted:
		return x.pagesPermuted()
	case cases.ForeignNaN:
		return x.foreignNaN(spoilCache)
	}
	return absorbIsExpand(x)
}

// absorbIsExpand computes all requests in one way, and all in the other.
func absorbIsExpand(x related[*cases.Extend]) error {
	var answers []answer
	for _, path := range []string{"absorb", "expand"} {
		c := *x.c
		c.Paths = nil
		for range c.KVLen {
			c.Paths = append(c.Paths, path)
		}
		in, err := x.build(&c)
		if err != nil {
			return err
		}
		a, err := x.answer(in)
		if err != nil {
			return err
		}
		answers = append(answers, a)
	}
	return answers[0].near(answers[1], identity, x.c.Tolerance, 0)
}
