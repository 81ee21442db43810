package runtime

import (
	"fmt"
	"math"
)

// The arguments whose addresses are looked up.
const (
	layerKVLen = iota
	layerTable
	layerSchedule
	layerWorkspace
	layerQ
	layerQRope
	layerWeights
	layerOut
	layerArguments
)

// The views that a call makes of tensors.
const (
	viewCu = iota
	viewLengths
	viewTable
	viewQ
	viewQOther
	viewQNope
	viewQRope
	viewKeys
	viewValues
	viewAbsorbed
	viewAbsorbedLatent
	viewAbsorbedRope
	viewOut
	viewLSE
	layerViews
)

// scheduleArgs validates a step.
func (l *Layer) scheduleArgs(s Stream, a *LayerStep) error {
	if s == nil {
		return noStream()
	}
	p := a.Plan
	if p == nil {
		return argumentError("plan", "what Plan returned", "was nil")
	}
	if p.layer != l {
		return argumentError("plan", "one that this layer made", "was made by another")
	}
	if p.QueryTokens == 0 {
		return nil
	}
	requests := int64(len(p.Requests))
	l.places.begin()
	x := expectation{name: "kv_len", dtype: S32, rank: 1, dense: true, axes: [4]axis{{"requests", requests}}}
	if err := l.places.tensor(layerKVLen, &x, &a.KVLen); err != nil {
		return err
	}
	x = expectation{name: "block_table", dtype: S32, rank: 2, axes: [4]axis{{"requests", requests}, {"width", -1}}}
	if err := l.places.tensor(layerTable, &x, &a.BlockTable); err != nil {
		return err
	}
	if err := l.places.buffer(layerSchedule, "schedule", a.Schedule, p.ScheduleBytes); err != nil {
		return err
	}
	return apart(&l.places)
}

// runArgs validates a.
func (l *Layer) runArgs(s Stream, a *LayerArgs) error {
	if err := l.scheduleArgs(s, &a.LayerStep); err != nil || a.Plan.QueryTokens == 0 {
		return err
	}
	if made, known := l.scheduled.of(s, a.Schedule.Ptr); known && !made.same(a.Plan) {
		return argumentError("plan", "the one with which Schedule filled the schedule, or one of the same requests and paths", "was another")
	}
	m, tokens := &l.shape, int64(a.Plan.QueryTokens)
	split := !a.QNope.absent() || !a.QRope.absent()
	if joint := !a.Q.absent(); joint == split {
		was := "was not given"
		if joint {
			was = "was given beside q_nope and q_rope"
		}
		return argumentError("q", "either one tensor, or two: q_nope and q_rope", "%s", was)
	}
	rows := func(name string, width string, columns int) expectation {
		return expectation{name: name, dtype: m.DType, rank: 3, align: rowAlign, axes: [4]axis{{"query tokens", tokens}, {"heads", int64(m.Heads)}, {width, int64(columns)}}}
	}
	if split {
		if err := l.mapped(layerQ, rows("q_nope", "nope", m.Nope), &a.QNope); err != nil {
			return err
		}
		if err := l.mapped(layerQRope, rows("q_rope", "rope", m.Rope), &a.QRope); err != nil {
			return err
		}
	} else if err := l.mapped(layerQ, rows("q", "nope+rope", m.Nope+m.Rope), &a.Q); err != nil {
		return err
	}
	cache := &l.decodes[0].places
	cache.begin()
	if err := l.decodes[0].cache(&a.KV); err != nil {
		return err
	}
	w := expectation{
		name: "weights", dtype: m.DType, rank: 3, align: rowAlign,
		axes: [4]axis{{"heads", int64(m.Heads)}, {"nope+value", int64(m.Nope + m.Value)}, {"latent", int64(m.Latent)}},
	}
	if err := l.mapped(layerWeights, w, &a.Weights); err != nil {
		return err
	}
	if a.Workspace.Ptr%workspaceAlign != 0 {
		return argumentError("workspace", fmt.Sprintf("aligned to %d bytes", workspaceAlign), "address was %#x", a.Workspace.Ptr)
	}
	if err := l.places.buffer(layerWorkspace, "workspace", a.Workspace, a.Plan.WorkspaceBytes); err != nil {
		return err
	}
	out := rows("out", "value", m.Value)
	out.output = true
	if err := l.mapped(layerOut, out, &a.Out); err != nil {
		return err
	}
	if err := apart(&l.places, cache); err != nil {
		return err
	}
	if err := newTokens(a.NewTokens, a.Plan.mostNew, "most new tokens of a request in the plan"); err != nil {
		return err
	}
	if scale := float64(a.Scale) * math.Log2E; !(a.Scale > 0) || math.IsInf(float64(float32(scale)), 0) {
		return argumentError("scale", "finite and greater than 0, 1/sqrt(nope+rope) times what the model adds", "was %v", a.Scale)
	}
	return nil
}

// mapped checks a tensor that a tensor map describes.
func (l *Layer) mapped(index int, x expectation, t *Tensor) error {
	if err := l.places.tensor(index, &x, t); err != nil {
		return err
	}
	return mapStrides(&x, t)
}
