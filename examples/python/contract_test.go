// Package python_test holds the Python client against package runtime: from
// the manifests alone, without Go and without knowledge of a kernel, it must come
// to the same launches, byte for byte.
package python_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
	"github.com/mlagen/mlagen/templates"
)

// python runs a program of this folder, or skips where there is no Python.
func python(t *testing.T, stdin []byte, args ...string) []byte {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("the Python client is not tested: python3 is missing")
	}
	// What a child process reads is unknown to the test cache, what this one reads is not.
	sources, err := filepath.Glob("*.py")
	for _, name := range sources {
		if _, err := os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	if err != nil || len(sources) == 0 {
		t.Fatalf("%d Python files here, %v", len(sources), err)
	}
	cmd := exec.Command("python3", append([]string{"-B"}, args...)...) // -B: no __pycache__ here
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(stdin), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, &stderr)
	}
	return out
}

// TestUnits runs the client's own tests.
func TestUnits(t *testing.T) { python(t, nil, "-m", "unittest", "-q", "test_manifest") }

// view is a tensor as plan.py reads it.
type view struct {
	Address runtime.Ptr   `json:"address"`
	DType   runtime.DType `json:"dtype"`
	Shape   []int64       `json:"shape"`
	Strides []int64       `json:"strides"` // elements
}

func viewOf(t runtime.Tensor) view { return view{t.Ptr, t.DType, t.Shape, t.Strides} }

// columns is a view of some of the last dimension's elements.
func columns(t runtime.Tensor, first, count int64) view {
	v := viewOf(t)
	v.Address += runtime.Ptr(first * t.DType.Bytes())
	v.Shape = append([]int64{}, t.Shape...)
	v.Shape[len(v.Shape)-1] = count
	return v
}

// memory is a buffer as plan.py reads it.
type memory struct {
	Address runtime.Ptr `json:"address"`
	Bytes   int64       `json:"bytes"`
}

// call is what plan.py is asked about.
type call struct {
	Manifest string             `json:"manifest"`
	SMs      int                `json:"sms"`
	Integers map[string]int     `json:"integers"`
	Reals    map[string]float64 `json:"reals"`
	Tensors  map[string]view    `json:"tensors"`
	Buffers  map[string]memory  `json:"buffers"`
}

// tensorMap is what cuTensorMapEncodeTiled is given.
type tensorMap struct {
	Offset    int         `json:"offset"`
	Address   runtime.Ptr `json:"address"`
	Sizes     []uint64    `json:"sizes"`
	Strides   []uint64    `json:"strides"`
	DType     string      `json:"dtype"`
	Box       []int       `json:"box"`
	Swizzle   int         `json:"swizzle"`
	Promotion int         `json:"promotion"`
}

// launch is what plan.py answers, and what the runtime launched.
type launch struct {
	Kernel       string           `json:"kernel"`
	Grid         [3]int           `json:"grid"`
	Threads      int              `json:"threads"`
	Cluster      int              `json:"cluster"`
	Shared       int              `json:"shared"`
	Programmatic bool             `json:"programmatic"`
	Params       string           `json:"params"`
	Offsets      []int            `json:"offsets"`
	Maps         []tensorMap      `json:"maps"`
	Buffers      map[string]int64 `json:"buffers"`
}

// forgetStrides removes what means nothing: the stride of a dimension of one
// element, which a tensor map must have all the same.
func (l *launch) forgetStrides() {
	if l == nil {
		return
	}
	for _, m := range l.Maps {
		for i := range m.Strides {
			if m.Sizes[i+1] == 1 {
				m.Strides[i] = 0
			}
		}
	}
}

// recorder is a device that keeps launches instead of running them.
type recorder struct {
	runtime.Driver
	sms      int
	launches []runtime.Launch
	maps     map[string]runtime.TensorMap // the last of each parameter
}

func newRecorder(t *testing.T, sms int) *recorder {
	drv, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &recorder{Driver: drv, sms: sms, maps: map[string]runtime.TensorMap{}}
}

