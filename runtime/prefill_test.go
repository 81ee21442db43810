package runtime

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// prefillVariants are kernels with the parameters that the generator gives.
func prefillVariants(heads int) PrefillVariants {
	spec := PrefillModel{Heads: heads, Nope: 128, Rope: 64, Value: 128, BlockM: 128, BlockN: 128, DType: BF16}
	v := PrefillVariants{
		Attend: variant("expand_prefill", 384, spec,
			"q_nope", "map", "q_rope", "map", "k_nope", "map", "v", "map", "k_rope", "map", "scale_log2", "f32", "query_tokens", "u32",
			"work_head", "*s32", "work_blocks", "*s32", "out", "*b32", "out_token", "s64", "out_head", "s64", "lse", "*f32", "lse_factor", "f32"),
		Schedule: variant("expand_schedule", 1024, spec,
			"cu_q", "*s32", "cu_k", "*s32", "work_head", "*s32", "work_before", "*s32", "work_blocks", "*s32",
			"sequences", "u32", "query_tokens", "u32", "key_tokens", "u32", "causal", "u32", "most_blocks", "u32"),
	}
	for _, name := range prefillMapNames {
		m := manifest.TensorMap{Param: name, DType: "bf16", Dims: []string{"column", "head", "token"}, Box: []int{64, 1, 128}, Swizzle: 128, Promotion: 128}
		if name == "k_rope" {
			m.Dims, m.Box = []string{"column", "token"}, []int{64, 128}
		}
		v.Attend.Manifest.TensorMaps = append(v.Attend.Manifest.TensorMaps, m)
	}
	return v
}

// prefillRig is a loaded prefill with 3 sequences of 300 query and 500 key
// tokens together, and 16 heads.
type prefillRig struct {
	*rig
	prefill *Prefill
	args    PrefillArgs
	sched   PrefillScheduleArgs
}

func newPrefillRig(t *testing.T) *prefillRig {
	t.Helper()
	r := &prefillRig{rig: &rig{t: t, driver: newFake(), stream: &fakeStream{}}}
	const sequences, queries, keys, heads = 3, 300, 500, 16
	var err error
	if r.prefill, err = LoadPrefill(r.driver, prefillVariants(heads)); err != nil {
		t.Fatal(err)
	}
	r.sched = PrefillScheduleArgs{
		Sequences: sequences, QueryTokens: queries, KeyTokens: keys, Causal: true,
		CuQ: r.tensor("cu_q", S32, sequences+1), CuK: r.tensor("cu_k", S32, sequences+1),
		Buffer: r.buffer("schedule", r.prefill.ScheduleBytes(sequences, queries)),
	}
	r.args = PrefillArgs{
		Sequences: sequences, Q: r.tensor("q", BF16, queries, heads, 192),
		KVUp: r.tensor("kv_up", BF16, keys, heads, 256), KRope: r.tensor("k_rope", BF16, keys, 64),
		Schedule: r.sched.Buffer, Out: r.tensor("out", BF16, queries, heads, 128), LSE: r.tensor("lse", F32, queries, heads), Scale: 0.125,
	}
	return r
}

// splitQuery gives the query as two tensors.
func (r *prefillRig) splitQuery() {
	r.args.Q = Tensor{}
	r.args.QNope, r.args.QRope = r.tensor("q_nope", BF16, 300, 16, 128), r.tensor("q_rope", BF16, 300, 16, 64)
}

func TestPrefillRun(t *testing.T) {
	r := newPrefillRig(t)
	if err := errors.Join(r.prefill.Schedule(r.stream, r.sched), r.prefill.Run(r.stream, r.args)); err != nil {
		t.Fatal(err)
	}
	if n := len(r.stream.launches); n != 2 {
		t.Fatalf("%d launches, want schedule and attend", n)
	}
	for i, want := range []Launch{{Grid: Dim3{X: 1}, Block: Dim3{X: 1024}}, {Grid: Dim3{X: 96}, Block: Dim3{X: 384}}} { // 6 blocks at most, of 16 heads
		if l := r.stream.launches[i]; l.Grid != want.Grid || l.Block != want.Block || !l.Programmatic {
			t.Errorf("launch %d: grid %v of %v, programmatic %v; want %v of %v", i, l.Grid, l.Block, l.Programmatic, want.Grid, want.Block)
		}
	}
	work := uint64(r.sched.Buffer.Ptr) // 300/128 + 3 + 1 = 6 blocks of 32 bytes
	if diff := cmp.Diff(map[string]uint64{
		"cu_q": uint64(r.sched.CuQ.Ptr), "cu_k": uint64(r.sched.CuK.Ptr),
		"work_head": work, "work_blocks": work + 256, "work_before": work + 512,
		"sequences": 3, "query_tokens": 300, "key_tokens": 500, "causal": 1, "most_blocks": 6,
	}, r.values(r.prefill.schedule, r.stream.launches[0])); diff != "" {
		t.Errorf("schedule (-want +got):\n%s", diff)
	}
	if want := int64(768); r.sched.Buffer.Bytes != want {
		t.Errorf("a schedule of %d bytes, want %d", r.sched.Buffer.Bytes, want)
	}
	if diff := cmp.Diff(map[string]uint64{
		"scale_log2": float(0.125 * math.Log2E), "query_tokens": 300, "work_head": work, "work_blocks": work + 256,
		"out": uint64(r.args.Out.Ptr), "out_token": 16 * 128 * 2, "out_head": 128 * 2, "lse": uint64(r.args.LSE.Ptr), "lse_factor": float(math.Ln2),
	}, r.values(r.prefill.attend, r.stream.launches[1])); diff != "" {
		t.Errorf("attend (-want +got):\n%s", diff)
	}
	q, up, rope := r.args.Q.Ptr, r.args.KVUp.Ptr, r.args.KRope.Ptr
	maps := r.prefill.attend.Manifest.TensorMaps
	if diff := cmp.Diff([]TensorMap{
		{maps[0], q, []uint64{128, 16, 300}, []uint64{384, 16 * 384}},
		{maps[1], q + 256, []uint64{64, 16, 300}, []uint64{384, 16 * 384}},
		{maps[2], up, []uint64{128, 16, 500}, []uint64{512, 16 * 512}},
		{maps[3], up + 256, []uint64{128, 16, 500}, []uint64{512, 16 * 512}},
		{maps[4], rope, []uint64{64, 500}, []uint64{128}},
	}, r.driver.encoded); diff != "" {
		t.Errorf("tensor maps (-want +got):\n%s", diff)
	}
}

