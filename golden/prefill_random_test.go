package golden_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/golden/oracle"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
	"github.com/mlagen/mlagen/templates"
)

// TestRandomPrefills draws heads, widths, tiles, devices, sequences, lengths,
// strides and contents: with fresh schedules, with the same schedule again, and
// out of a graph that was captured for other lengths. Every result is compared
// with the oracle, every byte beside it must be untouched, no observer may find
// or doubt anything. A trial's number is its seed.
func TestRandomPrefills(t *testing.T) {
	n := 2 * *trials
	if testing.Short() {
		n = min(n, 6)
	}
	for i := range n {
		seed := *firstTrial + i
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 23))
			driver, err := emu.Open(emu.Options{Programs: programs, SMs: pick(r, 1, 1, 2, 3, 7, 132), Seed: r.Uint64()})
			must(t, err)
			p := newRandomPrefill(t, r, driver)
			for step := range 3 {
				p.step(step)
				if err := findings(driver); err != nil {
					t.Error(err)
				}
				if t.Failed() {
					t.Fatalf("step %d of %v on %d SMs", step, p, driver.Attributes().SMs)
				}
			}
			must(t, p.prefill.Close())
		})
	}
}

// randomPrefill is a prefill, its tensors and their contents.
type randomPrefill struct {
	t      *testing.T
	r      *rand.Rand
	driver *emu.Driver
	stream runtime.Stream

	spec    templates.Spec
	prefill *runtime.Prefill
	causal  bool
	sched   runtime.PrefillScheduleArgs
	args    runtime.PrefillArgs
	graph   runtime.Graph
	current bool // the schedule is of the present lengths

	q, up, rope                        []float32 // as the oracle takes them, dense
	cuQ, cuK                           []int
	qAt, qRopeAt, upAt, ropeAt, output placed
}

func (p *randomPrefill) String() string {
	return fmt.Sprintf("{heads %d, %d×%d, stages %d, nope %d, value %d, %s, causal %v, cu_q %v of %d, cu_k %v of %d, scale %v}", p.spec.Heads, p.spec.BlockM, p.spec.BlockN,
		p.spec.Stages, p.spec.Nope, p.spec.Value, p.spec.DType, p.causal, p.cuQ, p.sched.QueryTokens, p.cuK, p.sched.KeyTokens, p.args.Scale)
}

// placed is a tensor [rows, heads, width] or [rows, width] in its allocation,
// in which the dimensions lie in a random order, with gaps.
type placed struct {
	runtime.Tensor
	base  runtime.Ptr
	bytes int64
}

func (p *randomPrefill) place(name string, shape ...int64) placed {
	x := placed{Tensor: runtime.Tensor{DType: runtime.DType(p.spec.DType), Shape: shape, Strides: make([]int64, len(shape))}}
	outer := len(shape) - 1
	x.Strides[outer] = 1
	size := shape[outer]
	for _, i := range p.r.Perm(outer) {
		x.Strides[i] = size + 8*int64(p.r.IntN(3))
		size = x.Strides[i] * max(1, shape[i])
	}
	offset := 16 * int64(p.r.IntN(2))
	x.bytes = 2*size + 2*offset
	var err error
	x.base, err = p.driver.Alloc(name, x.bytes)
	must(p.t, err)
	x.Ptr = x.base + runtime.Ptr(offset)
	return x
}

// at returns the byte of the allocation at which row i, head h begins.
func (x *placed) at(i, h int) int64 {
	n := int64(i) * x.Strides[0]
	if len(x.Shape) == 3 {
		n += int64(h) * x.Strides[1]
	}
	return int64(x.Ptr-x.base) + 2*n
}

