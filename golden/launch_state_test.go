package golden_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/plan"
	"github.com/mlagen/mlagen/templates"
)

func TestMergeLaunchRules(t *testing.T) {
	for _, s := range []templates.Spec{{}, {Value: 512, Partial: "f32", DType: "fp16"}, {Value: 64}} {
		compareOne(t, "merge-states", s, func(drv runtime.Driver, v runtime.Variant) (func(runtime.Stream, *call) error, func() error) {
			m, err := runtime.LoadMergeStates(drv, v)
			must(t, err)
			shape := m.Shape()
			return func(stream runtime.Stream, c *call) error {
				random := rand.New(rand.NewPCG(uint64(c.integers["tokens"]), 9))
				mem := &memory{random: random, next: 1 << 60}
				tokens, heads := c.integers["tokens"], c.integers["heads"]
				base2 := random.IntN(2) == 0
				c.reals = map[string]float64{"to_log2": math.Log2E, "from_log2": math.Ln2}
				if base2 {
					c.reals = map[string]float64{"to_log2": 1, "from_log2": 1}
				}
				lse := c.tensors["lse"] // [tokens, heads, 1] in the manifest
				lse.Shape = lse.Shape[:2]
				if lse.Strides != nil {
					lse.Strides = lse.Strides[:2]
				}
				a := runtime.MergeArgs{Accumulate: c.integers["accumulate"] == 1, Out: c.tensors["out"], LSE: lse, LSEBase2: base2}
				var words []uint64
				for range 1 + random.IntN(64) {
					state := runtime.State{Out: mem.rows(shape.Partial, tokens, heads, int64(shape.Width)), LSE: mem.dense(runtime.F32, tokens, heads)}
					a.States = append(a.States, state)
					out, lse := strideBytes(state.Out), strideBytes(state.LSE)
					words = append(words, uint64(state.Out.Ptr), out[0], out[1], uint64(state.LSE.Ptr), lse[0], lse[1])
				}
				c.tables = map[string][]uint64{"states": words}
				return m.Run(stream, a)
			}, m.Close
		})
	}
}

// strideBytes are a tensor's strides in bytes, 0 where there are no neighbours.
func strideBytes(t runtime.Tensor) []uint64 {
	strides, dense := make([]uint64, len(t.Shape)), int64(1)
	for i := len(t.Shape) - 1; i >= 0; i-- {
		stride := dense
		if t.Strides != nil {
			stride = t.Strides[i]
		}
		if t.Shape[i] > 1 {
			strides[i] = uint64(stride * t.DType.Bytes())
		}
		dense *= t.Shape[i]
	}
	return strides
}

// TestExtendLaunchRules: schedule, and for every chunk the up-projection and the
// attention.
func TestExtendLaunchRules(t *testing.T) {
	random := rand.New(rand.NewPCG(10, 11))
	for _, s := range []templates.Spec{{Heads: 16}, {Heads: 5, DType: "fp16", BlockM: 192}} {
		n := &notebook{}
		up := kernelVariant(t, "up-project", templates.Spec{Heads: s.Heads, DType: s.DType})
		v := runtime.ExtendVariants{UpProject: up, Attend: kernelVariant(t, "extend-attend", s), Schedule: kernelVariant(t, "extend-schedule", s)}
		for i := range 10 {
			n.sms = []int{1, 132}[i%2]
			e, err := runtime.LoadExtend(n, v)
			must(t, err)
			rules := loadLaunched(t, n, v.Schedule, v.UpProject, v.Attend)
			stream, _ := n.NewStream()
			compareExtend(t, e, rules, n, stream, random)
			must(t, e.Close())
		}
	}
}

