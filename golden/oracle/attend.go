// Package oracle is the mathematics of multi-head latent attention in
// float64, written to be obviously right rather than fast: both the absorb
// path (decode in latent space) and the expand path (per-head keys and
// values), and the merge of partial states. Everything else is compared with it.
package oracle

import (
	"math"
	"runtime"
	"sync"
)

// Float is the element type of inputs; arithmetic is float64 whatever it is.
type Float interface{ ~float32 | ~float64 }

// Result holds attention outputs and the natural logarithm of the softmax
// denominators, row by row: Out is [rows][width], LSE is [rows].
type Result struct {
	Width int
	Out   []float64
	LSE   []float64
}

func newResult(rows, width int) Result {
	return Result{Width: width, Out: make([]float64, rows*width), LSE: make([]float64, rows)}
}

// Row returns the output of one row.
func (r Result) Row(i int) []float64 { return r.Out[i*r.Width : (i+1)*r.Width] }

// Visible is the number of leading keys that query token j of queries sees in
// a sequence of keys: all of them, or, causally, those up to its own place
// when the queries are the sequence's last tokens. It may be zero.
func Visible(causal bool, keys, queries, j int) int {
	if !causal {
		return keys
	}
	return max(0, keys-queries+1+j)
}

// attend computes softmax(scale·q·Kᵀ)·V over n keys into out and returns the
// natural log-sum-exp. Without a key the output is zero and the result −Inf.
func attend(out []float64, n int, scale float64, score func(key int) float64, value func(key int, weight float64, out []float64)) float64 {
	clear(out)
	if n <= 0 {
		return math.Inf(-1)
	}
	scores := make([]float64, n)
	top := math.Inf(-1)
	for i := range scores {
		scores[i] = score(i) * scale
		top = math.Max(top, scores[i])
	}
	sum := 0.0
	for i, s := range scores {
		scores[i] = math.Exp(s - top)
		sum += scores[i]
	}
	for i, p := range scores {
		if p != 0 {
			value(i, p/sum, out)
		}
	}
	return top + math.Log(sum)
}

func dot[T, U Float](a []T, b []U) float64 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float64
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s0 += float64(a[i]) * float64(b[i])
		s1 += float64(a[i+1]) * float64(b[i+1])
		s2 += float64(a[i+2]) * float64(b[i+2])
		s3 += float64(a[i+3]) * float64(b[i+3])
	}
	for ; i < len(a); i++ {
		s0 += float64(a[i]) * float64(b[i])
	}
	return s0 + s1 + s2 + s3
}

func accumulate[T Float](out []float64, weight float64, v []T) {
	v = v[:len(out)]
	for i := range out {
		out[i] += weight * float64(v[i])
	}
}

// parallel calls f(0) … f(n−1) on every core.
func parallel(n int, f func(i int)) {
	workers := min(runtime.GOMAXPROCS(0), n)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				f(i)
			}
		})
	}
	wg.Wait()
}
