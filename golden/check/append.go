package check

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/runtime"
)

// wholePool is the largest pool of which every byte is looked at after a run;
// of larger ones the pages in use are.
const wholePool = 64 << 20

// openAppend returns the runtime's append for a case, loading its kernel when
// no case before needed the same.
func (r *Runner) openAppend(c *cases.Case) (*runtime.AppendKV, error) {
	shape := runtime.AppendShape{Latent: c.Model.Latent, Rope: c.Model.Rope, Page: c.PageSize, DType: runtime.DType(c.DType), Rotate: c.Rotate}
	if a := r.appends[shape]; a != nil {
		return a, nil
	}
	s, ok := r.Source.(runtime.StateSource)
	if !ok {
		return nil, errors.New("the source of kernels has none that append")
	}
	v, err := s.AppendKV(shape)
	if err != nil {
		return nil, err
	}
	a, err := runtime.LoadAppendKV(r.Driver, v, runtime.WithWarnings(r.Warn))
	if err != nil {
		return nil, err
	}
	r.appends[shape] = a
	return a, nil
}

// runAppend runs an append case.
func (r *Runner) runAppend(c *cases.Case) (Outcome, error) {
	if err := poolFits(c, r.Options); err != nil {
		return Outcome{}, err
	}
	in, err := c.Append()
	if err != nil {
		return Outcome{}, err
	}
	once := func(m *memory) ([][]byte, error) { return r.appendOnce(in, m) }
	judge := func(results [][]byte) (Outcome, error) { return r.judgeAppend(in, results) }
	return r.underSchedules(c, once, judge)
}

// appendOnce appends in memory of its own and returns the bytes of the pool, or
// of its pages in use one after the other.
func (r *Runner) appendOnce(in *cases.Append, m *memory) ([][]byte, error) {
	c := in.Case
	a, err := r.openAppend(c)
	if err != nil {
		return nil, err
	}
	pool := &in.Before
	background, spans, err := pool.Upload()
	if err != nil {
		return nil, err
	}
	kv, err := m.guard("kv", pool.Bytes())
	if err != nil {
		return nil, err
	}
	var failed error
	upload := func(name string, data []byte) runtime.Ptr {
		b, err := m.upload(name, data)
		failed = errors.Join(failed, err)
		return b.ptr
	}
	tokens, latent, rope, t := int64(in.Tokens), int64(c.Model.Latent), int64(c.Model.Rope), runtime.DType(c.DType)
	args := runtime.AppendArgs{
		KV: runtime.Tensor{
			Ptr: kv.ptr, DType: t, Shape: []int64{pool.Pages, int64(c.PageSize), int64(pool.Record)},
			Strides: []int64{pool.PageStride, int64(pool.RowStride), 1},
		},
		Slots: runtime.Dense(upload("slots", encodeLongs(in.Slots)), runtime.S64, tokens),
	}
	if c.Layout.Q == "split" { // two tensors, and one otherwise
		args.Latent = runtime.Dense(upload("latent", c.DType.Encode(nil, in.Latent)), t, tokens, latent)
		args.RopeKey = runtime.Dense(upload("rope_key", c.DType.Encode(nil, in.RopeKey)), t, tokens, rope)
	} else {
		var records []float32
		for i := range in.Tokens {
			records = append(records, in.Latent[i*int(latent):][:latent]...)
			records = append(records, in.RopeKey[i*int(rope):][:rope]...)
		}
		at := upload("records", c.DType.Encode(nil, records))
		strides := []int64{latent + rope, 1}
		args.Latent = runtime.Tensor{Ptr: at, DType: t, Shape: []int64{tokens, latent}, Strides: strides}
		args.RopeKey = runtime.Tensor{Ptr: at + runtime.Ptr(latent*t.Bytes()), DType: t, Shape: []int64{tokens, rope}, Strides: strides}
	}
	if c.Rotate != "" {
		args.Positions = runtime.Dense(upload("positions", encodeInts(in.Positions)), runtime.S32, tokens)
		// As engines have them: cosines and sines of a position in one row.
		half := int(rope / 2)
		var table []float32
		for p := range in.Angles {
			table = append(append(table, in.Cos[p*half:][:half]...), in.Sin[p*half:][:half]...)
		}
		at := upload("angles", dtype.F32.Encode(nil, table))
		args.Cos = runtime.Tensor{Ptr: at, DType: runtime.F32, Shape: []int64{int64(in.Angles), int64(half)}, Strides: []int64{rope, 1}}
		args.Sin = args.Cos
		args.Sin.Ptr += runtime.Ptr(4 * half)
	}
	if failed != nil {
		return nil, failed
	}
	restore := func() error {
		if err := m.driver.Fill(kv.ptr, background, kv.size); err != nil {
			return err
		}
		for _, s := range spans {
			if err := m.driver.Upload(kv.ptr+runtime.Ptr(s.Offset), s.Data); err != nil {
				return err
			}
		}
		return nil
	}
	op := operation{launch: func(s runtime.Stream) error { return a.Run(s, args) }}
	watched := spans
	if pool.Bytes() <= wholePool {
		watched = []cases.Span{{Offset: 0, Data: make([]byte, pool.Bytes())}}
	}
	for i, s := range watched {
		before := func() error { return nil }
		if i == 0 {
			before = restore
		}
		op.outputs = append(op.outputs, output{buffer{name: "kv", ptr: kv.ptr + runtime.Ptr(s.Offset), size: int64(len(s.Data))}, before})
	}
	return r.execute(c, m, op)
}

