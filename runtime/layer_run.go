package runtime

import (
	"errors"
	"fmt"
)

// groupFields is the words of a run in the table of layer_groups.
const groupFields = 10

// groupWarps is the warps of a CTA of layer_groups and layer_rows, which do a
// group or a row each.
const groupWarps = 8

// prepareParams makes the parameters of the layer's own kernels, and finds out
// about ones that this runtime does not know.
func (l *Layer) prepareParams() error {
	for _, p := range l.groups.Manifest.Params {
		if p.Name == "runs" {
			l.runsAtOnce = p.Size / (8 * groupFields)
		}
	}
	if l.runsAtOnce < 1 {
		return fmt.Errorf("%s has no room for a run in its parameters", l.groups.label())
	}
	l.words = make([]uint64, 0, l.runsAtOnce*groupFields)
	l.groupParams, l.rowParams = l.groups.NewParams(), l.rows.NewParams()
	l.fillRuns(nil, 0)
	l.fillGroups(&LayerStep{}, groupTarget{})
	l.fillRows(&rowCopy{from: l.views[0].dense(0, l.shape.DType, 1, 1, 1), to: l.views[1].dense(0, l.shape.DType, 1, 1, 1)})
	return errors.Join(l.groupParams.Err(), l.rowParams.Err())
}

// Schedule prepares a step on the device, from the lengths and tables that lie
// there, into a.Schedule. A mistake in the arguments is an ArgumentError and
// launches nothing; without query tokens nothing is launched. A request of more
// cached tokens than the plan has room for stops the kernel, but one that is absorbed
// from tables as they lie may have any number.
func (l *Layer) Schedule(s Stream, a LayerStep) error {
	if l.groups == nil {
		return errors.New("layer schedule: " + closed)
	}
	if err := l.scheduleArgs(s, &a); err != nil {
		return fmt.Errorf("layer schedule: %w", err)
	}
	if a.Plan.QueryTokens == 0 {
		return nil
	}
	if err := l.schedule(s, &a); err != nil {
		return fmt.Errorf("layer schedule: %w", err)
	}
	l.scheduled.fill(s, a.Schedule.Ptr, a.Plan)
	return nil
}

func (l *Layer) schedule(s Stream, a *LayerStep) error {
	for i := range a.Plan.absorbed {
		if err := l.scheduleBatch(s, a, &a.Plan.absorbed[i]); err != nil {
			return err
		}
	}
	for i := range a.Plan.expanded {
		if err := l.scheduleExpanded(s, a, &a.Plan.expanded[i]); err != nil {
			return err
		}
	}
	return nil
}

func (l *Layer) scheduleExpanded(s Stream, a *LayerStep, b *expandedBatch) error {
	base := a.Schedule.Ptr
	to := groupTarget{lengths: base + Ptr(b.lengths), rows: base + Ptr(b.cu)}
	if err := l.writeGroups(s, a, b.runs, b.count+1, to); err != nil {
		return err
	}
	return l.extend.Schedule(s, ExtendScheduleArgs{
		Plan: b.plan, Causal: true, Buffer: Buffer{base + Ptr(b.schedule), b.plan.ScheduleBytes},
		CuQ: l.views[viewCu].dense(to.rows, S32, int64(b.count)+1), KVLen: l.views[viewLengths].dense(to.lengths, S32, int64(b.count)),
	})
}

func (l *Layer) scheduleBatch(s Stream, a *LayerStep, b *absorbedBatch) error {
	base := a.Schedule.Ptr
	if b.listed {
		to := groupTarget{base + Ptr(b.lengths), base + Ptr(b.rows), base + Ptr(b.tables), b.width}
		if err := l.writeGroups(s, a, b.runs, b.groups, to); err != nil {
			return err
		}
	}
	for i := range b.calls {
		c := &b.calls[i]
		d := l.decodes[c.decode]
		err := d.Schedule(s, ScheduleArgs{Batch: c.groups, KVLen: l.callLengths(a, b, c), Buffer: Buffer{base + Ptr(c.schedule), d.ScheduleBytes(c.groups, 0)}})
		if err != nil {
			return err
		}
	}
	return nil
}

