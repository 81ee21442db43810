package runtime

import (
	"errors"
	"fmt"
	"math"
)

// ExtendShape is what extend's kernels are generated for.
type ExtendShape struct {
	Heads  int   // query heads on this device
	Latent int   // width of the cached latent: 512
	Rope   int   // width of the rope key: 64
	Nope   int   // width of a head's key without the rope key: 128
	Value  int   // width of a head's value: 128
	Page   int   // tokens per page of the cache: 64
	DType  DType // of all tensors but lse
}

// ExtendVariants is the set of kernels that extend takes.
type ExtendVariants struct {
	UpProject Variant // up_project
	Attend    Variant // extend_attend
	Schedule  Variant // extend_schedule
}

// ExtendSource is a source that makes extend's kernels.
type ExtendSource interface {
	// Extend returns the kernels for a shape, or an error that says why that
	// shape cannot be had.
	Extend(ExtendShape) (ExtendVariants, error)
}

// Extend attends new tokens to everything that is cached of their sequences, on
// the expand path: the cached tokens are expanded to keys and values of each
// head in chunks that fit a workspace, and attended to chunk by chunk. Sequences
// without a cached prefix and ones with a long prefix may be mixed. The result
// is to the bit the same whatever the chunks are and whichever sequences share
// the call.
//
// Its methods allocate nothing and never wait for the device; they must not be
// called concurrently. A step is two calls: Schedule, once for all layers of the
// model, cuts the sequences' keys into chunks, from their lengths in device
// memory; Run does the work of a layer. Both may be captured in a graph and
// replayed with other lengths in the same memory: the launches depend on the
// plan alone.
type Extend struct {
	shape          ExtendShape
	up             *UpProject
	attend         Prefill // its kernel is extend_attend, and it has no schedule
	schedule       *Kernel
	scheduleParams *Params
	places         places
	scheduled      schedules[ExtendPlan]

	// Arguments of the up-projection, kept so that a call allocates nothing.
	cu, first, kvUp, kRope Tensor
}

// LoadExtend loads the kernels and makes sure that they fit each other, this
// runtime and the device.
func LoadExtend(drv Driver, v ExtendVariants, o ...LoadOption) (*Extend, error) {
	return loadAhead(drv, o, v.all(), func(l *loader) (*Extend, error) { return loadExtend(l, v) })
}

// all lists the variants.
func (v *ExtendVariants) all() []Variant { return []Variant{v.UpProject, v.Attend, v.Schedule} }

func loadExtend(l *loader, v ExtendVariants) (_ *Extend, err error) {
	drv := l.driver
	e := &Extend{attend: Prefill{driver: drv}}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	if e.up, err = loadUpProject(l, v.UpProject); err != nil {
		return nil, err
	}
	for _, load := range []struct {
		to      **Kernel
		variant Variant
		kernel  string
	}{{&e.attend.attend, v.Attend, "extend_attend"}, {&e.schedule, v.Schedule, "extend_schedule"}} {
		if m := load.variant.Manifest; m != nil && m.Kernel != load.kernel {
			return nil, fmt.Errorf("%s is kernel %q, must be %q", load.variant.label(), m.Kernel, load.kernel)
		}
		if *load.to, err = l.load(load.variant); err != nil {
			return nil, err
		}
	}
	p := &e.attend
	p.places, p.sms = newPlaces(drv, prefillArguments), max(1, drv.Attributes().SMs)
	e.places = newPlaces(drv, extendArguments)
	if err := e.fits(); err != nil {
		return nil, err
	}
	m := &p.model
	e.cu, e.first = Dense(0, S32, 0), Dense(0, S32, 0)
	e.kvUp = Dense(0, m.DType, 0, int64(m.Heads), int64(m.Nope+m.Value))
	e.kRope = Dense(0, m.DType, 0, int64(m.Rope))
	// Parameters that this runtime does not know are found out here.
	p.attendParams, e.scheduleParams = p.attend.NewParams(), e.schedule.NewParams()
	e.fillAttend(&PrefillArgs{}, &extendLayout{}, 0, 0)
	e.fillSchedule(&ExtendScheduleArgs{}, &extendLayout{})
	return e, errors.Join(p.attendParams.Err(), e.scheduleParams.Err())
}

