package main

import (
	"math"
	"math/rand/v2"
)

// request asks for tokens.
type request struct {
	id       int
	arrival  int // step before which it is not there
	prompt   int // tokens that are in the cache before the first step
	generate int // tokens wanted
}

// pages returns how many pages the request has in the end.
func (r *request) pages() int { return pagesOf(r.prompt + r.generate) }

// newRequests draws the requests, in the order of their arrival. Prompts of any
// order of magnitude are equally likely. As many come as a full batch needs.
func newRequests(c *config) []request {
	random := rand.New(rand.NewPCG(c.seed, 1))
	requests := make([]request, c.requests)
	at := 0.0
	for i := range requests {
		requests[i] = request{
			id:       i,
			arrival:  int(at),
			prompt:   int(math.Exp(random.Float64() * math.Log(float64(c.prompt)+0.5))),
			generate: 1 + random.IntN(c.generate),
		}
		at += random.ExpFloat64() * float64(c.generate) / float64(2*c.capacity)
	}
	return requests
}
