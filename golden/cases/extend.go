package cases

import "github.com/mlagen/mlagen/golden/oracle"

// Extend is the inputs of an extend case: the cache, as a decode case has it,
// the weights, and the new tokens' queries, sequence after sequence.
type Extend struct {
	*UpProject
	CuQ []int32   // where a sequence's query tokens begin, and the end
	Q   []float32 // [query tokens][heads][nope+rope]
}

// Extend builds the inputs of an extend case.
func (c *Case) Extend() (*Extend, error) {
	u, err := c.UpProject()
	if err != nil {
		return nil, err
	}
	e := &Extend{UpProject: u, CuQ: []int32{0}}
	for i := range c.KVLen {
		e.CuQ = append(e.CuQ, e.CuQ[i]+int32(c.Queries(i)))
	}
	e.Q, err = c.tensor(streamQ, c.Fill.Q, e.Tokens()*c.Model.Heads*(c.Model.Nope+c.Model.Rope))
	return e, err
}

// Tokens returns the query tokens of all sequences.
func (e *Extend) Tokens() int { return int(e.CuQ[len(e.CuQ)-1]) }

// KeyTokens returns the tokens of all sequences, also of those that a graph is
// captured with, where they are more.
func (e *Extend) KeyTokens() int {
	sum := func(lengths []int) (n int) {
		for _, k := range lengths {
			n += k
		}
		return n
	}
	n := sum(e.Case.KVLen)
	if g := e.Case.Graph; g != nil {
		n = max(n, sum(g.CaptureKVLen))
	}
	return n
}

// SplitQ returns the query as two tensors: [query tokens][heads][nope] and
// [query tokens][heads][rope].
func (e *Extend) SplitQ() (nope, rope []float32) {
	return (&Prefill{Case: e.Case, Q: e.Q}).SplitQ()
}

// Oracle is the reference problem over the same inputs: prefill of what the
// up-projection gives in float64.
func (e *Extend) Oracle() *oracle.Prefill[float64] {
	c, m := e.Case, e.Case.Model
	wide := func(x []float32) []float64 {
		w := make([]float64, len(x))
		for i, v := range x {
			w[i] = float64(v)
		}
		return w
	}
	cuQ, cuK := make([]int, len(e.CuQ)), make([]int, len(e.CuQ))
	for i, q := range e.CuQ {
		cuQ[i] = int(q)
	}
	weights := c.OracleWeights(e.Weights)
	var up, rope [][]float64 // [key tokens × heads], [key tokens]
	for i, n := range c.KVLen {
		cuK[i+1] = cuK[i] + n
		for t := range n {
			record := e.Token(i, t)
			for h := range m.Heads {
				up = append(up, oracle.UpProject(weights, h, record[:m.Latent]))
			}
			rope = append(rope, wide(record[m.Latent:]))
		}
	}
	q, key := wide(e.Q), m.Nope+m.Rope
	return &oracle.Prefill[float64]{
		Heads: m.Heads, Nope: m.Nope, Rope: m.Rope, Value: m.Value, Scale: c.SoftmaxScale(), Causal: c.Causal, CuQ: cuQ, CuK: cuK,
		Q:     func(token, head int) []float64 { return q[(token*m.Heads+head)*key:][:key] },
		Up:    func(token, head int) []float64 { return up[token*m.Heads+head] },
		KRope: func(token int) []float64 { return rope[token] },
	}
}
