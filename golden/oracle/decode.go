package oracle

// Decode is an absorb-decode problem: every head's query attends to the one
// shared record (latent | rope) of each token, and the value is the record's
// latent part.
type Decode[T Float] struct {
	Heads  int
	QLen   int // query tokens per request, the last of the sequence
	Latent int
	Rope   int
	Scale  float64
	Causal bool
	KVLen  []int // tokens per request, the new ones included

	// Q returns a query of width Latent+Rope.
	Q func(request, token, head int) []T
	// Row returns the record of a request's token, of width Latent+Rope.
	Row func(request, position int) []T
}

// Run returns every row, in the order request, query token, head.
func (d *Decode[T]) Run() Result {
	perRequest := d.QLen * d.Heads
	r := newResult(len(d.KVLen)*perRequest, d.Latent)
	parallel(len(r.LSE), func(i int) {
		r.LSE[i] = d.row(r.Row(i), i/perRequest, i%perRequest/d.Heads, i%d.Heads)
	})
	return r
}

// One returns a single row, for spot checks of problems too large to run.
func (d *Decode[T]) One(request, token, head int) (out []float64, lse float64) {
	out = make([]float64, d.Latent)
	return out, d.row(out, request, token, head)
}

func (d *Decode[T]) row(out []float64, request, token, head int) float64 {
	q := d.Q(request, token, head)
	return attend(out, Visible(d.Causal, d.KVLen[request], d.QLen, token), d.Scale,
		func(key int) float64 { return dot(q, d.Row(request, key)) },
		func(key int, weight float64, out []float64) { accumulate(out, weight, d.Row(request, key)) })
}

// Pages reads records of a paged cache: the token at position p of a request
// lies in slot p mod size of page table[request][p div size].
func Pages[T Float](size int, table func(request, index int) int64, record func(page int64, slot int) []T) func(request, position int) []T {
	return func(request, position int) []T {
		return record(table(request, position/size), position%size)
	}
}
