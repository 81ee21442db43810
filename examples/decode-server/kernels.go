package main

import (
	"fmt"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

// variant generates a kernel. A program that knows its shapes beforehand would
// embed the text instead, as examples/decode does.
func variant(kernel string, s templates.Spec) (runtime.Variant, error) {
	out, err := templates.Build(kernel, s)
	if err != nil {
		return runtime.Variant{}, fmt.Errorf("%s: %w", kernel, err)
	}
	return runtime.Variant{Name: kernel, PTX: out.PTX, Manifest: out.Manifest}, nil
}

// loadKernels generates and loads what a step takes, for the load that the
// configuration allows. splits is the number of pieces that every request is cut
// into. Row block and splits are chosen once, from the capacity: were they to
// follow the batch, a request's bits would follow its batch mates.
func loadKernels(drv runtime.Driver, c *config) (decode *runtime.Decode, appendKV *runtime.AppendKV, splits int, err error) {
	sms := drv.Attributes().SMs
	s := templates.Spec{Heads: c.heads, BlockH: templates.ChooseBlockH(c.heads, c.capacity, c.context(), sms)}
	splits = templates.ChooseSplits(c.heads, s.BlockH, c.capacity, c.context(), sms)
	if c.balanced {
		splits = 0
	}
	var v runtime.DecodeVariants
	if v.Decode, err = variant("absorb-decode", s); err != nil {
		return nil, nil, 0, err
	}
	if v.Schedule, err = variant("decode-schedule", s); err != nil {
		return nil, nil, 0, err
	}
	if v.Combine, err = variant("decode-combine", s); err != nil {
		return nil, nil, 0, err
	}
	append, err := variant("append-kv", templates.Spec{})
	if err != nil {
		return nil, nil, 0, err
	}
	if decode, err = runtime.LoadDecode(drv, v); err != nil {
		return nil, nil, 0, err
	}
	if appendKV, err = runtime.LoadAppendKV(drv, append); err != nil {
		return decode, nil, 0, err
	}
	return decode, appendKV, splits, nil
}
