package golden_test

import (
	"encoding/binary"
	"flag"
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

var (
	trials     = flag.Int("trials", 5, "random trials of decode on the emulator")
	firstTrial = flag.Int("first-trial", 0, "number of the first one")
)

const (
	latent, rope, page = 512, 64, 64
	record             = latent + rope
	untouched          = 0xa5 // what lies between the rows of an output
	hugeDeviation      = 100.0
)

// TestRandomDecodes draws head counts, query tokens, row blocks, devices,
// splits, lengths, strides and contents, and has two decodes of different
// shape take turns on one workspace: with fresh and with kept schedules, at
// once and out of a graph that was captured for other lengths. Every result is
// compared with the oracle, every byte beside it must be untouched, no observer
// may find or doubt anything. A trial's number is its seed.
func TestRandomDecodes(t *testing.T) {
	n := *trials
	if testing.Short() {
		n = min(n, 4)
	}
	for i := range n {
		seed := *firstTrial + i
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 7))
			driver, err := emu.Open(emu.Options{Programs: programs, SMs: pick(r, 1, 2, 3, 4, 5, 7, 8, 13, 20, 33, 64, 132), Seed: r.Uint64()})
			must(t, err)
			stream, err := driver.NewStream()
			must(t, err)
			share := &shared{t: t, r: r, driver: driver, stream: stream}
			ds := []*randomDecode{newRandomDecode(share), newRandomDecode(share)}
			share.allocate(ds)
			for step := range 4 {
				d := ds[pick(r, 0, 0, 1)]
				d.step(step)
				for _, h := range driver.Reports() {
					for _, hazard := range h.Hazards {
						t.Errorf("step %d of %v: %s: %v", step, d, h.Kernel, hazard)
					}
				}
				if t.Failed() {
					t.Fatalf("step %d of %v on %d SMs", step, d, driver.Attributes().SMs)
				}
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func pick[T any](r *rand.Rand, choices ...T) T { return choices[r.IntN(len(choices))] }

// shared is what the decodes of a trial have in common.
type shared struct {
	t                   *testing.T
	r                   *rand.Rand
	driver              *emu.Driver
	stream              runtime.Stream
	workspace, schedule runtime.Buffer // the schedule only where it is shared
}

// allocate makes one workspace for all, and one schedule for all or one each.
func (s *shared) allocate(ds []*randomDecode) {
	var work, plan int64
	for _, d := range ds {
		work, plan = max(work, d.decode.WorkspaceBytes(d.batch, d.splits)), max(plan, d.decode.ScheduleBytes(d.batch, d.splits))
	}
	s.workspace = s.buffer("workspace", work)
	one := s.r.IntN(2) == 0
	for _, d := range ds {
		d.schedule = s.schedule
		if !one || s.schedule.Ptr == 0 {
			s.schedule = s.buffer("schedule", plan)
			d.schedule = s.schedule
		}
		d.alone = !one
	}
}

func (s *shared) buffer(name string, size int64) runtime.Buffer {
	p, err := s.driver.Alloc(name, size)
	must(s.t, err)
	return runtime.Buffer{Ptr: p, Bytes: size}
}

// randomDecode is one decode, its tensors and what it did so far.
type randomDecode struct {
	*shared
	spec          templates.Spec
	batch, splits int
	width         int // pages a request may have
	huge          bool
	base2         bool
	scale         float32
	decode        *runtime.Decode
	schedule      runtime.Buffer
	alone         bool // nobody else writes the schedule
	scheduled     bool // the schedule is of the present lengths
	graph         runtime.Graph

	q, kv                runtime.Tensor
	table, kvLen         runtime.Tensor
	out, lse             runtime.Tensor
	outBytes             int64
	lengths              []int
	pages                [][]int // of each request
	queries, cache       []float32
	splitQ               bool
	qLatent, qRope       runtime.Tensor
	pool                 int
	rowStride, pageWidth int64
}

func (d *randomDecode) String() string {
	return fmt.Sprintf("{heads %d s_q %d block-h %d stages %d %s, batch %d splits %d lengths %v huge %v}",
		d.spec.Heads, d.spec.SQ, d.spec.BlockH, d.spec.Stages, d.spec.DType, d.batch, d.splits, d.lengths, d.huge)
}

func newRandomDecode(s *shared) *randomDecode {
	r := s.r
	d := &randomDecode{shared: s, batch: pick(r, 1, 1, 2, 3, 4, 5, 9), base2: r.IntN(2) == 0, huge: r.IntN(6) == 0, splitQ: r.IntN(2) == 0}
	d.spec = templates.Spec{
		Heads: pick(r, 1+r.IntN(9), 1+r.IntN(33), 16, 1+r.IntN(200)), SQ: pick(r, 1, 1, 2, 1+r.IntN(9)),
		DType: pick(r, "bf16", "fp16"), BlockH: pick(r, 0, 8, 16, 24, 32, 40, 64), LineInfo: true,
	}
	for d.spec.Heads*d.spec.SQ > 400 {
		d.spec.SQ--
	}
	blocks := (d.spec.Heads*d.spec.SQ-1)/max(d.spec.BlockH, 16) + 1
	if d.spec.BlockH > 0 {
		blocks = (d.spec.Heads*d.spec.SQ-1)/d.spec.BlockH + 1
	}
	// As many tiles as take about a second.
	d.width = max(2, min(24, 40/blocks/d.batch))
	d.splits = pick(r, 0, 0, 0, 1, 2, 3, 3+r.IntN(6), 9+r.IntN(12))
	d.spec = d.spec.WithDefaults()
	var err error
	source := source{d.spec}
	variants, err := source.Decode(runtime.DecodeShape{Heads: d.spec.Heads, SQ: d.spec.SQ, Latent: latent, Rope: rope, Page: page, DType: runtime.DType(d.spec.DType)})
	must(s.t, err)
	d.decode, err = runtime.LoadDecode(s.driver, variants)
	must(s.t, err)
	d.scale = 0.07
	d.allocateTensors()
	return d
}

// strided allocates a tensor [batch, s_q, heads, width] whose dimensions lie in
// a random order, with gaps.
func (d *randomDecode) strided(name string, width int64) (x runtime.Tensor, size int64) {
	x = runtime.Tensor{DType: runtime.DType(d.spec.DType), Shape: []int64{int64(d.batch), int64(d.spec.SQ), int64(d.spec.Heads), width}, Strides: []int64{0, 0, 0, 1}}
	size = width
	for _, i := range d.r.Perm(3) {
		x.Strides[i] = size + 8*int64(d.r.IntN(3))
		size = x.Strides[i] * x.Shape[i]
	}
	b := d.buffer(name, 2*size+32)
	x.Ptr = b.Ptr + runtime.Ptr(16*d.r.IntN(2))
	must(d.t, d.driver.Fill(b.Ptr, 0xff, b.Bytes))
	return x, size
}

func (d *randomDecode) allocateTensors() {
	d.pool = d.batch*d.width + 3
	d.rowStride = record + 8*int64(d.r.IntN(3))
	d.pageWidth = page*d.rowStride + 8*int64(d.r.IntN(3))
	kv := d.buffer("kv", int64(d.pool)*d.pageWidth*2)
	d.kv = runtime.Tensor{Ptr: kv.Ptr, DType: runtime.DType(d.spec.DType), Shape: []int64{int64(d.pool), page, record}, Strides: []int64{d.pageWidth, d.rowStride, 1}}
	if d.splitQ {
		d.qLatent, _ = d.strided("q_latent", latent)
		d.qRope, _ = d.strided("q_rope", rope)
	} else {
		d.q, _ = d.strided("q", record)
	}
	d.out, d.outBytes = d.strided("out", latent)
	d.outBytes *= 2
	rows := int64(d.batch * d.spec.SQ * d.spec.Heads)
	d.lse = runtime.Dense(d.buffer("lse", 4*rows).Ptr, runtime.F32, int64(d.batch), int64(d.spec.SQ), int64(d.spec.Heads))
	stride := int64(d.width + 1 + d.r.IntN(3))
	table := d.buffer("block_table", 4*stride*int64(d.batch))
	d.table = runtime.Tensor{Ptr: table.Ptr, DType: runtime.S32, Shape: []int64{int64(d.batch), int64(d.width + 1)}, Strides: []int64{stride, 1}}
	d.kvLen = runtime.Dense(d.buffer("kv_len", 4*int64(d.batch)).Ptr, runtime.S32, int64(d.batch))
}

// length draws the length of a request.
func (d *randomDecode) length() int {
	most := d.width * page
	return min(most, pick(d.r, 0, 1, 1+d.r.IntN(d.spec.SQ+1), 63, 64, 65, 127, 128, 129, d.r.IntN(most+1), d.r.IntN(most+1), d.r.IntN(most+1), most))
}

// renew draws lengths, pages and contents anew and uploads them.
func (d *randomDecode) renew() {
	d.scheduled = false
	r, t := d.r, dtype.Type(d.spec.DType)
	ids := r.Perm(d.pool)
	d.lengths, d.pages = nil, nil
	table := make([]int32, int(d.table.Strides[0])*d.batch)
	for i := range table {
		table[i] = pick[int32](r, -1, math.MaxInt32-6, math.MinInt32, 1<<20, 0)
	}
	junk := pick(r, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)))
	pool := make([]float32, int64(d.pool)*d.pageWidth)
	for i := range pool {
		pool[i] = junk
	}
	deviation := pick(r, 0.25, 1, 0.05)
	if d.huge {
		deviation = hugeDeviation
	}
	for b := range d.batch {
		n := d.length()
		d.lengths = append(d.lengths, n)
		var pages []int
		for i := range (n + page - 1) / page {
			id := ids[0]
			ids = ids[1:]
			pages = append(pages, id)
			table[b*int(d.table.Strides[0])+i] = int32(id)
			for slot := range min(page, n-i*page) {
				row := pool[int64(id)*d.pageWidth+int64(slot)*d.rowStride:][:record]
				for c := range row {
					row[c] = t.Round(float32(r.NormFloat64() * deviation))
				}
			}
		}
		d.pages = append(d.pages, pages)
	}
	d.cache = pool
	must(d.t, d.driver.Upload(d.kv.Ptr, t.Encode(nil, pool)))
	must(d.t, d.driver.Upload(d.table.Ptr, words(table)))
	var lengths []int32
	for _, n := range d.lengths {
		lengths = append(lengths, int32(n))
	}
	must(d.t, d.driver.Upload(d.kvLen.Ptr, words(lengths)))
	d.renewQueries()
}

