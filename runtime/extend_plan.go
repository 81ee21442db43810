package runtime

import (
	"fmt"
	"math"
)

// ExtendCapacity bounds a step: launches and buffers depend on it and on the
// chunk, and never on lengths in device memory.
type ExtendCapacity struct {
	Sequences   int
	QueryTokens int // rows of q; those past the last sequence get out 0 and lse −∞
	KeyTokens   int // the most that the lengths of all sequences, query tokens included, may add up to
	MostQueries int // the most query tokens that one sequence may have; 0 = QueryTokens
	WithKeys    int // the most sequences that have a key; 0 = Sequences
}

// ExtendPlan is how a step is done: how many tokens are expanded at a time, and
// how large the caller's buffers must be.
type ExtendPlan struct {
	ExtendCapacity
	Chunk          int   // tokens expanded at a time, whole tiles of keys
	Chunks         int   // of them, each two launches
	ScheduleBytes  int64 // for every step in flight
	WorkspaceBytes int64 // may be shared by whatever runs one after the other
}

// Plan returns the plan for a capacity. With chunk 0, chunks are as large as
// a workspace of so many bytes holds and all alike; otherwise they have chunk
// tokens, rounded up to whole tiles of keys, and workspace is not looked at. A
// workspace that holds not even a tile is an ArgumentError, which says how large
// it must be.
func (e *Extend) Plan(c ExtendCapacity, chunk int, workspace int64) (ExtendPlan, error) {
	plan := ExtendPlan{ExtendCapacity: c, Chunk: chunk}
	if e.schedule == nil {
		return plan, fmt.Errorf("extend plan: %s", closed)
	}
	if err := e.plan(&plan, workspace); err != nil {
		return plan, fmt.Errorf("extend plan: %w", err)
	}
	return plan, nil
}

func (e *Extend) plan(plan *ExtendPlan, workspace int64) error {
	c := &plan.ExtendCapacity
	line, err := e.line(c)
	if err != nil {
		return err
	}
	tile := int64(e.attend.model.BlockN)
	chunk := int64(plan.Chunk)
	switch {
	case chunk < 0:
		return argumentError("chunk", "at least 0", "was %d", chunk)
	case chunk > 0:
		chunk = min(upTo(min(chunk, line), tile), line)
	default:
		if chunk = e.largestChunk(c, line, workspace); chunk == 0 {
			least, err := e.leastWorkspace(c)
			if err != nil {
				return err
			}
			return argumentError("workspace", fmt.Sprintf("at least %d: a tile of %d tokens and the states of %d query tokens, or all tokens", least, tile, e.mostQueries(c)),
				"was %d bytes", workspace)
		}
	}
	l, err := e.layout(c, chunk)
	if err != nil {
		return err
	}
	plan.Chunk, plan.Chunks, plan.ScheduleBytes, plan.WorkspaceBytes = int(l.chunk), int(l.chunks), l.scheduleBytes, l.workspaceBytes
	return nil
}

// leastWorkspace returns the smallest workspace for a capacity: with chunks of one
// tile, or with one chunk, which carries no states.
func (e *Extend) leastWorkspace(c *ExtendCapacity) (int64, error) {
	line, err := e.line(c)
	if err != nil {
		return 0, err
	}
	tiles, err := e.layout(c, int64(e.attend.model.BlockN))
	if whole, e := e.layout(c, line); e == nil && (err != nil || whole.workspaceBytes < tiles.workspaceBytes) {
		return whole.workspaceBytes, nil
	}
	return tiles.workspaceBytes, err
}

// line returns how long the sequences, each filled up to whole tiles of keys and
// laid end to end, may be, at least a tile.
func (e *Extend) line(c *ExtendCapacity) (int64, error) {
	for _, x := range []struct {
		name string
		v    int
		most int64
	}{
		{"sequences", c.Sequences, maxSequences}, {"query tokens", c.QueryTokens, math.MaxInt32 / 2},
		{"key tokens", c.KeyTokens, math.MaxInt32 / 2}, {"most queries", c.MostQueries, int64(max(0, c.QueryTokens))},
		{"with keys", c.WithKeys, int64(max(0, c.Sequences))},
	} {
		if x.v < 0 || int64(x.v) > x.most {
			return 0, argumentError(x.name, fmt.Sprintf("0 to %d", x.most), "was %d", x.v)
		}
	}
	tile := int64(e.attend.model.BlockN)
	// Every sequence with a key may end in a tile that is not full.
	with := c.Sequences
	if c.WithKeys > 0 {
		with = c.WithKeys
	}
	most := int64(c.KeyTokens) + (tile-1)*int64(min(with, c.KeyTokens))
	return max(tile, most/tile*tile), nil
}

// largestChunk returns the tokens of the fewest chunks that the workspace allows,
// all alike, 0 when it holds none.
func (e *Extend) largestChunk(c *ExtendCapacity, line, workspace int64) int64 {
	tile := int64(e.attend.model.BlockN)
	room := func(chunks int64) int64 {
		l := e.place(c, 0, chunks)
		return max(0, max(0, workspace)-l.workspaceBytes) / (l.kRowBytes + l.upRowBytes) / tile * tile
	}
	if room(1) >= line {
		return line
	}
	most := min(room(2), maxChunk(tile))
	if most == 0 {
		return 0
	}
	chunks := (line + most - 1) / most
	return upTo((line+chunks-1)/chunks, tile)
}

