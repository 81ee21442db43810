package golden_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

// These tests hold the launch rules of manifests against package runtime: for
// the same arguments a runtime.Launcher, which knows a kernel only by its
// manifest, and the operation's own type launch the same kernels with the same
// grid and the same parameters, to the byte.

// notebook is a driver that runs nothing and notes launches. A tensor map is a
// digest of what it describes.
type notebook struct {
	sms   int
	notes []note
}

// note is one launch.
type note struct {
	Kernel       string
	Grid, Block  runtime.Dim3
	Cluster      runtime.Dim3
	Shared       int
	Programmatic bool
	Params       []byte
}

var errNotHere = errors.New("the notebook has no such thing")

func (n *notebook) Name() string { return "notebook" }
func (n *notebook) Attributes() runtime.Attributes {
	return runtime.Attributes{SMs: n.sms, Clusters: true, SharedPerBlock: 232448}
}
func (n *notebook) Alloc(string, int64) (runtime.Ptr, error) { return 0, errNotHere }
func (n *notebook) Free(runtime.Ptr) error                   { return errNotHere }
func (n *notebook) Upload(runtime.Ptr, []byte) error         { return errNotHere }
func (n *notebook) Download([]byte, runtime.Ptr) error       { return errNotHere }
func (n *notebook) Fill(runtime.Ptr, byte, int64) error      { return errNotHere }
func (n *notebook) Load([]byte) (runtime.Module, error)      { return notedModule{}, nil }
func (n *notebook) NewStream() (runtime.Stream, error)       { return notingStream{n}, nil }
func (n *notebook) NewEvent() (runtime.Event, error)         { return nil, errNotHere }
func (n *notebook) Close() error                             { return nil }

func (n *notebook) EncodeTensorMap(t runtime.TensorMap) (out [128]byte, err error) {
	t.Source, t.IfEmpty = nil, nil // where it comes from is not what it is
	t.Strides = slices.Clone(t.Strides)
	for i := range t.Strides {
		if t.Sizes[i+1] == 1 {
			t.Strides[i] = 0 // means nothing
		}
	}
	sum := sha256.Sum256(fmt.Append(nil, t))
	copy(out[:], sum[:])
	return out, nil
}

// take returns the launches noted since the last call.
func (n *notebook) take() []note {
	notes := n.notes
	n.notes = nil
	return notes
}

type notedModule struct{}

func (notedModule) Function(name string) (runtime.Function, error) { return notedFunction(name), nil }
func (notedModule) Log() string                                    { return "" }
func (notedModule) CompileSeconds() float64                        { return 0 }
func (notedModule) Unload() error                                  { return nil }

type notedFunction string

func (notedFunction) Attributes() (runtime.FunctionAttributes, error) {
	return runtime.FunctionAttributes{}, nil
}
func (notedFunction) SetDynamicShared(int) error { return nil }

type notingStream struct{ n *notebook }

func (s notingStream) Launch(l runtime.Launch) error {
	grid := runtime.Dim3{X: max(1, l.Grid.X), Y: max(1, l.Grid.Y), Z: max(1, l.Grid.Z)} // 0 counts as 1
	s.n.notes = append(s.n.notes, note{string(l.Function.(notedFunction)), grid, l.Block, l.Cluster, l.Shared, l.Programmatic, slices.Clone(l.Params)})
	return nil
}
func (notingStream) FillAsync(runtime.Ptr, byte, int64) error { return errNotHere }
func (notingStream) Record(runtime.Event) error               { return errNotHere }
func (notingStream) Synchronize() error                       { return nil }
func (notingStream) BeginCapture() error                      { return errNotHere }
func (notingStream) EndCapture() (runtime.Graph, error)       { return nil, errNotHere }
func (notingStream) Replay(runtime.Graph) error               { return errNotHere }
func (notingStream) Destroy() error                           { return nil }

// launched is an operation's kernels, each behind its own manifest.
type launched struct {
	t    *testing.T
	list []*runtime.Launcher
}

func loadLaunched(t *testing.T, drv runtime.Driver, variants ...runtime.Variant) launched {
	t.Helper()
	l := launched{t: t}
	for _, v := range variants {
		// As a file holds it.
		text, err := v.Manifest.Text()
		if err != nil {
			t.Fatal(err)
		}
		if v, err = runtime.ParseVariant(v.Name, string(v.PTX), string(text)); err != nil {
			t.Fatal(err)
		}
		k, err := runtime.LoadLauncher(drv, v)
		if err != nil {
			t.Fatal(err)
		}
		l.list = append(l.list, k)
	}
	return l
}

