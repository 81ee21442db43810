package runtime

import (
	"fmt"
	"math"
)

// The arguments whose addresses are looked up.
const (
	prefillQ = iota
	prefillQRope
	prefillKVUp
	prefillKRope
	prefillCuQ
	prefillCuK
	prefillWork
	prefillOut
	prefillLSE
	prefillArguments
)

// scheduleArgs validates a.
func (p *Prefill) scheduleArgs(s Stream, a *PrefillScheduleArgs) (prefillPlan, error) {
	if s == nil {
		return prefillPlan{}, noStream()
	}
	plan, err := p.plan(a.Sequences, int64(a.QueryTokens))
	if err != nil {
		return plan, err
	}
	if a.KeyTokens < 0 || int64(a.KeyTokens) > math.MaxInt32/2 {
		return plan, argumentError("key tokens", fmt.Sprintf("0 to %d", math.MaxInt32/2), "was %d", a.KeyTokens)
	}
	if a.QueryTokens == 0 {
		return plan, nil
	}
	p.places.begin()
	x := expectation{name: "cu_q", dtype: S32, rank: 1, axes: [4]axis{{"sequences+1", int64(a.Sequences) + 1}}}
	if err := p.places.tensor(prefillCuQ, &x, &a.CuQ); err != nil {
		return plan, err
	}
	x.name = "cu_k"
	if err := p.places.tensor(prefillCuK, &x, &a.CuK); err != nil {
		return plan, err
	}
	if err := p.places.buffer(prefillWork, "schedule buffer", a.Buffer, plan.bytes); err != nil {
		return plan, err
	}
	return plan, apart(&p.places)
}

// runArgs validates a.
func (p *Prefill) runArgs(s Stream, a *PrefillArgs) (plan prefillPlan, err error) {
	if s == nil {
		return plan, noStream()
	}
	p.places.begin()
	tokens, err := p.query(a)
	if err != nil {
		return plan, err
	}
	if plan, err = p.plan(a.Sequences, tokens); err != nil {
		return plan, err
	}
	if tokens == 0 {
		if !a.Out.absent() { // or its rows would stay unwritten
			err = p.results(a, 0)
		}
		return plan, err
	}
	if err := p.keys(a); err != nil {
		return plan, err
	}
	if err := p.places.buffer(prefillWork, "schedule", a.Schedule, plan.bytes); err != nil {
		return plan, err
	}
	if made, known := p.scheduled.of(s, a.Schedule.Ptr); known {
		for i, was := range [3]int{a.Sequences, int(tokens), int(a.KVUp.Shape[0])} {
			if was != made[i] {
				return plan, argumentError([3]string{"sequences", "query tokens", "key tokens"}[i],
					fmt.Sprintf("%d, with which Schedule filled the schedule", made[i]), "were %d", was)
			}
		}
	}
	if err := p.results(a, tokens); err != nil {
		return plan, err
	}
	if err := apart(&p.places); err != nil {
		return plan, err
	}
	if scale := float64(a.Scale) * math.Log2E; !(a.Scale > 0) || math.IsInf(float64(float32(scale)), 0) {
		return plan, argumentError("scale", "finite and greater than 0, 1/sqrt(nope+rope) times what the model adds", "was %v", a.Scale)
	}
	return plan, nil
}

// rows is what tensors [tokens, heads, columns] have in common; tokens < 0 is
// any number.
func (p *Prefill) rows(name string, tokens int64, unit string, columns string, width int) expectation {
	return expectation{
		name: name, dtype: p.model.DType, rank: 3, align: rowAlign,
		axes: [4]axis{{unit, tokens}, {"heads", int64(p.model.Heads)}, {columns, int64(width)}},
	}
}

// query returns the query tokens.
func (p *Prefill) query(a *PrefillArgs) (tokens int64, err error) {
	const unit = "query tokens"
	split := !a.QNope.absent() || !a.QRope.absent()
	if joint := !a.Q.absent(); joint == split {
		was := "was not given"
		if joint {
			was = "was given beside q_nope and q_rope"
		}
		return 0, argumentError("q", "either one tensor, or two: q_nope and q_rope", "%s", was)
	}
	if !split {
		x := p.rows("q", -1, unit, "nope+rope", p.model.Key())
		if err := p.mapped(prefillQ, &x, &a.Q); err != nil {
			return 0, err
		}
		return a.Q.Shape[0], nil
	}
	x := p.rows("q_nope", -1, unit, "nope", p.model.Nope)
	if err := p.mapped(prefillQ, &x, &a.QNope); err != nil {
		return 0, err
	}
	x = p.rows("q_rope", a.QNope.Shape[0], unit, "rope", p.model.Rope)
	return a.QNope.Shape[0], p.mapped(prefillQRope, &x, &a.QRope)
}

func (p *Prefill) keys(a *PrefillArgs) error {
	const unit = "key tokens"
	x := p.rows("kv_up", -1, unit, "nope+value", p.model.Nope+p.model.Value)
	if err := p.mapped(prefillKVUp, &x, &a.KVUp); err != nil {
		return err
	}
	if n := a.KVUp.Shape[0]; n > math.MaxInt32/2 {
		return argumentError("kv_up", fmt.Sprintf("at most %d", math.MaxInt32/2), "it had %d key tokens", n)
	}
	x = expectation{
		name: "k_rope", dtype: p.model.DType, rank: 2, align: rowAlign,
		axes: [4]axis{{unit, a.KVUp.Shape[0]}, {"rope", int64(p.model.Rope)}},
	}
	return p.mapped(prefillKRope, &x, &a.KRope)
}

// mapped checks a tensor that a tensor map describes.
func (p *Prefill) mapped(index int, x *expectation, t *Tensor) error {
	if err := p.places.tensor(index, x, t); err != nil {
		return err
	}
	for i := range x.rank - 1 {
		if n := t.strideBytes(i); t.Shape[i] > 1 && !t.empty() && (n <= 0 || n >= tensorMapStride) {
			return argumentError(x.name, fmt.Sprintf("more than 0 and less than %d bytes", int64(tensorMapStride)),
				"%s stride was %d elements (%d bytes)", x.axes[i].name, t.stride(i), n)
		}
	}
	return nil
}

func (p *Prefill) results(a *PrefillArgs, tokens int64) error {
	x := p.rows("out", tokens, "query tokens", "value", p.model.Value)
	x.output = true
	if err := p.places.tensor(prefillOut, &x, &a.Out); err != nil {
		return err
	}
	x = p.rows("lse", tokens, "query tokens", "", 0)
	x.dtype, x.rank, x.align, x.dense, x.output = F32, 2, 4, true, true
	return p.places.tensor(prefillLSE, &x, &a.LSE)
}
