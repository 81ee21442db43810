package cases

import (
	"math/rand/v2"

	"github.com/mlagen/mlagen/golden/oracle"
)

// spareTokens is how many key tokens lie past the last sequence's end: more
// than a tile of keys reaches.
const spareTokens = 200

// Prefill is the inputs of a prefill case. Values are float32 that the case's
// type represents exactly.
type Prefill struct {
	Case      *Case
	CuQ, CuK  []int32   // where a sequence's tokens begin, and the end
	KeyTokens int       // rows of Up and KRope; those past the last sequence are unused
	Q         []float32 // [query tokens][heads][nope+rope]
	Up        []float32 // [KeyTokens][heads][nope+value]: k_nope, then v
	KRope     []float32 // [KeyTokens][RopeStride]: rope first, then unused
	// RopeStride is the elements from a token's rope key to the next: the row
	// stride of the cache, where the case gives one, for the rope key may be a
	// view of it.
	RopeStride int
	// CaptureCuK is CuK at the capture of a graph, nil without one.
	CaptureCuK []int32
}

// Prefill builds the inputs of a prefill case.
func (c *Case) Prefill() (*Prefill, error) {
	p := &Prefill{Case: c, CuQ: []int32{0}, RopeStride: c.Model.Rope}
	if c.Layout.KVRow != 0 {
		p.RopeStride = c.Layout.KVRow
	}
	for i := range c.KVLen {
		n := c.QLen.All
		if c.QLen.Each != nil {
			n = c.QLen.Each[i]
		}
		p.CuQ = append(p.CuQ, p.CuQ[i]+int32(n))
	}
	p.CuK = running(c.KVLen)
	used := int(p.CuK[len(c.KVLen)])
	p.KeyTokens = used
	if c.Graph != nil {
		p.CaptureCuK = running(c.Graph.CaptureKVLen)
		p.KeyTokens = max(used, int(p.CaptureCuK[len(c.KVLen)]))
	}
	p.KeyTokens += spareTokens

	fill := func(text string, stream uint64, width, stride, rows, rowsUsed int) ([]float32, error) {
		filler, err := ParseFill(text)
		if err != nil {
			return nil, err
		}
		unused, err := ParseFill(c.Fill.Unused)
		if err != nil {
			return nil, err
		}
		r, rUnused := rand.New(rand.NewPCG(c.Seed, stream)), rand.New(rand.NewPCG(c.Seed, streamUnused+stream<<8))
		x := make([]float32, rows*stride)
		for i := range rows {
			row := x[i*stride : (i+1)*stride]
			if i < rowsUsed {
				filler(r, row[:width])
				row = row[width:]
			}
			unused(rUnused, row)
		}
		round(c.DType, x)
		return x, nil
	}
	var err error
	m, tokens := c.Model, int(p.CuQ[len(c.KVLen)])
	key, up := m.Heads*(m.Nope+m.Rope), m.Heads*(m.Nope+m.Value)
	if p.Q, err = fill(c.Fill.Q, streamQ, key, key, tokens, tokens); err != nil {
		return nil, err
	}
	if p.Up, err = fill(c.Fill.latent(), streamLatent, up, up, p.KeyTokens, used); err != nil {
		return nil, err
	}
	p.KRope, err = fill(c.Fill.rope(), streamRope, m.Rope, p.RopeStride, p.KeyTokens, used)
	return p, err
}

// running returns 0 and the running sums of lengths.
func running(lengths []int) []int32 {
	sums := []int32{0}
	for i, n := range lengths {
		sums = append(sums, sums[i]+int32(n))
	}
	return sums
}

// Oracle is the reference problem over the same inputs.
func (p *Prefill) Oracle() *oracle.Prefill[float32] {
	c, m := p.Case, p.Case.Model
	wide := func(cu []int32) []int {
		w := make([]int, len(cu))
		for i, v := range cu {
			w[i] = int(v)
		}
		return w
	}
	key, up := m.Nope+m.Rope, m.Nope+m.Value
	return &oracle.Prefill[float32]{
		Heads: m.Heads, Nope: m.Nope, Rope: m.Rope, Value: m.Value, Scale: c.SoftmaxScale(), Causal: c.Causal,
		CuQ: wide(p.CuQ), CuK: wide(p.CuK),
		Q:     func(token, head int) []float32 { return p.Q[(token*m.Heads+head)*key:][:key] },
		Up:    func(token, head int) []float32 { return p.Up[(token*m.Heads+head)*up:][:up] },
		KRope: func(token int) []float32 { return p.KRope[token*p.RopeStride:][:m.Rope] },
	}
}

// SplitQ returns the query as two tensors: [query tokens][heads][nope] and
// [query tokens][heads][rope].
func (p *Prefill) SplitQ() (nope, rope []float32) {
	m := p.Case.Model
	for at := 0; at < len(p.Q); at += m.Nope + m.Rope {
		nope = append(nope, p.Q[at:at+m.Nope]...)
		rope = append(rope, p.Q[at+m.Nope:at+m.Nope+m.Rope]...)
	}
	return nope, rope
}
