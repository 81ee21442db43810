package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// PrefillShape is what prefill's kernels are generated for.
type PrefillShape struct {
	Heads int   // query heads on this device
	Nope  int   // width of a head's key without the rope key: 128
	Rope  int   // width of the rope key: 64
	Value int   // width of a head's value: 128
	DType DType // of all tensors but lse
}

// PrefillVariants is the set of kernels that prefill takes.
type PrefillVariants struct {
	Attend   Variant // expand_prefill
	Schedule Variant // expand_schedule
}

// PrefillSource is a source that makes prefill's kernels.
type PrefillSource interface {
	// Prefill returns the kernels for a shape, or an error that says why that
	// shape cannot be had.
	Prefill(PrefillShape) (PrefillVariants, error)
}

// PrefillModel is what the kernels were generated for, read from the
// manifest's spec.
type PrefillModel struct {
	Heads  int   `json:"heads"`
	Nope   int   `json:"nope"`
	Rope   int   `json:"rope"`
	Value  int   `json:"value"`
	BlockM int   `json:"block_m"` // query tokens of a block
	BlockN int   `json:"block_n"` // key tokens of a tile
	DType  DType `json:"dtype"`
}

// Key returns the width of a query and of a key.
func (m *PrefillModel) Key() int { return m.Nope + m.Rope }

// Prefill runs multi-head attention over expanded keys and values, for
// sequences that lie end to end. Its methods allocate nothing and never wait for
// the device; they must not be called concurrently.
//
// A step is two calls. Schedule orders the work, from the sequences' places in
// device memory; one schedule serves every layer of the model. Run attends. Both
// may be captured in a graph and replayed with other sequences in the same
// memory: the launches depend on the tensors' sizes and on the number of
// sequences alone.
type Prefill struct {
	driver           Driver
	model            PrefillModel
	sms              int
	attend, schedule *Kernel
	attendParams     *Params
	scheduleParams   *Params
	places           places
	scheduled        schedules[[3]int] // sequences, query tokens and key tokens
	maps             [prefillMaps]prefillMap
}

// LoadPrefill loads the kernels and makes sure that they fit each other, this
// runtime and the device.
func LoadPrefill(drv Driver, v PrefillVariants, o ...LoadOption) (*Prefill, error) {
	return loadAhead(drv, o, []Variant{v.Attend, v.Schedule}, func(l *loader) (*Prefill, error) { return loadPrefill(l, v) })
}

func loadPrefill(l *loader, v PrefillVariants) (_ *Prefill, err error) {
	drv := l.driver
	p := &Prefill{driver: drv}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	for _, load := range []struct {
		to      **Kernel
		variant Variant
		kernel  string
	}{{&p.attend, v.Attend, "expand_prefill"}, {&p.schedule, v.Schedule, "expand_schedule"}} {
		if m := load.variant.Manifest; m != nil && m.Kernel != load.kernel {
			return nil, fmt.Errorf("%s is kernel %q, must be %q", load.variant.label(), m.Kernel, load.kernel)
		}
		if *load.to, err = l.load(load.variant); err != nil {
			return nil, err
		}
	}
	p.places = newPlaces(drv, prefillArguments)
	p.sms = max(1, drv.Attributes().SMs)
	if p.model, err = readPrefillModel(p.attend.Manifest); err != nil {
		return nil, err
	}
	other, err := readPrefillModel(p.schedule.Manifest)
	if err != nil {
		return nil, err
	}
	other.DType = p.model.DType // the schedule knows no elements
	if other != p.model {
		return nil, fmt.Errorf("expand_schedule was made for %+v, expand_prefill for %+v", other, p.model)
	}
	// Parameters that this runtime does not know are found out here.
	p.attendParams, p.scheduleParams = p.attend.NewParams(), p.schedule.NewParams()
	p.fillAttend(&PrefillArgs{}, &prefillPlan{})
	p.fillSchedule(&PrefillScheduleArgs{}, &prefillPlan{})
	return p, errors.Join(p.attendParams.Err(), p.scheduleParams.Err())
}

// readPrefillModel decodes a manifest's spec.
func readPrefillModel(m *manifest.Manifest) (PrefillModel, error) {
	var model PrefillModel
	text, err := json.Marshal(m.Spec)
	if err == nil {
		err = json.Unmarshal(text, &model)
	}
	if err != nil {
		return model, fmt.Errorf("spec of %s: %w", m.Kernel, err)
	}
	if model.Heads < 1 || model.Nope < 1 || model.Rope < 1 || model.Value < 1 || model.BlockM < 1 || model.BlockN < 1 || model.DType.Bytes() == 0 {
		return model, fmt.Errorf("spec of %s is %+v: not a prefill kernel's", m.Kernel, model)
	}
	return model, nil
}

// Model returns what the kernels were generated for.
func (p *Prefill) Model() PrefillModel { return p.model }

// Kernels returns the loaded kernels, for their compile times and warnings.
func (p *Prefill) Kernels() []*Kernel {
	var kernels []*Kernel
	for _, k := range []*Kernel{p.attend, p.schedule} {
		if k != nil {
			kernels = append(kernels, k)
		}
	}
	return kernels
}

// Close unloads the kernels. None of them may be running.
func (p *Prefill) Close() error {
	var all []error
	for _, k := range p.Kernels() {
		all = append(all, k.Unload())
	}
	p.attend, p.schedule = nil, nil
	return errors.Join(all...)
}

// PrefillScheduleArgs are the arguments of Schedule.
type PrefillScheduleArgs struct {
	Sequences   int
	QueryTokens int    // rows of q; those past the last sequence get out 0 and lse −∞
	KeyTokens   int    // rows of kv_up
	CuQ         Tensor // s32 [sequences+1]: where a sequence's query tokens begin, from 0, and the end
	CuK         Tensor // s32 [sequences+1]: likewise its key tokens
	// Causal makes query j of n see the first keys−n+1+j keys of its sequence
	// instead of all: the queries are the sequence's last tokens.
	Causal bool
	Buffer Buffer // ScheduleBytes(Sequences, QueryTokens), aligned to 16 bytes; written
}