func compareExtend(t *testing.T, e *runtime.Extend, rules launched, n *notebook, stream runtime.Stream, random *rand.Rand) {
	t.Helper()
	shape := e.Shape()
	capacity := runtime.ExtendCapacity{Sequences: 2 + random.IntN(5), QueryTokens: 1 + random.IntN(900), KeyTokens: 1 + random.IntN(3000)}
	capacity.MostQueries = 1 + random.IntN(capacity.QueryTokens)
	planned, err := e.Plan(capacity, 1+random.IntN(700), 0)
	must(t, err)
	m := &memory{random: random}
	sequences, tokens, chunk := int64(capacity.Sequences), int64(capacity.QueryTokens), int64(planned.Chunk)
	heads, expanded, dtype := int64(shape.Heads), int64(shape.Nope+shape.Value), shape.DType
	align := func(b runtime.Buffer) runtime.Buffer { b.Ptr = b.Ptr / 256 * 256; return b }
	sched := runtime.ExtendScheduleArgs{Plan: planned, CuQ: m.dense(runtime.S32, sequences+1), KVLen: m.dense(runtime.S32, sequences),
		Causal: random.IntN(2) == 0, Buffer: align(m.buffer(planned.ScheduleBytes))}
	a := runtime.ExtendArgs{
		Plan: planned, QNope: m.rows(dtype, tokens, heads, int64(shape.Nope)), QRope: m.rows(dtype, tokens, heads, int64(shape.Rope)),
		KV: m.rows(dtype, 9, 64, int64(shape.Latent+shape.Rope)), BlockTable: m.dense(runtime.S32, sequences, 70), Weights: m.rows(dtype, heads, expanded, int64(shape.Latent)),
		Schedule: sched.Buffer, Workspace: align(m.buffer(planned.WorkspaceBytes)), Out: m.rows(dtype, tokens, heads, int64(shape.Value)), LSE: m.dense(runtime.F32, tokens, heads),
		Scale: random.Float32() + 0.01,
	}
	n.take()
	must(t, e.Schedule(stream, sched))
	must(t, e.Run(stream, a))
	want := n.take()

	c := &call{
		integers: map[string]int64{"sequences": sequences, "query_tokens": tokens, "chunk_tokens": chunk, "chunks": int64(planned.Chunks), "chunk": 0,
			"most_queries": int64(capacity.MostQueries), "causal": 0, "rows": chunk},
		reals: map[string]float64{"scale": float64(a.Scale), "lse_factor": math.Ln2}, buffers: map[string]runtime.Buffer{"schedule": a.Schedule},
		tensors: map[string]runtime.Tensor{"cu_q": sched.CuQ, "kv_len": sched.KVLen, "q_nope": a.QNope, "q_rope": a.QRope, "kv": a.KV, "block_table": a.BlockTable,
			"weights": a.Weights, "out": a.Out, "lse": a.LSE},
	}
	if sched.Causal {
		c.integers["causal"] = 1
	}
	if got := rules.bytes(0, "schedule", c.integers); got != planned.ScheduleBytes {
		t.Fatalf("schedule of %d bytes by the rules, %d by the runtime", got, planned.ScheduleBytes)
	}
	// A caller's workspace: what is expanded, then states that chunks leave.
	upTo := func(n int64) int64 { return (n + 255) / 256 * 256 }
	kvUpBytes, ropeBytes, state := upTo(chunk*heads*expanded*2), upTo(chunk*int64(shape.Rope)*2), rules.bytes(2, "state_to", c.integers)
	c.tensors["kv_up"] = runtime.Dense(a.Workspace.Ptr, dtype, chunk, heads, expanded)
	c.tensors["k_rope"] = runtime.Dense(a.Workspace.Ptr+runtime.Ptr(kvUpBytes), dtype, chunk, int64(shape.Rope))
	states := [2]runtime.Ptr{a.Workspace.Ptr + runtime.Ptr(kvUpBytes+ropeBytes)}
	states[1] = states[0] + runtime.Ptr(upTo(state))
	if planned.Chunks == 1 { // none are left
		states = [2]runtime.Ptr{a.Workspace.Ptr, a.Workspace.Ptr}
	}
	rules.launch(0, stream, c)
	quantities, err := rules.list[0].Kernel().Manifest.Rules()
	must(t, err)
	quantities.Begin(n.sms)
	for i, x := range quantities.Launch().Arguments {
		if x.Kind == "integer" {
			must(t, quantities.Integer(i, c.integers[x.Name]))
		}
	}
	must(t, quantities.Finish())
	offset := func(name string) runtime.Ptr {
		v, err := quantities.Eval(name)
		must(t, err)
		return runtime.Ptr(v)
	}
	for i := range planned.Chunks {
		at := a.Schedule.Ptr + runtime.Ptr(i)*offset("chunk_bytes")
		c.integers["chunk"] = int64(i)
		c.tensors["cu_seqlens"] = runtime.Dense(at+offset("cu_k_at"), runtime.S32, sequences+1)
		c.tensors["first_token"] = runtime.Dense(at+offset("first_token_at"), runtime.S32, sequences)
		c.buffers["state_from"], c.buffers["state_to"] = runtime.Buffer{Ptr: states[i%2], Bytes: state}, runtime.Buffer{Ptr: states[(i+1)%2], Bytes: state}
		rules.launch(1, stream, c)
		rules.launch(2, stream, c)
	}
	if diff := cmp.Diff(want, n.take()); diff != "" {
		t.Fatalf("%+v: the runtime and the rules launch otherwise:\n%.5000s", planned, diff)
	}
}