// groupTarget is where layer_groups writes.
type groupTarget struct {
	lengths, rows, tables Ptr
	width                 int
}

// writeGroups writes the groups of runs, some runs at a launch.
func (l *Layer) writeGroups(s Stream, a *LayerStep, runs []groupRun, groups int, to groupTarget) error {
	l.fillGroups(a, to)
	for len(runs) > 0 {
		n, end := min(len(runs), l.runsAtOnce), groups
		if n < len(runs) {
			end = runs[n].at
		}
		l.fillRuns(runs[:n], end)
		blocks := min((end-runs[0].at+groupWarps-1)/groupWarps, 4*l.sms)
		if err := l.groups.Launch(s, Dim3{X: blocks}, l.groupParams, true); err != nil {
			return err
		}
		runs = runs[n:]
	}
	return nil
}

func (l *Layer) fillGroups(a *LayerStep, to groupTarget) {
	stride := int64(0)
	if len(a.BlockTable.Shape) > 0 {
		stride = a.BlockTable.stride(0)
	}
	p := l.groupParams
	p.err = nil
	p.Pointer("kv_len", a.KVLen.Ptr).Pointer("block_table", a.BlockTable.Ptr).Int("block_table_stride", stride).
		Pointer("lengths", to.lengths).Pointer("rows", to.rows).Pointer("tables", to.tables).Int("width", int64(to.width))
}

func (l *Layer) fillRuns(runs []groupRun, end int) {
	l.words = l.words[:0]
	first := 0
	for i := range runs {
		r := &runs[i]
		if i == 0 {
			first = r.at
		}
		for _, v := range [groupFields]int{r.at, r.request, r.each, r.row, r.step, r.size, r.after, r.to, int(flag(r.copied, 1)), int(flag(r.hidden, 1))} {
			l.words = append(l.words, uint64(v))
		}
	}
	l.groupParams.Table("runs", l.words).Int("run_count", int64(len(runs))).Int("first", int64(first)).Int("end", int64(end))
}

// callLengths returns the lengths of a call's groups.
func (l *Layer) callLengths(a *LayerStep, b *absorbedBatch, c *decodeCall) Tensor {
	from := a.KVLen.Ptr
	if c.ownLengths {
		from = a.Schedule.Ptr + Ptr(b.lengths+4*int64(c.first))
	} else {
		from += Ptr(4 * c.run.request)
	}
	return l.views[viewLengths].dense(from, S32, int64(c.groups))
}

// callTables returns the block tables of a call's groups.
func (l *Layer) callTables(a *LayerStep, b *absorbedBatch, c *decodeCall) Tensor {
	v, t := &l.views[viewTable], &a.BlockTable
	if c.ownTables {
		from := a.Schedule.Ptr + Ptr(b.tables+4*int64(c.first)*int64(b.width))
		return v.dense(from, S32, int64(c.groups), int64(b.width))
	}
	own := v.dense(t.Ptr+Ptr(int64(c.run.request)*t.strideBytes(0)), S32, int64(c.groups), t.Shape[1])
	if own.Strides[0] = t.stride(0); c.run.requests == 1 {
		own.Strides[0] = 0 // all are groups of one request
	}
	return own
}

// Run attends. A mistake in the arguments is an ArgumentError and launches
// nothing; without query tokens nothing is launched.
//
// KVLen, BlockTable, Schedule and Weights are read as soon as the kernel before
// it in the stream lets its dependents start. A kernel that does so early
// (griddepcontrol.launch_dependents) and writes one of them must have another
// between it and Run.
func (l *Layer) Run(s Stream, a LayerArgs) error {
	if l.groups == nil {
		return errors.New("layer: " + closed)
	}
	if err := l.runArgs(s, &a); err != nil {
		return fmt.Errorf("layer: %w", err)
	}
	if a.Plan.QueryTokens == 0 {
		return nil
	}
	if err := l.run(s, &a); err != nil {
		return fmt.Errorf("layer: %w", err)
	}
	return nil
}