// call is what a caller gives, by name.
type call struct {
	tensors  map[string]runtime.Tensor
	buffers  map[string]runtime.Buffer
	integers map[string]int64
	reals    map[string]float64
	tables   map[string][]uint64
}

// launch launches the i-th kernel with those of the arguments that it takes.
func (l *launched) launch(i int, s runtime.Stream, c *call) {
	l.t.Helper()
	var a runtime.LaunchArguments
	for _, x := range l.list[i].Kernel().Manifest.Launch.Arguments {
		ok := false
		switch x.Kind {
		case "tensor":
			var v runtime.Tensor
			v, ok = c.tensors[x.Name]
			a.Tensors = append(a.Tensors, v)
		case "buffer":
			var v runtime.Buffer
			v, ok = c.buffers[x.Name]
			a.Buffers = append(a.Buffers, v)
		case "integer":
			var v int64
			v, ok = c.integers[x.Name]
			a.Integers = append(a.Integers, v)
		case "real":
			var v float64
			v, ok = c.reals[x.Name]
			a.Reals = append(a.Reals, v)
		case "table":
			var v []uint64
			v, ok = c.tables[x.Name]
			a.Tables = append(a.Tables, v)
		}
		if !ok {
			l.t.Fatalf("no argument %s", x.Name)
		}
	}
	if err := l.list[i].Launch(s, a); err != nil {
		l.t.Error(err)
	}
}

// bytes returns the size of a buffer of the i-th kernel, 0 when the integers
// are refused.
func (l *launched) bytes(i int, name string, integers map[string]int64) int64 {
	l.t.Helper()
	var values []int64
	for _, x := range l.list[i].Kernel().Manifest.Launch.Arguments {
		if x.Kind == "integer" {
			values = append(values, integers[x.Name])
		}
	}
	n, err := l.list[i].BufferBytes(name, values...)
	if err != nil {
		return 0
	}
	return n
}

// memory hands out tensors at addresses of their own, dense or with gaps.
type memory struct {
	random *rand.Rand
	next   runtime.Ptr
}

func (m *memory) buffer(bytes int64) runtime.Buffer {
	m.next += 1 << 44
	return runtime.Buffer{Ptr: m.next + 16*runtime.Ptr(m.random.IntN(1000)), Bytes: bytes}
}

func (m *memory) dense(d runtime.DType, shape ...int64) runtime.Tensor {
	return runtime.Dense(m.buffer(0).Ptr, d, shape...)
}

// rows makes a tensor of bf16 or fp16 rows, sometimes with gaps between them.
func (m *memory) rows(d runtime.DType, shape ...int64) runtime.Tensor {
	t := m.dense(d, shape...)
	if m.random.IntN(2) == 0 {
		return t
	}
	t.Strides = make([]int64, len(shape))
	stride := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		t.Strides[i] = stride
		stride = max(1, shape[i])*stride + 8*m.random.Int64N(5)
		if i == len(shape)-1 {
			stride = (stride + 7) / 8 * 8
		}
	}
	return t
}

// columns is a view of so many of a tensor's columns.
func columns(t runtime.Tensor, first, count int64) runtime.Tensor {
	n := len(t.Shape)
	strides := t.Strides
	if strides == nil {
		strides = make([]int64, n)
		stride := int64(1)
		for i := n - 1; i >= 0; i-- {
			strides[i], stride = stride, stride*t.Shape[i]
		}
	}
	view := runtime.Tensor{Ptr: t.Ptr + runtime.Ptr(first*t.DType.Bytes()), DType: t.DType, Shape: slices.Clone(t.Shape), Strides: strides}
	view.Shape[n-1] = count
	return view
}

func kernelVariant(t *testing.T, kernel string, s templates.Spec) runtime.Variant {
	t.Helper()
	out, err := templates.Build(kernel, s)
	if err != nil {
		t.Fatal(err)
	}
	return runtime.Variant{Name: kernel, PTX: out.PTX, Manifest: out.Manifest}
}

