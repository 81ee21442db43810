package cases

import (
	"math/rand/v2"

	"github.com/mlagen/mlagen/golden/oracle"
)

// More streams of the seed, see decode.go.
const (
	streamWeights = iota + 64
	streamAttended
)

// UpProject is the inputs of an up-projection of every token in the cache: the
// cache, as a decode case has it, and the weights. With Chunk it is done in
// several calls, each for so many tokens of every sequence.
type UpProject struct {
	*Decode
	Weights []float32 // [heads][nope+value][latent]
}

// UpProject builds the inputs of an up-projection case.
func (c *Case) UpProject() (*UpProject, error) {
	plain := *c
	plain.Fill.Q, plain.QLen = "zero", Lengths{All: 0} // there are no queries
	d, err := plain.Decode()
	if err != nil {
		return nil, err
	}
	d.Case = c
	w, err := c.weights()
	return &UpProject{d, w}, err
}

// weights draws W_kv_b.
func (c *Case) weights() ([]float32, error) {
	m := c.Model
	return c.tensor(streamWeights, c.Fill.Weights, m.Heads*(m.Nope+m.Value)*m.Latent)
}

// tensor fills n elements from a stream of the seed.
func (c *Case) tensor(stream uint64, fill string, n int) ([]float32, error) {
	f, err := ParseFill(fill)
	if err != nil {
		return nil, err
	}
	x := make([]float32, n)
	f(rand.New(rand.NewPCG(c.Seed, stream)), x)
	round(c.DType, x)
	return x, nil
}

// Range is tokens First to End−1 of a sequence.
type Range struct{ First, End int }

// Calls returns the ranges of each sequence in each call, at least one call.
func (u *UpProject) Calls() [][]Range {
	if u.Case.Chunk == 0 {
		var all []Range
		for _, n := range u.KVLen {
			all = append(all, Range{0, int(n)})
		}
		return [][]Range{all}
	}
	var calls [][]Range
	for first := 0; ; first += u.Case.Chunk {
		var ranges []Range
		more := false
		for _, n := range u.KVLen {
			r := Range{min(first, int(n)), min(first+u.Case.Chunk, int(n))}
			more = more || r.End < int(n)
			ranges = append(ranges, r)
		}
		if calls = append(calls, ranges); !more {
			return calls
		}
	}
}

// Token returns a token's record: latent and rope key.
func (u *UpProject) Token(sequence, token int) []float32 {
	page := u.Pool.Find(int64(u.Table[sequence*u.Width+token/u.Case.PageSize]))
	at := token % u.Case.PageSize * u.Pool.Record
	return page.Values[at : at+u.Pool.Record]
}

// OracleWeights is W_kv_b for the oracle.
func (c *Case) OracleWeights(data []float32) oracle.Weights[float32] {
	return oracle.Weights[float32]{Heads: c.Model.Heads, Nope: c.Model.Nope, Value: c.Model.Value, Latent: c.Model.Latent, Data: data}
}

// Absorb is the inputs of both products with the absorbed weights.
type Absorb struct {
	Case     *Case
	Tokens   int
	Q        []float32 // [tokens][heads][nope+rope]
	Attended []float32 // [tokens][heads][latent]
	Weights  []float32 // [heads][nope+value][latent]
}

// Absorb builds the inputs of an absorb case: the query tokens of all
// sequences, or, without sequences, QLen tokens.
func (c *Case) Absorb() (*Absorb, error) {
	a := &Absorb{Case: c, Tokens: c.QueryTokens()}
	m := c.Model
	var err error
	if a.Q, err = c.tensor(streamQ, c.Fill.Q, a.Tokens*m.Heads*(m.Nope+m.Rope)); err != nil {
		return nil, err
	}
	if a.Attended, err = c.tensor(streamAttended, c.Fill.latent(), a.Tokens*m.Heads*m.Latent); err != nil {
		return nil, err
	}
	a.Weights, err = c.weights()
	return a, err
}

// QueryTokens is the number of query tokens of all sequences, or of one where
// the case lists none.
func (c *Case) QueryTokens() int {
	switch {
	case c.QLen.Each != nil:
		n := 0
		for _, q := range c.QLen.Each {
			n += q
		}
		return n
	case c.KVLen == nil:
		return c.QLen.All
	}
	return c.QLen.All * len(c.KVLen)
}