// fits reads the models and makes sure that they are one.
func (e *Extend) fits() (err error) {
	p := &e.attend
	if p.model, err = readPrefillModel(p.attend.Manifest); err != nil {
		return err
	}
	other, err := readPrefillModel(e.schedule.Manifest)
	if err != nil {
		return err
	}
	other.DType = p.model.DType // the schedule knows no elements
	if other != p.model {
		return fmt.Errorf("extend_schedule was made for %+v, extend_attend for %+v", other, p.model)
	}
	m, u := &p.model, e.up.Model()
	if u.Heads != m.Heads || u.Nope != m.Nope || u.Rope != m.Rope || u.Value != m.Value || u.DType != m.DType {
		return fmt.Errorf("up_project was made for %+v, extend_attend for %+v", u, *m)
	}
	e.shape = ExtendShape{Heads: m.Heads, Latent: u.Latent, Rope: m.Rope, Nope: m.Nope, Value: m.Value, Page: u.Page, DType: m.DType}
	return nil
}

// Shape returns what the kernels were generated for.
func (e *Extend) Shape() ExtendShape {
	return e.shape
}

// Kernels returns the loaded kernels, for their compile times and warnings.
func (e *Extend) Kernels() []*Kernel {
	var kernels []*Kernel
	if e.up != nil {
		kernels = e.up.Kernels()
	}
	for _, k := range []*Kernel{e.attend.attend, e.schedule} {
		if k != nil {
			kernels = append(kernels, k)
		}
	}
	return kernels
}

// Close unloads the kernels. None of them may be running.
func (e *Extend) Close() error {
	var all []error
	for _, k := range e.Kernels() {
		all = append(all, k.Unload())
	}
	e.up, e.attend.attend, e.schedule = nil, nil, nil
	return errors.Join(all...)
}

// ExtendScheduleArgs are the arguments of Schedule.
type ExtendScheduleArgs struct {
	Plan ExtendPlan
	CuQ  Tensor // s32 [sequences+1]: where a sequence's query tokens begin, from 0, and the end
	// KVLen is s32 [sequences]: cached tokens of each sequence, the query tokens
	// included. A negative one leaves the sequence out: nothing is written for its
	// query tokens, and nothing of it is read.
	KVLen Tensor
	// Causal makes query j of n see the first KVLen−n+1+j tokens of its sequence
	// instead of all: the queries are the sequence's last tokens.
	Causal bool
	Buffer Buffer // Plan.ScheduleBytes, aligned to 16 bytes; written
}

// Schedule cuts the sequences' keys into chunks and orders the work on each, on
// the device, into a.Buffer. A mistake in the arguments is an ArgumentError and
// launches nothing; without query tokens nothing is launched. Lengths that the
// plan has no room for stop the kernel.
func (e *Extend) Schedule(s Stream, a ExtendScheduleArgs) error {
	if e.schedule == nil {
		return errors.New("extend schedule: " + closed)
	}
	l, err := e.scheduleArgs(s, &a)
	if err != nil {
		return fmt.Errorf("extend schedule: %w", err)
	}
	if a.Plan.QueryTokens == 0 {
		return nil
	}
	e.fillSchedule(&a, &l)
	if err := e.schedule.Launch(s, Dim3{X: int(l.chunks)}, e.scheduleParams, true); err != nil {
		return err
	}
	e.scheduled.fill(s, a.Buffer.Ptr, a.Plan)
	return nil
}

// ExtendArgs are the arguments of Run. The query is either Q, or QNope and
// QRope. Addresses are aligned to 16 bytes; the innermost stride is 1 element
// and the others are multiples of 16 bytes.
type ExtendArgs struct {
	Plan ExtendPlan // that Schedule had

	Q     Tensor // [query tokens, heads, nope+rope], of the model's type
	QNope Tensor // [query tokens, heads, nope]
	QRope Tensor // [query tokens, heads, rope]

	KV         Tensor // [pages, page, latent+rope]; the query tokens are in it
	BlockTable Tensor // s32 [sequences, width]: page ids; entries past a sequence's end are never read
	Weights    Tensor // [heads, nope+value, latent]: W_kv_b, the rows of k_nope first

	Schedule  Buffer // as Schedule filled it; Run counts in it: two runs with one schedule must not overlap
	Workspace Buffer // Plan.WorkspaceBytes, aligned to 128 bytes

	Out Tensor // [query tokens, heads, value], of the model's type; every element is written, but of sequences that are left out
	LSE Tensor // f32 [query tokens, heads], dense; −∞ for a row without a key

	Scale    float32 // of the logits, 1/sqrt(nope+rope) times what the model adds
	LSEBase2 bool    // LSE to base 2 instead of e
}

