package check

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/cost"
	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/golden/oracle"
	"github.com/mlagen/mlagen/runtime"
)

// extendLimits skips what the device cannot run.
func extendLimits(c *cases.Case, o Options) error {
	model, work := cost.Model(c.Model), 0.0
	for i, keys := range c.KVLen {
		queries := c.Queries(i)
		for j := range queries {
			work += float64(oracle.Visible(c.Causal, keys, queries, j)) * model.ExpandPair()
		}
		work += float64(keys) * model.ExpandToken()
	}
	if o.MaxFLOP > 0 && work > o.MaxFLOP {
		return skip(fmt.Sprintf("%.1f GFLOP are too many for %s", work/1e9, o.Driver.Name()))
	}
	return nil
}

// openExtend returns the runtime's extend for a case, loading its kernels when
// no case before needed the same.
func (r *Runner) openExtend(c *cases.Case) (*runtime.Extend, error) {
	shape := runtime.ExtendShape{
		Heads: c.Model.Heads, Latent: c.Model.Latent, Rope: c.Model.Rope, Nope: c.Model.Nope, Value: c.Model.Value,
		Page: c.PageSize, DType: runtime.DType(c.DType),
	}
	return load(r, shape, func() (*runtime.Extend, error) {
		from, ok := r.Source.(runtime.ExtendSource)
		if !ok {
			return nil, errors.New("the source of kernels has none that extend")
		}
		v, err := from.Extend(shape)
		if err != nil {
			return nil, err
		}
		return runtime.LoadExtend(r.Driver, v, runtime.WithWarnings(r.Warn))
	})
}

// runExtend runs an extend case.
func (r *Runner) runExtend(c *cases.Case) (Outcome, error) {
	if err := extendLimits(c, r.Options); err != nil {
		return Outcome{}, err
	}
	in, err := c.Extend()
	if err != nil {
		return Outcome{}, err
	}
	plan := runtime.ExtendPlan{}
	once := func(m *memory) (results [][]byte, err error) {
		results, plan, err = r.extendOnce(in, m)
		return results, err
	}
	judge := func(results [][]byte) (Outcome, error) { return r.judgeExtend(in, plan, results) }
	return r.underSchedules(c, once, judge)
}

// extendOnce extends in memory of its own and returns the bytes of out and lse.
func (r *Runner) extendOnce(in *cases.Extend, m *memory) (results [][]byte, plan runtime.ExtendPlan, err error) {
	c := in.Case
	e, err := r.openExtend(c)
	if err != nil {
		return nil, plan, err
	}
	mod, t, tokens, sequences := c.Model, runtime.DType(c.DType), in.Tokens(), len(c.KVLen)
	capacity := runtime.ExtendCapacity{Sequences: sequences, QueryTokens: tokens, KeyTokens: in.KeyTokens()}
	for i := range c.KVLen {
		capacity.MostQueries = max(capacity.MostQueries, c.Queries(i))
	}
	if plan, err = e.Plan(capacity, c.Chunk, math.MaxInt64); err != nil {
		return nil, plan, err
	}
	kv, err := placePool(in.Decode, m)
	if err != nil {
		return nil, plan, err
	}
	up := inputs{m: m}
	args := runtime.ExtendArgs{
		Plan: plan,
		KV: runtime.Tensor{
			Ptr: kv.ptr, DType: t, Shape: []int64{in.Pool.Pages, int64(c.PageSize), int64(in.Pool.Record)},
			Strides: []int64{in.Pool.PageStride, int64(in.Pool.RowStride), 1},
		},
		BlockTable: runtime.Dense(up.upload("block_table", encodeInts(in.Table)), runtime.S32, int64(sequences), int64(in.Width)),
		Weights:    runtime.Dense(up.values(c, "w_kv_b", in.Weights), t, int64(mod.Heads), int64(mod.Nope+mod.Value), int64(mod.Latent)),
		Scale:      float32(c.SoftmaxScale()), LSEBase2: c.LSEBase == "2",
	}
	query := func(name string, values []float32, width int) runtime.Tensor {
		rows := queryRows(c, tokens, width)
		return rows.tensor(up.values(c, name, rows.spread(values)), t)
	}
	if c.Layout.Q == "split" {
		nope, rope := in.SplitQ()
		args.QNope, args.QRope = query("q_nope", nope, mod.Nope), query("q_rope", rope, mod.Rope)
	} else {
		args.Q = query("q", in.Q, mod.Nope+mod.Rope)
	}
	cuQ := up.upload("cu_q", encodeInts(in.CuQ))
	if up.err != nil {
		return nil, plan, up.err
	}
	lengths := in.KVLen
	if c.Graph != nil {
		lengths = nil
		for _, n := range c.Graph.CaptureKVLen {
			lengths = append(lengths, int32(n))
		}
	}
	kvLen, err := m.upload("kv_len", encodeInts(lengths))
	if err != nil {
		return nil, plan, err
	}
	var buffers [4]buffer
	outs := outRows(c, tokens, mod.Value)
	for i, b := range []struct {
		name  string
		bytes int64
	}{
		{"schedule", plan.ScheduleBytes}, {"workspace", plan.WorkspaceBytes},
		{"out", int64(outs.elements() * c.DType.Size())}, {"lse", int64(tokens * mod.Heads * 4)},
	} {
		if buffers[i], err = m.guard(b.name, b.bytes); err != nil {
			return nil, plan, err
		}
	}
	schedule, workspace, out, lse := buffers[0], buffers[1], buffers[2], buffers[3]
	args.Schedule = runtime.Buffer{Ptr: schedule.ptr, Bytes: schedule.size}
	args.Workspace = runtime.Buffer{Ptr: workspace.ptr, Bytes: workspace.size}
	args.Out = outs.tensor(out.ptr, t)
	args.LSE = runtime.Dense(lse.ptr, runtime.F32, int64(tokens), int64(mod.Heads))

	captured := c.Graph != nil
	outputs := []output{
		{out, func() error { return poison(c, m, out, c.DType) }},
		{lse, func() error {
			if captured { // the graph holds the launches; now come the lengths
				captured = false
				if err := m.driver.Upload(kvLen.ptr, encodeInts(in.KVLen)); err != nil {
					return err
				}
			}
			// Tiles at the end of a chunk hold rows that nobody wrote, so that only
			// NaN tells whether they are looked at.
			poisoned := []buffer{workspace, lse}
			if !r.Hazards { // which finds what is read before it was written
				poisoned = append(poisoned, schedule)
			}
			for _, b := range poisoned {
				if b.size == 0 {
					continue
				}
				if err := m.driver.Fill(b.ptr, 0xff, b.size); err != nil {
					return err
				}
			}
			return nil
		}},
	}
	results, err = r.execute(c, m, operation{outputs: outputs, launch: func(s runtime.Stream) error {
		err := e.Schedule(s, runtime.ExtendScheduleArgs{
			Plan: plan, CuQ: runtime.Dense(cuQ, runtime.S32, int64(sequences)+1), KVLen: runtime.Dense(kvLen.ptr, runtime.S32, int64(sequences)),
			Causal: c.Causal, Buffer: args.Schedule,
		})
		if err != nil {
			return err
		}
		return e.Run(s, args)
	}})
	if err != nil {
		return nil, plan, err
	}
	return results, plan, up.intact()
}

