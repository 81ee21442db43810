package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// MergeShape is what a merge kernel is generated for.
type MergeShape struct {
	Width   int   `json:"value"`   // columns of an output row: 64, 128, 256 or 512
	DType   DType `json:"dtype"`   // of the result: bf16 or fp16
	Partial DType `json:"partial"` // of the states' outputs: DType or f32
}

// MergeStates merges partial attention states, each an output and a log-sum-exp
// over keys of its own, into the state over all of their keys. It serves any
// number of tokens, heads and states. Its methods allocate nothing and never
// wait for the device; they must not be called concurrently.
type MergeStates struct {
	shape  MergeShape
	kernel *Kernel
	params *Params
	places places
	words  []uint64 // the kernel's table of states
	table  int      // states that one launch takes
	blocks int      // the most that a launch is worth
}

// stateFields are the fields of a state in the kernel's table: where its output
// and its LSE begin, and their strides in bytes.
const stateFields = 6

// LoadMergeStates loads a merge_states kernel and makes sure that it fits this
// runtime and the device.
func LoadMergeStates(drv Driver, v Variant, o ...LoadOption) (_ *MergeStates, err error) {
	if v.Manifest != nil && v.Manifest.Kernel != "merge_states" {
		return nil, fmt.Errorf("%s is kernel %q, must be %q", v.label(), v.Manifest.Kernel, "merge_states")
	}
	m := &MergeStates{}
	if m.kernel, err = Load(drv, v, o...); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.kernel.Unload())
		}
	}()
	if err := readShape(v.Manifest, &m.shape); err != nil {
		return nil, err
	}
	if s := m.shape; s.Width < 1 || s.DType.Bytes() != 2 || s.Partial != s.DType && s.Partial != F32 {
		return nil, fmt.Errorf("spec of %s has value %d, dtype %q, partial %q: not a merge kernel's", v.label(), s.Width, string(s.DType), string(s.Partial))
	}
	for _, p := range v.Manifest.Params {
		if p.Name == "states" {
			m.table = p.Size / (8 * stateFields)
		}
	}
	if m.table < 1 {
		return nil, fmt.Errorf("%s has no room for a state in its parameters", v.label())
	}
	m.words = make([]uint64, 0, m.table*stateFields)
	m.params = m.kernel.NewParams()
	m.places = newPlaces(drv, 2*m.table+2)
	m.blocks = 8 * max(1, drv.Attributes().SMs)
	m.fill(&MergeArgs{}, nil, 1, false)
	return m, m.params.Err() // of a parameter that this runtime does not know
}

// readShape decodes a manifest's spec, which is a struct when the kernel was
// generated in this process and a map when it comes from a file.
func readShape(m *manifest.Manifest, shape any) error {
	text, err := json.Marshal(m.Spec)
	if err == nil {
		err = json.Unmarshal(text, shape)
	}
	if err != nil {
		return fmt.Errorf("spec of %s: %w", m.Kernel, err)
	}
	return nil
}

// Shape returns what the kernel was generated for.
func (m *MergeStates) Shape() MergeShape { return m.shape }

// Kernel returns the loaded kernel, for its compile time and warnings.
func (m *MergeStates) Kernel() *Kernel { return m.kernel }

// Close unloads the kernel, which must not be running.
func (m *MergeStates) Close() error {
	if m.kernel == nil {
		return nil
	}
	k := m.kernel
	m.kernel = nil
	return k.Unload()
}

// State is attention over some of the keys. Rows are token × head; strides
// are free but for those of the output's columns (1 element) and of its rows
// (multiples of 16 bytes). A row without a key has LSE −∞, and its output is
// not looked at.
type State struct {
	Out Tensor // [tokens, heads, width]
	LSE Tensor // f32 [tokens, heads]
}

// MergeArgs are the arguments of Run.
type MergeArgs struct {
	// States are what is merged, in the order in which they are added up; their
	// outputs are of the shape's Partial type. One that shares memory with the
	// result must be the result, with the same address and strides, and among the
	// first 64. Beyond 64, the result so far is rounded to its type after every 64.
	States []State
	// Accumulate says that the result holds a state already, which comes first.
	Accumulate bool

	Out Tensor // [tokens, heads, width], of the shape's DType; every element is written
	LSE Tensor // f32 [tokens, heads]; −∞ for a row without a key in any state, whose output is 0

	LSEBase2 bool // all LSEs are to base 2 instead of e
}

// maxRows bounds tokens × heads, which kernels count in 31 bits.
const maxRows = 1 << 30

