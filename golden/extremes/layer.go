package extremes

import (
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
	"github.com/mlagen/mlagen/runtime/plan"
)

// millionTokensLayer computes a new token on a long prefix by either path, in a
// workspace that holds a small part of what is expanded. As in a rig, pages
// repeat.
func millionTokensLayer(e *Env) (figures string, err error) {
	n := e.size(1<<20+1, 700)
	const heads, pages = 2, 5
	room := int64(e.size(256<<20, 2<<20))
	from, ok := e.Source.(runtime.LayerSource)
	if !ok {
		return "", errors.New("the source has not all kernels of a layer")
	}
	v, err := runtime.LayerKernels(from, runtime.LayerShape{Heads: heads, Latent: latent, Rope: rope, Nope: nope, Value: value, Page: page, DType: runtime.BF16})
	if err != nil {
		return "", err
	}
	l, err := runtime.LoadLayer(e.Driver, v)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	s, err := e.Driver.NewStream()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Destroy()) }()

	random := rand.New(rand.NewPCG(8, 8))
	normal := func(n int, deviation float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = dtype.BF16.Round(float32(random.NormFloat64() * deviation))
		}
		return x
	}
	q, records, weights := normal(heads*queryWidth, 1), normal(pages*page*record, 0.25), normal(heads*(nope+value)*latent, 0.04)

	// The reference, absorbed: over the pages, so often, and over what is left.
	w := oracle.Weights[float32]{Heads: heads, Nope: nope, Value: value, Latent: latent, Data: weights}
	few := func(n int) oracle.Result {
		return (&oracle.Decode[float64]{
			Heads: heads, QLen: 1, Latent: latent, Rope: rope, Scale: float64(float32(scale)), KVLen: []int{n},
			Q: func(_, _, head int) []float64 { return oracle.AbsorbQuery(w, head, q[head*queryWidth:][:queryWidth]) },
			Row: func(_, at int) (row []float64) {
				for _, x := range records[at*record:][:record] {
					row = append(row, float64(x))
				}
				return row
			},
		}).Run()
	}
	whole, rest := few(pages*page), few(n%(pages*page))
	for i := range whole.LSE {
		whole.LSE[i] += math.Log(float64(n / (pages * page)))
	}
	attended := oracle.Merge(whole, rest)
	want := oracle.Result{Width: value, LSE: make([]float64, heads)}
	for h := range heads {
		want.Out = append(want.Out, oracle.AbsorbOutput(w, h, attended.Row(h))...)
	}

	m := &memory{driver: e.Driver}
	defer func() { err = errors.Join(err, m.free()) }()
	values := func(name string, x []float32) runtime.Ptr { return m.upload(name, dtype.BF16.Encode(nil, x)) }
	width := (n + page - 1) / page
	var table []byte
	for i := range width {
		table = binary.LittleEndian.AppendUint32(table, uint32(i%pages))
	}
	a := runtime.LayerArgs{
		LayerStep: runtime.LayerStep{
			KVLen:      runtime.Dense(m.upload("kv_len", binary.LittleEndian.AppendUint32(nil, uint32(n))), runtime.S32, 1),
			BlockTable: runtime.Dense(m.upload("block_table", table), runtime.S32, 1, int64(width)),
		},
		Q:       runtime.Dense(values("q", q), runtime.BF16, 1, heads, queryWidth),
		KV:      runtime.Dense(values("kv", records), runtime.BF16, pages, page, record),
		Weights: runtime.Dense(values("w_kv_b", weights), runtime.BF16, heads, nope+value, latent),
		Out:     runtime.Dense(m.alloc("out", 2*heads*value), runtime.BF16, 1, heads, value),
		Scale:   scale,
	}
	for _, path := range []plan.Path{plan.Absorb, plan.Expand} {
		p, failed := l.Plan([]plan.Request{{New: 1, Prefix: n - 1}}, runtime.LayerOptions{Workspace: room, Paths: []plan.Path{path}})
		if err := errors.Join(m.err, failed); err != nil {
			return "", err
		}
		a.Plan = p
		a.Schedule = runtime.Buffer{Ptr: m.alloc("schedule", p.ScheduleBytes), Bytes: p.ScheduleBytes}
		a.Workspace = runtime.Buffer{Ptr: m.alloc("workspace", p.WorkspaceBytes), Bytes: p.WorkspaceBytes}
		if m.err != nil {
			return "", m.err
		}
		err = errors.Join(e.Driver.Fill(a.Out.Ptr, 0xff, 2*heads*value), l.Schedule(s, a.LayerStep))
		if err != nil {
			return "", err
		}
		if err := errors.Join(l.Run(s, a), s.Synchronize()); err != nil {
			return "", err
		}
		raw := make([]byte, 2*heads*value)
		if err := e.Driver.Download(raw, a.Out.Ptr); err != nil {
			return "", err
		}
		// A layer has no LSE; those of the reference are 0 here, too.
		got, err := check.Compare(want, dtype.BF16.Decode(nil, raw), make([]float32, heads), cases.Tolerance{Out: 1e-2, LSE: 1e-3}, func(row int) string {
			return fmt.Sprintf("%s, head %d", path, row)
		})
		if err != nil {
			return "", err
		}
		figures += fmt.Sprintf("%s: out %.1e, %v; ", path, got.Out, p)
	}
	return fmt.Sprintf("%s%d tokens", figures, n), nil
}
