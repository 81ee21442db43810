package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/mlagen/mlagen/golden/oracle"
	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/runtime"
)

// hostDriver keeps device memory on the host and computes decodes with the
// oracle. A launch takes a microsecond of its time; work on a cold cache is not
// modelled.
type hostDriver struct {
	attributes runtime.Attributes
	blocks     []hostBlock
	next       runtime.Ptr
	live       int
	room       int     // the allocation that fails, counted from 1; 0 = none
	now        float64 // microseconds
	launched   []string
	pending    []byte // parameters of the last decode: only its output can still be seen
	prefills   hostPrefills
	spoil      func(out, lse []byte)
	miss       int // items that the schedule kernel leaves out
	meter      func() (runtime.Meter, error)
}

type hostBlock struct {
	at   runtime.Ptr
	data []byte
}

func newHostDriver() *hostDriver {
	return &hostDriver{next: 1 << 20, attributes: runtime.Attributes{
		SMs: 2, MemoryBytes: 40 * pageBytes / 6 * 10, L2Bytes: 1, GraphCapture: true, SharedPerBlock: 232448,
	}}
}

func (d *hostDriver) Name() string                   { return "host" }
func (d *hostDriver) Attributes() runtime.Attributes { return d.attributes }
func (d *hostDriver) Close() error                   { return nil }

// Meter is what the test says, none by default.
func (d *hostDriver) Meter() (runtime.Meter, error) {
	if d.meter == nil {
		return nil, errors.New("no meter here")
	}
	return d.meter()
}

// hostMeter draws 500 W at 1500 MHz.
type hostMeter struct {
	mu     sync.Mutex
	begin  time.Time
	reads  int
	closed bool
	err    error
}

func (m *hostMeter) Read() (runtime.Reading, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	return runtime.Reading{Watts: 500, ClockMHz: 1500, Joules: 500 * time.Since(m.begin).Seconds()}, m.err
}

func (m *hostMeter) Close() error { m.closed = true; return nil }

func (d *hostDriver) Alloc(name string, size int64) (runtime.Ptr, error) {
	if d.room--; d.room == 0 {
		return 0, fmt.Errorf("allocate %q, %d bytes (1 of 2 bytes free)", name, size)
	}
	at := d.next
	d.blocks = append(d.blocks, hostBlock{at, make([]byte, size)})
	d.next += runtime.Ptr(size+511) &^ 255
	d.live++
	return at, nil
}

func (d *hostDriver) Free(runtime.Ptr) error { d.live--; return nil }

func (d *hostDriver) from(p runtime.Ptr) []byte {
	i, _ := slices.BinarySearchFunc(d.blocks, p+1, func(b hostBlock, p runtime.Ptr) int {
		if b.at < p {
			return -1
		}
		return 1
	})
	b := d.blocks[i-1]
	return b.data[p-b.at:]
}

func (d *hostDriver) Upload(dst runtime.Ptr, src []byte) error { copy(d.from(dst), src); return nil }
func (d *hostDriver) Download(dst []byte, src runtime.Ptr) error {
	if d.pending != nil {
		d.decode(d.pending)
		d.pending = nil
	}
	d.attend()
	copy(dst, d.from(src))
	return nil
}

func (d *hostDriver) Fill(dst runtime.Ptr, value byte, size int64) error {
	b := d.from(dst)[:size]
	for i := range b {
		b[i] = value
	}
	return nil
}

func (d *hostDriver) Load([]byte) (runtime.Module, error) { return hostModule{}, nil }
func (d *hostDriver) NewStream() (runtime.Stream, error)  { return &hostStream{d: d}, nil }
func (d *hostDriver) NewEvent() (runtime.Event, error)    { return &hostEvent{}, nil }

// EncodeTensorMap keeps the address and the second dimension: a page's tokens,
// or heads.
func (d *hostDriver) EncodeTensorMap(t runtime.TensorMap) (m [128]byte, err error) {
	binary.LittleEndian.PutUint64(m[:], uint64(t.Address))
	binary.LittleEndian.PutUint64(m[8:], t.Sizes[1])
	return m, nil
}

type hostModule struct{}

func (hostModule) Function(name string) (runtime.Function, error) { return hostFunction(name), nil }
func (hostModule) Log() string                                    { return "" }
func (hostModule) CompileSeconds() float64                        { return 0.25 }
func (hostModule) Unload() error                                  { return nil }

