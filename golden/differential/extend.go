package differential

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

// ExtendCase is an extend step: its schedule, and for each chunk the expansion
// and the attention. Every row of the weights picks one column of the latents,
// so that expanded keys and values are the same to the bit on every device, and
// what is compared is the attention's doing.
type ExtendCase struct {
	*cases.Case
	BlockN int // of the tiles of keys, 0 = the template's choice
	SMs    int // for which both devices launch
}

// spec is what extend_attend and extend_schedule are generated for.
func (c *ExtendCase) spec() templates.Spec {
	s := templates.Spec{
		Heads: c.Model.Heads, Nope: c.Model.Nope, Rope: c.Model.Rope, Value: c.Model.Value, BlockN: c.BlockN, DType: string(c.DType),
	}
	s, _ = templates.Defaults("extend-attend", s) // the kernel exists
	return s
}

// loadExtend loads extend's kernels of a spec.
func (p *Pair) loadExtend(d *device, spec templates.Spec) (*runtime.Extend, error) {
	var v runtime.ExtendVariants
	up := templates.Spec{Heads: spec.Heads, Latent: 512, Rope: spec.Rope, Nope: spec.Nope, Value: spec.Value, Page: 64, DType: spec.DType}
	for _, k := range []struct {
		name string
		spec templates.Spec
		to   *runtime.Variant
	}{{"up-project", up, &v.UpProject}, {"extend-attend", spec, &v.Attend}, {"extend-schedule", spec, &v.Schedule}} {
		var err error
		if *k.to, err = p.build(k.name, k.spec); err != nil {
			return nil, err
		}
	}
	return runtime.LoadExtend(d, v)
}

// extendParts are the parts of a chunk's schedule, in their order, by the names
// of the parameters that say where they begin. The header comes first.
var extendParts = []string{"head", "cu_k", "first_token", "work_before", "work_blocks"}

// extendPlanning is a schedule in device memory.
type extendPlanning struct {
	buffer runtime.Buffer
	parts  []map[string][]byte // of each chunk
}

// ExtendLengths is what a schedule of extend is made from.
type ExtendLengths struct {
	Queries, Keys          []int // of each sequence
	QueryTokens, KeyTokens int   // that there is room for
	Chunk                  int   // 0 = one
	Causal                 bool
}

// plan returns the lengths' plan, on a workspace as large as it likes.
func (l *ExtendLengths) plan(e *runtime.Extend) (runtime.ExtendPlan, error) {
	return e.Plan(runtime.ExtendCapacity{Sequences: len(l.Queries), QueryTokens: l.QueryTokens, KeyTokens: l.KeyTokens}, l.Chunk, 1<<50)
}

// plannedExtend runs extend_schedule.
func plannedExtend(dev *device, e *runtime.Extend, plan runtime.ExtendPlan, l ExtendLengths) (s extendPlanning, err error) {
	cu, keys := make([]int32, len(l.Queries)+1), make([]int32, len(l.Queries))
	for i, n := range l.Queries {
		cu[i+1], keys[i] = cu[i]+int32(n), int32(l.Keys[i])
	}
	cuQ, err := dev.upload("cu_q", encodeInts(cu))
	if err != nil {
		return s, err
	}
	kvLen, err := dev.upload("kv_len", encodeInts(keys))
	if err != nil {
		return s, err
	}
	if s.buffer, err = dev.alloc("schedule", plan.ScheduleBytes); err != nil {
		return s, err
	}
	err = e.Schedule(dev.stream, runtime.ExtendScheduleArgs{
		Plan: plan, CuQ: runtime.Dense(cuQ.Ptr, runtime.S32, int64(len(cu))), KVLen: runtime.Dense(kvLen.Ptr, runtime.S32, int64(len(keys))),
		Causal: l.Causal, Buffer: s.buffer,
	})
	if err != nil {
		return s, err
	}
	if err := dev.stream.Synchronize(); err != nil {
		return s, err
	}
	s.parts, err = readExtend(dev, e, plan, s.buffer)
	return s, err
}