func upTo(n, step int64) int64 { return (n + step - 1) / step * step }

// maxChunk bounds a chunk: its rows are numbered in 31 bits.
func maxChunk(tile int64) int64 { return maxProductRows / tile * tile }

// maxChunks bounds the chunks of a step, each of them two launches.
const maxChunks = 1 << 16

// extendLayout is where everything is: offsets and sizes in bytes, in the
// schedule's buffer from each chunk's beginning on. It follows from capacity and
// chunk alone.
type extendLayout struct {
	chunk, chunks, queryTokens int64
	mostBlocks, mostStates     int64

	chunkBytes                 int64 // from a chunk to the next
	cuK, first, before, blocks int64
	scheduleBytes              int64

	upRowBytes, kRowBytes int64
	kvUp, kRope           int64
	states                [2]int64
	workspaceBytes        int64
}

// layout returns the layout for a capacity and a chunk that Plan has found.
func (e *Extend) layout(c *ExtendCapacity, chunk int64) (l extendLayout, err error) {
	line, err := e.line(c)
	if err != nil {
		return l, err
	}
	tile := int64(e.attend.model.BlockN)
	if chunk < tile || chunk%tile != 0 || chunk > maxChunk(tile) {
		return l, argumentError("chunk", fmt.Sprintf("a multiple of %d, at most %d, as Plan returns it", tile, maxChunk(tile)), "was %d", chunk)
	}
	chunks := (line + chunk - 1) / chunk
	if chunks > maxChunks {
		return l, argumentError("chunk", fmt.Sprintf("at least %d: %d key tokens in at most %d chunks", upTo((line+maxChunks-1)/maxChunks, tile), c.KeyTokens, maxChunks), "was %d", chunk)
	}
	// Block and head are numbered together in 30 bits.
	most := int64(math.MaxInt32)/2/int64(e.attend.model.Heads) - 1
	l = e.place(c, chunk, chunks)
	if l.mostBlocks > most {
		return l, argumentError("query tokens", fmt.Sprintf("at most %d blocks of %d tokens: with %d heads each they are numbered in 30 bits", most, e.attend.model.BlockM, e.attend.model.Heads),
			"were %d in %d sequences, up to %d blocks", c.QueryTokens, c.Sequences, l.mostBlocks)
	}
	return l, nil
}

// planned returns the layout of a plan, which Plan must have made.
func (e *Extend) planned(p *ExtendPlan) (extendLayout, error) {
	l, err := e.layout(&p.ExtendCapacity, int64(p.Chunk))
	if err == nil && (int64(p.Chunks) != l.chunks || p.ScheduleBytes != l.scheduleBytes || p.WorkspaceBytes != l.workspaceBytes) {
		err = argumentError("plan", fmt.Sprintf("as Plan returned it: %d, %d and %d", l.chunks, l.scheduleBytes, l.workspaceBytes),
			"had %d chunks, a schedule of %d bytes and a workspace of %d", p.Chunks, p.ScheduleBytes, p.WorkspaceBytes)
	}
	return l, err
}

// mostQueries returns the most query tokens of a sequence.
func (e *Extend) mostQueries(c *ExtendCapacity) int {
	if c.MostQueries > 0 {
		return c.MostQueries
	}
	return c.QueryTokens
}

// place lays buffers out.
func (e *Extend) place(c *ExtendCapacity, chunk, chunks int64) extendLayout {
	m := &e.attend.model
	block, heads, sequences := int64(m.BlockM), int64(m.Heads), int64(c.Sequences)
	l := extendLayout{chunk: chunk, chunks: chunks, queryTokens: int64(c.QueryTokens)}
	// Every sequence may end in a block that is not full, and so may the tokens after the last.
	l.mostBlocks = l.queryTokens/block + sequences + 1
	l.mostStates = (int64(e.mostQueries(c)) + block - 1) / block
	at := int64(0)
	next := func(bytes int64) (offset int64) {
		offset = at
		at += upTo(bytes, sectionAlign)
		return offset
	}
	next(prefillHeadBytes)
	l.cuK, l.first, l.before, l.blocks = next(4*(sequences+1)), next(4*sequences), next(8*(sequences+2)), next(prefillBlockBytes*l.mostBlocks)
	l.chunkBytes = at
	l.scheduleBytes = at * chunks

	size := m.DType.Bytes()
	l.upRowBytes, l.kRowBytes = heads*int64(m.Nope+m.Value)*size, int64(m.Rope)*size
	at = 0
	l.kvUp, l.kRope = next(chunk*l.upRowBytes), next(chunk*l.kRowBytes)
	if chunks > 1 {
		state := l.mostStates * heads * block * int64(m.Value+2*carriedSums) * 4
		l.states[0] = next(state)
		l.states[1] = l.states[0] // one sequence goes on in its own place
		if sequences > 1 {
			l.states[1] = next(state)
		}
	}
	l.workspaceBytes = at
	return l
}

// carriedSums is the words that a thread carries beside its share of the output,
// which is half of two rows.
const carriedSums = 4