type hostFunction string

func (hostFunction) Attributes() (runtime.FunctionAttributes, error) {
	return runtime.FunctionAttributes{Registers: 100}, nil
}
func (hostFunction) SetDynamicShared(int) error { return nil }

type hostEvent struct{ at float64 }

func (*hostEvent) Synchronize() error { return nil }
func (*hostEvent) Destroy() error     { return nil }
func (e *hostEvent) Since(start runtime.Event) (float64, error) {
	return e.at - start.(*hostEvent).at, nil
}

type hostStream struct {
	d         *hostDriver
	capturing bool
	captured  hostGraph
}

type hostGraph []func() error

func (hostGraph) Destroy() error { return nil }

func (s *hostStream) do(f func() error) error {
	if s.capturing {
		s.captured = append(s.captured, f)
		return nil
	}
	return f()
}

func (s *hostStream) Synchronize() error { return nil }
func (s *hostStream) Destroy() error     { return nil }
func (s *hostStream) BeginCapture() error {
	s.capturing, s.captured = true, nil
	return nil
}
func (s *hostStream) EndCapture() (runtime.Graph, error) {
	s.capturing = false
	return s.captured, nil
}
func (s *hostStream) Replay(g runtime.Graph) error {
	for _, f := range g.(hostGraph) {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}
func (s *hostStream) Record(e runtime.Event) error { e.(*hostEvent).at = s.d.now; return nil }
func (s *hostStream) FillAsync(dst runtime.Ptr, v byte, n int64) error {
	return s.do(func() error { return s.d.Fill(dst, v, n) })
}
func (s *hostStream) CopyAsync(dst, src runtime.Ptr, n int64) error {
	return s.do(func() error { copy(s.d.from(dst)[:n], s.d.from(src)); return nil })
}

func (s *hostStream) Launch(l runtime.Launch) error {
	params := slices.Clone(l.Params)
	return s.do(func() error {
		s.d.now++
		name := string(l.Function.(hostFunction))
		s.d.launched = append(s.d.launched, name)
		switch name {
		case "absorb_decode":
			s.d.pending = params
		case "decode_schedule":
			s.d.schedule(params)
		case "expand_schedule":
			s.d.prefills.schedule = params
		case "expand_prefill":
			s.d.prefills.pend(params)
		}
		return nil
	})
}

// fakeHeads and fakeSQ are what fakeSource's kernels are made for.
const (
	fakeHeads = 2
	fakeSQ    = 2
)

// The fake kernels' parameters, 128 bytes apart.
var (
	decodeParams   = []string{"kv", "q_latent", "block_table", "block_table_stride", "kv_len", "out", "lse", "batch"}
	scheduleParams = []string{"kv_len", "items", "part_first", "batch", "parts"}
	streamParams   = []string{"kv", "pages", "count", "sink"}
)

func fakeVariant(kernel string, names []string, blockH int) runtime.Variant {
	m := &manifest.Manifest{
		Schema: manifest.Schema, Kernel: kernel, PTXVersion: "8.0", Target: "sm_90a", Threads: 128, Cluster: 1,
		Spec: runtime.DecodeModel{Heads: fakeHeads, SQ: fakeSQ, Latent: latent, Rope: rope, Page: pageTokens, BlockH: blockH, BlockN: 64, DType: runtime.BF16},
	}
	for i, name := range names {
		p := manifest.Param{Name: name, Kind: manifest.PointerParam, Type: "b16", Size: 8, Align: 8, Offset: 128 * i}
		switch name {
		case "kv":
			p.Kind, p.Size, p.Align = manifest.TensorMapParam, 128, 64
			m.TensorMaps = []manifest.TensorMap{{Param: name, DType: "bf16", Dims: []string{"c", "r", "p"}, Box: []int{64, 64, 1}}}
		case "batch", "parts", "count", "block_table_stride":
			p.Kind, p.Type = manifest.ScalarParam, "u64"
		}
		m.Params = append(m.Params, p)
	}
	return runtime.Variant{Name: kernel, PTX: []byte("x"), Manifest: m}
}

// fakeSource has row blocks of 8 and 16, and chooses 16 for what it calls little
// work.
type fakeSource struct{}

func (fakeSource) BlockH(_ runtime.DecodeShape, batch, tokens, sms int) int {
	if batch*tokens < 64*sms {
		return 16
	}
	return 8
}

func (fakeSource) Splits(s runtime.DecodeShape, batch, tokens, sms int) int {
	return s.BlockH + batch
}

func (fakeSource) Decode(s runtime.DecodeShape) (runtime.DecodeVariants, error) {
	if s.Heads != fakeHeads || s.SQ != fakeSQ {
		return runtime.DecodeVariants{}, errors.New("no such kernel")
	}
	if s.BlockH == 0 {
		s.BlockH = 8
	}
	if s.BlockH > 16 {
		return runtime.DecodeVariants{}, errors.New("no such row block")
	}
	return runtime.DecodeVariants{
		Decode:   fakeVariant("absorb_decode", decodeParams, s.BlockH),
		Schedule: fakeVariant("decode_schedule", scheduleParams, s.BlockH),
		Combine:  fakeVariant("decode_combine", []string{"out"}, s.BlockH),
	}, nil
}

// schedule runs the fake decode_schedule: whole requests, the first of each
// part where a part's first lies and the others in part 0.
func (d *hostDriver) schedule(params []byte) {
	word := func(i int) int { return int(binary.LittleEndian.Uint64(params[128*i:])) }
	lengths, items, first := d.from(runtime.Ptr(word(0))), d.from(runtime.Ptr(word(1))), d.from(runtime.Ptr(word(2)))
	batch, parts := word(3)-d.miss, word(4)
	put := func(to []byte, i, v int) { binary.LittleEndian.PutUint32(to[4*i:], uint32(int32(v))) }
	item := func(at, request int) {
		tokens := int(binary.LittleEndian.Uint32(lengths[4*max(request, 0):]))
		for i, v := range []int{request, 0, (tokens + pageTokens - 1) / pageTokens, -1} {
			put(items, 4*at+i, v)
		}
	}
	for p := range parts {
		request := p
		if p >= batch {
			request = -1
		}
		item(p, request)
		put(first, p+1, max(parts, batch))
	}
	put(first, 0, parts)
	for r := parts; r < batch; r++ {
		item(r, r)
	}
}

// decode runs the fake absorb_decode.
func (d *hostDriver) decode(params []byte) {
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(params[128*i:]) }
	kv, q, table := d.from(runtime.Ptr(word(0))), d.from(runtime.Ptr(word(1))), d.from(runtime.Ptr(word(2)))
	width, batch := int(word(3)), int(word(7))
	floats := func(raw []byte) []float32 {
		x := make([]float32, record)
		for i := range x {
			x[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw[2*i:])) << 16)
		}
		return x
	}
	ints := func(raw []byte, i int) int { return int(int32(binary.LittleEndian.Uint32(raw[4*i:]))) }
	var lengths []int
	for i := range batch {
		lengths = append(lengths, ints(d.from(runtime.Ptr(word(4))), i))
	}
	p := oracle.Decode[float32]{
		Heads: fakeHeads, QLen: fakeSQ, Latent: latent, Rope: rope, Scale: softmaxScale, Causal: true, KVLen: lengths,
		Q: func(r, t, h int) []float32 { return floats(q[((r*fakeSQ+t)*fakeHeads+h)*recordBytes:]) },
		Row: oracle.Pages(pageTokens, func(r, i int) int64 { return int64(ints(table, r*width+i)) },
			func(page int64, slot int) []float32 { return floats(kv[page*pageBytes+int64(slot)*recordBytes:]) }),
	}
	r := p.Run()
	out, lse := d.from(runtime.Ptr(word(5))), d.from(runtime.Ptr(word(6)))
	for i, v := range r.Out {
		binary.LittleEndian.PutUint16(out[2*i:], bf16(float32(v)))
	}
	for i, v := range r.LSE {
		binary.LittleEndian.PutUint32(lse[4*i:], math.Float32bits(float32(v)))
	}
	if d.spoil != nil {
		d.spoil(out, lse)
	}
}

func fakeReference(r Row) ([]float64, float64) {
	d := oracle.Decode[float32]{
		Heads: 1, QLen: 1, Latent: r.Latent, Rope: len(r.Q) - r.Latent, Scale: r.Scale, KVLen: []int{r.Keys},
		Q:   func(int, int, int) []float32 { return r.Q },
		Row: func(_, position int) []float32 { return r.Record(position) },
	}
	return d.One(0, 0, 0)
}
