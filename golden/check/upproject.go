package check

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/oracle"
	"github.com/mlagen/mlagen/runtime"
)

// spareRows are rows of an output past the last that a call writes.
const spareRows = 3

// upProjected is the results of one call: kv_up and k_rope from the cache, and
// kv_up from dense rows.
const (
	upFromCache = iota
	upRopeKeys
	upFromRows
	upResults
)

// runUpProject runs an up-projection case: from the cache, and again from dense
// rows, which must give the same bits.
func (r *Runner) runUpProject(c *cases.Case) (Outcome, error) {
	tokens := 0
	for _, n := range c.KVLen {
		tokens += n
	}
	if c.Graph != nil && !r.Driver.Attributes().GraphCapture {
		return Outcome{}, skip(fmt.Sprintf("%s does not capture graphs", r.Driver.Name()))
	}
	if err := productLimits(c, r.Options, 2*tokens); err != nil {
		return Outcome{}, err
	}
	in, err := c.UpProject()
	if err != nil {
		return Outcome{}, err
	}
	calls := in.Calls()
	run := func() (results [][]byte, err error) {
		for _, ranges := range calls {
			of, err := r.upProject(in, ranges)
			if err != nil {
				return nil, err
			}
			results = append(results, of...)
		}
		return results, nil
	}
	return r.overSchedules(c, run, func(results [][]byte) (worst float64, err error) {
		for i, ranges := range calls {
			of := results[upResults*i : upResults*(i+1)]
			e, err := judgeUpProject(in, ranges, of)
			if err != nil {
				return e, err
			}
			worst = max(worst, e)
		}
		if r.Dump != "" {
			return worst, dumpUpProject(filepath.Join(r.Dump, c.Name), in, results)
		}
		return worst, nil
	})
}

// rowsOfRanges lists the records of the ranges' tokens in order.
func rowsOfRanges(in *cases.UpProject, ranges []cases.Range) (rows [][]float32) {
	for b, x := range ranges {
		for t := x.First; t < x.End; t++ {
			rows = append(rows, in.Token(b, t))
		}
	}
	return rows
}

func judgeUpProject(in *cases.UpProject, ranges []cases.Range, results [][]byte) (float64, error) {
	c := in.Case
	rows := rowsOfRanges(in, ranges)
	w, heads := c.OracleWeights(in.Weights), c.Model.Heads
	worst, err := differRows(c, "kv_up", results[upFromCache], len(rows)*heads, func(i int) []float64 {
		return oracle.UpProject(w, i%heads, rows[i/heads])
	})
	if err != nil {
		return worst, err
	}
	var rope []float32
	for _, row := range rows {
		rope = append(rope, row[c.Model.Latent:]...)
	}
	if at := differs(c.DType.Encode(nil, rope), results[upRopeKeys]); at >= 0 {
		return worst, fmt.Errorf("k_rope differs from the cache's rope keys at byte %d", at)
	}
	if at := differs(results[upFromCache], results[upFromRows]); at >= 0 {
		return worst, fmt.Errorf("kv_up from dense rows differs from that of the cache at byte %d", at)
	}
	return worst, nil
}