// readExtend downloads a schedule's parts, whose places extend_schedule was told.
func readExtend(dev *device, e *runtime.Extend, plan runtime.ExtendPlan, buffer runtime.Buffer) (chunks []map[string][]byte, err error) {
	if plan.QueryTokens == 0 {
		return nil, nil // nothing was launched
	}
	var m *manifest.Manifest
	for _, k := range e.Kernels() {
		if k.Manifest.Kernel == "extend_schedule" {
			m = k.Manifest
		}
	}
	at, err := dev.given(0, m, "chunks")
	if err != nil || at != buffer.Ptr {
		return nil, fmt.Errorf("chunks at %#x, the buffer at %#x: %w", at, buffer.Ptr, err)
	}
	var bounds []int64
	for _, name := range append(slices.Clone(extendParts[1:]), "chunk_bytes") {
		n, err := dev.givenInt(0, m, name)
		if err != nil {
			return nil, err
		}
		bounds = append(bounds, n)
	}
	size := bounds[len(bounds)-1]
	if !slices.IsSorted(bounds) || size*int64(plan.Chunks) > buffer.Bytes {
		return nil, fmt.Errorf("%d chunks of %v in a buffer of %d bytes", plan.Chunks, bounds, buffer.Bytes)
	}
	data, err := dev.download(buffer)
	for chunk := range int64(plan.Chunks) {
		parts, from := map[string][]byte{}, int64(0)
		for i, name := range extendParts {
			parts[name] = data[chunk*size+from : chunk*size+bounds[i]]
			from = bounds[i]
		}
		chunks = append(chunks, parts)
	}
	return chunks, err
}

// givenInt returns the number of eight bytes that launch number i of a kernel
// was given as the parameter called name.
func (d *device) givenInt(i int, m *manifest.Manifest, name string) (int64, error) {
	for _, p := range m.Params {
		if p.Name == name && p.Kind == manifest.ScalarParam && p.Size == 8 && i < len(d.launches) {
			return int64(binary.LittleEndian.Uint64(d.launches[i].Params[p.Offset:])), nil
		}
	}
	return 0, fmt.Errorf("launch %d of %d: %s takes no number of eight bytes %q", i, len(d.launches), m.Kernel, name)
}

// compareChunks returns one row for two schedules that are equal, and otherwise
// one for each part.
func compareChunks(name string, a, b []map[string][]byte) (rows []Row, err error) {
	if len(a) != len(b) {
		return nil, fmt.Errorf("%d and %d chunks", len(a), len(b))
	}
	all := Row{Kernel: "extend-schedule", Case: name, Result: "schedule"}
	for _, part := range extendParts {
		r := Row{Kernel: all.Kernel, Case: name, Result: part}
		for chunk := range a {
			r.words(a[chunk][part], b[chunk][part])
		}
		all.add(r.Figures)
		rows = append(rows, r)
	}
	if all.Differ == 0 {
		return []Row{all}, nil
	}
	return rows, nil
}

// ExtendPlanCase is a batch that is scheduled and not attended to.
type ExtendPlanCase struct {
	Name string
	Spec templates.Spec
	ExtendLengths
}

// ExtendPlan compares schedules.
func (p *Pair) ExtendPlan(c ExtendPlanCase) ([]Row, error) {
	results, err := each(p, 132, func(dev *device) ([]map[string][]byte, error) { return p.extendPlan(dev, c) })
	if err != nil {
		return nil, err
	}
	return compareChunks(c.Name, results[0], results[1])
}

func (p *Pair) extendPlan(dev *device, c ExtendPlanCase) ([]map[string][]byte, error) {
	e, err := p.loadExtend(dev, c.Spec)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	plan, err := c.plan(e)
	if err != nil {
		return nil, err
	}
	s, err := plannedExtend(dev, e, plan, c.ExtendLengths)
	return s.parts, err
}

// extendResult is what an extend step leaves.
type extendResult struct {
	schedule, after []map[string][]byte // before and after the step
	out             []float32           // [query tokens × heads, value]
	lse             []float32
}

// Extend compares an extend step.
func (p *Pair) Extend(c ExtendCase) ([]Row, error) {
	in, err := c.Case.Extend()
	if err != nil {
		return nil, err
	}
	results, err := each(p, c.SMs, func(dev *device) (*extendResult, error) { return p.extend(dev, c, in) })
	if err != nil {
		return nil, err
	}
	a, b := results[0], results[1]
	rows, err := compareChunks(c.Name, a.schedule, b.schedule)
	if err != nil {
		return nil, err
	}
	dealt := Row{Kernel: "extend-attend", Case: c.Name, Result: "items dealt"}
	for chunk := range a.after {
		for _, part := range extendParts {
			dealt.words(a.after[chunk][part], b.after[chunk][part])
		}
	}
	r := Row{Kernel: "extend-attend", Case: c.Name, Result: "output"}
	for at := 0; at < len(a.out); at += c.Model.Value {
		r.row(c.DType, a.out[at:at+c.Model.Value], b.out[at:at+c.Model.Value], rms)
	}
	r.lses(a.lse, b.lse)
	return append(rows, dealt, r), nil
}

