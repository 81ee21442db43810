package check

import (
	"fmt"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/runtime"
)

// placePool allocates and fills the cache.
func placePool(in *cases.Decode, m *memory) (buffer, error) {
	kv, err := m.alloc("kv", in.Pool.Bytes())
	if err != nil {
		return kv, err
	}
	background, spans, err := in.Pool.Upload()
	if err != nil {
		return kv, err
	}
	if err := m.driver.Fill(kv.ptr, background, kv.size); err != nil {
		return kv, err
	}
	for _, s := range spans {
		if err := m.driver.Upload(kv.ptr+runtime.Ptr(s.Offset), s.Data); err != nil {
			return kv, err
		}
	}
	return kv, nil
}

// placeDecode allocates and fills the call's buffers beside the cache.
func placeDecode(in *cases.Decode, kv buffer, m *memory) (*decodeCall, error) {
	c := in.Case
	tokens := len(in.KVLen) * in.QLen
	call := &decodeCall{in: in, kv: kv, rows: outRows(c, tokens, c.Model.Latent), qRows: queryRows(c, tokens, c.Model.Record())}
	if c.Layout.Q == "split" {
		call.qRows, call.ropeRows = queryRows(c, tokens, c.Model.Latent), queryRows(c, tokens, c.Model.Rope)
	}
	var err error
	upload := func(b *buffer, name string, data []byte) {
		if err == nil {
			*b, err = m.upload(name, data)
		}
	}
	if c.Layout.Q == "split" {
		latent, rope := in.SplitQ()
		upload(&call.q, "q_latent", c.DType.Encode(nil, call.qRows.spread(latent)))
		upload(&call.qRope, "q_rope", c.DType.Encode(nil, call.ropeRows.spread(rope)))
	} else {
		upload(&call.q, "q", c.DType.Encode(nil, call.qRows.spread(in.Q)))
	}
	upload(&call.table, "block_table", encodeInts(in.Table))
	lengths := in.KVLen
	if c.Graph != nil {
		lengths = nil
		for _, n := range c.Graph.CaptureKVLen {
			lengths = append(lengths, int32(n))
		}
	}
	upload(&call.kvLen, "kv_len", encodeInts(lengths))
	if err != nil {
		return nil, err
	}

	if call.out, err = m.guard("out", int64(call.rows.elements()*c.DType.Size())); err != nil {
		return nil, err
	}
	call.lse, err = m.guard("lse", int64(tokens*c.Model.Heads*4))
	return call, err
}

// inputsIntact reports an input that the run changed.
func inputsIntact(call *decodeCall, m *memory) error {
	in := call.in
	type input struct {
		b    buffer
		want []byte
	}
	inputs := []input{{call.table, encodeInts(in.Table)}, {call.kvLen, encodeInts(in.KVLen)}}
	if in.Case.Layout.Q == "joint" {
		inputs = append(inputs, input{call.q, in.Case.DType.Encode(nil, call.qRows.spread(in.Q))})
	}
	_, spans, err := in.Pool.Upload()
	if err != nil {
		return err
	}
	for _, s := range spans {
		inputs = append(inputs, input{buffer{name: "kv", ptr: call.kv.ptr + runtime.Ptr(s.Offset), size: int64(len(s.Data))}, s.Data})
	}
	for _, i := range inputs {
		got, err := m.download(i.b)
		if err != nil {
			return err
		}
		if at := differs(i.want, got); at >= 0 {
			return fmt.Errorf("the run changed its input %s at byte %d", i.b.name, at)
		}
	}
	return nil
}