func newRandomPrefill(t *testing.T, r *rand.Rand, driver *emu.Driver) *randomPrefill {
	p := &randomPrefill{t: t, r: r, driver: driver, causal: r.IntN(3) > 0}
	block := pick(r, prefillBlocks...)
	p.spec = templates.Spec{
		Heads: pick(r, 1, 1, 2, 3, 5), BlockM: block[0], BlockN: block[1], Stages: block[2],
		Nope: pick(r, 128, 128, 64), Value: pick(r, 128, 128, 64), Rope: 64, DType: pick(r, "bf16", "fp16"),
	}
	var err error
	p.stream, err = driver.NewStream()
	must(t, err)
	v, err := source{p.spec}.Prefill(runtime.PrefillShape{Heads: p.spec.Heads, Nope: p.spec.Nope, Rope: 64, Value: p.spec.Value, DType: runtime.DType(p.spec.DType)})
	must(t, err)
	p.prefill, err = runtime.LoadPrefill(driver, v)
	must(t, err)

	sequences := pick(r, 0, 1, 1, 2, 3, 5, 9)
	// As many tiles as take about a second.
	tokens, keys := 1+r.IntN(600/p.spec.Heads), r.IntN(700)
	h, nope, value := int64(p.spec.Heads), int64(p.spec.Nope), int64(p.spec.Value)
	q, k := int64(tokens), int64(keys)
	if r.IntN(2) == 0 {
		p.qAt, p.qRopeAt = p.place("q_nope", q, h, nope), p.place("q_rope", q, h, 64)
		p.args.QNope, p.args.QRope = p.qAt.Tensor, p.qRopeAt.Tensor
	} else {
		p.qAt = p.place("q", q, h, nope+64)
		p.args.Q = p.qAt.Tensor
	}
	p.upAt, p.ropeAt, p.output = p.place("kv_up", k, h, nope+value), p.place("k_rope", k, 64), p.place("out", q, h, value)
	p.args.KVUp, p.args.KRope, p.args.Out = p.upAt.Tensor, p.ropeAt.Tensor, p.output.Tensor
	alloc := func(name string, size int64) runtime.Ptr {
		ptr, err := driver.Alloc(name, size)
		must(t, err)
		return ptr
	}
	p.args.LSE = runtime.Dense(alloc("lse", 4*q*h), runtime.F32, q, h)
	p.args.Schedule = runtime.Buffer{Bytes: p.prefill.ScheduleBytes(sequences, tokens)}
	p.args.Schedule.Ptr = alloc("schedule", p.args.Schedule.Bytes)
	p.args.Sequences, p.args.Scale, p.args.LSEBase2 = sequences, float32(pick(r, 0.07, 0.01, 0.3)), r.IntN(2) == 0
	places := int64(sequences) + 1
	p.sched = runtime.PrefillScheduleArgs{
		Sequences: sequences, QueryTokens: tokens, KeyTokens: keys, Causal: p.causal, Buffer: p.args.Schedule,
		CuQ: runtime.Dense(alloc("cu_q", 4*places), runtime.S32, places), CuK: runtime.Dense(alloc("cu_k", 4*places), runtime.S32, places),
	}
	return p
}

// cut divides up to total tokens among sequences: some have none, and some
// tokens may be left.
func (p *randomPrefill) cut(total int) (cu []int) {
	cu = []int{0}
	left := total
	for range p.sched.Sequences {
		n := min(left, pick(p.r, 0, 1, p.r.IntN(20), 64, p.spec.BlockN, 128, 129, p.r.IntN(left+1), p.r.IntN(left+1)))
		left -= n
		cu = append(cu, cu[len(cu)-1]+n)
	}
	return cu
}

// renew draws lengths and contents anew and uploads them.
func (p *randomPrefill) renew() {
	p.current = false
	r, t := p.r, dtype.Type(p.spec.DType)
	p.cuQ, p.cuK = p.cut(p.sched.QueryTokens), p.cut(p.sched.KeyTokens)
	for at, cu := range map[runtime.Ptr][]int{p.sched.CuQ.Ptr: p.cuQ, p.sched.CuK.Ptr: p.cuK} {
		var list []int32
		for _, n := range cu {
			list = append(list, int32(n))
		}
		must(p.t, p.driver.Upload(at, words(list)))
	}
	junk := pick(r, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)))
	deviation := pick(r, 0.25, 1, 2)
	values := func(rows, used, width int) []float32 {
		x := make([]float32, rows*width)
		for i := range x {
			if x[i] = junk; i < used*width {
				x[i] = t.Round(float32(r.NormFloat64() * deviation))
			}
		}
		return x
	}
	heads, m, last := p.spec.Heads, p.spec, len(p.cuQ)-1
	key, up := m.Nope+m.Rope, m.Nope+m.Value
	p.q = values(p.sched.QueryTokens*heads, p.cuQ[last]*heads, key)
	p.up, p.rope = values(p.sched.KeyTokens*heads, p.cuK[last]*heads, up), values(p.sched.KeyTokens, p.cuK[last], m.Rope)
	scatter := func(to *placed, heads int, row func(i, head int) []float32) {
		whole := make([]float32, to.bytes/2)
		for i := range whole {
			whole[i] = junk
		}
		raw := t.Encode(nil, whole)
		for i := range int(to.Shape[0]) {
			for h := range heads {
				copy(raw[to.at(i, h):], t.Encode(nil, row(i, h)))
			}
		}
		must(p.t, p.driver.Upload(to.base, raw))
	}
	query := func(i, h int) []float32 { return p.q[(i*heads+h)*key:][:key] }
	if p.qRopeAt.bytes > 0 {
		scatter(&p.qAt, heads, func(i, h int) []float32 { return query(i, h)[:m.Nope] })
		scatter(&p.qRopeAt, heads, func(i, h int) []float32 { return query(i, h)[m.Nope:] })
	} else {
		scatter(&p.qAt, heads, query)
	}
	scatter(&p.upAt, heads, func(i, h int) []float32 { return p.up[(i*heads+h)*up:][:up] })
	scatter(&p.ropeAt, 1, func(i, _ int) []float32 { return p.rope[i*m.Rope:][:m.Rope] })
}

func (p *randomPrefill) launchSchedule() error { return p.prefill.Schedule(p.stream, p.sched) }
func (p *randomPrefill) launchRun() error      { return p.prefill.Run(p.stream, p.args) }

