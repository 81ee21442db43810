package runtime

import (
	"fmt"

	planner "github.com/mlagen/mlagen/runtime/plan"
)

// groupRun is groups of query tokens that one call takes as sequences of their
// own, for consecutive requests with equally many new tokens: equally many groups
// of each request, one after the other, and of one size.
type groupRun struct {
	request, requests int
	each, size        int // groups of a request, query tokens of a group
	row, step         int // the first group's first query token; from a request's to the next one's
	after             int // new tokens of a request behind its first group of the run
	at, to            int // number of the first group, and the place of its first query token
	copied            bool
	hidden            bool // sequences of length −1, which are left out
}

// groups returns how many there are.
func (r *groupRun) groups() int { return r.requests * r.each }

// tokens returns how many query tokens they have.
func (r *groupRun) tokens() int { return r.groups() * r.size }

// stride returns the query tokens from a group to the next, 0 where they are
// not evenly apart.
func (r *groupRun) stride() int {
	switch {
	case r.requests == 1 || r.step == r.each*r.size:
		return r.size
	case r.each == 1:
		return r.step
	}
	return 0
}

// absorbedBatch is query tokens that are absorbed in one go. They are computed as
// they lie where their groups are evenly apart, one size like the other; otherwise
// they are gathered first, size by size, and the results are scattered.
type absorbedBatch struct {
	tokens, groups int
	row            int // the first query token, unless they are gathered
	gathered       bool
	calls          []decodeCall
	runs           []groupRun
	listed         bool // the runs are to be written to the schedule

	// Offsets in the schedule.
	lengths, rows, tables int64
	width                 int // of the tables that are copied
	// Offsets in the workspace.
	query, latent, lse, decode int64
}

// decodeCall is the call of decode for groups of one size.
type decodeCall struct {
	decode        int // which of the layer's
	groups        int
	first, to     int // number of the first group, and its first query token's place among all groups'
	token, stride int // where that lies in the batch's tensors; query tokens to the next group
	schedule      int64

	// run is the only one; lengths and tables may then be taken from the caller's.
	run                   *groupRun
	ownLengths, ownTables bool
}

// querySlice is new tokens of consecutive requests: all, or a part of one's.
type querySlice struct{ request, requests, row, step, from, tokens int }

// planAbsorbed cuts the absorbed requests into batches that fit the workspace and
// lays them out.
func (l *Layer) planAbsorbed(p *LayerPlan, rows []int, workspace int64, at *section) error {
	room := 0 // query tokens of a batch
	var slices []querySlice
	used := 0
	flush := func() {
		if len(slices) > 0 {
			p.absorbed = append(p.absorbed, l.batch(p, slices))
		}
		slices, used = nil, 0
	}
	for i := 0; i < len(p.Requests); {
		n := p.Requests[i].New
		if p.Paths[i] != planner.Absorb {
			i++
			continue
		}
		if room == 0 {
			if room = l.absorbedRoom(workspace); room < 1 {
				return argumentError("workspace", fmt.Sprintf("at least %d: what decode takes, and a query token", l.absorbedBytes(1)), "was %d bytes", workspace)
			}
		}
		run := 1
		for i+run < len(p.Requests) && p.Requests[i+run].New == n && p.Paths[i+run] == planner.Absorb {
			run++
		}
		for done, from := 0, 0; done < run; {
			take := querySlice{request: i + done, requests: 1, row: rows[i+done], step: n, from: from, tokens: n - from}
			switch {
			case from == 0 && n <= room-used:
				take.requests = min(run-done, (room-used)/n)
			case take.tokens <= room-used:
			case used > 0:
				flush()
				continue
			default:
				take.tokens = room
			}
			slices = append(slices, take)
			used += take.requests * take.tokens
			if from += take.tokens; from == n {
				from, done = 0, done+take.requests
			}
		}
		i += run
	}
	flush()
	for i := range p.absorbed {
		b := &p.absorbed[i]
		l.placeBatch(b, at)
		p.WorkspaceBytes = max(p.WorkspaceBytes, l.absorbedBytes(b.tokens))
	}
	return nil
}