func (l *Layer) run(s Stream, a *LayerArgs) error {
	for i := range a.Plan.absorbed {
		if err := l.runAbsorbed(s, a, &a.Plan.absorbed[i]); err != nil {
			return err
		}
	}
	for i := range a.Plan.expanded {
		if err := l.runExpanded(s, a, &a.Plan.expanded[i]); err != nil {
			return err
		}
	}
	return nil
}

// runExpanded computes requests that are expanded.
func (l *Layer) runExpanded(s Stream, a *LayerArgs, b *expandedBatch) error {
	x := ExtendArgs{
		Plan: b.plan, KV: a.KV, Weights: a.Weights, Scale: a.Scale,
		BlockTable: l.views[viewTable].rows(&a.BlockTable, b.first, b.count),
		Schedule:   Buffer{a.Schedule.Ptr + Ptr(b.schedule), b.plan.ScheduleBytes},
		Workspace:  Buffer{a.Workspace.Ptr, b.plan.WorkspaceBytes},
		Out:        l.views[viewOut].rows(&a.Out, b.row, b.rows),
		LSE:        l.views[viewLSE].dense(a.Workspace.Ptr+Ptr(b.lse), F32, int64(b.rows), int64(l.shape.Heads)),
	}
	if !a.Q.absent() {
		x.Q = l.views[viewQ].rows(&a.Q, b.row, b.rows)
	} else {
		x.QNope, x.QRope = l.views[viewQ].rows(&a.QNope, b.row, b.rows), l.views[viewQRope].rows(&a.QRope, b.row, b.rows)
	}
	return l.extend.Run(s, x)
}

// runAbsorbed computes a batch of query tokens in the latent space.
func (l *Layer) runAbsorbed(s Stream, a *LayerArgs, b *absorbedBatch) error {
	m, t := &l.shape, l.shape.DType
	tokens, heads, key, latent := int64(b.tokens), int64(m.Heads), int64(m.Latent+m.Rope), int64(m.Latent)
	// The places of what is dead by then: see absorbedRow.
	query, attended := a.Workspace.Ptr+Ptr(b.query), a.Workspace.Ptr+Ptr(b.latent)
	gathered, scattered := attended, query

	nope, rope, err := l.batchQuery(s, a, b, gathered)
	if err != nil {
		return err
	}
	absorbed := l.views[viewAbsorbed].dense(query, t, tokens, heads, key)
	err = l.query.Run(s, AbsorbQueryArgs{
		QNope: nope, QRope: rope, Weights: l.views[viewKeys].columns(&a.Weights, 1, 0, m.Nope),
		OutLatent: l.views[viewAbsorbedLatent].columns(&absorbed, 2, 0, m.Latent), OutRope: l.views[viewAbsorbedRope].columns(&absorbed, 2, m.Latent, m.Rope),
	})
	if err != nil {
		return err
	}
	for i := range b.calls {
		c := &b.calls[i]
		d, size := l.decodes[c.decode], int64(l.shape.Groups[c.decode])
		groups := func(v *view, base Ptr, width int64) Tensor {
			g := v.dense(base+Ptr(int64(c.token)*heads*width*t.Bytes()), t, int64(c.groups), size, heads, width)
			g.Strides[0] = int64(c.stride) * heads * width
			return g
		}
		err := d.Run(s, DecodeArgs{
			Batch: c.groups, Q: groups(&l.views[viewQ], query, key), Out: groups(&l.views[viewOut], attended, latent),
			LSE: l.views[viewLSE].dense(a.Workspace.Ptr+Ptr(b.lse+4*int64(c.to)*heads), F32, int64(c.groups), size, heads),
			KV:  a.KV, BlockTable: l.callTables(&a.LayerStep, b, c), KVLen: l.callLengths(&a.LayerStep, b, c), Scale: a.Scale,
			NewTokens: groupTokens(a.NewTokens, int(size)),
			Schedule:  Buffer{a.Schedule.Ptr + Ptr(c.schedule), d.ScheduleBytes(c.groups, 0)},
			Workspace: Buffer{a.Workspace.Ptr + Ptr(b.decode), l.decodeBytes},
		})
		if err != nil {
			return err
		}
	}
	out := l.views[viewOut].dense(scattered, t, tokens, heads, int64(m.Value))
	if !b.gathered {
		out = l.views[viewOut].rows(&a.Out, b.row, b.tokens)
	}
	err = l.output.Run(s, AbsorbOutputArgs{
		Latent: l.views[viewAbsorbed].dense(attended, t, tokens, heads, latent), Weights: l.views[viewValues].columns(&a.Weights, 1, m.Nope, m.Value), Out: out,
	})
	if err != nil || !b.gathered {
		return err
	}
	return l.copyRows(s, &rowCopy{rows: a.Schedule.Ptr + Ptr(b.rows), from: out, to: a.Out, tokens: tokens, scatter: true})
}