// upProject runs one call in fresh memory.
func (r *Runner) upProject(in *cases.UpProject, ranges []cases.Range) (results [][]byte, err error) {
	c := in.Case
	u, err := r.openUpProject(c)
	if err != nil {
		return nil, err
	}
	m := &memory{driver: r.Driver}
	defer func() { err = errors.Join(err, m.free()) }()
	pool, err := placePool(in.Decode, m)
	if err != nil {
		return nil, err
	}
	rows := rowsOfRanges(in, ranges)
	first, cu := []int32{}, []int32{0}
	for _, x := range ranges {
		first = append(first, int32(x.First))
		cu = append(cu, cu[len(cu)-1]+int32(x.End-x.First))
	}
	captured, capacity := cu, len(rows)
	if c.Graph != nil {
		captured = []int32{0}
		for _, n := range c.Graph.CaptureKVLen {
			captured = append(captured, captured[len(captured)-1]+int32(n))
		}
		capacity = max(capacity, int(captured[len(captured)-1]))
	}
	up := inputs{m: m}
	table := up.upload("block_table", encodeInts(in.Table))
	firstToken := up.upload("first_token", encodeInts(first))
	weights := up.values(c, "weights", in.Weights)
	if up.err != nil {
		return nil, up.err
	}
	lengths, err := m.upload("cu_seqlens", encodeInts(captured))
	if err != nil {
		return nil, err
	}

	mod, dtype := c.Model, runtime.DType(c.DType)
	heads, width, batch := int64(mod.Heads), mod.Nope+mod.Value, int64(len(ranges))
	outs := make([]rowsOut, upResults)
	gap := outGapOf(c)
	if outs[upFromCache], err = placeRows(m, c, "kv_up", (capacity+spareRows)*mod.Heads, len(rows)*mod.Heads, width, gap); err != nil {
		return nil, err
	}
	if outs[upRopeKeys], err = placeRows(m, c, "k_rope", capacity+spareRows, len(rows), mod.Rope, gap); err != nil {
		return nil, err
	}
	if outs[upFromRows], err = placeRows(m, c, "kv_up from rows", len(rows)*mod.Heads, len(rows)*mod.Heads, width, gap); err != nil {
		return nil, err
	}
	kvUp := func(o rowsOut) runtime.Tensor {
		stride := int64(o.stride)
		return runtime.Tensor{Ptr: o.ptr, DType: dtype, Shape: []int64{int64(o.rows) / heads, heads, int64(width)}, Strides: []int64{heads * stride, stride, 1}}
	}
	w := runtime.Dense(weights, dtype, heads, int64(width), int64(mod.Latent))
	cached := runtime.UpProjectArgs{
		KV: runtime.Tensor{
			Ptr: pool.ptr, DType: dtype, Shape: []int64{in.Pool.Pages, int64(c.PageSize), int64(in.Pool.Record)},
			Strides: []int64{in.Pool.PageStride, int64(in.Pool.RowStride), 1},
		},
		BlockTable: runtime.Dense(table, runtime.S32, batch, int64(in.Width)),
		CuSeqlens:  runtime.Dense(lengths.ptr, runtime.S32, batch+1),
		Weights:    w,
		KVUp:       kvUp(outs[upFromCache]),
		KRope: runtime.Tensor{
			Ptr: outs[upRopeKeys].ptr, DType: dtype, Shape: []int64{int64(outs[upRopeKeys].rows), int64(mod.Rope)},
			Strides: []int64{int64(outs[upRopeKeys].stride), 1},
		},
	}
	if c.Chunk > 0 {
		cached.FirstToken = runtime.Dense(firstToken, runtime.S32, batch)
	}
	// Dense rows lie a row stride apart, as in the cache.
	stride := in.Pool.RowStride
	flat := make([]float32, len(rows)*stride)
	for i, row := range rows {
		copy(flat[i*stride:], row)
	}
	dense := runtime.UpProjectArgs{
		Latents: runtime.Tensor{Ptr: up.values(c, "latents", flat), DType: dtype, Shape: []int64{int64(len(rows)), int64(mod.Latent)}, Strides: []int64{int64(stride), 1}},
		Weights: w,
		KVUp:    kvUp(outs[upFromRows]),
	}
	if up.err != nil {
		return nil, up.err
	}
	results, err = r.once(c, m, outs,
		func(runtime.Stream) error {
			if lengths.size == 0 {
				return nil
			}
			return m.driver.Upload(lengths.ptr, encodeInts(cu))
		},
		func(s runtime.Stream) error {
			if err := u.Run(s, cached); err != nil {
				return err
			}
			return u.Run(s, dense)
		})
	if err != nil {
		return nil, err
	}
	return results, up.intact()
}

func (r *Runner) openUpProject(c *cases.Case) (*runtime.UpProject, error) {
	shape := runtime.UpProjectShape{
		Heads: c.Model.Heads, Latent: c.Model.Latent, Rope: c.Model.Rope, Nope: c.Model.Nope, Value: c.Model.Value,
		Page: c.PageSize, DType: runtime.DType(c.DType),
	}
	return load(r, shape, func() (*runtime.UpProject, error) {
		from, ok := r.Source.(runtime.UpProjectSource)
		if !ok {
			return nil, errors.New("the source of kernels makes no up-projection")
		}
		v, err := from.UpProject(shape)
		if err != nil {
			return nil, err
		}
		return runtime.LoadUpProject(r.Driver, v, runtime.WithWarnings(r.Warn))
	})
}

// dumpUpProject writes an up-projection's inputs and outputs; the rows of
// several calls follow each other.
func dumpUpProject(dir string, in *cases.UpProject, results [][]byte) error {
	c, m := in.Case, in.Case.Model
	var up, rope, latents []float32
	for i := 0; i < len(results); i += upResults {
		up = c.DType.Decode(up, results[i+upFromCache])
		rope = c.DType.Decode(rope, results[i+upRopeKeys])
	}
	for _, ranges := range in.Calls() {
		for _, row := range rowsOfRanges(in, ranges) {
			latents = append(latents, row...)
		}
	}
	tokens := len(rope) / max(1, m.Rope)
	return dumpTensors(dir,
		dumped{"latents", []int{tokens, m.Latent + m.Rope}, latents},
		dumped{"w_kv_b", []int{m.Heads, m.Nope + m.Value, m.Latent}, in.Weights},
		dumped{"kv_up", []int{tokens, m.Heads, m.Nope + m.Value}, up},
		dumped{"k_rope", []int{tokens, m.Rope}, rope})
}

type dumped struct {
	name  string
	shape []int
	data  []float32
}

func dumpTensors(dir string, tensors ...dumped) error {
	for _, t := range tensors {
		if err := writeNPY(filepath.Join(dir, t.name+".npy"), t.shape, t.data); err != nil {
			return err
		}
	}
	return nil
}
