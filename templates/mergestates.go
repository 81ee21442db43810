package templates

import (
	"fmt"
	"slices"

	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

const (
	mergeThreads = 256
	// stateVectors is how many 16-byte vectors of its row's output a thread
	// has. With two, what is done once per row (addresses, weights) is shared
	// by 32 bytes, and two states in flight are 64 bytes per thread.
	stateVectors = 2
	// statesAtOnce is how many states a thread reads before it adds them up.
	statesAtOnce = 2
	// maxStates is how many states one launch merges. Descriptions of so many
	// fit the 4 KB of parameters that every driver passes.
	maxStates = 64
)

// mergeWidths are the output widths whose rows a warp holds whole.
var mergeWidths = []int{64, 128, 256, 512}

// partialF32 is the type of partial outputs that were not rounded.
const partialF32 = "f32"

// mergeDefaults fills what merging states uses, and drops the rest: outputs of
// 128 columns, bf16, and partial outputs of the same type.
func mergeDefaults(s Spec) Spec {
	m := Spec{Value: s.Value, DType: s.DType, Partial: s.Partial, LineInfo: s.LineInfo}
	if m.Value == 0 {
		m.Value = 128
	}
	if m.DType == "" {
		m.DType = gen.BF16.Name
	}
	if m.Partial == "" {
		m.Partial = m.DType
	}
	return m
}

func validateMerge(s Spec) error {
	if _, err := gen.ParseDType(s.DType); err != nil {
		return &SpecError{"dtype", s.DType, "kernels store bf16 or fp16", gen.BF16.Name}
	}
	if s.Partial != s.DType && s.Partial != partialF32 {
		return &SpecError{"partial", s.Partial, fmt.Sprintf("partial outputs are f32 or as the result, %s", s.DType), s.DType}
	}
	if !slices.Contains(mergeWidths, s.Value) {
		return &SpecError{"value", s.Value, "a row is 16-byte vectors for 4, 8, 16 or 32 lanes of a warp", closest(s.Value, mergeWidths)}
	}
	return nil
}

// stateMerger merges states, each an output and the logarithm of its softmax
// denominator (LSE) over keys of its own, into the state over all keys. With M
// the largest LSE of a row,
//
//	out = Σ outᵢ·e^(LSEᵢ−M) / Σ e^(LSEᵢ−M)     lse = M + ln Σ e^(LSEᵢ−M)
//
// A few lanes of a warp have a row (token × head) and hold 2 × 8 of its columns
// each; every lane weighs the states by itself. States are read a pair at a
// time, so each is read once and the row's sum keeps up with the largest LSE
// seen. A state without a key (LSE −∞) adds nothing, whatever its output holds.
type stateMerger struct {
	k      *gen.Kernel
	s      Spec
	states gen.Table
	count  gen.Scalar
	heads  gen.Scalar
	toLog2 gen.Scalar // the LSEs' unit in powers of two: log₂ e, or 1
	out    statePlace
	column gen.Value // the lane's first, in elements
	active gen.Value // the lane has a row

	// The row's state so far: the largest LSE, the sum of weights relative to
	// it, and the lane's columns of the weighted sum.
	top, total *gen.Var
	acc        [stateVectors * chunkElems]*gen.Var
}

// statePlace addresses a state's rows by byte strides.
type statePlace struct {
	out, lse                             gen.Pointer
	outToken, outHead, lseToken, lseHead gen.Value
}

// row returns where the output and the LSE of a row are.
func (p statePlace) row(token, head gen.Value) (out, lse gen.Pointer) {
	return p.out.Bytes(token.Mul(p.outToken)).Bytes(head.Mul(p.outHead)),
		p.lse.Bytes(token.Mul(p.lseToken)).Bytes(head.Mul(p.lseHead))
}

func mergeStates(s Spec) (*gen.Output, error) {
	k := gen.NewKernel("merge_states", s, s.options())
	k.Threads(mergeThreads)
	m := stateMerger{k: k, s: s}
	m.states = k.Table("states", maxStates, "out", "out_token", "out_head", "lse", "lse_token", "lse_head")
	m.count = k.Scalar("count", isa.S32)
	rows := k.Scalar("rows", isa.S32)
	m.heads = k.Scalar("heads", isa.S32)
	accumulate := k.Scalar("accumulate", isa.S32)
	out, lse := k.Pointer("out", isa.B32), k.Pointer("lse", isa.F32)
	strides := map[string]gen.Scalar{}
	for _, name := range []string{"out_token", "out_head", "lse_token", "lse_head"} {
		strides[name] = k.Scalar(name, isa.S64)
	}
	m.toLog2 = k.Scalar("to_log2", isa.F32)
	fromLog2 := k.Scalar("from_log2", isa.F32)

	k.AllowNextGrid()
	m.out = statePlace{
		out.Read(), lse.Read(),
		strides["out_token"].Read(), strides["out_head"].Read(), strides["lse_token"].Read(), strides["lse_head"].Read(),
	}
	lanes := s.Value / (stateVectors * chunkElems)
	perWarp := 32 / lanes
	lane := k.Lane().Rem(lanes)
	m.column = lane.Mul(chunkElems)
	// The warp's first row, so that whole warps go round the loop.
	first := k.Block().Mul(mergeThreads / 32).Add(k.Warp()).Mul(perWarp)
	k.WaitForPreviousGrid()
	k.For("row", first, rows.Read(), k.Blocks().Mul(mergeThreads/lanes), func(row gen.Value) {
		row = row.Add(k.Lane().Div(lanes))
		m.active = row.Lt(rows.Read())
		heads := m.heads.Read()
		token := row.Div(heads)
		head := row.Sub(token.Mul(heads)).Extend()
		token = token.Extend()
		toOut, toLSE := m.out.row(token, head)
		m.begin(toOut, toLSE, accumulate.Read().Ne(0).And(m.active))
		k.For("state", 0, m.count.Read(), statesAtOnce, func(i gen.Value) { m.add(i, token, head) })
		k.SyncWarp() // all lanes of a row have read its LSE, which one of them now writes
		k.If(m.active, func() { m.store(toOut, toLSE, lane.Eq(0), fromLog2.Read()) })
	})
	return k.Build()
}

// begin starts a row: with nothing, or with the state that the result holds.
func (m *stateMerger) begin(out, lse gen.Pointer, resume gen.Value) {
	k := m.k
	packed := m.load(out, resume, m.s.DType)
	held := lse.LoadIf(resume, 0, k.NegInf())
	some := held.Ne(k.NegInf())
	m.top = k.Var(held)
	m.total = k.Var(k.Select(some, k.Float(1), k.Float(0)))
	for e, x := range m.unpack(packed, some, m.s.DType) {
		m.acc[e] = k.Var(x)
	}
}

// load reads the lane's columns of a row, zeros where there is none.
func (m *stateMerger) load(row gen.Pointer, there gen.Value, dtype string) []gen.Value {
	vectors := 1 // per chunk of eight elements
	if dtype == partialF32 {
		vectors = 2
	}
	at := row.At(m.column.Mul(vectors).Shr(1))
	var words []gen.Value
	for v := range stateVectors {
		for half := range vectors {
			words = append(words, at.LoadVectorIf(there, (v*m.s.Value/stateVectors*vectors+half*chunkElems)/2, 4)...)
		}
	}
	return words
}

// unpack returns the elements of loaded words, zeros where the state is empty:
// its output may be anything, and 0 · NaN is NaN.
func (m *stateMerger) unpack(words []gen.Value, some gen.Value, dtype string) []gen.Value {
	k := m.k
	var x []gen.Value
	for _, w := range words {
		w = k.Select(some, w, k.Const(isa.B32, 0))
		if dtype == partialF32 {
			x = append(x, w.Float32())
			continue
		}
		lo, hi := k.Unpack(m.s.dtype(), w)
		x = append(x, lo, hi)
	}
	return x
}

// add takes in the states first, first+1, ….
func (m *stateMerger) add(first, token, head gen.Value) {
	k := m.k
	var lses []gen.Value
	var outs [][]gen.Value
	for i := range statesAtOnce {
		there := first.Add(i).Lt(m.count.Read()).And(m.active)
		r := m.states.Row(first.Add(i)) // within the table, whose size is a multiple of statesAtOnce
		out, lse := statePlace{
			r.Pointer("out", isa.B32), r.Pointer("lse", isa.F32),
			r.Int("out_token"), r.Int("out_head"), r.Int("lse_token"), r.Int("lse_head"),
		}.row(token, head)
		lses = append(lses, lse.LoadIf(there, 0, k.NegInf()))
		outs = append(outs, m.load(out, there, m.s.Partial))
	}
	top := m.top.Value
	for _, l := range lses {
		top = top.Max(l)
	}
	reference := finite(k, top)
	factor := m.toLog2.Read()
	// Differences are taken before they are scaled: LSEs may be large, and then
	// a scaled one is rounded by more than what sets two states apart.
	weigh := func(lse gen.Value) gen.Value { return lse.Sub(reference).Mul(factor).Exp2() }
	kept := weigh(m.top.Value)
	m.top.Set(top)
	m.total.Scale(kept)
	for _, a := range m.acc {
		a.Scale(kept)
	}
	for i, lse := range lses {
		weight := weigh(lse)
		m.total.Increase(weight)
		for e, x := range m.unpack(outs[i], lse.Ne(k.NegInf()), m.s.Partial) {
			m.acc[e].Set(x.MulAdd(weight, m.acc[e]))
		}
	}
}

// store writes the row. A sum that is NaN, as of an LSE that is NaN or +∞, ends
// up in the result.
func (m *stateMerger) store(out, lse gen.Pointer, speaker, fromLog2 gen.Value) {
	k := m.k
	none := m.total.Eq(0.0)
	inverse := k.Select(none, k.Float(0), m.total.Reciprocal())
	var packed []gen.Value
	for e := 0; e < len(m.acc); e += 2 {
		packed = append(packed, k.Pack(m.s.dtype(), m.acc[e].Mul(inverse), m.acc[e+1].Mul(inverse)))
	}
	at := out.At(m.column.Shr(1))
	for v := range stateVectors {
		at.StoreVector(v*m.s.Value/stateVectors/2, packed[4*v:4*v+4]...)
	}
	k.If(speaker, func() {
		lse.Store(0, k.Select(none, k.NegInf(), m.top.Add(m.total.Log2().Mul(fromLog2))))
	})
}