func words(x []int32) (b []byte) {
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return b
}

// renewQueries draws queries, as another layer of the model would bring them.
func (d *randomDecode) renewQueries() {
	t := dtype.Type(d.spec.DType)
	rows := d.batch * d.spec.Heads * d.spec.SQ
	d.queries = make([]float32, rows*record)
	scale := pick(d.r, 0.3, 1, 2)
	if d.huge {
		scale = hugeDeviation
	}
	for i := range d.queries {
		d.queries[i] = t.Round(float32(d.r.NormFloat64() * scale))
	}
	for i := range rows {
		b, token, head := d.row(i)
		row := t.Encode(nil, d.queries[i*record:(i+1)*record])
		if d.splitQ {
			must(d.t, d.driver.Upload(at(&d.qLatent, b, token, head), row[:latent*2]))
			must(d.t, d.driver.Upload(at(&d.qRope, b, token, head), row[latent*2:]))
		} else {
			must(d.t, d.driver.Upload(at(&d.q, b, token, head), row))
		}
	}
}

func (d *randomDecode) row(i int) (request, token, head int) {
	per := d.spec.SQ * d.spec.Heads
	return i / per, i % per / d.spec.Heads, i % d.spec.Heads
}

func at(x *runtime.Tensor, i, j, k int) runtime.Ptr {
	return x.Ptr + runtime.Ptr(2*(int64(i)*x.Strides[0]+int64(j)*x.Strides[1]+int64(k)*x.Strides[2]))
}