func TestDecodeLaunchRules(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, s := range []templates.Spec{
		{}, {Heads: 1, DType: "fp16"}, {Heads: 20, SQ: 2}, {Heads: 16, SQ: 5}, {Heads: 128}, {Heads: 128, Cluster: 1}, {Heads: 128, SQ: 2, Cluster: 2}, {Heads: 130, BlockH: 64}, {Heads: 64, BlockH: 32, Latent: 256, Rope: 128},
		{Heads: 128, SQ: 128},
	} {
		s = s.WithDefaults()
		for _, sms := range []int{1, 132} {
			n := &notebook{sms: sms}
			v := runtime.DecodeVariants{Decode: kernelVariant(t, "absorb-decode", s), Schedule: kernelVariant(t, "decode-schedule", s), Combine: kernelVariant(t, "decode-combine", s)}
			d, err := runtime.LoadDecode(n, v)
			must(t, err)
			rules := loadLaunched(t, n, v.Schedule, v.Decode, v.Combine)
			stream, _ := n.NewStream()
			for range 12 {
				batch, splits := random.IntN(1<<random.IntN(12)), random.IntN(1<<random.IntN(6))
				compareDecode(t, s, batch, splits, d, rules, n, stream, random)
			}
			for range 300 { // at and beyond what can be numbered
				batch, splits := random.IntN(math.MaxInt32>>random.IntN(31))-1, random.IntN(math.MaxInt32>>random.IntN(31))-1
				integers := map[string]int64{"batch": int64(batch), "splits": int64(splits)}
				for i := range rules.list {
					if got, want := rules.bytes(i, "schedule", integers), d.ScheduleBytes(batch, splits); got != want {
						t.Errorf("%+v, batch %d, splits %d: schedule of %d bytes by the rules of kernel %d, %d by the runtime", s, batch, splits, got, i, want)
					}
					if i == 0 { // decode-schedule has no workspace
						continue
					}
					if got, want := rules.bytes(i, "workspace", integers), d.WorkspaceBytes(batch, splits); got != want {
						t.Errorf("%+v, batch %d, splits %d: workspace of %d bytes by the rules of kernel %d, %d by the runtime", s, batch, splits, got, i, want)
					}
				}
			}
		}
	}
}

func compareDecode(t *testing.T, s templates.Spec, batch, splits int, d *runtime.Decode, rules launched, n *notebook, stream runtime.Stream, random *rand.Rand) {
	t.Helper()
	m := &memory{random: random}
	b, sq, h := int64(batch), int64(s.SQ), int64(s.Heads)
	dtype, latent, rope := runtime.DType(s.DType), int64(s.Latent), int64(s.Rope)
	sched := runtime.ScheduleArgs{Batch: batch, Splits: splits, KVLen: m.dense(runtime.S32, b), Buffer: m.buffer(d.ScheduleBytes(batch, splits))}
	a := runtime.DecodeArgs{
		Batch: batch, Splits: splits, KV: m.rows(dtype, 1+random.Int64N(50), 64, latent+rope), BlockTable: m.dense(runtime.S32, b, 1+random.Int64N(9)),
		KVLen: sched.KVLen, Schedule: sched.Buffer, Workspace: m.buffer(d.WorkspaceBytes(batch, splits)),
		Out: m.rows(dtype, b, sq, h, latent), LSE: m.dense(runtime.F32, b, sq, h), Scale: random.Float32() + 0.01, LSEBase2: random.IntN(2) == 0,
	}
	if random.IntN(2) == 0 {
		a.BlockTable.Strides = []int64{a.BlockTable.Shape[1] + 3, 1}
	}
	c := call{
		integers: map[string]int64{"batch": b, "splits": int64(splits)},
		buffers:  map[string]runtime.Buffer{"schedule": a.Schedule, "workspace": a.Workspace},
		reals:    map[string]float64{"scale": float64(a.Scale), "lse_factor": math.Ln2},
		tensors:  map[string]runtime.Tensor{"kv": a.KV, "block_table": a.BlockTable, "kv_len": a.KVLen, "out": a.Out, "lse": a.LSE},
	}
	if a.LSEBase2 {
		c.reals["lse_factor"] = 1
	}
	if random.IntN(2) == 0 {
		a.Q = m.rows(dtype, b, sq, h, latent+rope)
		c.tensors["q_latent"], c.tensors["q_rope"] = columns(a.Q, 0, latent), columns(a.Q, latent, rope)
	} else {
		a.QLatent, a.QRope = m.rows(dtype, b, sq, h, latent), m.rows(dtype, b, sq, h, rope)
		c.tensors["q_latent"], c.tensors["q_rope"] = a.QLatent, a.QRope
	}
	if random.IntN(2) == 0 {
		a.NewTokens = s.SQ + random.IntN(math.MaxInt32-s.SQ)
	}
	c.integers["new_tokens"] = int64(a.NewTokens)
	n.take()
	must(t, d.Schedule(stream, sched))
	must(t, d.Run(stream, a))
	want := n.take()
	for i := range rules.list {
		rules.launch(i, stream, &c)
	}
	if diff := cmp.Diff(want, n.take()); diff != "" {
		t.Fatalf("%+v, batch %d, splits %d: the runtime and the rules launch otherwise:\n%s", s, batch, splits, diff)
	}
}

