package plan

import (
	"fmt"
	"math"
)

// Path is a way to compute attention.
type Path string

// Paths.
const (
	Absorb        Path = "absorb"
	Expand        Path = "expand"
	ExpandChunked Path = "expand-chunked"
)

// Unlimited is a workspace that holds any prefix.
const Unlimited int64 = math.MaxInt64

// Estimate is what a path costs.
type Estimate struct {
	Path Path `json:"path"`
	// Possible is false when the workspace does not allow the path, for the
	// Reason given; the figures are then for a workspace that does.
	Possible bool   `json:"possible"`
	Reason   string `json:"reason,omitempty"`

	FLOP      float64 `json:"flop"`  // of the mathematics: visible pairs and real tokens
	Bytes     float64 `json:"bytes"` // from and to memory
	Seconds   float64 `json:"seconds"`
	Launches  int     `json:"launches"`
	Workspace int64   `json:"workspace"`        // bytes for expanded tokens, and for what is carried from chunk to chunk
	Chunk     int     `json:"chunk,omitempty"`  // tokens that are expanded at a time
	Chunks    int     `json:"chunks,omitempty"` // of the prefix and the new tokens, for all pieces of these
	Stages    []Stage `json:"stages"`
}

// Plan is the decision about a request.
type Plan struct {
	Request   Request    `json:"request"`
	Choice    Path       `json:"choice"`
	Crossover float64    `json:"crossover"` // new tokens beyond which expanding a long prefix takes fewer FLOP
	Estimates []Estimate `json:"estimates"` // of every path
}

// Chosen returns the estimate of the chosen path.
func (p *Plan) Chosen() Estimate {
	for _, e := range p.Estimates {
		if e.Path == p.Choice {
			return e
		}
	}
	return Estimate{}
}

// Planner decides about requests.
type Planner struct {
	Card      Card
	Model     Model
	Workspace int64 // bytes for expanded tokens and what is carried between chunks; Unlimited for as many as it takes
}

// Most tokens and heads that a request may have: beyond, byte counts would not
// fit 63 bits.
const (
	MaxTokens = 1 << 30
	MaxHeads  = 1 << 14
)

// Check reports what of the planner cannot be.
func (p *Planner) Check() error {
	m, c := p.Model, p.Card
	switch {
	case m.Heads < 1 || m.Heads > MaxHeads:
		return fmt.Errorf("heads was %d, must be 1 to %d", m.Heads, MaxHeads)
	case m.Latent < 1 || m.Rope < 0 || m.Nope < 1 || m.Value < 1:
		return fmt.Errorf("model %+v has a width below its least", m)
	case p.Workspace < 0:
		return fmt.Errorf("workspace was %d bytes, must be at least 0", p.Workspace)
	}
	return c.Check()
}

// check reports what of a request cannot be.
func (r Request) check() error {
	switch {
	case r.New < 1 || r.New > MaxTokens:
		return fmt.Errorf("new was %d tokens, must be 1 to %d", r.New, MaxTokens)
	case r.Prefix < 0 || r.Prefix > MaxTokens:
		return fmt.Errorf("prefix was %d tokens, must be 0 to %d", r.Prefix, MaxTokens)
	}
	return nil
}

// chunking is how a request's tokens are expanded.
type chunking struct{ tokens, chunks, bytes int64 }

// whole expands everything at once.
func (p *Planner) whole(r Request) chunking {
	line := int64(upTo(r.keys(), chunkStep))
	return chunking{line, 1, line * p.Model.expandedRow()}
}

// chunks returns the fewest chunks that the workspace allows, all alike; none
// when it does not hold the smallest.
func (p *Planner) chunks(r Request) chunking {
	line, row, carried := p.whole(r).tokens, p.Model.expandedRow(), p.Model.StateBytes(r.New)
	if p.Workspace/row >= line {
		return p.whole(r)
	}
	most := max(0, p.Workspace-carried) / row / chunkStep * chunkStep
	if most == 0 {
		return chunking{chunkStep, 0, chunkStep*row + carried}
	}
	n := (line + most - 1) / most
	size := int64(upTo(float64((line+n-1)/n), chunkStep))
	return chunking{size, (line + size - 1) / size, size*row + carried}
}