// Schedule orders the work of the sequences, on the device, into a.Buffer. A
// mistake in the arguments is an ArgumentError and launches nothing; without
// query tokens nothing is launched. What of cu_q or cu_k reaches past the
// tokens there are, or back, is cut off.
func (p *Prefill) Schedule(s Stream, a PrefillScheduleArgs) error {
	if p.schedule == nil {
		return errors.New("prefill schedule: " + closed)
	}
	plan, err := p.scheduleArgs(s, &a)
	if err != nil {
		return fmt.Errorf("prefill schedule: %w", err)
	}
	if a.QueryTokens == 0 {
		return nil
	}
	p.fillSchedule(&a, &plan)
	if err := p.schedule.Launch(s, Dim3{X: 1}, p.scheduleParams, true); err != nil {
		return err
	}
	p.scheduled.fill(s, a.Buffer.Ptr, [3]int{a.Sequences, a.QueryTokens, a.KeyTokens})
	return nil
}

// PrefillArgs are the arguments of Run. The query is either Q, or QNope and
// QRope. Addresses are aligned to 16 bytes; the innermost stride is 1 element
// and the others are multiples of 16 bytes.
type PrefillArgs struct {
	Sequences int // as in Schedule

	Q     Tensor // [query tokens, heads, nope+rope], of the model's type
	QNope Tensor // [query tokens, heads, nope]
	QRope Tensor // [query tokens, heads, rope]

	KVUp  Tensor // [key tokens, heads, nope+value]: what the up-projection writes, k_nope and then v
	KRope Tensor // [key tokens, rope]: of all heads

	Schedule Buffer // as Schedule filled it; Run counts in it: two runs with one schedule must not overlap

	Out Tensor // [query tokens, heads, value], of the model's type; every element is written
	LSE Tensor // f32 [query tokens, heads], dense; −∞ for a row without a key

	Scale    float32 // of the logits, 1/sqrt(nope+rope) times what the model adds
	LSEBase2 bool    // LSE to base 2 instead of e
}

// Run attends. A mistake in the arguments is an ArgumentError and launches
// nothing; without query tokens nothing is launched.
//
// Schedule is read as soon as the kernel before it in the stream lets its
// dependents start. A kernel that does so early (griddepcontrol.launch_dependents)
// and writes it must have another between it and Run.
func (p *Prefill) Run(s Stream, a PrefillArgs) error {
	if p.attend == nil {
		return errors.New("prefill: " + closed)
	}
	plan, err := p.runArgs(s, &a)
	if err != nil {
		return fmt.Errorf("prefill: %w", err)
	}
	if plan.queryTokens == 0 {
		return nil
	}
	if err := p.describe(&a); err != nil {
		return fmt.Errorf("prefill: %w", err)
	}
	p.fillAttend(&a, &plan)
	return p.attend.Launch(s, Dim3{X: int(min(int64(p.sms), plan.mostBlocks*int64(p.model.Heads)))}, p.attendParams, true)
}

// ScheduleBytes returns the size of the schedule's buffer for so many sequences
// and query tokens, 0 when Schedule would refuse them.
func (p *Prefill) ScheduleBytes(sequences, queryTokens int) int64 {
	plan, err := p.plan(sequences, int64(queryTokens))
	if err != nil {
		return 0
	}
	return plan.bytes
}

// prefillPlan is how the schedule's buffer is laid out: offsets and sizes in
// bytes. It depends on capacity alone.
type prefillPlan struct {
	head, before, blocks int64
	bytes                int64
	mostBlocks           int64
	queryTokens          int64
}

func (p *Prefill) plan(sequences int, queryTokens int64) (prefillPlan, error) {
	plan := prefillPlan{queryTokens: queryTokens}
	if sequences < 0 {
		return plan, argumentError("sequences", "at least 0", "was %d", sequences)
	}
	if queryTokens < 0 {
		return plan, argumentError("query tokens", "at least 0", "was %d", queryTokens)
	}
	block, heads := int64(p.model.BlockM), int64(p.model.Heads)
	if block < 1 {
		return plan, errors.New(closed)
	}
	if int64(sequences) > math.MaxInt32/2 || queryTokens > math.MaxInt32/2 {
		return plan, argumentError("query tokens", fmt.Sprintf("at most %d, as the sequences must", math.MaxInt32/2), "were %d in %d sequences", queryTokens, sequences)
	}
	// Every sequence may end in a block that is not full, and so may the tokens after the last.
	plan.mostBlocks = queryTokens/block + int64(sequences) + 1
	if most := int64(math.MaxInt32)/2/heads - 1; plan.mostBlocks > most {
		return plan, argumentError("query tokens", fmt.Sprintf("at most %d blocks of %d tokens: with %d heads each they are numbered in 30 bits", most, block, heads),
			"were %d in %d sequences, up to %d blocks", queryTokens, sequences, plan.mostBlocks)
	}
	at := int64(0)
	place := func(bytes int64) (offset int64) {
		offset = at
		at += (bytes + sectionAlign - 1) / sectionAlign * sectionAlign
		return offset
	}
	plan.head = place(prefillHeadBytes)
	plan.blocks = place(prefillBlockBytes * plan.mostBlocks)
	plan.before = place(4 * (int64(sequences) + 2))
	plan.bytes = at
	return plan, nil
}

// The sizes of the schedule's header and of its entries.
const (
	prefillHeadBytes  = 32
	prefillBlockBytes = 32
)
