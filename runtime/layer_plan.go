package runtime

import (
	"fmt"
	"math"
	"slices"
	"strings"

	planner "github.com/mlagen/mlagen/runtime/plan"
)

// LayerOptions say how a batch may be computed.
type LayerOptions struct {
	// Workspace is the most bytes that a run may take, 0 for as many as it takes.
	// With less, prefixes are expanded in more chunks, and absorbed requests are
	// computed in several goes.
	Workspace int64
	// Paths says how each request is computed, plan.Absorb or plan.Expand; nil
	// leaves it to the planner. That of a request without new tokens means nothing.
	Paths []planner.Path
	// Card is what the planner knows of the device; the zero value is an H200.
	Card planner.Card
	// Chunk, when not 0, is how many tokens are expanded at a time, whatever the
	// workspace.
	Chunk int
}

// LayerPlan is how a batch is computed. It is good for any number of runs, and
// only for the layer that made it.
type LayerPlan struct {
	Requests       []planner.Request
	Paths          []planner.Path // as decided; "" for a request without new tokens
	QueryTokens    int            // of all requests
	ScheduleBytes  int64          // for every step in flight
	WorkspaceBytes int64          // may be shared by whatever runs one after the other

	layer    *Layer
	absorbed []absorbedBatch
	expanded expandedRequests
}

// String says in a few words what was planned.
func (p *LayerPlan) String() string {
	count := map[planner.Path]int{}
	for _, path := range p.Paths {
		count[path]++
	}
	var parts []string
	if n := count[planner.Absorb]; n > 0 {
		s := fmt.Sprintf("%d absorbed", n)
		if goes := len(p.absorbed); goes > 1 {
			s += fmt.Sprintf(" in %d goes", goes)
		}
		if slices.ContainsFunc(p.absorbed, func(b absorbedBatch) bool { return b.gathered }) {
			s += ", gathered"
		}
		parts = append(parts, s)
	}
	if n := count[planner.Expand] + count[planner.ExpandChunked]; n > 0 {
		s := fmt.Sprintf("%d expanded", n)
		if chunks := p.expanded.plan.Chunks; chunks > 1 {
			s += fmt.Sprintf(" in %d chunks", chunks)
		}
		parts = append(parts, s)
	}
	if len(parts) == 0 {
		return "nothing to do"
	}
	return strings.Join(parts, "; ")
}

// expandedRequests are those from the first to the last request that is expanded,
// as sequences of one call of Extend; those between that are not are left out.
type expandedRequests struct {
	first, count int
	rows         int // of q, up to the last one's end
	plan         ExtendPlan
	runs         []groupRun
	lengths, cu  int64 // offsets in the schedule
	schedule     int64
	lse          int64 // offset in the workspace, after Extend's
}

// maxLayerTokens bounds the query tokens of a batch: rows are numbered in 31 bits.
const maxLayerTokens = math.MaxInt32 / 2

// Plan decides how a batch of requests is computed, without a look at the device.
// A request may have no new tokens. A workspace that is too small is an
// ArgumentError which says how large it must be.
func (l *Layer) Plan(requests []planner.Request, o LayerOptions) (*LayerPlan, error) {
	if l.groups == nil {
		return nil, fmt.Errorf("layer plan: %s", closed)
	}
	p := &LayerPlan{layer: l, Requests: slices.Clone(requests)}
	if err := l.plan(p, &o); err != nil {
		return nil, fmt.Errorf("layer plan: %w", err)
	}
	return p, nil
}

func (l *Layer) plan(p *LayerPlan, o *LayerOptions) error {
	if len(p.Requests) > maxSequences {
		return argumentError("requests", fmt.Sprintf("at most %d", maxSequences), "there were %d", len(p.Requests))
	}
	rows := make([]int, len(p.Requests)+1) // where requests begin
	for i, r := range p.Requests {
		if r.New < 0 || r.Prefix < 0 || r.New > maxLayerTokens || r.Prefix > maxLayerTokens-r.New {
			return argumentError("requests", fmt.Sprintf("new tokens and a prefix of at least 0, at most %d together", maxLayerTokens),
				"request %d had %d new tokens on %d", i, r.New, r.Prefix)
		}
		rows[i+1] = rows[i] + r.New
		if most := maxLayerTokens / l.shape.Heads; rows[i+1] > most {
			return argumentError("requests", fmt.Sprintf("at most %d with %d heads", most, l.shape.Heads), "had %d or more new tokens together", rows[i+1])
		}
	}
	p.QueryTokens = rows[len(p.Requests)]
	if o.Workspace < 0 || o.Chunk < 0 {
		return argumentError("options", "a workspace and a chunk of at least 0", "workspace was %d, chunk %d", o.Workspace, o.Chunk)
	}
	workspace := o.Workspace
	if workspace == 0 {
		workspace = planner.Unlimited
	}
	if err := l.decide(p, o, workspace); err != nil {
		return err
	}
	at := section(0)
	if err := l.planExpanded(p, o, rows, workspace, &at); err != nil {
		return err
	}
	if err := l.planAbsorbed(p, rows, workspace, &at); err != nil {
		return err
	}
	p.ScheduleBytes = int64(at)
	return nil
}

