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

// Reference is what attention over all keys must give, of width value: each
// sequence by the cheaper of two ways that are the same in float64, expanded (see
// Oracle) or absorbed.
func (e *Extend) Reference() oracle.Result {
	c, m := e.Case, e.Case.Model
	key := m.Nope + m.Rope
	rows := e.Tokens() * m.Heads
	all := oracle.Result{Width: m.Value, Out: make([]float64, 0, rows*m.Value), LSE: make([]float64, 0, rows)}
	weights := c.OracleWeights(e.Weights)
	for i, n := range c.KVLen {
		one, queries := e.alone(i), c.Queries(i)
		absorb := queries * (m.Latent*(m.Nope+m.Value) + n*(2*m.Latent+m.Rope))
		expand := n*m.Latent*(m.Nope+m.Value) + queries*n*(key+m.Value)
		if expand <= absorb {
			r := one.Oracle().Run()
			all.Out, all.LSE = append(all.Out, r.Out...), append(all.LSE, r.LSE...)
			continue
		}
		var records [][]float64
		for t := range n {
			records = append(records, wide(e.Token(i, t)))
		}
		latent := (&oracle.Decode[float64]{
			Heads: m.Heads, QLen: queries, Latent: m.Latent, Rope: m.Rope, Scale: c.SoftmaxScale(), Causal: c.Causal, KVLen: []int{n},
			Q: func(_, token, head int) []float64 {
				return oracle.AbsorbQuery(weights, head, one.Q[(token*m.Heads+head)*key:][:key])
			},
			Row: func(_, position int) []float64 { return records[position] },
		}).Run()
		for row, lse := range latent.LSE {
			all.Out = append(all.Out, oracle.AbsorbOutput(weights, row%m.Heads, latent.Row(row))...)
			all.LSE = append(all.LSE, lse)
		}
	}
	return all
}

// alone returns the inputs with sequence i as the whole batch, in the same pool.
func (e *Extend) alone(i int) *Extend {
	c := *e.Case
	c.KVLen, c.Graph, c.QLen = c.KVLen[i:i+1], nil, Lengths{Each: []int{e.Case.Queries(i)}}
	width := c.Model.Heads * (c.Model.Nope + c.Model.Rope)
	d := &Decode{Case: &c, Pool: e.Pool, Table: e.Table[i*e.Width : (i+1)*e.Width], Width: e.Width, KVLen: e.KVLen[i : i+1]}
	return &Extend{
		UpProject: &UpProject{d, e.Weights}, CuQ: []int32{0, e.CuQ[i+1] - e.CuQ[i]},
		Q: e.Q[int(e.CuQ[i])*width : int(e.CuQ[i+1])*width],
	}
}

func wide(x []float32) []float64 {
	w := make([]float64, len(x))
	for i, v := range x {
		w[i] = float64(v)
	}
	return w
}

// Oracle is the reference problem over the same inputs: prefill of what the
// up-projection gives in float64.
func (e *Extend) Oracle() *oracle.Prefill[float64] {
	c, m := e.Case, e.Case.Model
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
