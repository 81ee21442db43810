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
	Workspace int64   `json:"workspace"`        // bytes that expanded tokens of the prefix take
	Chunk     int     `json:"chunk,omitempty"`  // tokens of the prefix that are expanded at a time
	Chunks    int     `json:"chunks,omitempty"` // of the prefix
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
	Workspace int64 // bytes for expanded tokens; Unlimited for as many as it takes
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
	case c.SMs < 1 || !(c.Decode > 0 && c.Prefill > 0 && c.UpProject > 0 && c.Absorb > 0 && c.Stream > 0):
		return fmt.Errorf("card %+v has no multiprocessors, or a rate that is not above 0", c)
	}
	return nil
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

// ChunkTokens returns how many tokens of the prefix the workspace holds
// expanded at a time, a multiple of the kernels' tiles; 0 when not even one
// tile's.
func (p *Planner) ChunkTokens() int {
	tokens := p.Workspace / p.Model.ExpandedBytes() / chunkStep * chunkStep
	return int(min(tokens, MaxTokens))
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
	e := Estimate{Path: Expand, Possible: true, FLOP: p.Model.ExpandFLOP(r), Workspace: int64(r.Prefix) * p.Model.ExpandedBytes()}
	if e.Workspace > p.Workspace {
		e.Possible, e.Reason = false, fmt.Sprintf("the expanded prefix takes %d bytes and the workspace has %d", e.Workspace, p.Workspace)
	}
	e.add(p.Card.expanded(p.Model, r))
	return e
}

func (p *Planner) chunked(r Request) Estimate {
	e := Estimate{Path: ExpandChunked, Possible: true, FLOP: p.Model.ExpandFLOP(r)}
	room := p.ChunkTokens()
	switch {
	case room == 0:
		room = chunkStep
		e.Possible = false
		e.Reason = fmt.Sprintf("the smallest chunk, %d tokens, takes %d bytes and the workspace has %d", room, int64(room)*p.Model.ExpandedBytes(), p.Workspace)
	case room >= r.Prefix:
		e.Possible, e.Reason = false, "the workspace holds the whole prefix"
	}
	e.Chunk = min(room, r.Prefix)
	if e.Chunk > 0 {
		e.Chunks = (r.Prefix + e.Chunk - 1) / e.Chunk
	}
	e.Workspace = int64(e.Chunk) * p.Model.ExpandedBytes()
	e.add(p.Card.chunked(p.Model, r, room))
	return e
}