// absorbedRow is the bytes of a query token's rows: what it asks and what is
// gathered for that; what it attended to and what that becomes.
func (l *Layer) absorbedRow() (query, latent, lse int64) {
	s := &l.shape
	size, heads := s.DType.Bytes(), int64(s.Heads)
	// The gathered query is dead when the attended latent is written, as is the
	// absorbed query when the output to be scattered is.
	return heads * size * int64(max(s.Latent+s.Rope, s.Value)), heads * size * int64(max(s.Latent, s.Nope+s.Rope)), heads * 4
}

// absorbedBytes is the workspace for so many query tokens.
func (l *Layer) absorbedBytes(tokens int) int64 {
	query, latent, lse := l.absorbedRow()
	n := int64(tokens)
	return upTo(n*query, sectionAlign) + upTo(n*latent, sectionAlign) + upTo(n*lse, sectionAlign) + l.decodeBytes
}

// absorbedRoom returns how many query tokens a workspace holds, a multiple of the
// largest group where it holds one.
func (l *Layer) absorbedRoom(workspace int64) int {
	query, latent, lse := l.absorbedRow()
	most := maxLayerTokens / int64(l.shape.Heads) / int64(l.shape.Groups[0]) // as one of decode's calls numbers rows
	n := int(min(most, (workspace-l.decodeBytes)/(query+latent+lse)))
	for n > 0 && l.absorbedBytes(n) > workspace { // for the gaps between sections
		n--
	}
	if largest := l.shape.Groups[0]; n > largest {
		n = n / largest * largest
	}
	return n
}

// batch makes a batch of slices.
func (l *Layer) batch(p *LayerPlan, slices []querySlice) absorbedBatch {
	b := absorbedBatch{row: slices[0].row + slices[0].from}
	end := b.row
	for _, s := range slices {
		b.gathered = b.gathered || s.row+s.from != end
		end = s.row + s.from + s.requests*s.tokens
	}
	for i, size := range l.shape.Groups {
		call := decodeCall{decode: i, first: b.groups, to: b.tokens}
		begin := len(b.runs)
		for _, s := range slices {
			from, left := s.from, s.tokens
			for _, larger := range l.shape.Groups[:i] {
				from, left = from+left/larger*larger, left%larger
			}
			if left < size {
				continue
			}
			r := groupRun{
				request: s.request, requests: s.requests, each: left / size, size: size,
				row: s.row + from, step: s.step, after: s.step - from - size, at: b.groups, to: b.tokens,
			}
			b.groups, b.tokens = b.groups+r.groups(), b.tokens+r.tokens()
			b.runs = append(b.runs, r)
		}
		if len(b.runs) == begin {
			continue
		}
		call.groups = b.groups - call.first
		call.ownLengths, call.ownTables = true, true
		if len(b.runs) == begin+1 {
			run := b.runs[begin]
			call.run = &run
			call.ownLengths = run.each > 1 || run.after > 0
			call.ownTables = run.each > 1 && run.requests > 1
		}
		b.gathered = b.gathered || call.run == nil || call.run.stride() == 0
		for j := begin; j < len(b.runs) && call.ownTables; j++ {
			r := &b.runs[j]
			r.copied = true
			for _, q := range p.Requests[r.request : r.request+r.requests] {
				b.width = max(b.width, (q.New+q.Prefix+l.shape.Page-1)/l.shape.Page)
			}
		}
		b.listed = b.listed || call.ownLengths || call.ownTables
		b.calls = append(b.calls, call)
	}
	b.listed = b.listed || b.gathered
	for i := range b.calls {
		c := &b.calls[i]
		c.token, c.stride = c.to, l.shape.Groups[c.decode]
		if !b.gathered {
			c.token, c.stride = c.run.row-b.row, c.run.stride()
		}
	}
	return b
}

// placeBatch lays a batch out.
func (l *Layer) placeBatch(b *absorbedBatch, at *section) {
	if b.listed {
		b.lengths, b.rows = at.next(4*int64(b.groups)), at.next(4*int64(b.tokens))
		b.tables = at.next(4 * int64(b.groups) * int64(b.width))
	}
	for i := range b.calls {
		c := &b.calls[i]
		c.schedule = at.next(l.decodes[c.decode].ScheduleBytes(c.groups, 0))
	}
	query, latent, lse := l.absorbedRow()
	var w section
	n := int64(b.tokens)
	b.query, b.latent, b.lse, b.decode = w.next(n*query), w.next(n*latent), w.next(n*lse), int64(w)
}
