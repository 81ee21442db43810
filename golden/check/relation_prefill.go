package check

import (
	"slices"

	"github.com/mlagen/mlagen/golden/cases"
)

// relatePrefill holds a relation against prefill.
func (r *Runner) relatePrefill(relation string, c *cases.Case) error {
	x := newRelated(c, (*cases.Case).Prefill, func(in *cases.Prefill) (answer, error) {
		result, err := r.prefillOnce(in)
		if err != nil {
			return answer{}, err
		}
		out, err := result.gather()
		return answer{in.Case.DType, in.Case.Model.Value, out, result.lse, result.call.describe}, err
	})
	heads, sequences := count(c.Model.Heads), count(len(c.KVLen))
	setLast := func(query, key float32) func(in *cases.Prefill) {
		return func(in *cases.Prefill) {
			width := c.Model.Nope + c.Model.Rope
			for at := width - 1; at < len(in.Q); at += width {
				in.Q[at] = query
			}
			for token := range int(in.CuK[len(in.CuK)-1]) {
				in.KRope[token*in.RopeStride+c.Model.Rope-1] = key
			}
		}
	}
	switch relation {
	case cases.RequestsPermuted:
		return x.permuted(x.r.Perm(len(sequences)), heads, permutePrefill, true)
	case cases.HeadsPermuted:
		return x.permuted(sequences, x.r.Perm(len(heads)), permutePrefill, true)
	case cases.ForeignNaN:
		return x.foreignNaN(spoilKeys)
	case cases.LogitsShifted:
		return x.moved(setLast(0, shiftKey), setLast(shiftQuery, shiftKey), shiftQuery*shiftKey*c.SoftmaxScale())
	case cases.WeightlessKey:
		return weightlessPrefill(x, setLast(loudQuery, 0))
	}
	return r.splitPrefill(x)
}

// key is what prefill reads of a key token.
type key struct{ up, rope []float32 }

// keysOf lists the keys of every sequence.
func keysOf(in *cases.Prefill) [][]key {
	m := in.Case.Model
	up := m.Heads * (m.Nope + m.Value)
	all := make([][]key, len(in.CuK)-1)
	for s := range all {
		for t := int(in.CuK[s]); t < int(in.CuK[s+1]); t++ {
			all[s] = append(all[s], key{in.Up[t*up:][:up], in.KRope[t*in.RopeStride:][:m.Rope]})
		}
	}
	return all
}

// withKeys returns the inputs with other keys, and as many unused rows behind.
func withKeys(in *cases.Prefill, keys [][]key) *cases.Prefill {
	c, to := *in.Case, *in
	m, up := c.Model, c.Model.Heads*(c.Model.Nope+c.Model.Value)
	spare := in.KeyTokens - int(in.CuK[len(in.CuK)-1])
	c.KVLen, to.Case, to.CuK, to.Up, to.KRope = nil, &c, []int32{0}, nil, nil
	for _, sequence := range keys {
		for _, k := range sequence {
			rope := make([]float32, in.RopeStride)
			nan(rope)
			copy(rope, k.rope[:m.Rope])
			to.Up, to.KRope = append(to.Up, k.up...), append(to.KRope, rope...)
		}
		c.KVLen = append(c.KVLen, len(sequence))
		to.CuK = append(to.CuK, to.CuK[len(to.CuK)-1]+int32(len(sequence)))
	}
	to.KeyTokens = int(to.CuK[len(to.CuK)-1]) + spare
	for range spare {
		unused := make([]float32, up+in.RopeStride)
		nan(unused)
		to.Up, to.KRope = append(to.Up, unused[:up]...), append(to.KRope, unused[up:]...)
	}
	return &to
}

// permutePrefill has sequences and heads in another order.
func permutePrefill(in *cases.Prefill, sequences, heads []int) *cases.Prefill {
	m, keys := in.Case.Model, keysOf(in)
	var ordered [][]key
	for _, s := range sequences {
		var sequence []key
		for _, k := range keys[s] {
			width := m.Nope + m.Value
			var up []float32
			for _, h := range heads {
				up = append(up, k.up[h*width:][:width]...)
			}
			sequence = append(sequence, key{up, k.rope})
		}
		ordered = append(ordered, sequence)
	}
	to := withKeys(in, ordered)
	to.CuQ, to.Q, to.Case.QLen = permuteQueries(in.Case, in.CuQ, in.Q, sequences, heads)
	return to
}

// permuteQueries has the queries of sequences that lie end to end in another order.
func permuteQueries(c *cases.Case, cuQ []int32, q []float32, sequences, heads []int) (cu []int32, to []float32, lengths cases.Lengths) {
	cu, lengths.Each = []int32{0}, []int{}
	var tokens []int
	for i := range c.KVLen {
		tokens = append(tokens, c.Queries(i))
	}
	for _, s := range sequences {
		cu = append(cu, cu[len(cu)-1]+cuQ[s+1]-cuQ[s])
		lengths.Each = append(lengths.Each, tokens[s])
	}
	of, width := rowOf(tokens, sequences, heads), c.Model.Nope+c.Model.Rope
	for row := range len(q) / width {
		to = append(to, q[of(row)*width:][:width]...)
	}
	return cu, to, lengths
}

// spoilKeys fills the keys of a sequence with NaN.
func spoilKeys(in *cases.Prefill, victim int) {
	for _, k := range keysOf(in)[victim] {
		nan(k.up)
		nan(k.rope)
	}
}

// splitPrefill cuts every sequence's keys in two, and merges. All queries see
// the first part, so that it is not causal.
func (r *Runner) splitPrefill(x related[*cases.Prefill]) error {
	in, err := x.build(x.c)
	if err != nil {
		return err
	}
	all := keysOf(in)
	first, second := make([][]key, len(all)), make([][]key, len(all))
	for s, keys := range all {
		at := x.cutPoint(s)
		first[s], second[s] = keys[:at], keys[at:]
	}
	whole, err := x.answer(in)
	if err != nil {
		return err
	}
	before := withKeys(in, first)
	before.Case.Causal = false
	a, err := x.answer(before)
	if err != nil {
		return err
	}
	b, err := x.answer(withKeys(in, second))
	if err != nil {
		return err
	}
	return r.merged(x.c, whole, a, b)
}

// weightlessPrefill puts a key without weight into every sequence that has one.
func weightlessPrefill(x related[*cases.Prefill], prepare func(in *cases.Prefill)) error {
	in, err := x.build(x.c)
	if err != nil {
		return err
	}
	prepare(in)
	m, all := in.Case.Model, keysOf(in)
	junk := key{make([]float32, m.Heads*(m.Nope+m.Value)), make([]float32, m.Rope)}
	for i := range junk.up {
		if i%(m.Nope+m.Value) >= m.Nope {
			junk.up[i] = junkValue
		}
	}
	junk.rope[m.Rope-1] = loudKey(in.Case.DType)
	with := make([][]key, len(all))
	for s, keys := range all {
		with[s] = keys
		if len(keys) > 0 {
			with[s] = slices.Insert(slices.Clone(keys), x.cutPoint(s), junk)
		}
	}
	was, err := x.answer(in)
	if err != nil {
		return err
	}
	is, err := x.answer(withKeys(in, with))
	if err != nil {
		return err
	}
	return was.near(is, x.seeing(), x.c.Tolerance, 0)
}
