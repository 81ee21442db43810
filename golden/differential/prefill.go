package differential

import (
	"fmt"
	"slices"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

// PrefillCase is a prefill step, both kernels of it.
type PrefillCase struct {
	*cases.Case
	BlockM, BlockN int // of the tiles, 0 = the template's choice
	SMs            int // for which both devices launch
}

// spec is what the kernels are generated for.
func (c *PrefillCase) spec() templates.Spec {
	s := templates.Spec{
		Heads: c.Model.Heads, Nope: c.Model.Nope, Rope: c.Model.Rope, Value: c.Model.Value, BlockM: c.BlockM, BlockN: c.BlockN, DType: string(c.DType),
	}
	s, _ = templates.Defaults("expand-prefill", s) // the kernel exists
	return s
}

// loadPrefill loads the prefill kernels of a spec.
func (p *Pair) loadPrefill(d *device, spec templates.Spec) (*runtime.Prefill, error) {
	var v runtime.PrefillVariants
	var err error
	if v.Attend, err = p.build("expand-prefill", spec); err != nil {
		return nil, err
	}
	if v.Schedule, err = p.build("expand-schedule", spec); err != nil {
		return nil, err
	}
	return runtime.LoadPrefill(d, v)
}

// workNames are the parts of prefill's schedule buffer by the names of the
// parameters that lead to them.
var workNames = []string{"work_head", "work_blocks", "work_before"}

// PrefillLengths is what a schedule of prefill is made from.
type PrefillLengths struct {
	Queries, Keys          []int // of each sequence
	QueryTokens, KeyTokens int   // that there is room for
	Causal                 bool
}

// prefillPlanning is a schedule in device memory.
type prefillPlanning struct {
	args     runtime.PrefillScheduleArgs
	contents map[string][]byte
}

// plannedPrefill runs expand_schedule.
func plannedPrefill(dev *device, p *runtime.Prefill, l PrefillLengths) (s prefillPlanning, err error) {
	places := func(name string, lengths []int) (t runtime.Tensor, err error) {
		cu := make([]int32, len(lengths)+1)
		for i, n := range lengths {
			cu[i+1] = cu[i] + int32(n)
		}
		b, err := dev.upload(name, encodeInts(cu))
		return runtime.Dense(b.Ptr, runtime.S32, int64(len(cu))), err
	}
	s.args = runtime.PrefillScheduleArgs{Sequences: len(l.Queries), QueryTokens: l.QueryTokens, KeyTokens: l.KeyTokens, Causal: l.Causal}
	if s.args.CuQ, err = places("cu_q", l.Queries); err != nil {
		return s, err
	}
	if s.args.CuK, err = places("cu_k", l.Keys); err != nil {
		return s, err
	}
	if s.args.Buffer, err = dev.alloc("schedule", p.ScheduleBytes(s.args.Sequences, s.args.QueryTokens)); err != nil {
		return s, err
	}
	if err := p.Schedule(dev.stream, s.args); err != nil {
		return s, err
	}
	if err := dev.stream.Synchronize(); err != nil {
		return s, err
	}
	s.contents, err = readWork(dev, p, s.args.Buffer)
	return s, err
}

// readWork downloads a schedule's parts, whose places expand_schedule was told.
func readWork(dev *device, p *runtime.Prefill, buffer runtime.Buffer) (map[string][]byte, error) {
	var m *manifest.Manifest
	for _, k := range p.Kernels() {
		if k.Manifest.Kernel == "expand_schedule" {
			m = k.Manifest
		}
	}
	end := buffer.Ptr + runtime.Ptr(buffer.Bytes)
	var starts []runtime.Ptr
	for _, name := range workNames {
		at, err := dev.given(0, m, name)
		if err != nil {
			return nil, err
		}
		if at < buffer.Ptr || at >= end {
			return nil, fmt.Errorf("%s at %#x is not in the schedule buffer", name, at)
		}
		starts = append(starts, at)
	}
	sorted := append(slices.Clone(starts), end)
	slices.Sort(sorted)
	contents := map[string][]byte{}
	for i, name := range workNames {
		next, _ := slices.BinarySearch(sorted, starts[i]+1)
		data, err := dev.download(runtime.Buffer{Ptr: starts[i], Bytes: int64(sorted[next] - starts[i])})
		if err != nil {
			return nil, err
		}
		contents[name] = data
	}
	return contents, nil
}

// compareWork returns one row for two schedules that are equal, and otherwise
// one for each of their parts.
func compareWork(name string, a, b map[string][]byte) (rows []Row) {
	all := Row{Kernel: "expand-schedule", Case: name, Result: "schedule"}
	for _, part := range workNames {
		r := Row{Kernel: all.Kernel, Case: name, Result: part}
		r.words(a[part], b[part])
		all.add(r.Figures)
		rows = append(rows, r)
	}
	if all.Differ == 0 {
		return []Row{all}
	}
	return rows
}

// PrefillPlanCase is a batch that is scheduled and not attended to.
type PrefillPlanCase struct {
	Name string
	Spec templates.Spec
	PrefillLengths
}

// PrefillPlan compares schedules.
func (p *Pair) PrefillPlan(c PrefillPlanCase) ([]Row, error) {
	results, err := each(p, 132, func(dev *device) (map[string][]byte, error) {
		pre, err := p.loadPrefill(dev, c.Spec)
		if err != nil {
			return nil, err
		}
		defer pre.Close()
		s, err := plannedPrefill(dev, pre, c.PrefillLengths)
		return s.contents, err
	})
	if err != nil {
		return nil, err
	}
	return compareWork(c.Name, results[0], results[1]), nil
}

// prefillResult is what a prefill step leaves.
type prefillResult struct {
	schedule map[string][]byte // as expand_schedule left it
	after    []byte            // its header after the step
	out      []float32         // [query tokens × heads, value]
	lse      []float32
}

// Prefill compares a prefill step.
func (p *Pair) Prefill(c PrefillCase) ([]Row, error) {
	in, err := c.Case.Prefill()
	if err != nil {
		return nil, err
	}
	results, err := each(p, c.SMs, func(dev *device) (*prefillResult, error) { return p.prefill(dev, c, in) })
	if err != nil {
		return nil, err
	}
	a, b := results[0], results[1]
	rows := compareWork(c.Name, a.schedule, b.schedule)
	head := Row{Kernel: "expand-prefill", Case: c.Name, Result: "items dealt"}
	head.words(a.after, b.after)
	r := Row{Kernel: "expand-prefill", Case: c.Name, Result: "output"}
	for at := 0; at < len(a.out); at += c.Model.Value {
		r.row(c.DType, a.out[at:at+c.Model.Value], b.out[at:at+c.Model.Value], rms)
	}
	r.lses(a.lse, b.lse)
	return append(rows, head, r), nil
}

// prefill runs a step on one device.
func (p *Pair) prefill(dev *device, c PrefillCase, in *cases.Prefill) (r *prefillResult, err error) {
	pre, err := p.loadPrefill(dev, c.spec())
	if err != nil {
		return nil, err
	}
	defer pre.Close()
	l := PrefillLengths{QueryTokens: int(in.CuQ[len(in.CuQ)-1]), KeyTokens: in.KeyTokens, Causal: c.Causal}
	for i := range len(in.CuQ) - 1 {
		l.Queries, l.Keys = append(l.Queries, int(in.CuQ[i+1]-in.CuQ[i])), append(l.Keys, int(in.CuK[i+1]-in.CuK[i]))
	}
	s, err := plannedPrefill(dev, pre, l)
	if err != nil {
		return nil, err
	}
	place := func(name string, values []float32, shape ...int64) (t runtime.Tensor) {
		if err == nil {
			var b runtime.Buffer
			b, err = dev.upload(name, c.DType.Encode(nil, values))
			t = runtime.Dense(b.Ptr, runtime.DType(c.DType), shape...)
		}
		return t
	}
	m, tokens, heads, keys := c.Model, int64(l.QueryTokens), int64(c.Model.Heads), int64(in.KeyTokens)
	nope, rope, value := int64(m.Nope), int64(m.Rope), int64(m.Value)
	a := runtime.PrefillArgs{
		Sequences: s.args.Sequences, KVUp: place("kv_up", in.Up, keys, heads, nope+value), KRope: place("k_rope", in.KRope, keys, rope),
		Schedule: s.args.Buffer, Scale: float32(c.SoftmaxScale()), LSEBase2: c.LSEBase == "2",
	}
	a.KRope.Strides = []int64{int64(in.RopeStride), 1}
	if c.Layout.Q == "split" {
		qNope, qRope := in.SplitQ()
		a.QNope, a.QRope = place("q_nope", qNope, tokens, heads, nope), place("q_rope", qRope, tokens, heads, rope)
	} else {
		a.Q = place("q", in.Q, tokens, heads, nope+rope)
	}
	if err != nil {
		return nil, err
	}
	out, err := dev.alloc("out", tokens*heads*value*a.KVUp.DType.Bytes())
	if err != nil {
		return nil, err
	}
	lse, err := dev.alloc("lse", 4*tokens*heads)
	if err != nil {
		return nil, err
	}
	a.Out, a.LSE = runtime.Dense(out.Ptr, a.KVUp.DType, tokens, heads, value), runtime.Dense(lse.Ptr, runtime.F32, tokens, heads)
	if err := pre.Run(dev.stream, a); err != nil {
		return nil, err
	}
	if err := dev.stream.Synchronize(); err != nil {
		return nil, err
	}
	r = &prefillResult{schedule: s.contents}
	after, err := readWork(dev, pre, s.args.Buffer)
	if err != nil {
		return nil, err
	}
	r.after = after["work_head"]
	if r.out, err = dev.floats(c.DType, out); err != nil {
		return nil, err
	}
	r.lse, err = dev.floats(dtype.F32, lse)
	return r, err
}
