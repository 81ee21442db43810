package runtime

import (
	"errors"
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
	mostNew  int // new tokens of a request, at most
	absorbed []absorbedBatch
	expanded []expandedBatch
}

// same reports whether two plans of a layer are for one batch, computed in one way.
func (p *LayerPlan) same(o *LayerPlan) bool {
	return p == o || p.ScheduleBytes == o.ScheduleBytes && p.WorkspaceBytes == o.WorkspaceBytes &&
		slices.Equal(p.Requests, o.Requests) && slices.Equal(p.Paths, o.Paths)
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
		chunks := 0
		for i := range p.expanded {
			chunks += p.expanded[i].plan.Chunks
		}
		if goes := len(p.expanded); goes > 1 {
			s += fmt.Sprintf(" in %d goes", goes)
		}
		if chunks > len(p.expanded) {
			s += fmt.Sprintf(" in %d chunks", chunks)
		}
		parts = append(parts, s)
	}
	if len(parts) == 0 {
		return "nothing to do"
	}
	return strings.Join(parts, "; ")
}

// expandedBatch is requests that one call of Extend computes, as sequences from
// the first to the last of them; what lies between and is not among them is left
// out. A request that is expanded in pieces has a batch for each.
type expandedBatch struct {
	first, count int
	row, rows    int // query tokens, up to the last one's end
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
	for _, r := range p.Requests {
		p.mostNew = max(p.mostNew, r.New)
	}
	if o.Workspace < 0 || o.Chunk < 0 {
		return argumentError("options", "a workspace and a chunk of at least 0", "workspace was %d, chunk %d", o.Workspace, o.Chunk)
	}
	workspace := o.Workspace
	if workspace == 0 {
		workspace = planner.Unlimited
	}
	s := &l.shape
	decider := planner.Planner{
		Card: o.Card, Workspace: workspace,
		Model: planner.Model{Heads: s.Heads, Latent: s.Latent, Rope: s.Rope, Nope: s.Nope, Value: s.Value},
	}
	if decider.Card == (planner.Card{}) {
		decider.Card = planner.H200
	}
	if err := decider.Card.Check(); err != nil {
		return argumentError("card", "one that can be planned for, or the zero value for an H200", "%v", err)
	}
	if err := decide(p, o, &decider); err != nil {
		return err
	}
	at := section(0)
	if err := l.planExpanded(p, o, rows, &decider, &at); err != nil {
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
func decide(p *LayerPlan, o *LayerOptions, decider *planner.Planner) (err error) {
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
	p.Paths, err = decider.Batch(p.Requests)
	return err
}

// expands reports that request i is expanded.
func (p *LayerPlan) expands(i int) bool {
	return p.Paths[i] == planner.Expand || p.Paths[i] == planner.ExpandChunked
}

// planExpanded plans the calls of Extend: one for all requests, and where not all
// is expanded at once, ones for each request whose new tokens carry so much from
// chunk to chunk that little room would be left for the others.
func (l *Layer) planExpanded(p *LayerPlan, o *LayerOptions, rows []int, decider *planner.Planner, at *section) error {
	all := ExtendCapacity{QueryTokens: p.QueryTokens}
	for i, r := range p.Requests {
		if !p.expands(i) {
			continue
		}
		all.Sequences, all.MostQueries = all.Sequences+1, max(all.MostQueries, r.New)
		if all.KeyTokens += r.New + r.Prefix; all.KeyTokens > maxLayerTokens {
			return argumentError("requests", fmt.Sprintf("at most %d tokens, prefixes included, in those that are expanded", maxLayerTokens), "had %d or more", all.KeyTokens)
		}
	}
	if all.Sequences == 0 {
		return nil
	}
	whole, err := l.extend.Plan(all, o.Chunk, l.expandedRoom(decider, p.QueryTokens))
	alone := func(r planner.Request) bool {
		return o.Chunk == 0 && (err != nil || whole.Chunks > 1) && decider.Model.StateBytes(r.New) > decider.Workspace/4
	}
	together := func(i int) bool { return p.expands(i) && !alone(p.Requests[i]) }
	first, last := -1, -1
	for i := range p.Requests {
		if together(i) {
			if last = i; first < 0 {
				first = i
			}
		}
	}
	if first >= 0 {
		if err := l.planTogether(p, o, rows, decider, at, first, last, together); err != nil {
			return err
		}
	}
	for i, r := range p.Requests {
		if !p.expands(i) || together(i) {
			continue
		}
		row, cut := rows[i], *decider
		cut.Workspace = l.expandedRoom(decider, r.New)
		for _, piece := range cut.Pieces(r) {
			b := expandedBatch{first: i, count: 1, row: row, rows: piece.New}
			b.runs = []groupRun{{request: i, requests: 1, each: 1, size: 1, after: rows[i+1] - row - piece.New}}
			capacity := ExtendCapacity{Sequences: 1, QueryTokens: piece.New, KeyTokens: piece.New + piece.Prefix}
			if err := l.planExtend(p, o, decider, at, b, capacity); err != nil {
				return err
			}
			row += piece.New
		}
	}
	if slices.ContainsFunc(p.expanded, func(b expandedBatch) bool { return b.plan.Chunks > 1 }) {
		for i := range p.Paths {
			if p.expands(i) {
				p.Paths[i] = planner.ExpandChunked
			}
		}
	}
	return nil
}

// lseBytes is the workspace for the LSEs that Extend writes and nobody asks for.
func (l *Layer) lseBytes(rows int) int64 {
	return upTo(4*int64(rows)*int64(l.shape.Heads), sectionAlign)
}

// expandedRoom is the workspace that is left to a call of Extend.
func (l *Layer) expandedRoom(decider *planner.Planner, rows int) int64 {
	return max(0, decider.Workspace-l.lseBytes(rows)-sectionAlign)
}

// planTogether plans the call for all requests that share one.
func (l *Layer) planTogether(p *LayerPlan, o *LayerOptions, rows []int, decider *planner.Planner, at *section, first, last int, together func(int) bool) error {
	b := expandedBatch{first: first, count: last + 1 - first, row: rows[first], rows: rows[last+1] - rows[first]}
	capacity := ExtendCapacity{Sequences: b.count, QueryTokens: b.rows}
	for i := first; i <= last; {
		r := p.Requests[i]
		run := groupRun{request: i, each: 1, row: rows[i] - b.row, step: r.New, size: 1, at: i - first, to: i - first, hidden: !together(i)}
		for ; i <= last && p.Requests[i].New == run.step && !together(i) == run.hidden; i++ {
			if run.requests++; !run.hidden {
				capacity.MostQueries = max(capacity.MostQueries, run.step)
				capacity.KeyTokens += run.step + p.Requests[i].Prefix
				capacity.WithKeys++
			}
		}
		b.runs = append(b.runs, run)
	}
	return l.planExtend(p, o, decider, at, b, capacity)
}

// planExtend plans one call, and lays it out.
func (l *Layer) planExtend(p *LayerPlan, o *LayerOptions, decider *planner.Planner, at *section, b expandedBatch, capacity ExtendCapacity) (err error) {
	// What follows the last sequence begins where that ends.
	b.runs = append(b.runs, groupRun{request: b.first, requests: 1, each: 1, row: b.rows, size: 1, at: b.count, to: b.count, hidden: true})
	if b.plan, err = l.extend.Plan(capacity, o.Chunk, l.expandedRoom(decider, b.rows)); err != nil {
		var mistake *ArgumentError
		least, e := l.extend.leastWorkspace(&capacity)
		if e == nil && errors.As(err, &mistake) && mistake.Argument == "workspace" {
			return argumentError("workspace", fmt.Sprintf("at least %d to expand requests of up to %d new tokens", upTo(least, sectionAlign)+sectionAlign+l.lseBytes(b.rows), l.extend.mostQueries(&capacity)),
				"was %d bytes", decider.Workspace)
		}
		return err
	}
	b.lse = upTo(b.plan.WorkspaceBytes, sectionAlign)
	p.WorkspaceBytes = max(p.WorkspaceBytes, b.lse+l.lseBytes(b.rows))
	b.lengths, b.cu = at.next(4*int64(b.count+1)), at.next(4*int64(b.count+1))
	b.schedule = at.next(b.plan.ScheduleBytes)
	p.expanded = append(p.expanded, b)
	return nil
}
