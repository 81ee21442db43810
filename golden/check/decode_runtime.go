package check

import (
	"errors"

	"github.com/mlagen/mlagen/runtime"
)

// openDecode returns the decode of the runtime for a call, loading its kernels
// when no case before needed the same.
func (r *Runner) openDecode(call *decodeCall) (decoder, error) {
	c := call.in.Case
	shape := runtime.DecodeShape{
		Heads: c.Model.Heads, SQ: call.in.QLen, Latent: c.Model.Latent, Rope: c.Model.Rope, Page: c.PageSize,
		DType: runtime.DType(c.DType), BlockH: c.BlockH, Cluster: c.Cluster, Teams: c.Teams, PieceCost: c.PieceCost,
	}
	d := r.decodes[shape]
	if d == nil {
		variants, err := r.Source.Decode(shape)
		if err != nil {
			return nil, err
		}
		if d, err = runtime.LoadDecode(r.Driver, variants, runtime.WithWarnings(r.Warn)); err != nil {
			return nil, err
		}
		r.decodes[shape] = d
	}
	return &runtimeDecoder{d, call}, nil
}

// Close unloads the kernels.
func (r *Runner) Close() error {
	errs := []error{r.unload()}
	for shape, d := range r.decodes {
		errs = append(errs, d.Close())
		delete(r.decodes, shape)
	}
	errs = append(errs, r.closePrefills())
	for shape, m := range r.merges {
		errs = append(errs, m.Close())
		delete(r.merges, shape)
	}
	for shape, a := range r.appends {
		errs = append(errs, a.Close())
		delete(r.appends, shape)
	}
	return errors.Join(errs...)
}

// runtimeDecoder makes the calls that a user would.
type runtimeDecoder struct {
	d    *runtime.Decode
	call *decodeCall
}

func (r *runtimeDecoder) sizes() (schedule, workspace int64) {
	batch, splits := r.call.batch(), r.call.splits()
	return r.d.ScheduleBytes(batch, splits), r.d.WorkspaceBytes(batch, splits)
}

func (r *runtimeDecoder) run(s runtime.Stream, schedule, workspace buffer) error {
	call, in, c := r.call, r.call.in, r.call.in.Case
	batch, sq, heads := int64(call.batch()), int64(in.QLen), int64(c.Model.Heads)
	record, dtype := int64(c.Model.Record()), runtime.DType(c.DType)
	kvLen := runtime.Dense(call.kvLen.ptr, runtime.S32, batch)
	planned := runtime.Buffer{Ptr: schedule.ptr, Bytes: schedule.size}
	err := r.d.Schedule(s, runtime.ScheduleArgs{Batch: call.batch(), Splits: call.splits(), KVLen: kvLen, Buffer: planned})
	if err != nil {
		return err
	}
	a := runtime.DecodeArgs{
		Batch: call.batch(), Splits: call.splits(),
		KV: runtime.Tensor{
			Ptr: call.kv.ptr, DType: dtype, Shape: []int64{in.Pool.Pages, int64(c.PageSize), record},
			Strides: []int64{in.Pool.PageStride, int64(in.Pool.RowStride), 1},
		},
		BlockTable: runtime.Dense(call.table.ptr, runtime.S32, batch, int64(in.Width)),
		KVLen:      kvLen,
		NewTokens:  in.QLen, // all tokens are there, but a user would say so
		Schedule:   planned,
		Workspace:  runtime.Buffer{Ptr: workspace.ptr, Bytes: workspace.size},
		Out:        call.rows.batched(call.out.ptr, dtype, batch, sq),
		LSE:        runtime.Dense(call.lse.ptr, runtime.F32, batch, sq, heads),
		Scale:      float32(c.SoftmaxScale()),
		LSEBase2:   c.LSEBase == "2",
	}
	if c.Layout.Q == "split" {
		a.QLatent = call.qRows.batched(call.q.ptr, dtype, batch, sq)
		a.QRope = call.ropeRows.batched(call.qRope.ptr, dtype, batch, sq)
	} else {
		a.Q = call.qRows.batched(call.q.ptr, dtype, batch, sq)
	}
	return r.d.Run(s, a)
}