// judgeAppend compares the pool with what it must be: to the bit, but for rope
// keys that were rotated.
func (r *Runner) judgeAppend(in *cases.Append, results [][]byte) (outcome Outcome, err error) {
	c, pool := in.Case, &in.After
	size := int64(c.DType.Size())
	background, spans, err := pool.Upload()
	if err != nil {
		return outcome, err
	}
	if pool.Bytes() <= wholePool {
		whole := make([]byte, pool.Bytes())
		for i := range whole {
			whole[i] = background
		}
		for _, s := range spans {
			copy(whole[s.Offset:], s.Data)
		}
		spans = []cases.Span{{Offset: 0, Data: whole}}
	}
	// at returns n bytes of the result, and of what it must be, from an offset of
	// the pool on.
	at := func(offset, n int64) (got, want []byte) {
		for i, s := range spans {
			if from := offset - s.Offset; from >= 0 && from+n <= int64(len(s.Data)) {
				return results[i][from : from+n], s.Data[from : from+n]
			}
		}
		panic("a new token lies outside the pages in use")
	}
	for i, token := range in.New {
		if c.Rotate == "" {
			break
		}
		first := token.Page*pool.PageStride + int64(token.Slot*pool.RowStride+c.Model.Latent)
		got, want := at(first*size, int64(c.Model.Rope)*size)
		e, err := rowError(token.Rope, c.DType.Decode(nil, got))
		if err == nil && e > c.Tolerance.Out {
			err = fmt.Errorf("it is off by %.2e of its norm, more than %.0e", e, c.Tolerance.Out)
		}
		if err != nil {
			return outcome, fmt.Errorf("rope key of new token %d (page %d, slot %d): %w", i, token.Page, token.Slot, err)
		}
		outcome.Errors.Out = max(outcome.Errors.Out, e)
		copy(want, got) // it has been judged
	}
	for i, s := range spans {
		if at := differs(s.Data, results[i]); at >= 0 {
			element := (s.Offset + int64(at)) / size
			page, inPage, row := element/pool.PageStride, element%pool.PageStride, int64(pool.RowStride)
			return outcome, fmt.Errorf("the cache is not what it must be at page %d, slot %d, element %d", page, inPage/row, inPage%row)
		}
	}
	outcome.Notes = fmt.Sprintf("%d of %d tokens stored", len(in.New), in.Tokens)
	if r.Dump != "" {
		err = dumpAppend(filepath.Join(r.Dump, c.Name), in)
	}
	return outcome, err
}

// dumpAppend writes an append case's inputs for other programs.
func dumpAppend(dir string, in *cases.Append) error {
	m := in.Case.Model
	slots := make([]int32, len(in.Slots))
	for i, s := range in.Slots {
		if slots[i] = int32(s); int64(slots[i]) != s {
			return fmt.Errorf("slot %d of token %d does not fit the dump's 32 bits", s, i)
		}
	}
	return errors.Join(
		writeNPY(filepath.Join(dir, "latent.npy"), []int{in.Tokens, m.Latent}, in.Latent),
		writeNPY(filepath.Join(dir, "rope_key.npy"), []int{in.Tokens, m.Rope}, in.RopeKey),
		writeNPY(filepath.Join(dir, "slots.npy"), []int{in.Tokens}, slots),
	)
}

func encodeLongs(x []int64) []byte {
	b := make([]byte, 0, 8*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}
