package cases

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/golden/oracle"
)

// Queries is the number of query tokens of a sequence.
func (c *Case) Queries(sequence int) int {
	if c.QLen.Each != nil {
		return c.QLen.Each[sequence]
	}
	return c.QLen.All
}

// Merge is the inputs of a merge case: states that attention over consecutive
// pieces of every sequence's keys has left, outputs rounded to the states' type.
// The queries see all keys of their piece. The output of a state without a key
// holds what the case says of unused memory.
type Merge struct {
	Case          *Case
	Tokens, Heads int
	Width         int
	Outs          [][]float32 // [state][token][head][width]
	LSEs          [][]float32 // [state][token][head], to the case's base
}

// states is how many states a merge case has, and the keys that state i of a
// sequence of n has seen.
func (c *Case) states() (count int, piece func(i, n int) (first, end int)) {
	if c.Chunk > 0 {
		longest := slices.Max(append([]int{1}, c.KVLen...))
		return (longest + c.Chunk - 1) / c.Chunk, func(i, n int) (int, int) {
			return min(i*c.Chunk, n), min((i+1)*c.Chunk, n)
		}
	}
	count = c.Splits
	if count == 0 {
		count = 2
	}
	return count, func(i, n int) (int, int) { return i * n / count, (i + 1) * n / count }
}

// PartialType is the type of a merge case's states.
func (c *Case) PartialType() dtype.Type {
	if c.Partial == "" {
		return c.DType
	}
	return c.Partial
}

// Merge builds the inputs of a merge case. Chunk n makes a state of every n
// keys; otherwise Splits says how many states there are, by default 2.
func (c *Case) Merge() (*Merge, error) {
	random := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(c.Seed, stream)) }
	fill := func(text string, stream uint64, n int) ([]float32, error) {
		filler, err := ParseFill(text)
		if err != nil {
			return nil, err
		}
		x := make([]float32, n)
		filler(random(stream), x)
		round(c.DType, x)
		return x, nil
	}
	m := c.Model
	cuQ, cuK := []int{0}, []int{0}
	for i, n := range c.KVLen {
		cuQ, cuK = append(cuQ, cuQ[i]+c.Queries(i)), append(cuK, cuK[i]+n)
	}
	tokens, keys := cuQ[len(c.KVLen)], cuK[len(c.KVLen)]
	width, up := m.Nope+m.Rope, m.Nope+m.Value
	q, err := fill(c.Fill.Q, streamQ, tokens*m.Heads*width)
	if err != nil {
		return nil, err
	}
	kvUp, err := fill(c.Fill.latent(), streamLatent, keys*m.Heads*up)
	if err != nil {
		return nil, err
	}
	kRope, err := fill(c.Fill.rope(), streamRope, keys*m.Rope)
	if err != nil {
		return nil, err
	}
	unused, err := ParseFill(c.Fill.Unused)
	if err != nil {
		return nil, err
	}
	rUnused := random(streamUnused)

	merge := &Merge{Case: c, Tokens: tokens, Heads: m.Heads, Width: m.Value}
	count, piece := c.states()
	for i := range count {
		first, cu := make([]int, len(c.KVLen)), []int{0}
		for s, n := range c.KVLen {
			begin, end := piece(i, n)
			first[s], cu = cuK[s]+begin, append(cu, cu[s]+end-begin)
		}
		place := func(token int) int { // in all keys, of a token of this piece
			s, _ := slices.BinarySearch(cu, token+1)
			return first[s-1] + token - cu[s-1]
		}
		p := oracle.Prefill[float32]{
			Heads: m.Heads, Nope: m.Nope, Rope: m.Rope, Value: m.Value, Scale: c.SoftmaxScale(), CuQ: cuQ, CuK: cu,
			Q: func(token, head int) []float32 { return q[(token*m.Heads+head)*width:][:width] },
			Up: func(token, head int) []float32 {
				return kvUp[(place(token)*m.Heads+head)*up:][:up]
			},
			KRope: func(token int) []float32 { return kRope[place(token)*m.Rope:][:m.Rope] },
		}
		r := p.Run()
		out, lse := make([]float32, len(r.Out)), make([]float32, len(r.LSE))
		for row, l := range r.LSE {
			if c.LSEBase == "2" {
				l /= math.Ln2
			}
			lse[row] = float32(l)
			to := out[row*m.Value:][:m.Value]
			if math.IsInf(l, -1) {
				unused(rUnused, to)
				continue
			}
			for j, v := range r.Row(row) {
				to[j] = float32(v)
			}
		}
		round(c.PartialType(), out)
		merge.Outs, merge.LSEs = append(merge.Outs, out), append(merge.LSEs, lse)
	}
	return merge, nil
}

// Oracle is the merged state; its LSE is natural.
func (m *Merge) Oracle() oracle.Result {
	var states []oracle.Result
	for i := range m.Outs {
		r := oracle.Result{Width: m.Width, Out: make([]float64, len(m.Outs[i])), LSE: make([]float64, len(m.LSEs[i]))}
		for j, v := range m.Outs[i] {
			r.Out[j] = float64(v)
		}
		for j, l := range m.LSEs[i] {
			r.LSE[j] = float64(l)
			if m.Case.LSEBase == "2" {
				r.LSE[j] *= math.Ln2
			}
		}
		states = append(states, r)
	}
	return oracle.Merge(states...)
}
