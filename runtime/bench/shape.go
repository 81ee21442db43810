package bench

import (
	"fmt"
	"math/rand/v2"
)

// The cache that is timed: DeepSeek's 512 + 64 record in pages of 64 tokens.
const (
	latent      = 512
	rope        = 64
	record      = latent + rope
	pageTokens  = 64
	elementSize = 2 // bf16
	recordBytes = record * elementSize
	pageBytes   = pageTokens * recordBytes
)

// Shape is one decode call to be timed. With several query tokens it is causal.
type Shape struct {
	Heads  int
	SQ     int // query tokens per request
	Batch  int
	KV     int  // tokens per request, the new ones included
	Varlen bool // lengths differ, see Lengths
}

// meanTokens returns the mean length of a request.
func (s Shape) meanTokens() int {
	if s.Varlen {
		return s.KV / 2
	}
	return s.KV
}

// String names the shape in messages.
func (s Shape) String() string {
	v := ""
	if s.Varlen {
		v = " varlen"
	}
	return fmt.Sprintf("heads %d, s_q %d, batch %d, kv %d%s", s.Heads, s.SQ, s.Batch, s.KV, v)
}

// Lengths returns the tokens of each request: KV for all, or, when they vary,
// drawn evenly from 1 to KV with a fixed seed, in random order. One is drawn
// from each of Batch equal stretches of that range, so that the mean is close
// to half of KV and the total work does not depend on luck.
func (s Shape) Lengths() []int32 {
	lengths := make([]int32, s.Batch)
	r := rand.New(rand.NewPCG(uint64(s.Batch), uint64(s.KV)))
	for i, j := range r.Perm(s.Batch) {
		lengths[i] = int32(s.KV)
		if s.Varlen {
			lengths[i] = 1 + int32((float64(j)+r.Float64())/float64(s.Batch)*float64(s.KV))
		}
	}
	return lengths
}

// visible is the number of tokens that query token j of a request of n sees.
func (s Shape) visible(n, j int) int { return max(0, n-s.SQ+1+j) }

// FLOP counts the multiplications and additions of both products, over visible
// pairs only.
func (s Shape) FLOP() float64 {
	pairs := 0.0
	for _, n := range s.Lengths() {
		for j := range s.SQ {
			pairs += float64(s.visible(int(n), j))
		}
	}
	return 2 * (record + latent) * pairs * float64(s.Heads)
}

// Bytes is the traffic that a call cannot avoid: each token's record once, the
// queries, and the outputs with their log-sum-exp.
func (s Shape) Bytes() float64 {
	rows := float64(s.Batch * s.SQ * s.Heads)
	return float64(s.tokens())*recordBytes + rows*(recordBytes+latent*elementSize+4)
}

// TBps is the terabytes per second of unavoidable traffic at so many
// microseconds per call.
func (s Shape) TBps(microseconds float64) float64 { return s.Bytes() / microseconds / 1e6 }

// TFLOPS is the tera floating-point operations per second over visible pairs at
// so many microseconds per call.
func (s Shape) TFLOPS(microseconds float64) float64 { return s.FLOP() / microseconds / 1e6 }

func (s Shape) tokens() (n int64) {
	for _, l := range s.Lengths() {
		n += int64(l)
	}
	return n
}

// pages is the number of pages that a call reads.
func (s Shape) pages() (n int64) {
	for _, l := range s.Lengths() {
		n += pagesOf(l)
	}
	return n
}

func pagesOf(tokens int32) int64 { return (int64(tokens) + pageTokens - 1) / pageTokens }

// width is the number of block table entries per request.
func (s Shape) width() int64 { return max(1, pagesOf(int32(s.KV))) }