func (d *randomDecode) launchSchedule() error {
	return d.decode.Schedule(d.stream, runtime.ScheduleArgs{Batch: d.batch, Splits: d.splits, KVLen: d.kvLen, Buffer: d.schedule})
}

func (d *randomDecode) launchRun() error {
	return d.decode.Run(d.stream, runtime.DecodeArgs{
		Batch: d.batch, Splits: d.splits, Q: d.q, QLatent: d.qLatent, QRope: d.qRope, KV: d.kv, BlockTable: d.table, KVLen: d.kvLen,
		Schedule: d.schedule, Workspace: d.workspace, Out: d.out, LSE: d.lse, Scale: d.scale, LSEBase2: d.base2,
	})
}

// step runs the decode once or several times, one way or another.
func (d *randomDecode) step(n int) {
	r := d.r
	d.driver.SetSeed(r.Uint64())
	if d.lengths == nil || r.IntN(3) > 0 {
		d.renew()
	} else {
		d.renewQueries()
	}
	switch {
	case d.alone && d.scheduled:
		must(d.t, d.poisoned(d.launchRun))
	case d.graph != nil:
		must(d.t, d.poisoned(func() error { return d.stream.Replay(d.graph) }))
	case r.IntN(2) == 0:
		must(d.t, d.stream.BeginCapture())
		must(d.t, d.launchSchedule())
		must(d.t, d.launchRun())
		var err error
		d.graph, err = d.stream.EndCapture()
		must(d.t, err)
		if r.IntN(2) == 0 {
			d.renew()
		}
		must(d.t, d.poisoned(func() error { return d.stream.Replay(d.graph) }))
	default:
		must(d.t, d.launchSchedule())
		must(d.t, d.poisoned(d.launchRun))
	}
	d.scheduled = true
	out, lse := d.results()
	d.compare(out, lse)
	if r.IntN(2) == 0 { // the same again, in another order of events
		d.driver.SetSeed(r.Uint64())
		must(d.t, d.poisoned(d.launchRun))
		again, lseAgain := d.results()
		if string(out) != string(again) || string(lse) != string(lseAgain) {
			d.t.Errorf("step %d: a second run differs", n)
		}
	}
}

