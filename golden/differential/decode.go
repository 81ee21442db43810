package differential

import (
	"fmt"
	"math"
	"slices"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

// The places of the kernels in runtime.Decode.Kernels.
const (
	attendKernel = iota
	scheduleKernel
)

// outGap is the number of elements after each head of a padded output.
const outGap = 64

// DecodeCase is a decode step, all three kernels of it.
type DecodeCase struct {
	*cases.Case
	BlockH int // query rows per block, 0 = the template's choice
	SMs    int // for which both devices plan: the fewer, the fewer pieces
}

// Spec is what the kernels are generated for.
func (c *DecodeCase) Spec() templates.Spec {
	sq, _ := c.QLen.Uniform()
	return templates.Spec{
		Heads: c.Model.Heads, SQ: sq, BlockH: c.BlockH, Latent: c.Model.Latent, Rope: c.Model.Rope, Page: c.PageSize, DType: string(c.DType), Teams: c.Teams,
	}.WithDefaults()
}

// load loads the decode kernels of a spec.
func (p *Pair) load(d *device, spec templates.Spec) (*runtime.Decode, error) {
	var v runtime.DecodeVariants
	for _, k := range []struct {
		name string
		to   *runtime.Variant
	}{{"absorb-decode", &v.Decode}, {"decode-schedule", &v.Schedule}, {"decode-combine", &v.Combine}} {
		var err error
		if *k.to, err = p.build(k.name, spec); err != nil {
			return nil, err
		}
	}
	return runtime.LoadDecode(d, v)
}

// decodeResult is what a decode step leaves.
type decodeResult struct {
	parts    int
	schedule map[string][]byte // as decode_schedule left it
	arrivals []byte            // after the step
	out      []float32         // [batch × rows, latent]
	lse      []float32         // [batch × rows]

	partialOut   []float32 // [slots] of form.elements
	partialState []float32 // [slots] of form.states
}

// Decode compares a decode step. kinds tells which kinds of requests the batch
// had.
func (p *Pair) Decode(c DecodeCase) (rows []Row, kinds []string, err error) {
	in, err := c.Case.Decode()
	if err != nil {
		return nil, nil, err
	}
	results, err := each(p, c.SMs, func(dev *device) (*decodeResult, error) { return p.decode(dev, c, in) })
	if err != nil {
		return nil, nil, err
	}
	a, b := results[0], results[1]
	rows = compareSections(c.Name, a.schedule, b.schedule)
	kinds, merges, err := readSchedule(a.schedule, a.parts, len(in.KVLen))
	if err != nil {
		return rows, nil, err
	}
	spec := c.Spec()
	arrivals := Row{Kernel: "absorb-decode", Case: c.Name, Result: "arrivals"}
	arrivals.words(a.arrivals, b.arrivals)
	rows = append(rows, arrivals)
	for _, kind := range []string{whole, pair, merged} {
		r := Row{Kernel: "absorb-decode", Case: c.Name, Result: kind}
		if kind == merged {
			partial := Row{Kernel: r.Kernel, Case: c.Name, Result: "partial"}
			for _, m := range merges {
				if err := partial.slots(spec, m, a, b); err != nil {
					return rows, nil, err
				}
			}
			if partial.Elements > 0 {
				rows = append(rows, partial)
			}
			r.Kernel = "decode-combine"
		}
		for request := range kinds {
			if kinds[request] == kind {
				r.request(spec, request, a.out, b.out, a.lse, b.lse)
			}
		}
		if r.Elements > 0 {
			rows = append(rows, r)
		}
	}
	slices.Sort(kinds)
	return rows, slices.Compact(kinds), nil
}

// request adds the rows of a request.
func (r *Row) request(spec templates.Spec, request int, outA, outB, lseA, lseB []float32) {
	for row := request * spec.Rows(); row < (request+1)*spec.Rows(); row++ {
		at, end := row*spec.Latent, (row+1)*spec.Latent
		r.row(dtype.Type(spec.DType), outA[at:end], outB[at:end], rms)
	}
	at, end := request*spec.Rows(), (request+1)*spec.Rows()
	r.lses(lseA[at:end], lseB[at:end])
}

// slots adds the partial results of a request. Their elements may be rounded once
// more than the output's, to f16: an ulp of the row's largest.
func (r *Row) slots(spec templates.Spec, m merge, a, b *decodeResult) error {
	f := formOf(spec)
	for slot := m.slot; slot < m.slot+m.count; slot++ {
		x, err := a.partial(f, slot)
		if err != nil {
			return err
		}
		y, err := b.partial(f, slot)
		if err != nil {
			return err
		}
		for row := range x.out {
			spare := 0.0
			if f.elem == dtype.FP16 {
				spare = f16ULP(math.Max(largest(x.out[row]), largest(y.out[row])))
			}
			r.rowBut(spare, dtype.Type(spec.DType), x.out[row], y.out[row], rms)
		}
		for share := range x.lse {
			r.lses(x.lse[share][:spec.Rows()], y.lse[share][:spec.Rows()])
		}
	}
	return nil
}

// partial returns what a slot holds.
func (r *decodeResult) partial(f form, slot int) (partial, error) {
	p, err := f.read(r.partialOut[slot*f.elements():(slot+1)*f.elements()], r.partialState[slot*f.states():(slot+1)*f.states()])
	if err != nil {
		err = fmt.Errorf("slot %d: %w", slot, err)
	}
	return p, err
}

// decode runs a step on one device.
func (p *Pair) decode(dev *device, c DecodeCase, in *cases.Decode) (_ *decodeResult, err error) {
	d, err := p.load(dev, c.Spec())
	if err != nil {
		return nil, err
	}
	defer d.Close()
	batch := len(in.KVLen)
	s, err := planned(dev, d, in.KVLen, c.Splits)
	if err != nil {
		return nil, err
	}
	workspace, err := dev.alloc("workspace", d.WorkspaceBytes(batch, c.Splits))
	if err != nil {
		return nil, err
	}
	args, err := arguments(dev, c, in)
	if err != nil {
		return nil, err
	}
	args.Batch, args.Splits = batch, c.Splits
	args.KVLen, args.Schedule, args.Workspace = s.kvLen, s.buffer, workspace
	if err := d.Run(dev.stream, args); err != nil {
		return nil, err
	}
	if err := dev.stream.Synchronize(); err != nil {
		return nil, err
	}

	r := &decodeResult{parts: d.Parts(), schedule: s.contents}
	if r.arrivals, err = dev.download(s.sections["arrivals"]); err != nil {
		return nil, err
	}
	if r.out, err = gather(dev, c, args.Out); err != nil {
		return nil, err
	}
	if r.lse, err = dev.floats(dtype.F32, runtime.Buffer{Ptr: args.LSE.Ptr, Bytes: int64(4 * batch * c.Spec().Rows())}); err != nil {
		return nil, err
	}
	return r, r.partials(dev, d, workspace, formOf(c.Spec()))
}

// partials reads the workspace, whose parts absorb_decode was told.
func (r *decodeResult) partials(dev *device, d *runtime.Decode, workspace runtime.Buffer, f form) error {
	m := d.Kernels()[attendKernel].Manifest
	out, err := dev.given(1, m, "partial_out")
	if err != nil {
		return err
	}
	state, err := dev.given(1, m, "partial_state")
	if err != nil {
		return err
	}
	end := workspace.Ptr + runtime.Ptr(workspace.Bytes)
	if out < workspace.Ptr || state <= out || state >= end {
		return fmt.Errorf("partial results at %#x and %#x are not in the workspace, %#x to %#x", out, state, workspace.Ptr, end)
	}
	if r.partialOut, err = dev.floats(f.elem, runtime.Buffer{Ptr: out, Bytes: int64(state - out)}); err != nil {
		return err
	}
	r.partialState, err = dev.floats(dtype.F32, runtime.Buffer{Ptr: state, Bytes: int64(end - state)})
	return err
}

// arguments places the tensors of a step.
func arguments(dev *device, c DecodeCase, in *cases.Decode) (a runtime.DecodeArgs, err error) {
	upload := func(name string, data []byte) runtime.Ptr {
		if err != nil {
			return 0
		}
		var b runtime.Buffer
		b, err = dev.upload(name, data)
		return b.Ptr
	}
	alloc := func(name string, size int64) runtime.Ptr {
		if err != nil {
			return 0
		}
		var b runtime.Buffer
		b, err = dev.alloc(name, size)
		return b.Ptr
	}
	batch, sq, heads := int64(len(in.KVLen)), int64(in.QLen), int64(c.Model.Heads)
	latent, record, t := int64(c.Model.Latent), int64(c.Model.Record()), runtime.DType(c.DType)
	if c.Layout.Q == "split" {
		l, r := in.SplitQ()
		a.QLatent = runtime.Dense(upload("q_latent", c.DType.Encode(nil, l)), t, batch, sq, heads, latent)
		a.QRope = runtime.Dense(upload("q_rope", c.DType.Encode(nil, r)), t, batch, sq, heads, record-latent)
	} else {
		a.Q = runtime.Dense(upload("q", c.DType.Encode(nil, in.Q)), t, batch, sq, heads, record)
	}
	stride := outStride(c)
	a.Out = runtime.Tensor{
		Ptr: alloc("out", batch*sq*heads*stride*t.Bytes()), DType: t, Shape: []int64{batch, sq, heads, latent},
		Strides: []int64{sq * heads * stride, heads * stride, stride, 1},
	}
	a.LSE = runtime.Dense(alloc("lse", 4*batch*sq*heads), runtime.F32, batch, sq, heads)
	a.Scale, a.LSEBase2 = float32(c.SoftmaxScale()), c.LSEBase == "2"
	if err != nil {
		return a, err
	}
	a.KV, a.BlockTable, err = placePool(dev, in)
	return a, err
}

// outStride returns the elements from an output head to the next.
func outStride(c DecodeCase) int64 {
	if c.Layout.Out == "padded" {
		return int64(c.Model.Latent) + outGap
	}
	return int64(c.Model.Latent)
}

// gather downloads the output without its gaps, which must be as they were.
func gather(dev *device, c DecodeCase, out runtime.Tensor) ([]float32, error) {
	size := out.DType.Bytes()
	stride, width := outStride(c)*size, int64(c.Model.Latent)*size
	data, err := dev.download(runtime.Buffer{Ptr: out.Ptr, Bytes: out.Shape[0] * out.Strides[0] * size})
	if err != nil {
		return nil, err
	}
	var values []float32
	for at := int64(0); at < int64(len(data)); at += stride {
		values = c.DType.Decode(values, data[at:at+width])
		if slices.ContainsFunc(data[at+width:at+stride], func(b byte) bool { return b != poison }) {
			return nil, fmt.Errorf("the gap after output row %d was written", at/stride)
		}
	}
	return values, nil
}
