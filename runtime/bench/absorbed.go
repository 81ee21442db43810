package bench

import (
	"bytes"
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
	w, err := b.prepare(func() error {
		for _, a := range c.layers {
			if err := l.Run(b.stream, a); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()

	// The first replay warms up and leaves outputs to be checked.
	if _, err := b.bursts(w, 1); err != nil {
		return err
	}
	out, err := b.absorbedOut(c)
	if err != nil {
		return err
	}
	if r.OutError, _, err = b.verifyExtend(c, nil, product); err != nil {
		return err
	}
	times, err := b.bursts(w, max(1, b.Replays))
	if err != nil {
		return err
	}
	r.Microseconds, r.Spread = median(times)/float64(r.Calls), spread(times)
	if b.Sustained > 0 {
		_, sustained, power, err := b.sustain(w, b.Sustained)
		if err != nil {
			return err
		}
		r.SustainedMicroseconds, r.Power = sustained/float64(r.Calls), power
	}
	// Replays are bit-reproducible; a race is not.
	again, err := b.absorbedOut(c)
	if err != nil {
		return err
	}
	if !bytes.Equal(out, again) {
		return &WrongError{"the last replay's output differs from the first's"}
	}
	return b.timeAbsorbedSchedule(r, l, c)
}

func (b *Bench) timeAbsorbedSchedule(r *ExtendResult, l *runtime.Layer, c *extendCall) (err error) {
	w, err := b.prepare(func() error {
		for range prefillScheduleCalls {
			if err := l.Schedule(b.stream, c.layers[0].LayerStep); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	times, err := b.bursts(w, 3)
	r.ScheduleMicros = median(times) / prefillScheduleCalls
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
