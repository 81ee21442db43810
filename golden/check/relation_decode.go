package check

import (
	"cmp"
	"slices"

	"github.com/mlagen/mlagen/golden/cases"
)

// relateDecode holds a relation against decode.
func (r *Runner) relateDecode(relation string, c *cases.Case) error {
	x := newRelated(c, (*cases.Case).Decode, func(in *cases.Decode) (answer, error) {
		result, err := r.decodeOnce(in)
		if err != nil {
			return answer{}, err
		}
		out, err := result.gather()
		return answer{c.DType, c.Model.Latent, out, result.lse, result.call.describe}, err
	})
	heads, requests := count(c.Model.Heads), count(len(c.KVLen))
	last := c.Model.Record() - 1
	setLast := func(query, key float32) func(in *cases.Decode) {
		return func(in *cases.Decode) {
			for at := last; at < len(in.Q); at += in.Pool.Record {
				in.Q[at] = query
			}
			eachToken(in, func(_, _ int, record []float32) { record[last] = key })
		}
	}
	switch relation {
	case cases.PagesPermuted:
		return x.pagesPermuted()
	case cases.RequestsPermuted:
		return x.permuted(x.r.Perm(len(requests)), heads, permuteDecode, c.Splits > 0)
	case cases.HeadsPermuted:
		return x.permuted(requests, x.r.Perm(len(heads)), permuteDecode, false)
	case cases.ForeignNaN:
		return x.foreignNaN(spoilPages)
	case cases.LogitsShifted:
		return x.moved(setLast(0, shiftKey), setLast(shiftQuery, shiftKey), shiftQuery*shiftKey*c.SoftmaxScale())
	case cases.WeightlessKey:
		return weightlessDecode(x, setLast(loudQuery, 0))
	}
	return r.splitDecode(x)
}

// eachToken visits the record of every token in the cache.
func eachToken(in *cases.Decode, f func(request, token int, record []float32)) {
	size := in.Case.PageSize
	for b, n := range in.KVLen {
		for t := range int(n) {
			page := in.Pool.Find(int64(in.Table[b*in.Width+t/size]))
			f(b, t, page.Values[t%size*in.Pool.Record:][:in.Pool.Record])
		}
	}
}

// permuteDecode has requests and heads in another order.
func permuteDecode(in *cases.Decode, requests, heads []int) *cases.Decode {
	c, to := *in.Case, *in
	c.KVLen, to.Case = nil, &c
	to.Q, to.Table, to.KVLen = nil, nil, nil
	for _, b := range requests {
		c.KVLen = append(c.KVLen, in.Case.KVLen[b])
		to.KVLen = append(to.KVLen, in.KVLen[b])
		to.Table = append(to.Table, in.Table[b*in.Width:(b+1)*in.Width]...)
	}
	of := rowOf(repeated(in.QLen, len(in.KVLen)), requests, heads)
	for row := range len(in.Q) / in.Pool.Record {
		to.Q = append(to.Q, in.Q[of(row)*in.Pool.Record:][:in.Pool.Record]...)
	}
	return &to
}

func repeated(v, n int) []int { return slices.Repeat([]int{v}, n) }

// spoilPages fills the keys of a request with NaN.
func spoilPages(in *cases.Decode, victim int) {
	eachToken(in, func(request, _ int, record []float32) {
		if request == victim {
			nan(record)
		}
	})
}

// withTokens returns the inputs with other records in the cache, which lie in
// pages that follow each other.
func withTokens(in *cases.Decode, records [][][]float32) *cases.Decode {
	c, to := *in.Case, *in
	c.KVLen, c.Pages.Order, to.Case, to.KVLen = nil, "identity", &c, nil
	size, pages, longest := c.PageSize, 0, 0
	for _, tokens := range records {
		pages += (len(tokens) + size - 1) / size
		longest = max(longest, len(tokens))
	}
	to.Width = (longest+size-1)/size + 1
	to.Table = nil
	to.Pool.Used, to.Pool.Pages = nil, c.Pages.Base+int64(pages)+3
	next := c.Pages.Base
	for _, tokens := range records {
		c.KVLen, to.KVLen = append(c.KVLen, len(tokens)), append(to.KVLen, int32(len(tokens)))
		row := slices.Repeat([]int32{c.Pages.Tail}, to.Width)
		for first := 0; first < len(tokens); first += size {
			page := cases.Page{ID: next, Values: make([]float32, size*in.Pool.Record)}
			nan(page.Values)
			for i, record := range tokens[first:min(first+size, len(tokens))] {
				copy(page.Values[i*in.Pool.Record:], record)
			}
			to.Pool.Used = append(to.Pool.Used, page)
			row[first/size] = int32(next)
			next++
		}
		to.Table = append(to.Table, row...)
	}
	slices.SortFunc(to.Pool.Used, func(a, b cases.Page) int { return cmp.Compare(a.ID, b.ID) })
	return &to
}

// recordsOf lists every request's records.
func recordsOf(in *cases.Decode) [][][]float32 {
	all := make([][][]float32, len(in.KVLen))
	eachToken(in, func(request, _ int, record []float32) { all[request] = append(all[request], record) })
	return all
}

// splitDecode cuts every request in two, and merges.
func (r *Runner) splitDecode(x related[*cases.Decode]) error {
	in, err := x.build(x.c)
	if err != nil {
		return err
	}
	all := recordsOf(in)
	first, second := make([][][]float32, len(all)), make([][][]float32, len(all))
	for b, tokens := range all {
		at := x.cutPoint(b)
		first[b], second[b] = tokens[:at], tokens[at:]
	}
	var answers []answer
	for _, tokens := range [][][][]float32{all, first, second} {
		a, err := x.answer(withTokens(in, tokens))
		if err != nil {
			return err
		}
		answers = append(answers, a)
	}
	return r.merged(x.c, answers[0], answers[1], answers[2])
}

// weightlessDecode puts a key without weight into every request that has a key:
// where there is none, it would have all the weight.
func weightlessDecode(x related[*cases.Decode], prepare func(in *cases.Decode)) error {
	in, err := x.build(x.c)
	if err != nil {
		return err
	}
	prepare(in)
	all := recordsOf(in)
	with := make([][][]float32, len(all))
	junk := make([]float32, in.Pool.Record)
	for i := range in.Case.Model.Latent {
		junk[i] = junkValue
	}
	junk[len(junk)-1] = loudKey(in.Case.DType)
	for b, tokens := range all {
		with[b] = tokens
		if len(tokens) > 0 {
			with[b] = slices.Insert(slices.Clone(tokens), x.cutPoint(b), junk)
		}
	}
	was, err := x.answer(withTokens(in, all))
	if err != nil {
		return err
	}
	is, err := x.answer(withTokens(in, with))
	if err != nil {
		return err
	}
	return was.near(is, x.seeing(), x.c.Tolerance, 0)
}
