package plan

import (
	"fmt"
	"math"
)

// Batch decides about requests that are computed together, one path for each; a
// request may have no new tokens, which has path "". Together requests share
// launches, weights and the device, so what counts is what a request adds, and
// what it takes to have a path at all.
func (p *Planner) Batch(requests []Request) ([]Path, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	paths := make([]Path, len(requests))
	only, count := 0, 0
	var longest Request
	for i, r := range requests {
		if r.New == 0 && r.Prefix >= 0 {
			continue
		}
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("request %d: %w", i, err)
		}
		if only, count = i, count+1; r.New > longest.New {
			longest = r
		}
	}
	if count == 1 {
		plan, err := p.Plan(requests[only])
		if err != nil {
			return nil, err
		}
		paths[only] = plan.Choice
		return paths, nil
	}
	// Each by what it adds; or all one way, which saves what the other takes.
	var mixed, absorbed, expanded float64
	kinds := map[Path]bool{}
	for i, r := range requests {
		if r.New == 0 {
			continue
		}
		absorb, expand := p.Card.absorbs(p.Model, r), p.Card.expands(p.Model, r)
		absorbed, expanded, mixed = absorbed+absorb, expanded+expand, mixed+min(absorb, expand)
		if paths[i] = Absorb; expand < absorb {
			paths[i] = Expand
		}
		kinds[paths[i]] = true
	}
	absorbed += p.Card.fixed(p.Model, Absorb)
	expanded += p.Card.fixed(p.Model, Expand)
	for kind := range kinds {
		mixed += p.Card.fixed(p.Model, kind)
	}
	if !p.expandable(longest) {
		mixed, expanded = math.Inf(1), math.Inf(1)
	}
	all := func(path Path) {
		for i := range paths {
			if paths[i] != "" {
				paths[i] = path
			}
		}
	}
	switch {
	case mixed <= absorbed && mixed <= expanded:
	case absorbed <= expanded:
		all(Absorb)
	default:
		all(Expand)
	}
	return paths, nil
}

// expandable reports that the workspace allows to expand a request, in pieces if
// need be.
func (p *Planner) expandable(r Request) bool {
	for _, piece := range p.Pieces(r) {
		if p.chunks(piece).chunks == 0 {
			return false
		}
	}
	return true
}

// absorbs is the seconds that a request adds to a batch that is absorbed.
func (c Card) absorbs(m Model, r Request) float64 {
	attend := max(r.Pairs()*m.AbsorbPair()/c.Decode, r.keys()*float64(m.RecordBytes())/c.Stream)
	return float64(r.New)*m.AbsorbToken()/c.Absorb + attend
}

// expands is the seconds that a request adds to a batch that is expanded.
func (c Card) expands(m Model, r Request) float64 {
	s := c.prefill(m, float64(r.New), r.keys(), true)
	return upTo(r.keys(), productRows)*m.ExpandToken()/c.UpProject + max(s.FLOP/c.Prefill, s.Bytes/c.Stream)
}

// fixed is the seconds that a path takes whatever it computes: its launches, and
// reading the weights.
func (c Card) fixed(m Model, path Path) float64 {
	launches := c.Launch + 3*c.Follow // decode, and what is beside it
	if path == Expand {
		launches = 2 * c.Launch
	}
	return launches + m.weightBytes()/c.Stream
}
