package oracle

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func normal(r *rand.Rand, n int, scale float64) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = r.NormFloat64() * scale
	}
	return x
}

// problem is a small model with random weights, queries and cache.
type problem struct {
	heads, nope, rope, value, latent int
	qLen                             int
	kvLen                            []int
	q                                []float64 // [request][token][head][nope+rope]
	w                                Weights[float64]
	cache                            [][]float64 // per request [token][latent+rope]
}

func newProblem(qLen int, kvLen ...int) *problem {
	r := rand.New(rand.NewPCG(1, 2))
	p := &problem{heads: 3, nope: 8, rope: 4, value: 6, latent: 20, qLen: qLen, kvLen: kvLen}
	p.q = normal(r, len(kvLen)*qLen*p.heads*(p.nope+p.rope), 1)
	p.w = Weights[float64]{p.heads, p.nope, p.value, p.latent, normal(r, p.heads*(p.nope+p.value)*p.latent, 0.3)}
	for _, n := range kvLen {
		p.cache = append(p.cache, normal(r, n*(p.latent+p.rope), 1))
	}
	return p
}

func (p *problem) query(request, token, head int) []float64 {
	width := p.nope + p.rope
	at := ((request*p.qLen+token)*p.heads + head) * width
	return p.q[at : at+width]
}

func (p *problem) record(request, position int) []float64 {
	width := p.latent + p.rope
	return p.cache[request][position*width : (position+1)*width]
}

func (p *problem) absorb(causal bool) Result {
	d := &Decode[float64]{
		Heads: p.heads, QLen: p.qLen, Latent: p.latent, Rope: p.rope, Scale: 0.3, Causal: causal, KVLen: p.kvLen,
		Q: func(request, token, head int) []float64 {
			return AbsorbQuery(p.w, head, p.query(request, token, head))
		},
		Row: p.record,
	}
	latent := d.Run()
	r := newResult(len(latent.LSE), p.value)
	copy(r.LSE, latent.LSE)
	for i := range r.LSE {
		copy(r.Row(i), AbsorbOutput(p.w, i%p.heads, latent.Row(i)))
	}
	return r
}

func (p *problem) expand(causal bool) Result {
	cuQ, cuK := []int{0}, []int{0}
	type place struct{ request, position int }
	var keys []place
	for b, n := range p.kvLen {
		cuQ, cuK = append(cuQ, cuQ[b]+p.qLen), append(cuK, cuK[b]+n)
		for i := range n {
			keys = append(keys, place{b, i})
		}
	}
	f := &Prefill[float64]{
		Heads: p.heads, Nope: p.nope, Rope: p.rope, Value: p.value, Scale: 0.3, Causal: causal, CuQ: cuQ, CuK: cuK,
		Q: func(token, head int) []float64 { return p.query(token/p.qLen, token%p.qLen, head) },
		Up: func(token, head int) []float64 {
			return UpProject(p.w, head, p.record(keys[token].request, keys[token].position)[:p.latent])
		},
		KRope: func(token int) []float64 { return p.record(keys[token].request, keys[token].position)[p.latent:] },
	}
	return f.Run()
}

var close12 = cmp.Options{cmpopts.EquateApprox(1e-10, 1e-12), cmpopts.EquateNaNs()}

func TestAbsorbAndExpandAgree(t *testing.T) {
	for _, causal := range []bool{true, false} {
		p := newProblem(3, 17, 1, 0, 5) // the second and third have rows without a key
		if d := cmp.Diff(p.expand(causal), p.absorb(causal), close12); d != "" {
			t.Errorf("causal %v (-expand +absorb):\n%s", causal, d)
		}
	}
}

func TestRowsWithoutKeyAreZero(t *testing.T) {
	p := newProblem(3, 2)
	r := p.absorb(true)
	for i := range p.heads { // query 0 sees 2−3+1 = 0 keys
		if !math.IsInf(r.LSE[i], -1) {
			t.Errorf("row %d: lse %v, want −Inf", i, r.LSE[i])
		}
		if d := cmp.Diff(make([]float64, p.value), r.Row(i)); d != "" {
			t.Errorf("row %d: %s", i, d)
		}
	}
	if got := r.LSE[p.heads]; math.IsInf(got, 0) || math.IsNaN(got) {
		t.Errorf("query 1 sees one key, lse %v", got)
	}
}