// pickingWeights are weights [heads, nope+value, latent] of which each row is 1
// in one column and 0 elsewhere.
func (c *ExtendCase) pickingWeights() []float32 {
	m := c.Model
	rows := m.Heads * (m.Nope + m.Value)
	w := make([]float32, rows*m.Latent)
	for row := range rows {
		w[row*m.Latent+(row*37+row/m.Latent)%m.Latent] = 1
	}
	return w
}

// extend runs a step on one device.
func (p *Pair) extend(dev *device, c ExtendCase, in *cases.Extend) (r *extendResult, err error) {
	e, err := p.loadExtend(dev, c.spec())
	if err != nil {
		return nil, err
	}
	defer e.Close()
	l := ExtendLengths{Keys: c.KVLen, QueryTokens: in.Tokens(), KeyTokens: in.KeyTokens(), Chunk: c.Chunk, Causal: c.Causal}
	for i := range c.KVLen {
		l.Queries = append(l.Queries, c.Queries(i))
	}
	plan, err := l.plan(e)
	if err != nil {
		return nil, err
	}
	s, err := plannedExtend(dev, e, plan, l)
	if err != nil {
		return nil, err
	}
	t := runtime.DType(c.DType)
	place := func(name string, values []float32, shape ...int64) (x runtime.Tensor) {
		if err == nil {
			var b runtime.Buffer
			b, err = dev.upload(name, c.DType.Encode(nil, values))
			x = runtime.Dense(b.Ptr, t, shape...)
		}
		return x
	}
	m, tokens, heads := c.Model, int64(l.QueryTokens), int64(c.Model.Heads)
	nope, rope, value := int64(m.Nope), int64(m.Rope), int64(m.Value)
	a := runtime.ExtendArgs{
		Plan: plan, Weights: place("w_kv_b", c.pickingWeights(), heads, nope+value, int64(m.Latent)),
		Schedule: s.buffer, Scale: float32(c.SoftmaxScale()), LSEBase2: c.LSEBase == "2",
	}
	if c.Layout.Q == "split" {
		qNope, qRope := in.SplitQ()
		a.QNope, a.QRope = place("q_nope", qNope, tokens, heads, nope), place("q_rope", qRope, tokens, heads, rope)
	} else {
		a.Q = place("q", in.Q, tokens, heads, nope+rope)
	}
	if err != nil {
		return nil, err
	}
	if a.KV, a.BlockTable, err = placePool(dev, in.Decode); err != nil {
		return nil, err
	}
	if a.Workspace, err = dev.alloc("workspace", plan.WorkspaceBytes); err != nil {
		return nil, err
	}
	out, err := dev.alloc("out", tokens*heads*value*t.Bytes())
	if err != nil {
		return nil, err
	}
	lse, err := dev.alloc("lse", 4*tokens*heads)
	if err != nil {
		return nil, err
	}
	a.Out, a.LSE = runtime.Dense(out.Ptr, t, tokens, heads, value), runtime.Dense(lse.Ptr, runtime.F32, tokens, heads)
	if err := e.Run(dev.stream, a); err != nil {
		return nil, err
	}
	if err := dev.stream.Synchronize(); err != nil {
		return nil, err
	}
	r = &extendResult{schedule: s.parts}
	if r.after, err = readExtend(dev, e, plan, s.buffer); err != nil {
		return nil, err
	}
	if r.out, err = dev.floats(c.DType, out); err != nil {
		return nil, err
	}
	r.lse, err = dev.floats(dtype.F32, lse)
	return r, err
}

// placePool places a paged cache and its table.
func placePool(dev *device, in *cases.Decode) (kv, table runtime.Tensor, err error) {
	pages, err := dev.alloc("kv", in.Pool.Bytes())
	if err != nil {
		return kv, table, err
	}
	background, spans, err := in.Pool.Upload()
	if err != nil {
		return kv, table, err
	}
	if err := dev.Fill(pages.Ptr, background, in.Pool.Bytes()); err != nil {
		return kv, table, err
	}
	for _, s := range spans {
		if err := dev.Upload(pages.Ptr+runtime.Ptr(s.Offset), s.Data); err != nil {
			return kv, table, err
		}
	}
	kv = runtime.Tensor{
		Ptr: pages.Ptr, DType: runtime.DType(in.Case.DType), Shape: []int64{in.Pool.Pages, int64(in.Case.PageSize), int64(in.Case.Model.Record())},
		Strides: []int64{in.Pool.PageStride, int64(in.Pool.RowStride), 1},
	}
	entries, err := dev.upload("block_table", encodeInts(in.Table))
	return kv, runtime.Dense(entries.Ptr, runtime.S32, int64(len(in.KVLen)), int64(in.Width)), err
}