func (r *recorder) Attributes() runtime.Attributes {
	a := r.Driver.Attributes()
	a.SMs = r.sms
	return a
}

// EncodeTensorMap leaves the parameter's bytes zero, as the client does.
func (r *recorder) EncodeTensorMap(m runtime.TensorMap) ([128]byte, error) {
	r.maps[m.Param] = m
	return [128]byte{}, nil
}

func (r *recorder) NewStream() (runtime.Stream, error) { return recording{nil, r}, nil }

type recording struct {
	runtime.Stream
	r *recorder
}

func (s recording) Launch(l runtime.Launch) error {
	l.Params = bytes.Clone(l.Params)
	s.r.launches = append(s.r.launches, l)
	return nil
}

// trial is a client's calls and what the runtime did for them.
type trial struct {
	calls []call
	want  []*launch
}

// take adds the launches since the last time: of the kernels of variants, in
// their order, with arguments in common. The last ones may not have been needed.
func (c *trial) take(r *recorder, dir string, common call, buffers map[string]int64, variants ...runtime.Variant) {
	common.SMs = r.sms
	for i, v := range variants {
		own := common
		own.Manifest = filepath.Join(dir, v.Manifest.Kernel+".json")
		c.calls = append(c.calls, own)
		if i >= len(r.launches) {
			c.want = append(c.want, nil)
			continue
		}
		l := r.launches[i]
		w := &launch{
			Kernel: v.Manifest.Kernel, Grid: [3]int{l.Grid.X, max(1, l.Grid.Y), max(1, l.Grid.Z)}, Threads: l.Block.X, Cluster: max(1, l.Cluster.X),
			Shared: l.Shared, Programmatic: l.Programmatic, Params: hex.EncodeToString(l.Params), Offsets: l.Offsets, Buffers: map[string]int64{},
		}
		for _, p := range v.Manifest.Params {
			if m, ok := r.maps[p.Name]; ok && p.Kind == "tensor_map" {
				w.Maps = append(w.Maps, tensorMap{p.Offset, m.Address, m.Sizes, m.Strides, m.DType, m.Box, m.Swizzle, m.Promotion})
			}
		}
		for _, a := range v.Manifest.Launch.Arguments {
			if a.Kind == "buffer" {
				w.Buffers[a.Name] = buffers[a.Name]
			}
		}
		c.want = append(c.want, w)
	}
	r.launches = nil
}

// compare asks the client.
func (c *trial) compare(t *testing.T) {
	t.Helper()
	calls, err := json.Marshal(c.calls)
	if err != nil {
		t.Fatal(err)
	}
	var got []*launch
	if err := json.Unmarshal(python(t, calls, "plan.py"), &got); err != nil {
		t.Fatal(err)
	}
	for _, launches := range [2][]*launch{c.want, got} {
		for _, l := range launches {
			l.forgetStrides()
		}
	}
	if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the runtime (-) and the client (+) do not launch the same:\n%s", diff)
	}
	nothing := 0
	for _, w := range c.want {
		if w == nil {
			nothing++
		}
	}
	t.Logf("%d launches, %d of them none", len(c.want), nothing)
}

// write generates kernels into a folder, as mlagen emit does.
func write(t *testing.T, spec templates.Spec, names ...string) (dir string, variants []runtime.Variant) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range names {
		out, err := templates.Build(name, spec)
		if err != nil {
			t.Fatal(err)
		}
		text, err := out.Manifest.Text()
		if err != nil {
			t.Fatal(err)
		}
		for ext, data := range map[string][]byte{".ptx": out.PTX, ".json": text} {
			if err := os.WriteFile(filepath.Join(dir, out.Manifest.Kernel+ext), data, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		variants = append(variants, runtime.Variant{Name: name, PTX: out.PTX, Manifest: out.Manifest})
	}
	return dir, variants
}

// layout draws where a tensor lies, with gaps between the elements of all
// dimensions but the innermost.
type layout struct{ *rand.Rand }

func (l layout) address() runtime.Ptr { return runtime.Ptr(1+l.Int64N(1<<40)) * 256 }

func (l layout) dense(d runtime.DType, shape ...int64) runtime.Tensor {
	t := runtime.Dense(l.address(), d, shape...)
	t.Strides = make([]int64, len(shape))
	stride := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		t.Strides[i] = stride
		stride *= max(1, shape[i])
	}
	return t
}