// Run attends: two launches for each chunk. A mistake in the arguments is an
// ArgumentError and launches nothing; without query tokens nothing is launched.
//
// Schedule and Weights are read as soon as the kernel before it in the stream
// lets its dependents start. A kernel that does so early
// (griddepcontrol.launch_dependents) and writes them must have another between it
// and Run.
func (e *Extend) Run(s Stream, a ExtendArgs) error {
	if e.schedule == nil {
		return errors.New("extend: " + closed)
	}
	if err := e.run(s, &a); err != nil {
		return fmt.Errorf("extend: %w", err)
	}
	return nil
}

func (e *Extend) run(s Stream, a *ExtendArgs) error {
	l, err := e.runArgs(s, a)
	if err != nil || a.Plan.QueryTokens == 0 {
		return err
	}
	p := &e.attend
	e.layOut(a, &l)
	attend := PrefillArgs{
		Q: a.Q, QNope: a.QNope, QRope: a.QRope, KVUp: e.kvUp, KRope: e.kRope,
		Schedule: a.Schedule, Out: a.Out, LSE: a.LSE, Scale: a.Scale, LSEBase2: a.LSEBase2,
	}
	if err := p.describe(&attend); err != nil {
		return err
	}
	up := UpProjectArgs{KV: a.KV, BlockTable: a.BlockTable, Weights: a.Weights, KVUp: e.kvUp, KRope: e.kRope}
	grid := Dim3{X: int(min(int64(p.sms), l.mostBlocks*int64(p.model.Heads)))}
	for i := range l.chunks {
		chunk := a.Schedule.Ptr + Ptr(i*l.chunkBytes)
		if a.Plan.Sequences > 0 {
			e.cu.Ptr, e.first.Ptr = chunk+Ptr(l.cuK), chunk+Ptr(l.first)
			up.CuSeqlens, up.FirstToken = e.cu, e.first
			if err := e.up.Run(s, up); err != nil {
				return err
			}
		}
		e.fillAttend(&attend, &l, a.Workspace.Ptr, i)
		if err := p.attend.Launch(s, grid, p.attendParams, true); err != nil {
			return err
		}
	}
	return nil
}

// layOut points the tensors of the workspace to where they are.
func (e *Extend) layOut(a *ExtendArgs, l *extendLayout) {
	e.kvUp.Ptr, e.kRope.Ptr = a.Workspace.Ptr+Ptr(l.kvUp), a.Workspace.Ptr+Ptr(l.kRope)
	e.kvUp.Shape[0], e.kRope.Shape[0] = l.chunk, l.chunk
	e.cu.Shape[0], e.first.Shape[0] = int64(a.Plan.Sequences)+1, int64(a.Plan.Sequences)
}

// fillAttend fills the parameters of extend_attend for chunk i.
func (e *Extend) fillAttend(a *PrefillArgs, l *extendLayout, workspace Ptr, i int64) {
	chunk := i * l.chunkBytes
	e.attend.fillAttend(a, &prefillPlan{head: chunk, blocks: chunk + l.blocks, queryTokens: l.queryTokens})
	// A chunk reads what the one before it wrote.
	e.attend.attendParams.Pointer("state_from", workspace+Ptr(l.states[i%2])).Pointer("state_to", workspace+Ptr(l.states[(i+1)%2]))
}

// fillSchedule fills the parameters of extend_schedule.
func (e *Extend) fillSchedule(a *ExtendScheduleArgs, l *extendLayout) {
	v := e.scheduleParams
	v.err = nil
	v.Pointer("cu_q", a.CuQ.Ptr).Pointer("kv_len", a.KVLen.Ptr).Pointer("chunks", a.Buffer.Ptr)
	v.Int("chunk_bytes", l.chunkBytes).Int("cu_k", l.cuK).Int("first_token", l.first).Int("work_before", l.before).Int("work_blocks", l.blocks)
	v.Int("chunk", l.chunk).Int("sequences", int64(a.Plan.Sequences)).Int("query_tokens", l.queryTokens)
	v.Int("causal", flag(a.Causal, 1)).Int("most_blocks", l.mostBlocks).Int("most_states", l.mostStates)
}

