package check

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/oracle"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/plan"
)

// openLayer returns the runtime's layer for a case, loading its kernels when no
// case before needed the same.
func (r *Runner) openLayer(c *cases.Case) (*runtime.Layer, error) {
	m := c.Model
	shape := runtime.LayerShape{
		Heads: m.Heads, Latent: m.Latent, Rope: m.Rope, Nope: m.Nope, Value: m.Value, Page: c.PageSize, DType: runtime.DType(c.DType),
	}
	type layer struct{ heads, latent, rope, nope, value, page int } // a shape without the groups
	key := struct {
		layer
		dtype runtime.DType
	}{layer{m.Heads, m.Latent, m.Rope, m.Nope, m.Value, c.PageSize}, shape.DType}
	return load(r, key, func() (*runtime.Layer, error) {
		from, ok := r.Source.(runtime.LayerSource)
		if !ok {
			return nil, errors.New("the source of kernels has not all that a layer takes")
		}
		v, err := runtime.LayerKernels(from, shape)
		if err != nil {
			return nil, err
		}
		return runtime.LoadLayer(r.Driver, v, runtime.WithWarnings(r.Warn))
	})
}

// runLayer runs a layer case.
func (r *Runner) runLayer(c *cases.Case) (Outcome, error) {
	if err := extendLimits(c, r.Options); err != nil {
		return Outcome{}, err
	}
	in, err := c.Extend()
	if err != nil {
		return Outcome{}, err
	}
	var p *runtime.LayerPlan
	once := func(m *memory) (results [][]byte, err error) {
		results, p, err = r.layerOnce(in, m)
		return results, err
	}
	judge := func(results [][]byte) (Outcome, error) { return r.judgeLayer(in, p, results[0]) }
	return r.underSchedules(c, once, judge)
}

// layerRequests is what the host knows of a case's sequences: of those that a
// graph is captured with and replayed with, the longer.
func layerRequests(c *cases.Case) (requests []plan.Request, paths []plan.Path) {
	for i, keys := range c.KVLen {
		if c.Graph != nil {
			keys = max(keys, c.Graph.CaptureKVLen[i])
		}
		n := c.Queries(i)
		requests = append(requests, plan.Request{New: n, Prefix: max(0, keys-n)})
	}
	for _, p := range c.Paths {
		paths = append(paths, plan.Path(p))
	}
	return requests, paths
}