func (l layout) gaps(d runtime.DType, shape ...int64) runtime.Tensor {
	t := l.dense(d, shape...)
	stride := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		t.Strides[i] = stride
		stride = (stride*shape[i] + 7 + 8*l.Int64N(3)) / 8 * 8 // 16 bytes
	}
	return t
}

func (l layout) buffer(bytes int64) runtime.Buffer {
	return runtime.Buffer{Ptr: l.address(), Bytes: bytes}
}

// TestDecode: any batch, splits and strides, both ways to give the query.
func TestDecode(t *testing.T) {
	var c trial
	random := layout{rand.New(rand.NewPCG(1, 1))}
	for _, spec := range []templates.Spec{
		{Heads: 16}, {Heads: 128}, {Heads: 20, SQ: 2, DType: "fp16"}, {Heads: 3, SQ: 5, Latent: 256, Rope: 128, BlockH: 8},
	} {
		dir, v := write(t, spec, "decode-schedule", "absorb-decode", "decode-combine")
		r := newRecorder(t, 1+random.IntN(200))
		d, err := runtime.LoadDecode(r, runtime.DecodeVariants{Schedule: v[0], Decode: v[1], Combine: v[2]})
		if err != nil {
			t.Fatal(err)
		}
		stream, _ := r.NewStream()
		m := d.Model()
		for range 5 {
			batch, splits := []int{0, 1, 2, 7, 300}[random.IntN(5)], []int{0, 0, 1, 5}[random.IntN(4)]
			n, sq, heads, latent, rope := int64(batch), int64(m.SQ), int64(m.Heads), int64(m.Latent), int64(m.Rope)
			args := runtime.DecodeArgs{
				Batch: batch, Splits: splits, Scale: random.Float32() + 0.01, LSEBase2: random.IntN(2) == 0,
				KV:         random.gaps(m.DType, 1+random.Int64N(3), 64, latent+rope),
				BlockTable: random.gaps(runtime.S32, n, 1+random.Int64N(9)),
				KVLen:      random.dense(runtime.S32, n),
				Schedule:   random.buffer(d.ScheduleBytes(batch, splits)),
				Workspace:  random.buffer(d.WorkspaceBytes(batch, splits)),
				Out:        random.gaps(m.DType, n, sq, heads, latent),
				LSE:        random.dense(runtime.F32, n, sq, heads),
			}
			common := call{
				Integers: map[string]int{"batch": batch, "splits": splits},
				Reals:    map[string]float64{"scale": float64(args.Scale), "lse_factor": math.Ln2},
				Tensors: map[string]view{"kv": viewOf(args.KV), "block_table": viewOf(args.BlockTable), "kv_len": viewOf(args.KVLen),
					"out": viewOf(args.Out), "lse": viewOf(args.LSE)},
				Buffers: map[string]memory{"schedule": {args.Schedule.Ptr, args.Schedule.Bytes}, "workspace": {args.Workspace.Ptr, args.Workspace.Bytes}},
			}
			if args.LSEBase2 {
				common.Reals["lse_factor"] = 1
			}
			if random.IntN(2) == 0 {
				args.NewTokens = m.SQ + random.IntN(1<<20)
			}
			common.Integers["new_tokens"] = args.NewTokens
			if random.IntN(2) == 0 {
				args.Q = random.gaps(m.DType, n, sq, heads, latent+rope)
				common.Tensors["q_latent"], common.Tensors["q_rope"] = columns(args.Q, 0, latent), columns(args.Q, latent, rope)
			} else {
				args.QLatent, args.QRope = random.gaps(m.DType, n, sq, heads, latent), random.gaps(m.DType, n, sq, heads, rope)
				common.Tensors["q_latent"], common.Tensors["q_rope"] = viewOf(args.QLatent), viewOf(args.QRope)
			}
			if err := d.Schedule(stream, runtime.ScheduleArgs{Batch: batch, Splits: splits, KVLen: args.KVLen, Buffer: args.Schedule}); err != nil {
				t.Fatal(err)
			}
			if err := d.Run(stream, args); err != nil {
				t.Fatal(err)
			}
			c.take(r, dir, common, map[string]int64{"schedule": args.Schedule.Bytes, "workspace": args.Workspace.Bytes}, v...)
		}
	}
	c.compare(t)
}

