package extremes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/check"
	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/golden/oracle"
	"github.com/mlagen/mlagen/runtime"
)

const (
	latent, rope, page = 512, 64, 64
	record             = latent + rope
	scale              = 0.07
)

// rig is a decode of one query token on a cache of a few pages, which every
// block table repeats: however long a context is, its keys are the same few,
// each of them so many times, and attention to them is known from attention to
// few. Queries are one of a few classes likewise.
type rig struct {
	e       *Env
	heads   int
	batch   int
	pages   int // that differ
	classes int // of queries
	width   int // entries of a block table

	d        *runtime.Decode
	s        runtime.Stream
	m        memory
	queries  [][]float32 // of a class: [heads][record]
	records  [][]float32
	args     runtime.DecodeArgs
	schedule runtime.ScheduleArgs
	lengths  []int
	known    map[[2]int]oracle.Result // by class and length
}

// newRig loads the kernels and fills the memory for batch requests of up to so
// many tokens.
func newRig(e *Env, heads, batch, tokens int, seed uint64) (_ *rig, err error) {
	r := &rig{e: e, m: memory{driver: e.Driver}, heads: heads, batch: batch, pages: 5, classes: 4, width: tokens/page + 1, known: map[[2]int]oracle.Result{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if err := r.load(); err != nil {
		return nil, err
	}
	if r.s, err = e.Driver.NewStream(); err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(seed, 5))
	rows := func(n, width int, deviation float64) (all [][]float32) {
		for range n {
			row := make([]float32, width)
			for i := range row {
				row[i] = dtype.BF16.Round(float32(random.NormFloat64() * deviation))
			}
			all = append(all, row)
		}
		return all
	}
	r.queries, r.records = rows(r.classes, heads*record, 1), rows(r.pages*page, record, 0.25)
	var q, kv []byte
	for b := range batch {
		q = dtype.BF16.Encode(q, r.queries[b%r.classes])
	}
	for _, row := range r.records {
		kv = dtype.BF16.Encode(kv, row)
	}
	var table []byte
	for range batch {
		for i := range r.width {
			table = binary.LittleEndian.AppendUint32(table, uint32(i%r.pages))
		}
	}
	n, h := int64(batch), int64(heads)
	r.args = runtime.DecodeArgs{
		Batch: batch, Scale: scale,
		Q:          runtime.Dense(r.m.upload("q", q), runtime.BF16, n, 1, h, record),
		KV:         runtime.Dense(r.m.upload("kv", kv), runtime.BF16, int64(r.pages), page, record),
		BlockTable: runtime.Dense(r.m.upload("block_table", table), runtime.S32, n, int64(r.width)),
		KVLen:      runtime.Dense(r.m.upload("kv_len", make([]byte, 4*batch)), runtime.S32, n),
		Out:        runtime.Dense(r.m.upload("out", make([]byte, 2*batch*heads*latent)), runtime.BF16, n, 1, h, latent),
		LSE:        runtime.Dense(r.m.upload("lse", make([]byte, 4*batch*heads)), runtime.F32, n, 1, h),
	}
	for _, b := range []struct {
		to    *runtime.Buffer
		name  string
		bytes int64
	}{{&r.args.Schedule, "schedule", r.d.ScheduleBytes(batch, 0)}, {&r.args.Workspace, "workspace", r.d.WorkspaceBytes(batch, 0)}} {
		*b.to = runtime.Buffer{Ptr: r.m.alloc(b.name, b.bytes), Bytes: b.bytes}
	}
	r.schedule = runtime.ScheduleArgs{Batch: batch, KVLen: r.args.KVLen, Buffer: r.args.Schedule}
	return r, r.m.err
}

// load loads the kernels.
func (r *rig) load() error {
	v, err := r.e.Source.Decode(runtime.DecodeShape{Heads: r.heads, SQ: 1, Latent: latent, Rope: rope, Page: page, DType: runtime.BF16})
	if err != nil {
		return err
	}
	r.d, err = runtime.LoadDecode(r.e.Driver, v)
	return err
}

func (r *rig) close() error {
	var errs []error
	if r.d != nil {
		errs = append(errs, r.d.Close())
	}
	if r.s != nil {
		errs = append(errs, r.s.Destroy())
	}
	return errors.Join(append(errs, r.m.free())...)
}

// lengthen sets the requests' lengths.
func (r *rig) lengthen(lengths []int) error {
	r.lengths = lengths
	var b []byte
	for _, n := range lengths {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	return r.e.Driver.Upload(r.args.KVLen.Ptr, b)
}

// poison fills outputs with NaN.
func (r *rig) poison() error {
	return errors.Join(
		r.e.Driver.Fill(r.args.Out.Ptr, 0xff, int64(2*r.batch*r.heads*latent)),
		r.e.Driver.Fill(r.args.LSE.Ptr, 0xff, int64(4*r.batch*r.heads)))
}

// launch enqueues scheduling and decode.
func (r *rig) launch() error {
	if err := r.d.Schedule(r.s, r.schedule); err != nil {
		return err
	}
	return r.d.Run(r.s, r.args)
}

// results waits and returns out and lse.
func (r *rig) results() (out, lse []byte, err error) {
	if err := r.s.Synchronize(); err != nil {
		return nil, nil, err
	}
	out, lse = make([]byte, 2*r.batch*r.heads*latent), make([]byte, 4*r.batch*r.heads)
	err = errors.Join(r.e.Driver.Download(out, r.args.Out.Ptr), r.e.Driver.Download(lse, r.args.LSE.Ptr))
	return out, lse, err
}

// decode runs once and returns the result.
func (r *rig) decode() (out, lse []byte, err error) {
	if err := errors.Join(r.poison(), r.launch()); err != nil {
		return nil, nil, err
	}
	return r.results()
}

// reference is a request's result: over the pages, as often as they are whole in
// its context, merged with that over what is left.
func (r *rig) reference(class, tokens int) oracle.Result {
	key := [2]int{class, tokens}
	if known, ok := r.known[key]; ok {
		return known
	}
	few := func(n int) oracle.Result {
		return (&oracle.Decode[float32]{
			Heads: r.heads, QLen: 1, Latent: latent, Rope: rope, Scale: float64(float32(scale)), KVLen: []int{n},
			Q:   func(_, _, head int) []float32 { return r.queries[class][head*record:][:record] },
			Row: func(_, position int) []float32 { return r.records[position] },
		}).Run()
	}
	rest := few(tokens % len(r.records))
	times := tokens / len(r.records)
	result := rest
	if times > 0 {
		whole := few(len(r.records))
		for i := range whole.LSE {
			whole.LSE[i] += math.Log(float64(times))
		}
		result = oracle.Merge(whole, rest)
	}
	r.known[key] = result
	return result
}

// judge compares a result with the reference.
func (r *rig) judge(out, lse []byte) (check.Errors, error) {
	want := oracle.Result{Width: latent}
	for b, n := range r.lengths {
		one := r.reference(b%r.classes, n)
		want.Out, want.LSE = append(want.Out, one.Out...), append(want.LSE, one.LSE...)
	}
	return check.Compare(want, dtype.BF16.Decode(nil, out), dtype.F32.Decode(nil, lse), cases.Tolerance{Out: 5e-3, LSE: 1e-3}, func(row int) string {
		return fmt.Sprintf("request %d (%d tokens), head %d", row/r.heads, r.lengths[row/r.heads], row%r.heads)
	})
}

// right decodes with the lengths and compares.
func (r *rig) right(lengths []int) (out, lse []byte, figures string, err error) {
	if err = r.lengthen(lengths); err != nil {
		return nil, nil, "", err
	}
	if out, lse, err = r.decode(); err != nil {
		return nil, nil, "", err
	}
	errs, err := r.judge(out, lse)
	return out, lse, fmt.Sprintf("out %.1e lse %.1e", errs.Out, errs.LSE), err
}

// sameBits is an error where two results differ.
func sameBits(what string, out, lse, wantOut, wantLSE []byte) error {
	if !bytes.Equal(out, wantOut) {
		return fmt.Errorf("%s: out is another", what)
	}
	if !bytes.Equal(lse, wantLSE) {
		return fmt.Errorf("%s: lse is another", what)
	}
	return nil
}
