package runtime

import (
	"fmt"
	"math"
)

// The arguments whose addresses are looked up.
const (
	argQ = iota
	argQRope
	argKV
	argBlockTable
	argKVLen
	argSchedule
	argWorkspace
	argOut
	argLSE
	argumentCount
)

// rowAlign is the alignment in bytes that the kernels' vector accesses and the
// copy engine need.
const rowAlign = 16

// tensorMapStride is the limit of a stride in a tensor map, in bytes.
const tensorMapStride = 1 << 40

// scheduleArgs validates a and turns it into values.
func (d *Decode) scheduleArgs(s Stream, a *ScheduleArgs) error {
	if s == nil {
		return noStream()
	}
	p, err := d.plan(a.Batch, a.Splits)
	if err == nil && a.Batch == 0 && !a.KVLen.absent() {
		err = d.kvLen(&a.KVLen, 0)
	}
	if err != nil || a.Batch == 0 {
		return err
	}
	d.places.begin()
	if err := d.kvLen(&a.KVLen, a.Batch); err != nil {
		return err
	}
	if err := d.places.buffer(argSchedule, "schedule buffer", a.Buffer, p.scheduleBytes); err != nil {
		return err
	}
	if err := apart(&d.places); err != nil {
		return err
	}
	d.setBatch(a.Batch, a.Splits)
	d.setSchedule(a.Buffer.Ptr, &p)
	d.values.kvLen = a.KVLen.Ptr
	return nil
}

func (d *Decode) setBatch(batch, splits int) {
	v := &d.values
	v.batch, v.splits, v.parts, v.page = int64(batch), int64(splits), int64(d.parts), int64(d.model.Page)
}

func (d *Decode) setSchedule(base Ptr, p *plan) {
	v := &d.values
	v.partFirst, v.items, v.merges, v.arrivals = base+Ptr(p.partFirst), base+Ptr(p.items), base+Ptr(p.merges), base+Ptr(p.arrivals)
}

// decodeArgs validates a and turns it into values.
func (d *Decode) decodeArgs(s Stream, a *DecodeArgs) error {
	if s == nil {
		return noStream()
	}
	p, err := d.plan(a.Batch, a.Splits)
	if err == nil && a.Batch == 0 && !a.Out.absent() { // or its rows would stay unwritten
		err = d.results(a)
	}
	if err != nil || a.Batch == 0 {
		return err
	}
	d.places.begin()
	if err := d.query(a); err != nil {
		return err
	}
	if err := d.cache(&a.KV); err != nil {
		return err
	}
	if err := d.table(&a.BlockTable, a.Batch); err != nil {
		return err
	}
	if err := d.kvLen(&a.KVLen, a.Batch); err != nil {
		return err
	}
	if err := d.places.buffer(argSchedule, "schedule", a.Schedule, p.scheduleBytes); err != nil {
		return err
	}
	if err := d.places.buffer(argWorkspace, "workspace", a.Workspace, p.workspaceBytes); err != nil {
		return err
	}
	if made, known := d.scheduled.of(s, a.Schedule.Ptr); known {
		for i, was := range [2]int{a.Batch, a.Splits} {
			if was != made[i] {
				return argumentError([2]string{"batch", "splits"}[i], fmt.Sprintf("%d, with which Schedule filled the schedule", made[i]), "was %d", was)
			}
		}
	}
	if err := d.results(a); err != nil {
		return err
	}
	if err := apart(&d.places); err != nil {
		return err
	}
	return d.decodeValues(a, &p)
}

// decodeValues fills the values from validated arguments.
func (d *Decode) decodeValues(a *DecodeArgs, p *plan) error {
	v := &d.values
	scale := float64(a.Scale) * math.Log2E
	if !(a.Scale > 0) || math.IsInf(float64(float32(scale)), 0) {
		return argumentError("scale", "finite and greater than 0, 1/sqrt(nope+rope) times what the model adds", "was %v", a.Scale)
	}
	if err := a.Tuning.check(); err != nil {
		return err
	}
	if err := newTokens(a.NewTokens, d.model.SQ, "query tokens of a request"); err != nil {
		return err
	}
	if v.newTokens = int64(a.NewTokens); v.newTokens == 0 {
		v.newTokens = math.MaxInt32 // as many as a request can have
	}
	if err := d.describeKV(&a.KV, a.Tuning.Promotion); err != nil {
		return err
	}
	v.scaleLog2, v.lseFactor = scale, lseFactor(a.LSEBase2)
	latent, rope := &a.QLatent, &a.QRope
	v.qLatent, v.qRope = a.QLatent.Ptr, a.QRope.Ptr
	if !a.Q.absent() {
		latent, rope = &a.Q, &a.Q
		v.qLatent, v.qRope = a.Q.Ptr, a.Q.Ptr+Ptr(int64(d.model.Latent)*a.Q.DType.Bytes())
	}
	for i := range 3 {
		v.qLatentStride[i], v.qRopeStride[i], v.outStride[i] = latent.strideBytes(i), rope.strideBytes(i), a.Out.strideBytes(i)
	}
	v.blockTable, v.blockTableStride = a.BlockTable.Ptr, a.BlockTable.stride(0)
	v.kvLen, v.out, v.lse = a.KVLen.Ptr, a.Out.Ptr, a.LSE.Ptr
	v.partialOut, v.partialState = a.Workspace.Ptr+Ptr(p.partialOut), a.Workspace.Ptr+Ptr(p.partialState)
	d.setBatch(a.Batch, a.Splits)
	d.setSchedule(a.Schedule.Ptr, p)
	return nil
}

