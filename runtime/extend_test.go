package runtime

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// extendVariants are kernels with the parameters that the generator gives.
func extendVariants(heads int) ExtendVariants {
	spec := PrefillModel{Heads: heads, Nope: 128, Rope: 64, Value: 128, BlockM: 128, BlockN: 128, DType: BF16}
	up := ProductModel{Heads: heads, Latent: 512, Rope: 64, Nope: 128, Value: 128, Page: 64, BlockM: 128, BlockN: 256, Cluster: 2, DType: BF16}
	attend := prefillVariants(heads).Attend.Manifest
	list := []string{"state_from", "*f32", "state_to", "*f32"}
	for _, p := range attend.Params {
		switch p.Kind {
		case manifest.TensorMapParam:
			list = append(list, p.Name, "map")
		case manifest.PointerParam:
			list = append(list, p.Name, "*"+p.Type)
		default:
			list = append(list, p.Name, p.Type)
		}
	}
	v := ExtendVariants{
		UpProject: variant("up_project", 384, up,
			"latents", "map", "weights", "map", "results", "map", "cu_seqlens", "*s32", "first_token", "*s32", "block_table", "*s32",
			"rope", "*b8", "k_rope", "*b8", "out", "*b8", "given", "u32", "sequences", "u32", "rows", "u32", "paged", "u32",
			"block_table_stride", "s64", "copy_rope", "u32", "rope_page", "s64", "rope_token", "s64", "k_rope_row", "s64", "out_token", "s64", "out_head", "s64"),
		Attend: variant("extend_attend", 384, spec, list...),
		Schedule: variant("extend_schedule", 1024, spec,
			"cu_q", "*s32", "kv_len", "*s32", "chunks", "*s32", "chunk_bytes", "s64", "cu_k", "s64", "first_token", "s64", "work_before", "s64", "work_blocks", "s64",
			"chunk", "s32", "sequences", "s32", "query_tokens", "s32", "causal", "s32", "most_blocks", "s32", "most_states", "s32"),
	}
	v.Attend.Manifest.TensorMaps = attend.TensorMaps
	v.UpProject.Manifest.Cluster = up.Cluster
	for _, name := range []string{"latents", "weights", "results"} {
		v.UpProject.Manifest.TensorMaps = append(v.UpProject.Manifest.TensorMaps,
			manifest.TensorMap{Param: name, DType: "bf16", Dims: []string{"column", "row", "page"}, Box: []int{64, 64, 1}, Swizzle: 128, Promotion: 128})
	}
	return v
}

// extendRig is a loaded extend with 3 sequences of 300 query and 1000 key tokens
// together, at most 200 query tokens in one, and 16 heads, in chunks of 512.
type extendRig struct {
	*rig
	extend *Extend
	args   ExtendArgs
	sched  ExtendScheduleArgs
}

func newExtendRig(t *testing.T) *extendRig {
	t.Helper()
	r := &extendRig{rig: &rig{t: t, driver: newFake(), stream: &fakeStream{}}}
	var err error
	if r.extend, err = LoadExtend(r.driver, extendVariants(16)); err != nil {
		t.Fatal(err)
	}
	plan := r.plan(ExtendCapacity{Sequences: 3, QueryTokens: 300, KeyTokens: 1000, MostQueries: 200}, 512)
	r.sched = ExtendScheduleArgs{
		Plan: plan, CuQ: r.tensor("cu_q", S32, 4), KVLen: r.tensor("kv_len", S32, 3), Causal: true, Buffer: r.buffer("schedule", plan.ScheduleBytes),
	}
	r.args = ExtendArgs{
		Plan: plan, Q: r.tensor("q", BF16, 300, 16, 192), KV: r.tensor("kv", BF16, 20, 64, 576), BlockTable: r.tensor("block_table", S32, 3, 10),
		Weights: r.tensor("weights", BF16, 16, 256, 512), Schedule: r.sched.Buffer, Workspace: r.buffer("workspace", plan.WorkspaceBytes),
		Out: r.tensor("out", BF16, 300, 16, 128), LSE: r.tensor("lse", F32, 300, 16), Scale: 0.125,
	}
	return r
}