// TestPrefillStrides: views of other tensors, padded outputs, the other base,
// and no mask.
func TestPrefillStrides(t *testing.T) {
	r := newPrefillRig(t)
	r.splitQuery()
	a := &r.args
	a.QNope.Strides = []int64{16 * 128, 128, 1}
	rope := r.tensor("wide", BF16, 300, 16, 96)
	a.QRope = Tensor{Ptr: rope.Ptr + 16, DType: BF16, Shape: []int64{300, 16, 64}, Strides: []int64{16 * 96, 96, 1}}
	cache := r.tensor("cache", BF16, 500, 576)
	a.KRope = Tensor{Ptr: cache.Ptr + 1024, DType: BF16, Shape: []int64{500, 64}, Strides: []int64{576, 1}}
	// Heads outermost, which no dense tensor has.
	a.KVUp.Strides = []int64{256, 500 * 256, 1}
	padded := r.tensor("padded", BF16, 300, 16, 192)
	a.Out = Tensor{Ptr: padded.Ptr, DType: BF16, Shape: []int64{300, 16, 128}, Strides: []int64{16 * 192, 192, 1}}
	a.LSEBase2, r.sched.Causal = true, false
	if err := errors.Join(r.prefill.Schedule(r.stream, r.sched), r.prefill.Run(r.stream, *a)); err != nil {
		t.Fatal(err)
	}
	if v := r.value(r.prefill.schedule, r.stream.launches[0], "causal"); v != 0 {
		t.Errorf("causal is %d", v)
	}
	v := r.values(r.prefill.attend, r.stream.launches[1])
	for name, want := range map[string]uint64{"out_token": 16 * 192 * 2, "out_head": 192 * 2, "lse_factor": float(1)} {
		if v[name] != want {
			t.Errorf("%s is %d, want %d", name, v[name], want)
		}
	}
	var addresses []Ptr
	var strides [][]uint64
	for _, m := range r.driver.encoded {
		addresses, strides = append(addresses, m.Address), append(strides, m.Strides)
	}
	if diff := cmp.Diff([]Ptr{a.QNope.Ptr, rope.Ptr + 16, a.KVUp.Ptr, a.KVUp.Ptr + 256, cache.Ptr + 1024}, addresses); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([][]uint64{{256, 4096}, {192, 3072}, {256000, 512}, {256000, 512}, {1152}}, strides); diff != "" {
		t.Errorf("strides (-want +got):\n%s", diff)
	}
}

// TestPrefillEncodesOnce: a tensor map is encoded again only when its tensor is
// another.
func TestPrefillEncodesOnce(t *testing.T) {
	r := newPrefillRig(t)
	other, longer := r.args, r.args
	other.KVUp = r.tensor("other", BF16, 500, 16, 256)
	longer.KVUp, longer.KRope = r.tensor("longer", BF16, 501, 16, 256), r.tensor("longer", BF16, 501, 64)
	for i, step := range []struct {
		args PrefillArgs
		want int
	}{{r.args, 5}, {r.args, 5}, {other, 7}, {other, 7}, {r.args, 9}, {longer, 12}} {
		if err := r.prefill.Run(r.stream, step.args); err != nil {
			t.Fatal(err)
		}
		if got := len(r.driver.encoded); got != step.want {
			t.Errorf("after step %d: %d encodings, want %d", i, got, step.want)
		}
	}
}