// newTokens checks a promise about the cache: a request's query tokens, at least so
// many, are new.
func newTokens(n, least int, of string) error {
	if n != 0 && n < least || n < 0 || n > math.MaxInt32 {
		return argumentError("new tokens", fmt.Sprintf("0 where any token may have just been written, or %d, the %s, to %d", least, of, math.MaxInt32), "was %d", n)
	}
	return nil
}

// rows is what q, out and lse have in common.
func (d *Decode) rows(name string, dtype DType, batch int) expectation {
	return expectation{
		name: name, dtype: dtype, rank: 4, align: rowAlign,
		axes: [4]axis{{"batch", int64(batch)}, {"s_q", int64(d.model.SQ)}, {"heads", int64(d.model.Heads)}},
	}
}

func (d *Decode) query(a *DecodeArgs) error {
	split := !a.QLatent.absent() || !a.QRope.absent()
	if joint := !a.Q.absent(); joint == split {
		was := "was not given"
		if joint {
			was = "was given beside q_latent and q_rope"
		}
		return argumentError("q", "either one tensor, or two: q_latent and q_rope", "%s", was)
	}
	if !split {
		x := d.rows("q", d.model.DType, a.Batch)
		x.axes[3] = axis{"latent+rope", int64(d.model.Key())}
		return d.places.tensor(argQ, &x, &a.Q)
	}
	x := d.rows("q_latent", d.model.DType, a.Batch)
	x.axes[3] = axis{"latent", int64(d.model.Latent)}
	if err := d.places.tensor(argQ, &x, &a.QLatent); err != nil {
		return err
	}
	x.name, x.axes[3] = "q_rope", axis{"rope", int64(d.model.Rope)}
	return d.places.tensor(argQRope, &x, &a.QRope)
}

func (d *Decode) cache(kv *Tensor) error {
	x := expectation{
		name: "kv", dtype: d.model.DType, rank: 3, align: rowAlign,
		axes: [4]axis{{"pages", -1}, {"page", int64(d.model.Page)}, {"latent+rope", int64(d.model.Key())}},
	}
	if err := d.places.tensor(argKV, &x, kv); err != nil {
		return err
	}
	if pages := kv.Shape[0]; pages < 1 || pages > math.MaxInt32 {
		return argumentError("kv", fmt.Sprintf("1 to %d: the block table numbers them in 31 bits", math.MaxInt32), "it had %d pages", pages)
	}
	for i := range 2 {
		if n := kv.strideBytes(i); kv.Shape[i] > 1 && (n <= 0 || n >= tensorMapStride) {
			return argumentError("kv", fmt.Sprintf("more than 0 and less than %d bytes", int64(tensorMapStride)),
				"%s stride was %d elements (%d bytes)", x.axes[i].name, kv.stride(i), n)
		}
	}
	return nil
}

func (d *Decode) table(t *Tensor, batch int) error {
	x := expectation{name: "block_table", dtype: S32, rank: 2, axes: [4]axis{{"batch", int64(batch)}, {"width", -1}}}
	return d.places.tensor(argBlockTable, &x, t)
}

func (d *Decode) kvLen(t *Tensor, batch int) error {
	x := expectation{name: "kv_len", dtype: S32, rank: 1, axes: [4]axis{{"batch", int64(batch)}}}
	return d.places.tensor(argKVLen, &x, t)
}

func (d *Decode) results(a *DecodeArgs) error {
	x := d.rows("out", d.model.Out, a.Batch)
	x.axes[3], x.output = axis{"latent", int64(d.model.Latent)}, true
	if err := d.places.tensor(argOut, &x, &a.Out); err != nil {
		return err
	}
	x = d.rows("lse", F32, a.Batch)
	x.rank, x.align, x.dense, x.output = 3, 4, true, true
	return d.places.tensor(argLSE, &x, &a.LSE)
}