func (r *extendRig) plan(c ExtendCapacity, chunk int) ExtendPlan {
	r.t.Helper()
	plan, err := r.extend.Plan(c, chunk, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	return plan
}

// splitQuery gives the query as two tensors.
func (r *extendRig) splitQuery() {
	r.args.Q = Tensor{}
	r.args.QNope, r.args.QRope = r.tensor("q_nope", BF16, 300, 16, 128), r.tensor("q_rope", BF16, 300, 16, 64)
}

func (r *extendRig) step() error {
	return errors.Join(r.extend.Schedule(r.stream, r.sched), r.extend.Run(r.stream, r.args))
}

// TestExtendRun: the launches of a step, and where each chunk's schedule and
// states are.
func TestExtendRun(t *testing.T) {
	r := newExtendRig(t)
	plan := r.sched.Plan
	// 1000 + 3 · 127 tokens, in whole tiles: 1280.
	if plan.Chunk != 512 || plan.Chunks != 3 {
		t.Fatalf("planned %+v", plan)
	}
	if err := r.step(); err != nil {
		t.Fatal(err)
	}
	if n := len(r.stream.launches); n != 1+2*3 {
		t.Fatalf("%d launches, want the schedule and two for each chunk", n)
	}
	// A chunk's header, 4 and 3 words of tokens, 5 pairs of counts, and 300/128 + 3 + 1 = 6 blocks of 32 bytes.
	const cuK, first, before, blocks, chunk = 256, 512, 768, 1024, 1280
	if want := int64(3 * chunk); plan.ScheduleBytes != want {
		t.Errorf("a schedule of %d bytes, want %d", plan.ScheduleBytes, want)
	}
	if diff := cmp.Diff(map[string]uint64{
		"cu_q": uint64(r.sched.CuQ.Ptr), "kv_len": uint64(r.sched.KVLen.Ptr), "chunks": uint64(r.sched.Buffer.Ptr),
		"chunk_bytes": chunk, "cu_k": cuK, "first_token": first, "work_before": before, "work_blocks": blocks,
		"chunk": 512, "sequences": 3, "query_tokens": 300, "causal": 1, "most_blocks": 6, "most_states": 2,
	}, r.values(r.extend.schedule, r.stream.launches[0])); diff != "" {
		t.Errorf("schedule (-want +got):\n%s", diff)
	}
	if l := r.stream.launches[0]; l.Grid != (Dim3{X: 3}) || !l.Programmatic {
		t.Errorf("schedule: grid %v, programmatic %v", l.Grid, l.Programmatic)
	}
	kvUp := uint64(r.args.Workspace.Ptr)
	kRope := kvUp + 512*16*256*2
	states := [2]uint64{kRope + 512*64*2}
	states[1] = states[0] + 2*16*128*(128+8)*4 // two blocks: output, references and sums of 64 rows per warpgroup
	if end := int64(states[1] - kvUp + 2*16*128*(128+8)*4); plan.WorkspaceBytes != end {
		t.Errorf("a workspace of %d bytes, want %d", plan.WorkspaceBytes, end)
	}
	for i := range 3 {
		at := uint64(r.args.Schedule.Ptr) + uint64(i*chunk)
		up, attend := r.stream.launches[1+2*i], r.stream.launches[2+2*i]
		got := r.values(r.extend.up.kernel.kernel, up)
		for name, want := range map[string]uint64{
			"cu_seqlens": at + cuK, "first_token": at + first, "block_table": uint64(r.args.BlockTable.Ptr), "block_table_stride": 10,
			"rope": uint64(r.args.KV.Ptr) + 1024, "rope_page": 64 * 576 * 2, "rope_token": 576 * 2, "out": kvUp, "k_rope": kRope, "k_rope_row": 128,
			"rows": 512, "sequences": 3, "given": 3, "paged": 1, "copy_rope": 1, "out_token": 16 * 512, "out_head": 512,
		} {
			if got[name] != want {
				t.Errorf("chunk %d: the up-projection's %s is %#x, want %#x", i, name, got[name], want)
			}
		}
		if diff := cmp.Diff(map[string]uint64{
			"state_from": states[i%2], "state_to": states[(i+1)%2], "scale_log2": float(0.125 * math.Log2E), "query_tokens": 300,
			"work_head": at, "work_blocks": at + blocks, "out": uint64(r.args.Out.Ptr), "out_token": 16 * 128 * 2, "out_head": 128 * 2,
			"lse": uint64(r.args.LSE.Ptr), "lse_factor": float(math.Ln2),
		}, r.values(r.extend.attend.attend, attend)); diff != "" {
			t.Errorf("chunk %d: attend (-want +got):\n%s", i, diff)
		}
		if attend.Grid != (Dim3{X: 96}) || !attend.Programmatic || !up.Programmatic { // 6 blocks at most, of 16 heads
			t.Errorf("chunk %d: grids %v and %v, programmatic %v and %v", i, up.Grid, attend.Grid, up.Programmatic, attend.Programmatic)
		}
	}
}

// TestExtendPlan: chunks are as few as the workspace allows, all alike, and a
// plan's sizes suffice for it.
func TestExtendPlan(t *testing.T) {
	r := newExtendRig(t)
	c := ExtendCapacity{Sequences: 2, QueryTokens: 600, KeyTokens: 40_000, MostQueries: 512}
	whole, err := r.extend.Plan(c, 0, math.MaxInt64)
	if err != nil || whole.Chunks != 1 || whole.Chunk != 40_192 { // 40,000 + 2 · 127 in whole tiles
		t.Fatalf("%+v, %v", whole, err)
	}
	for _, workspace := range []int64{whole.WorkspaceBytes - 1, whole.WorkspaceBytes / 3, 60 << 20} {
		p, err := r.extend.Plan(c, 0, workspace)
		if err != nil {
			t.Fatal(err)
		}
		if p.WorkspaceBytes > workspace || p.Chunk%128 != 0 || p.Chunks*p.Chunk < whole.Chunk || (p.Chunks-1)*p.Chunk >= whole.Chunk {
			t.Errorf("%d bytes: %+v", workspace, p)
		}
		if again := r.plan(c, p.Chunk); again != p {
			t.Errorf("with the chunk given %+v, found %+v", again, p)
		}
		// A chunk fewer would not fit.
		if most := (p.WorkspaceBytes - workspace) / 128; p.Chunks > 2 {
			larger, err := r.extend.Plan(c, (whole.Chunk+p.Chunks-2)/(p.Chunks-1), 0)
			if err != nil || larger.Chunks >= p.Chunks || larger.WorkspaceBytes <= workspace {
				t.Errorf("%d bytes: %d chunks, but %+v would do (%v, %d)", workspace, p.Chunks, larger, err, most)
			}
		}
	}
	if p := r.plan(ExtendCapacity{Sequences: 1, QueryTokens: 300, KeyTokens: 1000}, 100); p.Chunk != 128 {
		t.Errorf("a chunk of 100 tokens became %+v", p)
	}
	for want, call := range map[string]func() (ExtendPlan, error){
		"workspace: was 1000 bytes, must be at least ": func() (ExtendPlan, error) { return r.extend.Plan(c, 0, 1000) },
		"workspace: was -1 bytes, must be at least ":   func() (ExtendPlan, error) { return r.extend.Plan(c, 0, -1) },
		"chunk: was -5, must be at least 0":            func() (ExtendPlan, error) { return r.extend.Plan(c, -5, 0) },
		"chunk: was 128, must be at least 8192: 536870912 key tokens in at most 65536 chunks": func() (ExtendPlan, error) {
			return r.extend.Plan(ExtendCapacity{Sequences: 1, QueryTokens: 1, KeyTokens: 1 << 29}, 128, 0)
		},
		"query tokens: was -1, must be 0 to 1073741823": func() (ExtendPlan, error) { return r.extend.Plan(ExtendCapacity{QueryTokens: -1}, 0, 1<<40) },
		"query tokens: were 1073741823 in 1 sequences, up to 8388609 blocks, must be at most": func() (ExtendPlan, error) {
			heavy, err := LoadExtend(newFake(), extendVariants(256))
			if err != nil {
				t.Fatal(err)
			}
			return heavy.Plan(ExtendCapacity{Sequences: 1, QueryTokens: math.MaxInt32 / 2, KeyTokens: 1}, 128, 0)
		},
		"key tokens: was 1073741824, must be 0 to 1073741823": func() (ExtendPlan, error) { return r.extend.Plan(ExtendCapacity{KeyTokens: 1 << 30}, 0, 1<<40) },
		"key tokens: was -1, must be 0 to":                    func() (ExtendPlan, error) { return r.extend.Plan(ExtendCapacity{KeyTokens: -1}, 0, 1<<40) },
		"sequences: was -1, must be 0 to 16384":               func() (ExtendPlan, error) { return r.extend.Plan(ExtendCapacity{Sequences: -1}, 0, 1<<40) },
		"sequences: was 16385, must be 0 to 16384":            func() (ExtendPlan, error) { return r.extend.Plan(ExtendCapacity{Sequences: 16385}, 0, 1<<40) },
		"most queries: was -1, must be 0 to 5": func() (ExtendPlan, error) {
			return r.extend.Plan(ExtendCapacity{QueryTokens: 5, MostQueries: -1}, 0, 1<<40)
		},
		"most queries: was 6, must be 0 to 5": func() (ExtendPlan, error) {
			return r.extend.Plan(ExtendCapacity{QueryTokens: 5, MostQueries: 6}, 0, 1<<40)
		},
	} {
		_, err := call()
		var argument *ArgumentError
		if !errors.As(err, &argument) || !strings.HasPrefix(err.Error(), "extend plan: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("got  %v\nwant extend plan: %s", err, want)
		}
	}
}

// TestExtendOneSequence: its states go on in their own places.
func TestExtendOneSequence(t *testing.T) {
	r := newExtendRig(t)
	plan := r.plan(ExtendCapacity{Sequences: 1, QueryTokens: 300, KeyTokens: 1000}, 512)
	r.args.Plan, r.args.BlockTable = plan, r.tensor("block_table", S32, 1, 16)
	r.args.Schedule, r.args.Workspace = r.buffer("schedule", plan.ScheduleBytes), r.buffer("workspace", plan.WorkspaceBytes)
	if err := r.extend.Run(r.stream, r.args); err != nil {
		t.Fatal(err)
	}
	for _, l := range []Launch{r.stream.launches[1], r.stream.launches[3]} {
		from, to := r.value(r.extend.attend.attend, l, "state_from"), r.value(r.extend.attend.attend, l, "state_to")
		if from != to {
			t.Errorf("states go from %#x to %#x", from, to)
		}
	}
}

// TestExtendWithoutKeys: rows without a key are written, and no launch expands.
func TestExtendWithoutKeys(t *testing.T) {
	r := newExtendRig(t)
	plan := r.plan(ExtendCapacity{QueryTokens: 300}, 0+128)
	r.args.Plan, r.sched.Plan = plan, plan
	r.args.BlockTable, r.args.KV, r.args.Weights = Dense(0, S32, 0, 0), Tensor{}, Tensor{}
	r.sched.CuQ, r.sched.KVLen = r.tensor("cu_q", S32, 1), Dense(0, S32, 0)
	if err := r.step(); err != nil {
		t.Fatal(err)
	}
	if n := len(r.stream.launches); n != 2 {
		t.Errorf("%d launches, want schedule and attend", n)
	}
}

func TestExtendWithoutQueries(t *testing.T) {
	r := newExtendRig(t)
	plan := r.plan(ExtendCapacity{Sequences: 2, KeyTokens: 700}, 0+128)
	empty := ExtendArgs{Plan: plan, Q: Dense(0, BF16, 0, 16, 192)}
	if err := errors.Join(r.extend.Schedule(r.stream, ExtendScheduleArgs{Plan: plan}), r.extend.Run(r.stream, empty)); err != nil {
		t.Error(err)
	}
	if n := len(r.stream.launches); n != 0 {
		t.Errorf("%d launches", n)
	}
}

func TestExtendLaunchFailure(t *testing.T) {
	r := newExtendRig(t)
	r.stream.fail = errors.New("no room")
	if err := r.extend.Schedule(r.stream, r.sched); err == nil || err.Error() != "launch extend_schedule: no room" {
		t.Errorf("got %v", err)
	}
	if err := r.extend.Run(r.stream, r.args); err == nil || err.Error() != "extend: launch up_project: no room" {
		t.Errorf("got %v", err)
	}
}

func TestExtendAllocatesNothing(t *testing.T) {
	r := newExtendRig(t)
	r.stream.forget = true
	step := func() {
		if err := r.step(); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations per step", n)
	}
}

func TestExtendClose(t *testing.T) {
	r := newExtendRig(t)
	if n := len(r.extend.Kernels()); n != 3 {
		t.Errorf("%d kernels", n)
	}
	if got, want := r.extend.Shape(), (ExtendShape{Heads: 16, Latent: 512, Rope: 64, Nope: 128, Value: 128, Page: 64, DType: BF16}); got != want {
		t.Errorf("shape %+v", got)
	}
	for range 2 {
		if err := r.extend.Close(); err != nil || r.driver.unloaded != 3 {
			t.Errorf("close: %v, %d unloaded", err, r.driver.unloaded)
		}
	}
	_, planned := r.extend.Plan(ExtendCapacity{}, 0, 1<<40)
	for name, err := range map[string]error{
		"extend schedule": r.extend.Schedule(r.stream, r.sched), "extend": r.extend.Run(r.stream, r.args), "extend plan": planned,
	} {
		if err == nil || err.Error() != name+": "+closed {
			t.Error(err)
		}
	}
	if n := len(r.extend.Kernels()); n != 0 {
		t.Errorf("%d kernels after Close", n)
	}
	if n := len(r.stream.launches); n != 0 {
		t.Errorf("%d launches", n)
	}
}

func TestLoadExtendRefuses(t *testing.T) {
	for want, change := range map[string]func(v *ExtendVariants){
		`is kernel "extend_schedule", must be "extend_attend"`: func(v *ExtendVariants) { v.Attend, v.Schedule = v.Schedule, v.Attend },
		`is kernel "extend_attend", must be "up_project"`:      func(v *ExtendVariants) { v.UpProject = v.Attend },
		"extend_schedule was made for {Heads:8":                func(v *ExtendVariants) { v.Schedule = extendVariants(8).Schedule },
		"up_project was made for {Heads:8":                     func(v *ExtendVariants) { v.UpProject = extendVariants(8).UpProject },
		"not a prefill kernel's":                               func(v *ExtendVariants) { v.Attend.Manifest.Spec = fakeSpec{Heads: 16, DType: "bf16"} },
		"spec of extend_schedule":                              func(v *ExtendVariants) { v.Schedule.Manifest.Spec = "128" },
		"parameters not set: surprise":                         func(v *ExtendVariants) { v.Attend = surprised(v.Attend) },
		"ptxas: line 1": func(v *ExtendVariants) {
			v.Schedule.PTX = []byte("broken")
			v.Schedule.Manifest.PTXSHA256 = ""
		},
	} {
		v := extendVariants(16)
		change(&v)
		d := newFake()
		if _, err := LoadExtend(d, v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if d.loads != d.unloaded {
			t.Errorf("%s: %d loaded, %d unloaded", want, d.loads, d.unloaded)
		}
	}
	if _, err := LoadExtend(nil, extendVariants(16)); err == nil {
		t.Error("loaded on no device")
	}
}