// section is where the next part of a buffer begins.
type section int64

// next returns the offset of a part of so many bytes.
func (s *section) next(bytes int64) int64 {
	at := int64(*s)
	*s = section(at + upTo(bytes, sectionAlign))
	return at
}

// decide fills in the paths.
func (l *Layer) decide(p *LayerPlan, o *LayerOptions, workspace int64) (err error) {
	if o.Paths != nil {
		if len(o.Paths) != len(p.Requests) {
			return argumentError("paths", fmt.Sprintf("one for each of %d requests", len(p.Requests)), "there were %d", len(o.Paths))
		}
		p.Paths = make([]planner.Path, len(p.Requests))
		for i, path := range o.Paths {
			switch {
			case p.Requests[i].New == 0:
			case path == planner.Absorb:
				p.Paths[i] = path
			case path == planner.Expand, path == planner.ExpandChunked:
				p.Paths[i] = planner.Expand
			default:
				return argumentError("paths", fmt.Sprintf("%q or %q", planner.Absorb, planner.Expand), "that of request %d was %q", i, path)
			}
		}
		return nil
	}
	s := &l.shape
	decider := planner.Planner{
		Card: o.Card, Workspace: workspace,
		Model: planner.Model{Heads: s.Heads, Latent: s.Latent, Rope: s.Rope, Nope: s.Nope, Value: s.Value},
	}
	if decider.Card == (planner.Card{}) {
		decider.Card = planner.H200
	}
	p.Paths, err = decider.Batch(p.Requests)
	return err
}

// planExpanded plans the call of Extend.
func (l *Layer) planExpanded(p *LayerPlan, o *LayerOptions, rows []int, workspace int64, at *section) (err error) {
	e := &p.expanded
	isExpanded := func(i int) bool { return p.Paths[i] == planner.Expand || p.Paths[i] == planner.ExpandChunked }
	last := -1
	capacity := ExtendCapacity{}
	for i, r := range p.Requests {
		if !isExpanded(i) {
			continue
		}
		if last < 0 {
			e.first = i
		}
		last = i
		capacity.MostQueries = max(capacity.MostQueries, r.New)
		if capacity.KeyTokens += r.New + r.Prefix; capacity.KeyTokens > maxLayerTokens {
			return argumentError("requests", fmt.Sprintf("at most %d tokens, prefixes included, in those that are expanded", maxLayerTokens), "had %d or more", capacity.KeyTokens)
		}
	}
	if last < 0 {
		return nil
	}
	e.count, e.rows = last+1-e.first, rows[last+1]
	capacity.Sequences, capacity.QueryTokens = e.count, e.rows
	lse := upTo(4*int64(e.rows)*int64(l.shape.Heads), sectionAlign)
	if e.plan, err = l.extend.Plan(capacity, o.Chunk, workspace-min(lse, workspace)); err != nil {
		return err
	}
	e.lse = upTo(e.plan.WorkspaceBytes, sectionAlign)
	p.WorkspaceBytes = e.lse + lse
	if e.plan.Chunks > 1 {
		for i := range p.Paths {
			if isExpanded(i) {
				p.Paths[i] = planner.ExpandChunked
			}
		}
	}
	for i := e.first; i <= last; {
		run := groupRun{request: i, each: 1, row: rows[i], step: p.Requests[i].New, size: 1, at: i - e.first, to: i - e.first, hidden: !isExpanded(i)}
		for ; i <= last && p.Requests[i].New == run.step && !isExpanded(i) == run.hidden; i++ {
			run.requests++
		}
		e.runs = append(e.runs, run)
	}
	// What follows the last sequence begins where that ends.
	e.runs = append(e.runs, groupRun{request: last, requests: 1, each: 1, row: e.rows, size: 1, at: e.count, to: e.count, hidden: true})
	e.lengths, e.cu = at.next(4*int64(e.count+1)), at.next(4*int64(e.count+1))
	e.schedule = at.next(e.plan.ScheduleBytes)
	return nil
}