// judgeExtend compares the bytes of out and lse with the oracle.
func (r *Runner) judgeExtend(in *cases.Extend, plan runtime.ExtendPlan, results [][]byte) (outcome Outcome, err error) {
	c := in.Case
	heads := c.Model.Heads
	describe := func(row int) string {
		token, sequence := row/heads, 0
		for int(in.CuQ[sequence+1]) <= token {
			sequence++
		}
		queries, j := c.Queries(sequence), token-int(in.CuQ[sequence])
		return fmt.Sprintf("sequence %d (%d queries, %d keys), query %d, head %d (sees %d keys)", sequence, queries, c.KVLen[sequence], j, row%heads,
			oracle.Visible(c.Causal, c.KVLen[sequence], queries, j))
	}
	if err := lseWritten(results[1], describe); err != nil {
		return outcome, err
	}
	raw, err := outRows(c, in.Tokens(), c.Model.Value).gather(c, results[0], describe)
	if err != nil {
		return outcome, err
	}
	out := c.DType.Decode(nil, raw)
	lse := dtype.F32.Decode(nil, results[1])
	if r.Dump != "" {
		if err := dumpExtend(filepath.Join(r.Dump, c.Name), in, out, lse); err != nil {
			return outcome, err
		}
	}
	outcome.Errors, err = compare(in.Reference(), out, lse, c.LSEBase == "2", c.Tolerance, describe)
	outcome.Notes = fmt.Sprintf("%d chunks of %d tokens", plan.Chunks, plan.Chunk)
	return outcome, err
}

// dumpExtend writes the inputs and outputs of an extend case, or of a layer's,
// which has no lse, for other programs.
func dumpExtend(dir string, in *cases.Extend, out, lse []float32) error {
	m, tokens := in.Case.Model, in.Tokens()
	kv, pages, table := dumpedPool(in.Decode)
	tensors := []dumped{
		{"q", []int{tokens, m.Heads, m.Nope + m.Rope}, in.Q},
		{"kv", []int{int(pages), in.Case.PageSize, in.Pool.Record}, kv},
		{"w_kv_b", []int{m.Heads, m.Nope + m.Value, m.Latent}, in.Weights},
		{"out", []int{tokens, m.Heads, m.Value}, out},
	}
	if lse != nil {
		tensors = append(tensors, dumped{"lse", []int{tokens, m.Heads}, lse})
	}
	err := dumpTensors(dir, tensors...)
	queries := make([]int32, len(in.Case.KVLen))
	for i := range queries {
		queries[i] = int32(in.Case.Queries(i))
	}
	return errors.Join(err,
		writeNPY(filepath.Join(dir, "block_table.npy"), []int{len(queries), in.Width}, table),
		writeNPY(filepath.Join(dir, "kv_len.npy"), []int{len(queries)}, in.KVLen),
		writeNPY(filepath.Join(dir, "q_len.npy"), []int{len(queries)}, queries))
}
