package runtime

import (
	"fmt"
	"math"
)

// The tensor maps of expand_prefill.
const (
	mapQNope = iota
	mapQRope
	mapKNope
	mapV
	mapKRope
	prefillMaps
)

var prefillMapNames = [prefillMaps]string{"q_nope", "q_rope", "k_nope", "v", "k_rope"}

// prefillMap is a tensor map and what it describes.
type prefillMap struct {
	valid   bool
	view    mapView
	encoded [128]byte
}

// mapView is columns of a tensor [rows, heads, columns], or [rows, columns] with
// heads 0.
type mapView struct {
	address               Ptr
	columns, heads, rows  int64
	headStride, rowStride int64 // bytes
}

// describe brings the tensor maps up to date, encoding those whose tensors are
// others than last time.
func (p *Prefill) describe(a *PrefillArgs) error {
	m := &p.model
	views := [prefillMaps]mapView{
		mapQNope: viewOf(&a.QNope, 0, m.Nope), mapQRope: viewOf(&a.QRope, 0, m.Rope),
		mapKNope: viewOf(&a.KVUp, 0, m.Nope), mapV: viewOf(&a.KVUp, m.Nope, m.Value), mapKRope: viewOf(&a.KRope, 0, m.Rope),
	}
	if !a.Q.absent() {
		views[mapQNope], views[mapQRope] = viewOf(&a.Q, 0, m.Nope), viewOf(&a.Q, m.Nope, m.Rope)
	}
	for i, view := range views {
		c := &p.maps[i]
		if view.rows == 0 { // without keys nothing is read through it
			view = views[mapQNope]
			view.columns = int64(m.Rope)
			if i == mapKRope {
				view.heads = 0
			}
		}
		if c.valid && c.view == view {
			continue
		}
		c.valid = false
		sizes, strides := []uint64{uint64(view.columns), uint64(view.rows)}, []uint64{uint64(view.rowStride)}
		if view.heads > 0 {
			sizes = []uint64{uint64(view.columns), uint64(view.heads), uint64(view.rows)}
			strides = []uint64{uint64(view.headStride), uint64(view.rowStride)}
		}
		encoded, err := p.attend.EncodeTensorMap(prefillMapNames[i], view.address, sizes, strides)
		if err != nil {
			return fmt.Errorf("%s: %w", prefillMapNames[i], err)
		}
		*c = prefillMap{true, view, encoded}
	}
	return nil
}

// viewOf returns what a tensor map says of count columns of a tensor from first
// on, nothing of one that was not given. Strides of dimensions without
// neighbours are made up, since a map must have some.
func viewOf(t *Tensor, first, count int) mapView {
	if t.absent() {
		return mapView{}
	}
	size := t.DType.Bytes()
	v := mapView{address: t.Ptr + Ptr(int64(first)*size), columns: int64(count), rows: t.Shape[0], rowStride: t.strideBytes(0)}
	wide := t.Shape[len(t.Shape)-1] * size
	if len(t.Shape) == 3 {
		v.heads, v.headStride = t.Shape[1], t.strideBytes(1)
		if v.headStride == 0 {
			v.headStride = wide
		}
		wide = v.heads * v.headStride
	}
	if v.rowStride == 0 {
		v.rowStride = wide
	}
	return v
}

// fillAttend fills the parameters of expand_prefill.
func (p *Prefill) fillAttend(a *PrefillArgs, plan *prefillPlan) {
	v := p.attendParams
	v.err = nil
	for i, name := range prefillMapNames {
		v.TensorMap(name, &p.maps[i].encoded)
	}
	v.Float("scale_log2", float64(a.Scale)*math.Log2E)
	v.Pointer("work_head", a.Schedule.Ptr+Ptr(plan.head)).Pointer("work_blocks", a.Schedule.Ptr+Ptr(plan.blocks))
	v.Int("query_tokens", plan.queryTokens)
	token, head := int64(0), int64(0)
	if len(a.Out.Shape) == 3 {
		token, head = a.Out.strideBytes(0), a.Out.strideBytes(1)
	}
	v.Pointer("out", a.Out.Ptr).Int("out_token", token).Int("out_head", head)
	v.Pointer("lse", a.LSE.Ptr).Float("lse_factor", lseFactor(a.LSEBase2))
}

// fillSchedule fills the parameters of expand_schedule.
func (p *Prefill) fillSchedule(a *PrefillScheduleArgs, plan *prefillPlan) {
	v := p.scheduleParams
	v.err = nil
	v.Pointer("cu_q", a.CuQ.Ptr).Pointer("cu_k", a.CuK.Ptr)
	v.Pointer("work_head", a.Buffer.Ptr+Ptr(plan.head)).Pointer("work_before", a.Buffer.Ptr+Ptr(plan.before)).Pointer("work_blocks", a.Buffer.Ptr+Ptr(plan.blocks))
	v.Int("sequences", int64(a.Sequences)).Int("query_tokens", int64(a.QueryTokens)).Int("key_tokens", int64(a.KeyTokens))
	causal := int64(0)
	if a.Causal {
		causal = 1
	}
	v.Int("causal", causal).Int("most_blocks", plan.mostBlocks)
}