// scheduleArgs validates a.
func (e *Extend) scheduleArgs(s Stream, a *ExtendScheduleArgs) (extendLayout, error) {
	if s == nil {
		return extendLayout{}, noStream()
	}
	l, err := e.planned(&a.Plan)
	if err != nil || a.Plan.QueryTokens == 0 {
		return l, err
	}
	e.places.begin()
	x := expectation{name: "cu_q", dtype: S32, rank: 1, dense: true, axes: [4]axis{{"sequences+1", int64(a.Plan.Sequences) + 1}}}
	if err := e.places.tensor(extendCuQ, &x, &a.CuQ); err != nil {
		return l, err
	}
	x = expectation{name: "kv_len", dtype: S32, rank: 1, dense: true, axes: [4]axis{{"sequences", int64(a.Plan.Sequences)}}}
	if err := e.places.tensor(extendKVLen, &x, &a.KVLen); err != nil {
		return l, err
	}
	if err := e.places.buffer(extendScheduleBuffer, "schedule buffer", a.Buffer, l.scheduleBytes); err != nil {
		return l, err
	}
	return l, apart(&e.places)
}

// runArgs validates a.
func (e *Extend) runArgs(s Stream, a *ExtendArgs) (extendLayout, error) {
	if s == nil {
		return extendLayout{}, noStream()
	}
	l, err := e.planned(&a.Plan)
	if err != nil {
		return l, err
	}
	p, up := &e.attend, &e.up.places
	e.places.begin()
	p.places.begin()
	up.begin()
	q := PrefillArgs{Q: a.Q, QNope: a.QNope, QRope: a.QRope, Out: a.Out, LSE: a.LSE}
	tokens, err := p.query(&q)
	if err != nil {
		return l, err
	}
	if tokens != l.queryTokens {
		return l, argumentError("q", fmt.Sprintf("as planned, %d", l.queryTokens), "it had %d query tokens", tokens)
	}
	if tokens == 0 {
		return l, nil
	}
	table := expectation{name: "block_table", dtype: S32, rank: 2, axes: [4]axis{{"sequences", int64(a.Plan.Sequences)}, {"width", -1}}}
	if err := e.places.tensor(extendTable, &table, &a.BlockTable); err != nil {
		return l, err
	}
	if err := e.places.buffer(extendScheduleBuffer, "schedule", a.Schedule, l.scheduleBytes); err != nil {
		return l, err
	}
	if made, known := e.scheduled.of(s, a.Schedule.Ptr); known && made != a.Plan {
		return l, argumentError("plan", "the one with which Schedule filled the schedule", "was another")
	}
	if a.Workspace.Ptr%workspaceAlign != 0 {
		return l, argumentError("workspace", fmt.Sprintf("aligned to %d bytes", workspaceAlign), "address was %#x", a.Workspace.Ptr)
	}
	if err := e.places.buffer(extendWorkspace, "workspace", a.Workspace, l.workspaceBytes); err != nil {
		return l, err
	}
	if err := p.results(&q, tokens); err != nil {
		return l, err
	}
	if a.Plan.Sequences > 0 { // what the up-projection takes is looked at before anything is launched
		if err := e.up.pages(&a.KV); err != nil {
			return l, err
		}
		if err := e.up.weights(&a.Weights); err != nil {
			return l, err
		}
	}
	if err := apart(&e.places, &p.places, up); err != nil {
		return l, err
	}
	if scale := float64(a.Scale) * math.Log2E; !(a.Scale > 0) || math.IsInf(float64(float32(scale)), 0) {
		return l, argumentError("scale", "finite and greater than 0, 1/sqrt(nope+rope) times what the model adds", "was %v", a.Scale)
	}
	return l, nil
}

// The arguments whose addresses are looked up.
const (
	extendCuQ = iota
	extendKVLen
	extendTable
	extendScheduleBuffer
	extendWorkspace
	extendArguments
)

// workspaceAlign is the alignment of the workspace in bytes.
const workspaceAlign = 128
