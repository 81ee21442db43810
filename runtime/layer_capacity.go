package runtime

import (
	"fmt"

	planner "github.com/mlagen/mlagen/runtime/plan"
)

// LayerCapacity bounds the batches of an engine.
type LayerCapacity struct {
	Requests    int
	QueryTokens int // of all requests together
	KeyTokens   int // cached tokens of all requests together, the new ones included
	Context     int // of one request
}

// Buffers returns how large buffers must be so that they hold every batch within a
// capacity, when it is planned with a workspace of at most so many bytes (0 = as
// many as it takes) and no chunk. They are bounds: a plan tells what it takes.
func (l *Layer) Buffers(c LayerCapacity, workspace int64) (schedule, workspaceBytes int64, err error) {
	if l.groups == nil {
		return 0, 0, fmt.Errorf("layer buffers: %s", closed)
	}
	if err := l.checkCapacity(&c, workspace); err != nil {
		return 0, 0, fmt.Errorf("layer buffers: %w", err)
	}
	if c.QueryTokens == 0 {
		return 0, 0, nil
	}
	if workspace == 0 {
		workspace = planner.Unlimited
	}
	var at section
	l.absorbedBound(&c, workspace, &at)
	whole := ExtendCapacity{Sequences: c.Requests, QueryTokens: c.QueryTokens, KeyTokens: c.KeyTokens}
	line, err := l.extend.line(&whole)
	if err != nil {
		return 0, 0, fmt.Errorf("layer buffers: %w", err)
	}
	most := max(l.absorbedBytes(c.QueryTokens), l.extend.place(&whole, line, 1).workspaceBytes+l.lseBytes(c.QueryTokens)+sectionAlign)
	l.expandedBound(&c, min(workspace, most), line, workspace >= most, &at)
	return int64(at), min(workspace, most), nil
}

func (l *Layer) checkCapacity(c *LayerCapacity, workspace int64) error {
	for _, x := range []struct {
		name    string
		v, most int
	}{
		{"requests", c.Requests, maxSequences}, {"query tokens", c.QueryTokens, maxLayerTokens / l.shape.Heads},
		{"key tokens", c.KeyTokens, maxLayerTokens}, {"context", c.Context, maxLayerTokens},
	} {
		if x.v < 0 || x.v > x.most {
			return argumentError(x.name, fmt.Sprintf("0 to %d", x.most), "was %d", x.v)
		}
	}
	if workspace < 0 {
		return argumentError("workspace", "at least 0", "was %d bytes", workspace)
	}
	return nil
}

// absorbedBound counts what absorbed requests take of the schedule, all tokens
// being theirs.
func (l *Layer) absorbedBound(c *LayerCapacity, workspace int64, at *section) {
	tokens, pages := int64(c.QueryTokens), int64((c.Context+l.shape.Page-1)/l.shape.Page)
	room := int64(max(1, l.absorbedRoom(workspace)))
	goes := int64(1)
	if room < tokens {
		goes = min(tokens, 2*((tokens+room-1)/room)+1) // any two neighbours have more than fits into one
	}
	// Lengths, rows and tables of as many groups as tokens.
	at.next(4*tokens*(2+pages) + goes*3*sectionAlign)
	for i, d := range l.decodes {
		// A request of decode's schedule is an item and at most a merge.
		at.next(goes*(d.ScheduleBytes(1, 0)+4*sectionAlign) + 2*itemBytes*(tokens/int64(l.shape.Groups[i])))
	}
}

// expandedBound counts what expanded requests take of the schedule: those that
// share a call, and those that have calls of their own.
func (l *Layer) expandedBound(c *LayerCapacity, workspace, line int64, atOnce bool, at *section) {
	tokens := int64(c.QueryTokens)
	together := ExtendCapacity{Sequences: c.Requests, QueryTokens: c.QueryTokens, KeyTokens: c.KeyTokens}
	lists := func(e *ExtendCapacity) int64 { return 2 * upTo(4*int64(e.Sequences+1), sectionAlign) }
	if atOnce {
		at.next(lists(&together) + l.extend.place(&together, line, 1).scheduleBytes)
		return
	}
	// States take at most half of the workspace, LSEs beside; the rest is a chunk.
	tile := int64(l.extend.attend.model.BlockN)
	one := l.extend.place(&together, tile, 1)
	chunk := max(tile, (workspace/2-l.lseBytes(c.QueryTokens)-3*sectionAlign)/(one.upRowBytes+one.kRowBytes)/tile*tile)
	chunks := func(line int64) int64 { return (line + chunk - 1) / chunk }
	at.next(lists(&together) + l.extend.place(&together, chunk, chunks(line)).scheduleBytes)

	s := &l.shape
	m := planner.Model{Heads: s.Heads, Latent: s.Latent, Rope: s.Rope, Nope: s.Nope, Value: s.Value}
	block, state := int64(l.extend.attend.model.BlockM), m.StateBytes(l.extend.attend.model.BlockM)
	least := max(1, workspace/4/state*block)   // new tokens of a request that is alone
	piece := max(1, workspace/2/state) * block // new tokens of a piece
	alone := min(int64(c.Requests), tokens/least)
	pieces := tokens/piece + alone
	own := ExtendCapacity{Sequences: 1, QueryTokens: c.QueryTokens, KeyTokens: c.Context}
	at.next(pieces * (lists(&own) + l.extend.place(&own, chunk, chunks(upTo(int64(c.Context)+1, tile))).scheduleBytes))
}