// step runs the prefill once or several times, one way or another.
func (p *randomPrefill) step(n int) {
	r := p.r
	p.driver.SetSeed(r.Uint64())
	if n == 0 || r.IntN(3) > 0 {
		p.renew()
	}
	switch {
	case p.current:
		must(p.t, p.poisoned(p.launchRun))
	case p.graph != nil:
		must(p.t, p.poisoned(func() error { return p.stream.Replay(p.graph) }))
	case r.IntN(2) == 0:
		must(p.t, p.stream.BeginCapture())
		must(p.t, p.launchSchedule())
		must(p.t, p.launchRun())
		var err error
		p.graph, err = p.stream.EndCapture()
		must(p.t, err)
		p.renew()
		must(p.t, p.poisoned(func() error { return p.stream.Replay(p.graph) }))
	default:
		must(p.t, p.launchSchedule())
		must(p.t, p.poisoned(p.launchRun))
	}
	p.current = true
	out, lse := p.results()
	p.compare(out, lse)
	if r.IntN(2) == 0 { // the same again, in another order of events
		p.driver.SetSeed(r.Uint64())
		must(p.t, p.poisoned(p.launchRun))
		again, lseAgain := p.results()
		if string(out) != string(again) || string(lse) != string(lseAgain) {
			p.t.Errorf("step %d: a second run differs", n)
		}
	}
}

// poisoned fills the outputs and what lies between before it runs f.
func (p *randomPrefill) poisoned(f func() error) error {
	whole := make([]byte, p.output.bytes)
	for i := range whole {
		whole[i] = untouched
	}
	p.eachRow(func(i, h int) {
		row := whole[p.output.at(i, h):][:2*p.spec.Value]
		for j := range row {
			row[j] = 0xff
		}
	})
	if err := p.driver.Upload(p.output.base, whole); err != nil {
		return err
	}
	if err := p.driver.Fill(p.args.LSE.Ptr, 0xff, 4*p.args.LSE.Shape[0]*p.args.LSE.Shape[1]); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return p.stream.Synchronize()
}

func (p *randomPrefill) eachRow(f func(i, h int)) {
	for i := range p.sched.QueryTokens {
		for h := range p.spec.Heads {
			f(i, h)
		}
	}
}

// results returns the outputs' bytes, rows one after another, and checks what
// lies between them.
func (p *randomPrefill) results() (out, lse []byte) {
	whole := make([]byte, p.output.bytes)
	must(p.t, p.driver.Download(whole, p.output.base))
	p.eachRow(func(i, h int) {
		row := whole[p.output.at(i, h):][:2*p.spec.Value]
		out = append(out, row...)
		for j := range row {
			row[j] = untouched
		}
	})
	for i, v := range whole {
		if v != untouched {
			p.t.Errorf("byte %d of out, between rows, was written", i)
			break
		}
	}
	lse = make([]byte, 4*p.sched.QueryTokens*p.spec.Heads)
	must(p.t, p.driver.Download(lse, p.args.LSE.Ptr))
	return out, lse
}

// compare holds a result against the oracle.
func (p *randomPrefill) compare(outBytes, lseBytes []byte) {
	m, heads := p.spec, p.spec.Heads
	out, lse := dtype.Type(m.DType).Decode(nil, outBytes), dtype.F32.Decode(nil, lseBytes)
	key, up := m.Nope+m.Rope, m.Nope+m.Value
	ref := (&oracle.Prefill[float32]{
		Heads: heads, Nope: m.Nope, Rope: m.Rope, Value: m.Value, Scale: float64(p.args.Scale), Causal: p.causal, CuQ: p.cuQ, CuK: p.cuK,
		Q:     func(token, head int) []float32 { return p.q[(token*heads+head)*key:][:key] },
		Up:    func(token, head int) []float32 { return p.up[(token*heads+head)*up:][:up] },
		KRope: func(token int) []float32 { return p.rope[token*m.Rope:][:m.Rope] },
	}).Run()
	for i := range lse {
		want, wantLSE := make([]float64, m.Value), math.Inf(-1) // of a token after the last sequence
		if i < len(ref.LSE) {
			want, wantLSE = ref.Row(i), ref.LSE[i]
		}
		var diff, norm float64
		for c, w := range want {
			got := float64(out[i*m.Value+c])
			diff += (got - w) * (got - w)
			norm += w * w
		}
		if !(diff <= norm*1e-2*1e-2) {
			p.t.Errorf("token %d, head %d: out is off by %g of its norm %g", i/heads, i%heads, math.Sqrt(diff/norm), math.Sqrt(norm))
			return
		}
		if p.args.LSEBase2 {
			wantLSE /= math.Ln2
		}
		if got := float64(lse[i]); got != wantLSE && !(math.Abs(got-wantLSE) <= 2e-3+1e-5*math.Abs(wantLSE)) {
			p.t.Errorf("token %d, head %d: lse is %v, want %v", i/heads, i%heads, got, wantLSE)
			return
		}
	}
}