// groupTokens returns what to promise of groups of so many query tokens. A group ends
// with one of its request's, so that it has no more new tokens than this; but it may
// have places for more queries.
func groupTokens(promised, size int) int {
	if promised == 0 {
		return 0
	}
	return max(promised, size)
}

// batchQuery returns the batch's queries, gathered where they must be.
func (l *Layer) batchQuery(s Stream, a *LayerArgs, b *absorbedBatch, gathered Ptr) (nope, rope Tensor, err error) {
	m := &l.shape
	nope, rope = a.QNope, a.QRope
	if !a.Q.absent() {
		nope, rope = l.views[viewQNope].columns(&a.Q, 2, 0, m.Nope), l.views[viewQRope].columns(&a.Q, 2, m.Nope, m.Rope)
	}
	if !b.gathered {
		return l.views[viewQ].rows(&nope, b.row, b.tokens), l.views[viewQOther].rows(&rope, b.row, b.tokens), nil
	}
	all := l.views[viewAbsorbed].dense(gathered, m.DType, int64(b.tokens), int64(m.Heads), int64(m.Nope+m.Rope))
	to := [2]Tensor{l.views[viewQ].columns(&all, 2, 0, m.Nope), l.views[viewQOther].columns(&all, 2, m.Nope, m.Rope)}
	for i, from := range [2]Tensor{nope, rope} {
		c := rowCopy{rows: a.Schedule.Ptr + Ptr(b.rows), from: from, to: to[i], tokens: int64(b.tokens)}
		if !a.Q.absent() { // both at once
			if i > 0 {
				break
			}
			c.from, c.to = a.Q, all
		}
		if err := l.copyRows(s, &c); err != nil {
			return nope, rope, err
		}
	}
	return to[0], to[1], nil
}

// rowCopy copies rows of tokens × heads, of which rows lists those of from, or
// of to.
type rowCopy struct {
	rows     Ptr
	from, to Tensor // [.., heads, width], of one width
	tokens   int64
	scatter  bool
}

func (l *Layer) copyRows(s Stream, c *rowCopy) error {
	l.fillRows(c)
	rows := c.tokens * int64(l.shape.Heads)
	return l.rows.Launch(s, Dim3{X: int(min((rows+groupWarps-1)/groupWarps, int64(16*l.sms)))}, l.rowParams, true)
}

func (l *Layer) fillRows(c *rowCopy) {
	p := l.rowParams
	p.err = nil
	p.Pointer("rows", c.rows).
		Pointer("from", c.from.Ptr).Int("from_token", c.from.strideBytes(0)).Int("from_head", c.from.strideBytes(1)).
		Pointer("to", c.to.Ptr).Int("to_token", c.to.strideBytes(0)).Int("to_head", c.to.strideBytes(1)).
		Int("scatter", flag(c.scatter, 1)).Int("tokens", c.tokens).Int("heads", int64(l.shape.Heads)).
		Int("vectors", c.from.Shape[2]*l.shape.DType.Bytes()/rowAlign)
}
