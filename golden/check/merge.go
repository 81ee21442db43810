package check

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/cost"
	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/runtime"
)

// layout says how a state lies in memory: strides in elements.
type layout struct {
	token, head       int // of the output
	lseToken, lseHead int
}

// stateLayouts are what states of a case look like, one after the other: dense,
// with gaps between heads and between tokens, and with the LSEs of a head
// together.
func stateLayout(i, tokens, heads, width int) layout {
	gap := i % 3 * 8
	l := layout{head: width + gap, token: heads*(width+gap) + 2*gap, lseToken: heads + i%2, lseHead: 1}
	if i%4 == 1 {
		l.lseToken, l.lseHead = 1, tokens
	}
	return l
}

// elements returns how much memory the outputs and the LSEs take.
func (l layout) elements(tokens, heads, width int) (out, lse int) {
	if tokens*heads == 0 {
		return 0, 0
	}
	return (tokens-1)*l.token + (heads-1)*l.head + width, (tokens-1)*l.lseToken + (heads-1)*l.lseHead + 1
}

// openMerge returns the runtime's merge for a case, loading its kernel when no
// case before needed the same.
func (r *Runner) openMerge(c *cases.Case) (*runtime.MergeStates, error) {
	shape := runtime.MergeShape{Width: c.Model.Value, DType: runtime.DType(c.DType), Partial: runtime.DType(c.PartialType())}
	if m := r.merges[shape]; m != nil {
		return m, nil
	}
	s, ok := r.Source.(runtime.StateSource)
	if !ok {
		return nil, errors.New("the source of kernels has none that merge states")
	}
	v, err := s.MergeStates(shape)
	if err != nil {
		return nil, err
	}
	m, err := runtime.LoadMergeStates(r.Driver, v, runtime.WithWarnings(r.Warn))
	if err != nil {
		return nil, err
	}
	r.merges[shape] = m
	return m, nil
}

// mergeLimits skips what the device cannot run.
func mergeLimits(c *cases.Case, o Options) error {
	pairs := 0.0
	for i, n := range c.KVLen {
		pairs += float64(c.Queries(i)) * float64(n)
	}
	if work := pairs * cost.Model(c.Model).ExpandPair(); o.MaxFLOP > 0 && work > o.MaxFLOP {
		return skip(fmt.Sprintf("states of %.1f GFLOP are too many for %s", work/1e9, o.Driver.Name()))
	}
	return nil
}

// runMerge runs a merge case.
func (r *Runner) runMerge(c *cases.Case) (Outcome, error) {
	if err := mergeLimits(c, r.Options); err != nil {
		return Outcome{}, err
	}
	in, err := c.Merge()
	if err != nil {
		return Outcome{}, err
	}
	result := layout{token: in.Heads * in.Width, head: in.Width, lseToken: in.Heads, lseHead: 1}
	if c.Layout.Out == "padded" {
		result = stateLayout(2, in.Tokens, in.Heads, in.Width)
	}
	once := func(m *memory) ([][]byte, error) { return r.mergeOnce(in, result, m) }
	judge := func(results [][]byte) (Outcome, error) { return r.judgeMerge(in, result, results) }
	return r.underSchedules(c, once, judge)
}

// mergeStates merges and returns out and lse as dense rows.
func (r *Runner) mergeStates(in *cases.Merge) (out, lse []byte, err error) {
	m := &memory{driver: r.Driver}
	defer func() { err = errors.Join(err, m.free()) }()
	results, err := r.mergeOnce(in, layout{token: in.Heads * in.Width, head: in.Width, lseToken: in.Heads, lseHead: 1}, m)
	if err != nil {
		return nil, nil, err
	}
	return results[0], results[1], nil
}

// mergeOnce merges in memory of its own and returns the bytes of out and lse.
func (r *Runner) mergeOnce(in *cases.Merge, result layout, m *memory) ([][]byte, error) {
	c := in.Case
	merge, err := r.openMerge(c)
	if err != nil {
		return nil, err
	}
	args := runtime.MergeArgs{LSEBase2: c.LSEBase == "2"}
	type input struct {
		b    buffer
		want []byte
	}
	var inputs []input
	for i := range in.Outs {
		l := stateLayout(i, in.Tokens, in.Heads, in.Width)
		out, lse := spread(in, l, in.Outs[i], in.LSEs[i])
		t := c.PartialType()
		for _, part := range []struct {
			name string
			data []byte
		}{{"out", t.Encode(nil, out)}, {"lse", dtype.F32.Encode(nil, lse)}} {
			b, err := m.upload(fmt.Sprintf("%s of state %d", part.name, i), part.data)
			if err != nil {
				return nil, err
			}
			inputs = append(inputs, input{b, part.data})
		}
		args.States = append(args.States, runtime.State{
			Out: l.out(in, inputs[2*i].b, t), LSE: l.lse(in, inputs[2*i+1].b),
		})
	}
	outElements, lseElements := result.elements(in.Tokens, in.Heads, in.Width)
	out, err := m.guard("out", int64(outElements*c.DType.Size()))
	if err != nil {
		return nil, err
	}
	lse, err := m.guard("lse", int64(lseElements*4))
	if err != nil {
		return nil, err
	}
	args.Out, args.LSE = result.out(in, out, c.DType), result.lse(in, lse)
	results, err := r.execute(c, m, operation{
		outputs: []output{
			{out, func() error { return poison(c, m, out, c.DType) }},
			{lse, func() error { return m.driver.Fill(lse.ptr, 0xff, lse.size) }},
		},
		launch: func(s runtime.Stream) error { return merge.Run(s, args) },
	})
	if err != nil {
		return nil, err
	}
	for _, i := range inputs {
		got, err := m.download(i.b)
		if err != nil {
			return nil, err
		}
		if at := differs(i.want, got); at >= 0 {
			return nil, fmt.Errorf("the run changed its input %s at byte %d", i.b.name, at)
		}
	}
	return results, nil
}