func TestKnownSoftmax(t *testing.T) {
	// Two keys with scores 0 and ln 3: weights 1/4 and 3/4, lse ln 4.
	rows := [][]float64{{0, 1}, {1, 1}}
	d := &Decode[float64]{
		Heads: 1, QLen: 1, Latent: 2, Scale: math.Log(3), KVLen: []int{2},
		Q:   func(int, int, int) []float64 { return []float64{1, 0} },
		Row: func(_, position int) []float64 { return rows[position] },
	}
	out, lse := d.One(0, 0, 0)
	if d := cmp.Diff([]float64{0.75, 1}, out, close12); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(math.Log(4), lse, close12); d != "" {
		t.Error(d)
	}
}

func TestPages(t *testing.T) {
	table := [][]int64{{7, 2}, {1 << 40}}
	var got []int64
	row := Pages(4, func(r, i int) int64 { return table[r][i] }, func(page int64, slot int) []float64 {
		got = append(got, page*10+int64(slot))
		return nil
	})
	row(0, 3)
	row(0, 4)
	row(1, 1)
	if d := cmp.Diff([]int64{73, 20, 10<<40 + 1}, got); d != "" {
		t.Error(d)
	}
}

func TestMergeOfPartsIsTheWhole(t *testing.T) {
	p := newProblem(2, 13, 4)
	whole := p.absorb(false)
	part := func(from, to int) Result {
		q := *p
		q.kvLen, q.cache = nil, nil
		for b, n := range p.kvLen {
			lo, hi := min(from, n), min(to, n)
			q.kvLen = append(q.kvLen, hi-lo)
			width := p.latent + p.rope
			q.cache = append(q.cache, p.cache[b][lo*width:hi*width])
		}
		return q.absorb(false)
	}
	if d := cmp.Diff(whole, Merge(part(0, 5), part(5, 6), part(6, 13)), close12); d != "" {
		t.Errorf("(-whole +merged):\n%s", d)
	}
}

func TestEmptyStatesMergeToEmpty(t *testing.T) {
	empty := Result{Width: 2, Out: []float64{math.NaN(), 3}, LSE: []float64{math.Inf(-1)}}
	want := Result{Width: 2, Out: []float64{0, 0}, LSE: []float64{math.Inf(-1)}}
	if d := cmp.Diff(want, Merge(empty, empty)); d != "" {
		t.Error(d)
	}
	full := Result{Width: 2, Out: []float64{1, 2}, LSE: []float64{5}}
	if d := cmp.Diff(full, Merge(empty, full), close12); d != "" {
		t.Error(d)
	}
}

func TestHugeLogitsStayFinite(t *testing.T) {
	for _, scale := range []float64{1e12, -5e4} {
		d := &Decode[float64]{
			Heads: 1, QLen: 1, Latent: 1, Scale: scale, KVLen: []int{2},
			Q:   func(int, int, int) []float64 { return []float64{1} },
			Row: func(_, position int) []float64 { return []float64{float64(1 + position)} },
		}
		out, lse := d.One(0, 0, 0)
		if math.IsNaN(out[0]) || math.IsInf(lse, 0) {
			t.Errorf("scale %g: out %v lse %v", scale, out, lse)
		}
	}
}

// Two columns are a point in the plane; a quarter turn takes (1, 0) to (0, 1).
func TestRotate(t *testing.T) {
	cos, sin := []float64{0, 1}, []float64{1, 0}
	for _, c := range []struct {
		interleaved bool
		x, want     []float64
	}{
		{true, []float64{1, 2, 3, 4}, []float64{-2, 1, 3, 4}},
		{false, []float64{1, 2, 3, 4}, []float64{-3, 2, 1, 4}},
	} {
		if d := cmp.Diff(c.want, Rotate(c.x, cos, sin, c.interleaved)); d != "" {
			t.Errorf("interleaved %v: %s", c.interleaved, d)
		}
	}
}