// TestPrefill: any sequences and strides, tensors without rows among them.
func TestPrefill(t *testing.T) {
	var c trial
	random := layout{rand.New(rand.NewPCG(2, 1))}
	for _, spec := range []templates.Spec{{Heads: 16}, {Heads: 5, Nope: 64, Value: 64, DType: "fp16"}} {
		dir, v := write(t, spec, "expand-schedule", "expand-prefill")
		r := newRecorder(t, 1+random.IntN(200))
		p, err := runtime.LoadPrefill(r, runtime.PrefillVariants{Schedule: v[0], Attend: v[1]})
		if err != nil {
			t.Fatal(err)
		}
		stream, _ := r.NewStream()
		m := p.Model()
		for range 8 {
			sequences := random.IntN(5)
			queries, keys := []int{0, 1, 129, 5000}[random.IntN(4)], []int{0, 1, 700}[random.IntN(3)]
			nq, nk, heads, nope, rope, value := int64(queries), int64(keys), int64(m.Heads), int64(m.Nope), int64(m.Rope), int64(m.Value)
			args := runtime.PrefillArgs{
				Sequences: sequences, Scale: random.Float32() + 0.01,
				Schedule: random.buffer(p.ScheduleBytes(sequences, queries)),
				KVUp:     random.gaps(m.DType, nk, heads, nope+value),
				KRope:    random.gaps(m.DType, nk, rope),
				Out:      random.gaps(m.DType, nq, heads, value),
				LSE:      random.dense(runtime.F32, nq, heads),
			}
			schedule := runtime.PrefillScheduleArgs{
				Sequences: sequences, QueryTokens: queries, KeyTokens: keys, Causal: random.IntN(2) == 0,
				CuQ: random.dense(runtime.S32, int64(sequences)+1), CuK: random.dense(runtime.S32, int64(sequences)+1), Buffer: args.Schedule,
			}
			common := call{
				Integers: map[string]int{"sequences": sequences, "query_tokens": queries, "key_tokens": keys, "causal": 0},
				Reals:    map[string]float64{"scale": float64(args.Scale), "lse_factor": math.Ln2},
				Tensors: map[string]view{"kv_up": viewOf(args.KVUp), "k_rope": viewOf(args.KRope), "out": viewOf(args.Out), "lse": viewOf(args.LSE),
					"cu_q": viewOf(schedule.CuQ), "cu_k": viewOf(schedule.CuK)},
				Buffers: map[string]memory{"schedule": {args.Schedule.Ptr, args.Schedule.Bytes}},
			}
			if schedule.Causal {
				common.Integers["causal"] = 1
			}
			if random.IntN(2) == 0 {
				args.Q = random.gaps(m.DType, nq, heads, nope+rope)
				common.Tensors["q_nope"], common.Tensors["q_rope"] = columns(args.Q, 0, nope), columns(args.Q, nope, rope)
			} else {
				args.QNope, args.QRope = random.gaps(m.DType, nq, heads, nope), random.gaps(m.DType, nq, heads, rope)
				common.Tensors["q_nope"], common.Tensors["q_rope"] = viewOf(args.QNope), viewOf(args.QRope)
			}
			if err := p.Schedule(stream, schedule); err != nil {
				t.Fatal(err)
			}
			if err := p.Run(stream, args); err != nil {
				t.Fatal(err)
			}
			c.take(r, dir, common, map[string]int64{"schedule": args.Schedule.Bytes}, v...)
		}
	}
	c.compare(t)
}