// Run merges. A mistake in the arguments is an ArgumentError and launches
// nothing; without a token nothing is launched either.
func (m *MergeStates) Run(s Stream, a MergeArgs) error {
	if m.kernel == nil {
		return errors.New("merge states: " + closed)
	}
	if err := m.check(s, &a); err != nil {
		return fmt.Errorf("merge states: %w", err)
	}
	rows := a.LSE.Shape[0] * a.LSE.Shape[1]
	if rows == 0 {
		return nil
	}
	lanes := int64(m.shape.Width / 16)
	rowsPerBlock := max(1, int64(m.kernel.Manifest.Threads)/max(1, lanes))
	grid := Dim3{X: int(min((rows+rowsPerBlock-1)/rowsPerBlock, int64(m.blocks)))}
	states, accumulate := a.States, a.Accumulate
	for len(states) > 0 {
		n := min(len(states), m.table)
		m.fill(&a, states[:n], rows, accumulate)
		if err := m.kernel.Launch(s, grid, m.params, true); err != nil {
			return err
		}
		states, accumulate = states[n:], true
	}
	return nil
}

// check validates a.
func (m *MergeStates) check(s Stream, a *MergeArgs) error {
	if s == nil {
		return noStream()
	}
	if len(a.States) == 0 {
		return argumentError("states", "one or more", "there were none")
	}
	m.places.begin()
	out := expectation{
		name: "out", dtype: m.shape.DType, rank: 3, align: rowAlign, output: true,
		axes: [4]axis{{"tokens", -1}, {"heads", -1}, {"width", int64(m.shape.Width)}},
	}
	if err := m.places.tensor(0, &out, &a.Out); err != nil {
		return err
	}
	tokens, heads := a.Out.Shape[0], a.Out.Shape[1]
	if heads < 1 || heads > maxRows || tokens > maxRows/heads {
		return argumentError("out", fmt.Sprintf("at least one head, and at most %d rows of token × head", maxRows), "shape was %v", a.Out.Shape)
	}
	lse := expectation{name: "lse", dtype: F32, rank: 2, apart: true, output: true, axes: [4]axis{{"tokens", tokens}, {"heads", heads}}}
	if err := m.places.tensor(1, &lse, &a.LSE); err != nil {
		return err
	}
	out.name, out.dtype, out.output, out.axes[0].size, out.axes[1].size = "state", m.shape.Partial, false, tokens, heads
	lse.name, lse.output = "state", false
	for i := range a.States {
		known := 2 + 2*(i%m.table)
		if err := m.places.tensor(known, &out, &a.States[i].Out); err != nil {
			return stateError(err, i, "out")
		}
		if err := m.places.tensor(known+1, &lse, &a.States[i].LSE); err != nil {
			return stateError(err, i, "lse")
		}
	}
	return m.apart(a)
}

// apart makes sure that the result shares memory with no state but one that is
// the result, and that before the result is written.
func (m *MergeStates) apart(a *MergeArgs) error {
	all := m.places.taken
	if len(all) == 0 {
		return nil
	}
	results, states := all[:2], all[2:]
	if err := results[0].apart(&results[1]); err != nil {
		return err
	}
	for i := range states {
		s := &a.States[i/2]
		for r := range results {
			itself := i%2 == r && i/2 < m.table && (r == 0 && s.Out.same(&a.Out) || r == 1 && s.LSE.same(&a.LSE))
			if itself || !results[r].shares(&states[i]) {
				continue
			}
			return argumentError(fmt.Sprintf("state %d's %s", i/2, results[i%2].name),
				fmt.Sprintf("memory of its own, or of one of the first %d states the result itself, with the same address and strides", m.table),
				"it shared memory with the result's %s", results[r].name)
		}
	}
	return nil
}

// stateError names the state whose tensor is wrong.
func stateError(err error, i int, part string) error {
	var argument *ArgumentError
	if errors.As(err, &argument) {
		argument.Argument = fmt.Sprintf("state %d's %s", i, part)
		return argument
	}
	return fmt.Errorf("state %d's %s: %w", i, part, err)
}

// fill sets the parameters of a launch that merges some of the states.
func (m *MergeStates) fill(a *MergeArgs, states []State, rows int64, accumulate bool) {
	m.params.err = nil
	m.words = m.words[:0]
	for i := range states {
		out, lse := &states[i].Out, &states[i].LSE
		m.words = append(m.words,
			uint64(out.Ptr), uint64(out.strideBytes(0)), uint64(out.strideBytes(1)),
			uint64(lse.Ptr), uint64(lse.strideBytes(0)), uint64(lse.strideBytes(1)))
	}
	resume, heads := int64(0), int64(1)
	if accumulate {
		resume = 1
	}
	strides := [4]int64{}
	if len(a.Out.Shape) > 0 {
		heads = a.Out.Shape[1]
		strides = [4]int64{a.Out.strideBytes(0), a.Out.strideBytes(1), a.LSE.strideBytes(0), a.LSE.strideBytes(1)}
	}
	toLog2, fromLog2 := math.Log2E, math.Ln2
	if a.LSEBase2 {
		toLog2, fromLog2 = 1, 1
	}
	m.params.Table("states", m.words).Int("count", int64(len(states))).Int("rows", rows).Int("heads", heads).Int("accumulate", resume).
		Pointer("out", a.Out.Ptr).Int("out_token", strides[0]).Int("out_head", strides[1]).
		Pointer("lse", a.LSE.Ptr).Int("lse_token", strides[2]).Int("lse_head", strides[3]).
		Float("to_log2", toLog2).Float("from_log2", fromLog2)
}