// Pieces splits a request's new tokens into requests that are expanded one after
// the other, the first ones in the prefix of the later. There is one, unless the
// request must be expanded in chunks and what its new tokens carry from one to the
// next would take more than half of the workspace.
func (p *Planner) Pieces(r Request) []Request {
	blocks := (int64(r.New) + prefillRows - 1) / prefillRows
	room := p.Workspace / 2 / p.Model.StateBytes(prefillRows)
	if p.whole(r).bytes <= p.Workspace || blocks <= room || room == 0 {
		return []Request{r}
	}
	count := (blocks + room - 1) / room
	size := int((blocks+count-1)/count) * prefillRows
	var pieces []Request
	for at := 0; at < r.New; at += size {
		pieces = append(pieces, Request{New: min(size, r.New-at), Prefix: r.Prefix + at})
	}
	return pieces
}

// Plan estimates every path for a request and chooses the fastest that is
// possible.
func (p *Planner) Plan(r Request) (*Plan, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	plan := &Plan{Request: r, Crossover: p.Model.Crossover()}
	plan.Estimates = []Estimate{p.absorb(r), p.expand(r), p.chunked(r)}
	best := math.Inf(1)
	for _, e := range plan.Estimates {
		if e.Possible && e.Seconds < best {
			plan.Choice, best = e.Path, e.Seconds
		}
	}
	return plan, nil
}

func (e *Estimate) add(stages []Stage) {
	e.Stages = stages
	for _, s := range stages {
		e.Bytes += s.Bytes
		e.Seconds += s.Seconds
		e.Launches += s.Launches
	}
}

func (p *Planner) absorb(r Request) Estimate {
	e := Estimate{Path: Absorb, Possible: true, FLOP: p.Model.AbsorbFLOP(r)}
	e.add(p.Card.absorbed(p.Model, r))
	return e
}

func (p *Planner) expand(r Request) Estimate {
	w := p.whole(r)
	e := Estimate{Path: Expand, Possible: true, FLOP: p.Model.ExpandFLOP(r), Workspace: w.bytes}
	if e.Workspace > p.Workspace {
		e.Possible, e.Reason = false, fmt.Sprintf("the expanded tokens take %d bytes and the workspace has %d", e.Workspace, p.Workspace)
	}
	e.add(p.Card.expanded(p.Model, r, float64(w.tokens), 1))
	return e
}

func (p *Planner) chunked(r Request) Estimate {
	e := Estimate{Path: ExpandChunked, Possible: true, FLOP: p.Model.ExpandFLOP(r)}
	var stages []Stage
	for _, piece := range p.Pieces(r) {
		w := p.chunks(piece)
		if w.chunks == 0 {
			e.Possible = false
			e.Reason = fmt.Sprintf("the smallest chunk, %d tokens, and what is carried between chunks take %d bytes and the workspace has %d", w.tokens, w.bytes, p.Workspace)
			w.chunks = (p.whole(piece).tokens + w.tokens - 1) / w.tokens
		}
		e.Chunk, e.Chunks, e.Workspace = max(e.Chunk, int(w.tokens)), e.Chunks+int(w.chunks), max(e.Workspace, w.bytes)
		more := p.Card.expanded(p.Model, piece, float64(w.tokens), float64(w.chunks))
		if stages == nil {
			stages = make([]Stage, len(more))
		}
		for i := range more {
			stages[i] = stages[i].plus(more[i])
		}
	}
	if e.Chunks == 1 {
		e.Possible, e.Reason = false, "the workspace holds all expanded tokens"
	}
	e.add(stages)
	return e
}