// TestLayerLaunchRules: the layer's own kernels, of which a plan launches few or
// none. What a launch was given is read back from its parameters, so that the
// rules' grid and the parameters that follow from others are compared.
func TestLayerLaunchRules(t *testing.T) {
	shape := runtime.LayerShape{Heads: 3, Latent: 512, Rope: 64, Nope: 128, Value: 128, Page: 64, DType: runtime.BF16, Groups: []int{4, 1}}
	v, err := runtime.LayerKernels(source{}, shape)
	must(t, err)
	seen := map[string]int{}
	for _, sms := range []int{1, 132} {
		n := &notebook{sms: sms}
		l, err := runtime.LoadLayer(n, v)
		must(t, err)
		rules := loadLaunched(t, n, v.Groups, v.Rows)
		stream, _ := n.NewStream()
		for trial := range 6 {
			random := rand.New(rand.NewPCG(uint64(trial), 12))
			m := &memory{random: random}
			var requests []plan.Request
			tokens := int64(0)
			for range 2 + random.IntN(30) {
				r := plan.Request{New: 1 + random.IntN(9), Prefix: 1000 + random.IntN(900)}
				requests, tokens = append(requests, r), tokens+int64(r.New)
			}
			p, err := l.Plan(requests, runtime.LayerOptions{Workspace: 1 << 30})
			must(t, err)
			step := runtime.LayerStep{Plan: p, KVLen: m.dense(runtime.S32, int64(len(requests))), BlockTable: m.dense(runtime.S32, int64(len(requests)), 99),
				Schedule: m.buffer(p.ScheduleBytes)}
			workspace := m.buffer(p.WorkspaceBytes)
			workspace.Ptr = workspace.Ptr / 256 * 256
			must(t, l.Schedule(stream, step))
			must(t, l.Run(stream, runtime.LayerArgs{LayerStep: step, Q: m.rows(runtime.BF16, tokens, 3, 192), KV: m.rows(runtime.BF16, 9, 64, 576),
				Weights: m.rows(runtime.BF16, 3, 256, 512), Workspace: workspace, Out: m.rows(runtime.BF16, tokens, 3, 128), Scale: 1}))
			for _, want := range n.take() {
				for i, k := range rules.list {
					if k.Kernel().Manifest.Kernel != want.Kernel {
						continue
					}
					seen[want.Kernel]++
					rules.launch(i, stream, readBack(k.Kernel().Manifest, want, int64(len(requests))))
					if diff := cmp.Diff([]note{want}, n.take()); diff != "" {
						t.Fatalf("the layer and the rules launch otherwise:\n%.4000s", diff)
					}
				}
			}
		}
		must(t, l.Close())
	}
	if seen["layer_groups"] == 0 || seen["layer_rows"] == 0 {
		t.Errorf("launches that were seen: %v", seen)
	}
}

// readBack reads the arguments of layer_groups or layer_rows from a launch.
func readBack(m *manifest.Manifest, n note, requests int64) *call {
	c := &call{tensors: map[string]runtime.Tensor{}, integers: map[string]int64{}, tables: map[string][]uint64{}}
	numbers := map[string]int64{}
	for _, p := range m.Params {
		switch raw := n.Params[p.Offset:]; p.Size {
		case 4:
			numbers[p.Name] = int64(int32(binary.LittleEndian.Uint32(raw)))
		case 8:
			numbers[p.Name] = int64(binary.LittleEndian.Uint64(raw))
		}
	}
	for _, p := range m.Params {
		if p.Kind == manifest.TableParam {
			words := 10 * int(numbers["run_count"])
			for i := range words {
				c.tables[p.Name] = append(c.tables[p.Name], binary.LittleEndian.Uint64(n.Params[p.Offset+8*i:]))
			}
			clear(n.Params[p.Offset+8*words : p.Offset+p.Size]) // of a launch before, and not looked at
		}
	}
	at := func(name string) runtime.Ptr { return runtime.Ptr(numbers[name]) }
	for _, name := range []string{"first", "end", "tokens", "heads", "scatter"} {
		c.integers[name] = numbers[name]
	}
	c.integers["columns"] = 8 * numbers["vectors"]
	groups := numbers["end"]
	width := numbers["width"]
	if at("tables") == 0 {
		width = 0
	}
	c.tensors["kv_len"], c.tensors["block_table"] = runtime.Dense(at("kv_len"), runtime.S32, requests), runtime.Dense(at("block_table"), runtime.S32, requests, numbers["block_table_stride"])
	c.tensors["lengths"], c.tensors["tables"] = runtime.Dense(at("lengths"), runtime.S32, groups), runtime.Dense(at("tables"), runtime.S32, groups, width)
	c.tensors["rows"] = runtime.Dense(at("rows"), runtime.S32, max(1, numbers["tokens"]))
	for _, name := range []string{"from", "to"} {
		c.tensors[name] = runtime.Tensor{Ptr: at(name), DType: runtime.BF16, Shape: []int64{numbers["tokens"], numbers["heads"], c.integers["columns"]},
			Strides: []int64{numbers[name+"_token"] / 2, numbers[name+"_head"] / 2, 1}}
	}
	return c
}