// layerOnce runs a layer in memory of its own and returns the bytes of out.
func (r *Runner) layerOnce(in *cases.Extend, m *memory) (results [][]byte, p *runtime.LayerPlan, err error) {
	c := in.Case
	l, err := r.openLayer(c)
	if err != nil {
		return nil, nil, err
	}
	mod, t, sequences := c.Model, runtime.DType(c.DType), int64(len(c.KVLen))
	requests, paths := layerRequests(c)
	if p, err = l.Plan(requests, runtime.LayerOptions{Workspace: c.Workspace, Paths: paths, Chunk: c.Chunk}); err != nil {
		return nil, nil, err
	}
	kv, err := placePool(in.Decode, m)
	if err != nil {
		return nil, nil, err
	}
	up := inputs{m: m}
	args := runtime.LayerArgs{
		LayerStep: runtime.LayerStep{Plan: p, BlockTable: runtime.Dense(up.upload("block_table", encodeInts(in.Table)), runtime.S32, sequences, int64(in.Width))},
		KV: runtime.Tensor{
			Ptr: kv.ptr, DType: t, Shape: []int64{in.Pool.Pages, int64(c.PageSize), int64(in.Pool.Record)},
			Strides: []int64{in.Pool.PageStride, int64(in.Pool.RowStride), 1},
		},
		Weights: runtime.Dense(up.values(c, "w_kv_b", in.Weights), t, int64(mod.Heads), int64(mod.Nope+mod.Value), int64(mod.Latent)),
		Scale:   float32(c.SoftmaxScale()),
	}
	for i := range c.KVLen {
		args.NewTokens = max(args.NewTokens, c.Queries(i)) // all tokens are there, but a user would say so
	}
	query := func(name string, values []float32, width int) runtime.Tensor {
		rows := queryRows(c, in.Tokens(), width)
		return rows.tensor(up.values(c, name, rows.spread(values)), t)
	}
	if c.Layout.Q == "split" {
		nope, rope := in.SplitQ()
		args.QNope, args.QRope = query("q_nope", nope, mod.Nope), query("q_rope", rope, mod.Rope)
	} else {
		args.Q = query("q", in.Q, mod.Nope+mod.Rope)
	}
	if up.err != nil {
		return nil, nil, up.err
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
		return nil, nil, err
	}
	args.KVLen = runtime.Dense(kvLen.ptr, runtime.S32, sequences)
	outs := outRows(c, in.Tokens(), mod.Value)
	var buffers [3]buffer
	for i, b := range []struct {
		name  string
		bytes int64
	}{{"schedule", p.ScheduleBytes}, {"workspace", p.WorkspaceBytes}, {"out", int64(outs.elements() * c.DType.Size())}} {
		if buffers[i], err = m.guard(b.name, b.bytes); err != nil {
			return nil, nil, err
		}
	}
	schedule, workspace, out := buffers[0], buffers[1], buffers[2]
	args.Schedule = runtime.Buffer{Ptr: schedule.ptr, Bytes: schedule.size}
	args.Workspace = runtime.Buffer{Ptr: workspace.ptr, Bytes: workspace.size}
	args.Out = outs.tensor(out.ptr, t)

	captured := c.Graph != nil
	before := func() error {
		if captured { // the graph holds the launches; now come the lengths
			captured = false
			if err := m.driver.Upload(kvLen.ptr, encodeInts(in.KVLen)); err != nil {
				return err
			}
		}
		poisoned := []buffer{workspace}
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
		return poison(c, m, out, c.DType)
	}
	results, err = r.execute(c, m, operation{outputs: []output{{out, before}}, launch: func(s runtime.Stream) error {
		if err := l.Schedule(s, args.LayerStep); err != nil {
			return err
		}
		return l.Run(s, args)
	}})
	if err != nil {
		return nil, nil, err
	}
	return results, p, up.intact()
}

// judgeLayer compares the bytes of out with the oracle, which expands everything
// in float64.
func (r *Runner) judgeLayer(in *cases.Extend, p *runtime.LayerPlan, raw []byte) (outcome Outcome, err error) {
	c := in.Case
	heads, width := c.Model.Heads, c.Model.Value
	describe := func(row int) string {
		token, sequence := row/heads, 0
		for int(in.CuQ[sequence+1]) <= token {
			sequence++
		}
		queries, j := c.Queries(sequence), token-int(in.CuQ[sequence])
		return fmt.Sprintf("request %d (%s, %d new of %d), new token %d, head %d (sees %d tokens)", sequence, p.Paths[sequence], queries, c.KVLen[sequence],
			j, row%heads, oracle.Visible(true, c.KVLen[sequence], queries, j))
	}
	dense, err := outRows(c, in.Tokens(), width).gather(c, raw, describe)
	if err != nil {
		return outcome, err
	}
	want, out := in.Reference(), c.DType.Decode(nil, dense)
	for row := range in.Tokens() * heads {
		got := out[row*width:][:width]
		e, err := rowError(want.Row(row), got)
		if err == nil && e > c.Tolerance.Out {
			err = fmt.Errorf("out is off by %.2e of its norm, more than %.0e", e, c.Tolerance.Out)
		}
		if err != nil {
			return outcome, fmt.Errorf("%s: %w", describe(row), err)
		}
		outcome.Errors.Out = max(outcome.Errors.Out, e)
	}
	outcome.Notes = p.String()
	if r.Dump != "" {
		err = dumpExtend(filepath.Join(r.Dump, c.Name), in, out, nil)
	}
	return outcome, err
}