// gapValue lies where a state has no element.
const gapValue = -3

// spread lays a state out in memory.
func spread(in *cases.Merge, l layout, out, lse []float32) (spreadOut, spreadLSE []float32) {
	outElements, lseElements := l.elements(in.Tokens, in.Heads, in.Width)
	spreadOut, spreadLSE = make([]float32, outElements), make([]float32, lseElements)
	for i := range spreadOut {
		spreadOut[i] = gapValue
	}
	for i := range spreadLSE {
		spreadLSE[i] = gapValue
	}
	for t := range in.Tokens {
		for h := range in.Heads {
			row := t*in.Heads + h
			copy(spreadOut[t*l.token+h*l.head:], out[row*in.Width:][:in.Width])
			spreadLSE[t*l.lseToken+h*l.lseHead] = lse[row]
		}
	}
	return spreadOut, spreadLSE
}

func (l layout) out(in *cases.Merge, b buffer, t dtype.Type) runtime.Tensor {
	return runtime.Tensor{
		Ptr: b.ptr, DType: runtime.DType(t), Shape: []int64{int64(in.Tokens), int64(in.Heads), int64(in.Width)},
		Strides: []int64{int64(l.token), int64(l.head), 1},
	}
}

func (l layout) lse(in *cases.Merge, b buffer) runtime.Tensor {
	return runtime.Tensor{
		Ptr: b.ptr, DType: runtime.F32, Shape: []int64{int64(in.Tokens), int64(in.Heads)},
		Strides: []int64{int64(l.lseToken), int64(l.lseHead)},
	}
}

// judgeMerge compares the bytes of out and lse with the oracle.
func (r *Runner) judgeMerge(in *cases.Merge, l layout, results [][]byte) (outcome Outcome, err error) {
	c := in.Case
	size := c.DType.Size()
	describe := func(row int) string { return fmt.Sprintf("token %d, head %d", row/in.Heads, row%in.Heads) }
	var out, lse []float32
	written := make([]bool, len(results[0]))
	for t := range in.Tokens {
		for h := range in.Heads {
			at := (t*l.token + h*l.head) * size
			raw := results[0][at:][:in.Width*size]
			for i := 0; i < len(raw); i += 2 {
				if c.Fill.Out == "nan" && binary.LittleEndian.Uint16(raw[i:]) == 0xffff {
					return outcome, fmt.Errorf("%s: out[%d] was not written", describe(t*in.Heads+h), i/2)
				}
			}
			for i := range raw {
				written[at+i] = true
			}
			out = c.DType.Decode(out, raw)
			rawLSE := results[1][(t*l.lseToken+h*l.lseHead)*4:][:4]
			if binary.LittleEndian.Uint32(rawLSE) == 0xffffffff {
				return outcome, fmt.Errorf("%s: lse was not written", describe(t*in.Heads+h))
			}
			lse = dtype.F32.Decode(lse, rawLSE)
		}
	}
	for i, w := range written {
		if !w && c.Fill.Out == "nan" && results[0][i] != 0xff {
			return outcome, fmt.Errorf("byte %d of out, in a gap between rows, was written", i)
		}
	}
	if r.Dump != "" {
		if err := dumpMerge(filepath.Join(r.Dump, c.Name), in, out, lse); err != nil {
			return outcome, err
		}
	}
	outcome.Errors, err = compare(in.Oracle(), out, lse, c.LSEBase == "2", c.Tolerance, describe)
	outcome.Notes = fmt.Sprintf("%d states", len(in.Outs))
	return outcome, err
}

// dumpMerge writes a merge case's inputs and outputs for other programs.
func dumpMerge(dir string, in *cases.Merge, out, lse []float32) error {
	n := len(in.Outs)
	var outs, lses []float32
	for i := range in.Outs {
		outs, lses = append(outs, in.Outs[i]...), append(lses, in.LSEs[i]...)
	}
	for _, a := range []struct {
		name  string
		shape []int
		data  []float32
	}{
		{"outs", []int{n, in.Tokens, in.Heads, in.Width}, outs},
		{"lses", []int{n, in.Tokens, in.Heads}, lses},
		{"out", []int{in.Tokens, in.Heads, in.Width}, out},
		{"lse", []int{in.Tokens, in.Heads}, lse},
	} {
		if err := writeNPY(filepath.Join(dir, a.name+".npy"), a.shape, a.data); err != nil {
			return err
		}
	}
	return nil
}
