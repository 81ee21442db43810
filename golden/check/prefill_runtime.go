package check

import (
	"errors"

	"github.com/mlagen/mlagen/runtime"
)

// openPrefill returns the prefill of the runtime for a call, loading its
// kernels when no case before needed the same.
func (r *Runner) openPrefill(call *prefillCall) (prefiller, error) {
	m := call.in.Case.Model
	shape := runtime.PrefillShape{Heads: m.Heads, Nope: m.Nope, Rope: m.Rope, Value: m.Value, DType: runtime.DType(call.in.Case.DType)}
	p := r.prefills[shape]
	if p == nil {
		source, ok := r.Source.(runtime.PrefillSource)
		if !ok {
			return nil, errors.New("the source has no prefill kernels")
		}
		variants, err := source.Prefill(shape)
		if err != nil {
			return nil, err
		}
		if p, err = runtime.LoadPrefill(r.Driver, variants, runtime.WithWarnings(r.Warn)); err != nil {
			return nil, err
		}
		r.prefills[shape] = p
	}
	return &runtimePrefiller{p, call}, nil
}

// closePrefills unloads the kernels.
func (r *Runner) closePrefills() error {
	var errs []error
	for shape, p := range r.prefills {
		errs = append(errs, p.Close())
		delete(r.prefills, shape)
	}
	return errors.Join(errs...)
}

// runtimePrefiller makes the calls that a user would.
type runtimePrefiller struct {
	p    *runtime.Prefill
	call *prefillCall
}

func (r *runtimePrefiller) sequences() int { return len(r.call.in.CuQ) - 1 }

func (r *runtimePrefiller) scheduleBytes() int64 {
	return r.p.ScheduleBytes(r.sequences(), r.call.tokens())
}

func (r *runtimePrefiller) run(s runtime.Stream) error {
	call, in, c := r.call, r.call.in, r.call.in.Case
	m, t := c.Model, runtime.DType(c.DType)
	tokens, keys, heads := int64(call.tokens()), int64(in.KeyTokens), int64(m.Heads)
	nope, rope, value := int64(m.Nope), int64(m.Rope), int64(m.Value)
	schedule := runtime.Buffer{Ptr: call.schedule.ptr, Bytes: call.schedule.size}
	places := int64(r.sequences()) + 1
	err := r.p.Schedule(s, runtime.PrefillScheduleArgs{
		Sequences: r.sequences(), QueryTokens: int(tokens), KeyTokens: in.KeyTokens,
		CuQ: runtime.Dense(call.cuQ.ptr, runtime.S32, places), CuK: runtime.Dense(call.cuK.ptr, runtime.S32, places),
		Causal: c.Causal, Buffer: schedule,
	})
	if err != nil {
		return err
	}
	a := runtime.PrefillArgs{
		Sequences: r.sequences(),
		KVUp:      runtime.Dense(call.up.ptr, t, keys, heads, nope+value),
		KRope:     runtime.Tensor{Ptr: call.rope.ptr, DType: t, Shape: []int64{keys, rope}, Strides: []int64{int64(in.RopeStride), 1}},
		Schedule:  schedule,
		Out:       call.rows.tensor(call.out.ptr, t),
		LSE:       runtime.Dense(call.lse.ptr, runtime.F32, tokens, heads),
		Scale:     float32(c.SoftmaxScale()),
		LSEBase2:  c.LSEBase == "2",
	}
	if c.Layout.Q == "split" {
		a.QNope, a.QRope = call.qRows.tensor(call.q.ptr, t), call.ropeRows.tensor(call.qRope.ptr, t)
	} else {
		a.Q = call.qRows.tensor(call.q.ptr, t)
	}
	return r.p.Run(s, a)
}