func TestPrefillLaunchRules(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, s := range []templates.Spec{{}, {Heads: 1, DType: "fp16"}, {Heads: 16, BlockM: 192}, {Heads: 6, Nope: 64, Value: 64}} {
		s, err := templates.Defaults("expand-prefill", s)
		must(t, err)
		for _, sms := range []int{1, 132} {
			n := &notebook{sms: sms}
			v := runtime.PrefillVariants{Attend: kernelVariant(t, "expand-prefill", s), Schedule: kernelVariant(t, "expand-schedule", s)}
			p, err := runtime.LoadPrefill(n, v)
			must(t, err)
			rules := loadLaunched(t, n, v.Schedule, v.Attend)
			stream, _ := n.NewStream()
			for range 30 {
				comparePrefill(t, s, p, rules, n, stream, random)
			}
			for range 300 {
				sequences, tokens := random.IntN(math.MaxInt32>>random.IntN(31))-1, random.IntN(math.MaxInt32>>random.IntN(31))-1
				got := rules.bytes(0, "schedule", map[string]int64{"sequences": int64(sequences), "query_tokens": int64(tokens)})
				if want := p.ScheduleBytes(sequences, tokens); got != want {
					t.Errorf("%+v, %d sequences, %d tokens: schedule of %d bytes by the rules, %d by the runtime", s, sequences, tokens, got, want)
				}
			}
		}
	}
}

func comparePrefill(t *testing.T, s templates.Spec, p *runtime.Prefill, rules launched, n *notebook, stream runtime.Stream, random *rand.Rand) {
	t.Helper()
	m := &memory{random: random}
	sequences, tokens, keys := random.IntN(1<<random.IntN(9)), random.Int64N(1<<random.IntN(14)), random.Int64N(1<<random.IntN(14))
	dtype, h, nope, rope, value := runtime.DType(s.DType), int64(s.Heads), int64(s.Nope), int64(s.Rope), int64(s.Value)
	sched := runtime.PrefillScheduleArgs{
		Sequences: sequences, QueryTokens: int(tokens), KeyTokens: int(keys), Causal: random.IntN(2) == 0,
		CuQ: m.dense(runtime.S32, int64(sequences)+1), CuK: m.dense(runtime.S32, int64(sequences)+1), Buffer: m.buffer(p.ScheduleBytes(sequences, int(tokens))),
	}
	a := runtime.PrefillArgs{
		Sequences: sequences, KVUp: m.rows(dtype, keys, h, nope+value), KRope: m.rows(dtype, keys, rope), Schedule: sched.Buffer,
		Out: m.rows(dtype, tokens, h, value), LSE: m.dense(runtime.F32, tokens, h), Scale: random.Float32() + 0.01, LSEBase2: random.IntN(2) == 0,
	}
	c := call{
		integers: map[string]int64{"sequences": int64(sequences), "query_tokens": tokens, "key_tokens": keys, "causal": 0},
		buffers:  map[string]runtime.Buffer{"schedule": a.Schedule},
		reals:    map[string]float64{"scale": float64(a.Scale), "lse_factor": math.Ln2},
		tensors:  map[string]runtime.Tensor{"cu_q": sched.CuQ, "cu_k": sched.CuK, "kv_up": a.KVUp, "k_rope": a.KRope, "out": a.Out, "lse": a.LSE},
	}
	if a.LSEBase2 {
		c.reals["lse_factor"] = 1
	}
	if sched.Causal {
		c.integers["causal"] = 1
	}
	if random.IntN(2) == 0 {
		a.Q = m.rows(dtype, tokens, h, nope+rope)
		c.tensors["q_nope"], c.tensors["q_rope"] = columns(a.Q, 0, nope), columns(a.Q, nope, rope)
	} else {
		a.QNope, a.QRope = m.rows(dtype, tokens, h, nope), m.rows(dtype, tokens, h, rope)
		c.tensors["q_nope"], c.tensors["q_rope"] = a.QNope, a.QRope
	}
	n.take()
	must(t, p.Schedule(stream, sched))
	must(t, p.Run(stream, a))
	want := n.take()
	for i := range rules.list {
		rules.launch(i, stream, &c)
	}
	if diff := cmp.Diff(want, n.take()); diff != "" {
		t.Fatalf("%+v, %d sequences, %d queries, %d keys: the runtime and the rules launch otherwise:\n%s", s, sequences, tokens, keys, diff)
	}
}