// TestPrefillWithoutKeys: rows without a key are written, though there is
// nothing that a tensor map of keys could describe.
func TestPrefillWithoutKeys(t *testing.T) {
	r := newPrefillRig(t)
	r.sched.KeyTokens = 0
	r.args.KVUp, r.args.KRope = Dense(0, BF16, 0, 16, 256), Dense(0, BF16, 0, 64)
	if err := errors.Join(r.prefill.Schedule(r.stream, r.sched), r.prefill.Run(r.stream, r.args)); err != nil {
		t.Fatal(err)
	}
	if n := len(r.stream.launches); n != 2 {
		t.Errorf("%d launches", n)
	}
	for _, m := range r.driver.encoded {
		if m.Address == 0 || m.Sizes[len(m.Sizes)-1] == 0 {
			t.Errorf("the map %s describes nothing: %+v", m.Param, m)
		}
	}
}

func TestPrefillWithoutQueries(t *testing.T) {
	r := newPrefillRig(t)
	empty := PrefillArgs{Q: Dense(0, BF16, 0, 16, 192)}
	if err := errors.Join(r.prefill.Schedule(r.stream, PrefillScheduleArgs{}), r.prefill.Run(r.stream, empty)); err != nil {
		t.Error(err)
	}
	if n := len(r.stream.launches); n != 0 {
		t.Errorf("%d launches", n)
	}
}

// TestPrefillGrid: as many CTAs as there may be items, at most one per
// multiprocessor.
func TestPrefillGrid(t *testing.T) {
	for _, c := range []struct{ tokens, sequences, want int }{{1, 1, 32}, {128, 1, 48}, {640, 2, 128}, {10000, 1, 132}} {
		r := newPrefillRig(t)
		n := int64(c.tokens)
		r.args.Sequences = c.sequences
		r.args.Q, r.args.Out, r.args.LSE = r.tensor("q", BF16, n, 16, 192), r.tensor("out", BF16, n, 16, 128), r.tensor("lse", F32, n, 16)
		r.args.Schedule = r.buffer("schedule", r.prefill.ScheduleBytes(c.sequences, c.tokens))
		if err := r.prefill.Run(r.stream, r.args); err != nil {
			t.Fatal(err)
		}
		if got := r.stream.launches[0].Grid.X; got != c.want {
			t.Errorf("%d tokens in %d sequences: a grid of %d, want %d", c.tokens, c.sequences, got, c.want)
		}
	}
}

func TestPrefillLaunchFailure(t *testing.T) {
	r := newPrefillRig(t)
	r.stream.fail = errors.New("no room")
	if err := r.prefill.Schedule(r.stream, r.sched); err == nil || err.Error() != "launch expand_schedule: no room" {
		t.Errorf("got %v", err)
	}
	if err := r.prefill.Run(r.stream, r.args); err == nil || err.Error() != "launch expand_prefill: no room" {
		t.Errorf("got %v", err)
	}
}

func TestPrefillAllocatesNothing(t *testing.T) {
	r := newPrefillRig(t)
	r.stream.forget = true
	step := func() {
		if err := errors.Join(r.prefill.Schedule(r.stream, r.sched), r.prefill.Run(r.stream, r.args)); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations per step", n)
	}
}

func TestPrefillClose(t *testing.T) {
	r := newPrefillRig(t)
	if n := len(r.prefill.Kernels()); n != 2 {
		t.Errorf("%d kernels", n)
	}
	for range 2 {
		if err := r.prefill.Close(); err != nil || r.driver.unloaded != 2 {
			t.Errorf("close: %v, %d unloaded", err, r.driver.unloaded)
		}
	}
	for name, err := range map[string]error{"prefill schedule": r.prefill.Schedule(r.stream, r.sched), "prefill": r.prefill.Run(r.stream, r.args)} {
		if err == nil || err.Error() != name+": "+closed {
			t.Error(err)
		}
	}
	if n := len(r.prefill.Kernels()); n != 0 {
		t.Errorf("%d kernels after Close", n)
	}
}

func TestLoadPrefillRefuses(t *testing.T) {
	for want, change := range map[string]func(v *PrefillVariants){
		`is kernel "expand_schedule", must be "expand_prefill"`: func(v *PrefillVariants) { v.Attend, v.Schedule = v.Schedule, v.Attend },
		"expand_schedule was made for {Heads:8":                 func(v *PrefillVariants) { v.Schedule = prefillVariants(8).Schedule },
		"not a prefill kernel's":                                func(v *PrefillVariants) { v.Attend.Manifest.Spec = fakeSpec{Heads: 16, DType: "bf16"} },
		"spec of expand_schedule":                               func(v *PrefillVariants) { v.Schedule.Manifest.Spec = "128" },
		"parameters not set: surprise":                          func(v *PrefillVariants) { v.Attend = surprised(v.Attend) },
		"ptxas: line 1": func(v *PrefillVariants) {
			v.Schedule.PTX = []byte("broken")
			v.Schedule.Manifest.PTXSHA256 = ""
		},
	} {
		v := prefillVariants(16)
		change(&v)
		d := newFake()
		if _, err := LoadPrefill(d, v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if d.loads != d.unloaded {
			t.Errorf("%s: %d loaded, %d unloaded", want, d.loads, d.unloaded)
		}
	}
	if _, err := LoadPrefill(nil, prefillVariants(16)); err == nil {
		t.Error("loaded on no device")
	}
}
