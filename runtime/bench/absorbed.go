package bench

import (
	"errors"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/plan"
)

func (b *Bench) loadLayer(heads int) (*runtime.Layer, error) {
	source, ok := b.Source.(runtime.LayerSource)
	if !ok {
		return nil, &LoadError{errors.New("the source has not all kernels that a layer takes")}
	}
	v, err := runtime.LayerKernels(source, runtime.LayerShape{Heads: heads, Latent: latent, Rope: rope, Nope: nope, Value: value, Page: pageTokens, DType: runtime.BF16})
	if err != nil {
		return nil, &LoadError{err}
	}
	l, err := runtime.LoadLayer(b.Driver, v)
	if err != nil {
		return nil, &LoadError{err}
	}
	b.compiled = append(b.compiled, l.Kernels()...)
	return l, nil
}

// timeAbsorbed times new tokens that are absorbed: both products with the weights,
// and decode in between.
func (b *Bench) timeAbsorbed(r *ExtendResult, m *memory, product ProductReference) (err error) {
	l, err := b.loadLayer(r.Heads)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	c, err := b.placeAbsorbed(r, l, m)
	if err != nil {
		return err
	}
	r.Calls = len(c.layers)
	for _, a := range c.layers {
		if err := l.Schedule(b.stream, a.LayerStep); err != nil {
			return err
		}
	}
	check, unchanged := watched("output", func() ([]byte, error) { return b.absorbedOut(c) }, func([]byte) (err error) {
		r.OutError, _, err = b.verifyExtend(c, nil, product)
		return err
	})
	t, err := b.measure(r.Calls, func(i int) error { return l.Run(b.stream, c.layers[i]) }, check, unchanged)
	r.Microseconds, r.Spread, r.SustainedMicroseconds, r.Power = t.median, t.spread, t.sustained, t.power
	if err != nil {
		return err
	}
	r.ScheduleMicros, err = b.scheduleMicros(func(s runtime.Stream) error { return l.Schedule(s, c.layers[0].LayerStep) })
	return err
}

// placeAbsorbed allocates a shape's memory.
func (b *Bench) placeAbsorbed(r *ExtendResult, l *runtime.Layer, m *memory) (*extendCall, error) {
	c := &extendCall{ExtendShape: r.ExtendShape}
	requests, paths := make([]plan.Request, r.Batch), make([]plan.Path, r.Batch)
	for i := range requests {
		requests[i], paths[i] = plan.Request{New: r.New, Prefix: r.Prefix}, plan.Absorb
	}
	p, err := l.Plan(requests, runtime.LayerOptions{Paths: paths})
	if err != nil {
		return nil, err
	}
	in, err := b.placeInputs(c, m)
	if err != nil {
		return nil, err
	}
	workspace, err := b.buffer(m, "workspace", p.WorkspaceBytes)
	if err != nil {
		return nil, err
	}
	r.WorkspaceBytes = p.WorkspaceBytes
	for _, table := range in.tables {
		schedule, err := b.buffer(m, "schedule", p.ScheduleBytes) // which may hold copies of the table
		if err != nil {
			return nil, err
		}
		c.layers = append(c.layers, runtime.LayerArgs{
			LayerStep: runtime.LayerStep{Plan: p, KVLen: in.kvLen, BlockTable: table, Schedule: schedule},
			Q:         in.q, KV: in.kv, Weights: in.weights, Workspace: workspace, Out: in.out, Scale: softmaxScale,
		})
	}
	return c, nil
}

// absorbedOut downloads the output of the last call.
func (b *Bench) absorbedOut(c *extendCall) ([]byte, error) {
	out := make([]byte, int64(c.Batch)*int64(c.New)*int64(c.Heads)*value*elementSize)
	return out, b.Driver.Download(out, c.out().Ptr)
}
