package extremes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/check"
	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/golden/oracle"
	"github.com/mlagen/mlagen/runtime"
)

// Widths of prefill.
const (
	nope, value = 128, 128
	queryWidth  = nope + rope
	upWidth     = nope + value
)

// manyQueries attends with as many queries as keys, causally, and compares a
// sample of the rows, the first and the last among them. Queries and keys repeat
// after a while, so that they need not all be drawn.
func manyQueries(e *Env) (figures string, err error) {
	n := e.size(70000, 300)
	const heads, period = 2, 509
	from, ok := e.Source.(runtime.PrefillSource)
	if !ok {
		return "", errors.New("the source has no prefill kernels")
	}
	v, err := from.Prefill(runtime.PrefillShape{Heads: heads, Nope: nope, Rope: rope, Value: value, DType: runtime.BF16})
	if err != nil {
		return "", err
	}
	p, err := runtime.LoadPrefill(e.Driver, v)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	random := rand.New(rand.NewPCG(7, 7))
	rows := func(width int, deviation float64) (all [][]float32) {
		for range period {
			row := make([]float32, width)
			for i := range row {
				row[i] = dtype.BF16.Round(float32(random.NormFloat64() * deviation))
			}
			all = append(all, row)
		}
		return all
	}
	q, up, kRope := rows(heads*queryWidth, 1), rows(heads*upWidth, 0.25), rows(rope, 0.25)

	m := &memory{driver: e.Driver}
	defer func() { err = errors.Join(err, m.free()) }()
	repeated := func(name string, of [][]float32) runtime.Ptr {
		var data []byte
		for i := range n {
			data = dtype.BF16.Encode(data, of[i%period])
		}
		return m.upload(name, data)
	}
	tokens := int64(n)
	cu := m.upload("cu", binary.LittleEndian.AppendUint32(make([]byte, 4), uint32(n)))
	a := runtime.PrefillArgs{
		Sequences: 1, Scale: scale,
		Q:     runtime.Dense(repeated("q", q), runtime.BF16, tokens, heads, queryWidth),
		KVUp:  runtime.Dense(repeated("kv_up", up), runtime.BF16, tokens, heads, upWidth),
		KRope: runtime.Dense(repeated("k_rope", kRope), runtime.BF16, tokens, rope),
		Out:   runtime.Dense(m.alloc("out", 2*tokens*heads*value), runtime.BF16, tokens, heads, value),
		LSE:   runtime.Dense(m.alloc("lse", 4*tokens*heads), runtime.F32, tokens, heads),
	}
	a.Schedule.Bytes = p.ScheduleBytes(1, n)
	a.Schedule.Ptr = m.alloc("schedule", a.Schedule.Bytes)
	if m.err != nil {
		return "", m.err
	}
	s, err := e.Driver.NewStream()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Destroy()) }()
	lengths := runtime.Dense(cu, runtime.S32, 2)
	err = errors.Join(e.Driver.Fill(a.Out.Ptr, 0xff, 2*tokens*heads*value), e.Driver.Fill(a.LSE.Ptr, 0xff, 4*tokens*heads),
		p.Schedule(s, runtime.PrefillScheduleArgs{Sequences: 1, QueryTokens: n, KeyTokens: n, CuQ: lengths, CuK: lengths, Causal: true, Buffer: a.Schedule}))
	if err != nil {
		return "", err
	}
	if err := errors.Join(p.Run(s, a), s.Synchronize()); err != nil {
		return "", err
	}
	outBytes, lseBytes := make([]byte, 2*n*heads*value), make([]byte, 4*n*heads)
	if err := errors.Join(e.Driver.Download(outBytes, a.Out.Ptr), e.Driver.Download(lseBytes, a.LSE.Ptr)); err != nil {
		return "", err
	}
	out, lse := dtype.BF16.Decode(nil, outBytes), dtype.F32.Decode(nil, lseBytes)

	sample := []int{0, 1, 63, 64, 127, 128, n / 2, n - 129, n - 128, n - 2, n - 1}
	for range 40 {
		sample = append(sample, random.IntN(n))
	}
	var worst check.Errors
	for _, at := range sample {
		// Alone, the query is the last token of the context that it sees.
		want := (&oracle.Prefill[float32]{
			Heads: heads, Nope: nope, Rope: rope, Value: value, Scale: float64(float32(scale)), CuQ: []int{0, 1}, CuK: []int{0, at + 1},
			Q:     func(_, head int) []float32 { return q[at%period][head*queryWidth:][:queryWidth] },
			Up:    func(token, head int) []float32 { return up[token%period][head*upWidth:][:upWidth] },
			KRope: func(token int) []float32 { return kRope[token%period] },
		}).Run()
		got, err := check.Compare(want, out[at*heads*value:][:heads*value], lse[at*heads:][:heads], cases.Tolerance{Out: 6e-3, LSE: 1e-3}, func(row int) string {
			return fmt.Sprintf("query %d of %d, head %d", at, n, row)
		})
		if err != nil {
			return "", err
		}
		worst.Out, worst.LSE = max(worst.Out, got.Out), max(worst.LSE, got.LSE)
	}
	for i := 0; i < len(lseBytes); i += 4 {
		if binary.LittleEndian.Uint32(lseBytes[i:]) == 0xffffffff {
			return "", fmt.Errorf("lse of query %d was not written", i/4/heads)
		}
	}
	return fmt.Sprintf("out %.1e lse %.1e, %d of %d queries", worst.Out, worst.LSE, len(sample), n), nil
}