// poisoned fills the outputs and what lies between before it runs f.
func (d *randomDecode) poisoned(f func() error) error {
	size := 4 * int64(d.batch*d.spec.SQ*d.spec.Heads)
	if err := d.driver.Fill(d.lse.Ptr, 0xff, size); err != nil {
		return err
	}
	if err := d.driver.Fill(d.out.Ptr, untouched, d.outBytes); err != nil {
		return err
	}
	nan := make([]byte, 2*latent)
	for i := range nan {
		nan[i] = 0xff
	}
	for i := range d.batch * d.spec.SQ * d.spec.Heads {
		b, token, head := d.row(i)
		if err := d.driver.Upload(at(&d.out, b, token, head), nan); err != nil {
			return err
		}
	}
	if err := f(); err != nil {
		return err
	}
	return d.stream.Synchronize()
}

// results returns the outputs' bytes, rows one after another, and checks what
// lies between them.
func (d *randomDecode) results() (out, lse []byte) {
	rows := d.batch * d.spec.SQ * d.spec.Heads
	whole := make([]byte, d.outBytes)
	must(d.t, d.driver.Download(whole, d.out.Ptr))
	for i := range rows {
		b, token, head := d.row(i)
		row := whole[at(&d.out, b, token, head)-d.out.Ptr:][:2*latent]
		out = append(out, row...)
		for j := range row {
			row[j] = untouched
		}
	}
	for i, v := range whole {
		if v != untouched {
			d.t.Errorf("byte %d of out, between rows, was written", i)
			break
		}
	}
	lse = make([]byte, 4*rows)
	must(d.t, d.driver.Download(lse, d.lse.Ptr))
	return out, lse
}

// compare holds a result against the oracle.
func (d *randomDecode) compare(outBytes, lseBytes []byte) {
	t := dtype.Type(d.spec.DType)
	out, lse := t.Decode(nil, outBytes), dtype.F32.Decode(nil, lseBytes)
	key := func(request, position int) []float32 {
		return d.cache[int64(d.pages[request][position/page])*d.pageWidth+int64(position%page)*d.rowStride:][:record]
	}
	query := func(request, token, head int) []float32 {
		return d.queries[((request*d.spec.SQ+token)*d.spec.Heads+head)*record:][:record]
	}
	ref := (&oracle.Decode[float32]{
		Heads: d.spec.Heads, QLen: d.spec.SQ, Latent: latent, Rope: rope, Scale: float64(d.scale), Causal: true, KVLen: d.lengths, Q: query, Row: key,
	}).Run()
	for i := range ref.LSE {
		b, token, head := d.row(i)
		tolerance := 2e-3
		if d.huge {
			tolerance = 1e-6 * record * hugeDeviation * hugeDeviation * float64(d.scale) // products cancel
		}
		if d.huge && !decided(query(b, token, head), oracle.Visible(true, d.lengths[b], d.spec.SQ, token), float64(d.scale), func(n int) []float32 { return key(b, n) }) {
			continue
		}
		var diff, norm float64
		for c, want := range ref.Row(i) {
			got := float64(out[i*latent+c])
			diff += (got - want) * (got - want)
			norm += want * want
		}
		if !(diff <= norm*1e-2*1e-2) {
			d.t.Errorf("request %d, token %d, head %d: out is off by %g of its norm %g", b, token, head, math.Sqrt(diff/norm), math.Sqrt(norm))
			return
		}
		want := ref.LSE[i]
		if d.base2 {
			want /= math.Ln2
		}
		if got := float64(lse[i]); got != want && !(math.Abs(got-want) <= tolerance+1e-6*math.Abs(want)) {
			d.t.Errorf("request %d, token %d, head %d: lse is %v, want %v", b, token, head, got, want)
			return
		}
	}
}

// decided reports whether one key takes all the weight, whatever rounding does
// to the logits.
func decided(q []float32, keys int, scale float64, key func(n int) []float32) bool {
	first, second, size := math.Inf(-1), math.Inf(-1), 0.0
	for n := range keys {
		logit, sum := 0.0, 0.0
		for c, k := range key(n) {
			p := float64(k) * float64(q[c]) * scale
			logit += p
			sum += math.Abs(p)
		}
		if logit > first {
			first, second = logit, first
		} else {
			second = math.Max(second, logit)
		}
		size = math.Max(size, sum)
	}
	return keys < 2 || first-second > 30+1e-5*size
}
