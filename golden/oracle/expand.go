package oracle

// Prefill is ordinary multi-head attention over expanded keys and values, for
// ragged sequences. A key is its head's k_nope followed by the rope key that
// all heads share. Causality is aligned bottom-right: the last query of a
// sequence sees its last key.
type Prefill[T Float] struct {
	Heads  int
	Nope   int
	Rope   int
	Value  int
	Scale  float64
	Causal bool
	CuQ    []int // first query token of each sequence, and the total
	CuK    []int // first key token of each sequence, and the total

	// Q returns a query of width Nope+Rope.
	Q func(token, head int) []T
	// Up returns the up-projection's output k_nope | v, of width Nope+Value.
	Up func(token, head int) []T
	// KRope returns the rope key of a token.
	KRope func(token int) []T
}

// Run returns every row, in the order query token, head.
func (p *Prefill[T]) Run() Result {
	sequences := len(p.CuQ) - 1
	r := newResult(p.CuQ[sequences]*p.Heads, p.Value)
	for s := range sequences {
		q0, queries := p.CuQ[s], p.CuQ[s+1]-p.CuQ[s]
		k0, keys := p.CuK[s], p.CuK[s+1]-p.CuK[s]
		parallel(queries*p.Heads, func(i int) {
			j, head := i/p.Heads, i%p.Heads
			q := p.Q(q0+j, head)
			at := (q0+j)*p.Heads + head
			r.LSE[at] = attend(r.Row(at), Visible(p.Causal, keys, queries, j), p.Scale,
				func(key int) float64 {
					return dot(q[:p.Nope], p.Up(k0+key, head)) + dot(q[p.Nope:p.Nope+p.Rope], p.KRope(k0+key))
				},
				func(key int, weight float64, out []float64) {
					accumulate(out, weight, p.Up(k0+key, head)[p.Nope:])
				})
		})
	}
	return r
}

// Weights is W_UK and W_UV as engines store them: [heads][Nope+Value][Latent],
// the k_nope rows first.
type Weights[T Float] struct {
	Heads  int
	Nope   int
	Value  int
	Latent int
	Data   []T
}

func (w Weights[T]) row(head, column int) []T {
	at := (head*(w.Nope+w.Value) + column) * w.Latent
	return w.Data[at : at+w.Latent]
}

// UpProject returns k_nope | v of one head for a latent.
func UpProject[T, U Float](w Weights[T], head int, latent []U) []float64 {
	out := make([]float64, w.Nope+w.Value)
	for c := range out {
		out[c] = dot(w.row(head, c), latent)
	}
	return out
}

// AbsorbQuery folds W_UK into a query: it returns W_UKᵀ·q_nope followed by
// q_rope, of width Latent plus the rope's.
func AbsorbQuery[T, U Float](w Weights[T], head int, q []U) []float64 {
	out := make([]float64, w.Latent, w.Latent+len(q)-w.Nope)
	for c := range w.Nope {
		accumulate(out, float64(q[c]), w.row(head, c))
	}
	for _, x := range q[w.Nope:] {
		out = append(out, float64(x))
	}
	return out
}

// AbsorbOutput applies W_UV to an attended latent.
func AbsorbOutput[T, U Float](w Weights[T], head int, latent []U) []float64 {
	out := make([]float64, w.Value)
	for c := range out {
		out[c] = dot(w.row(head, w.Nope+c), latent)
	}
	return out
}
