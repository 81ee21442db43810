package runtime

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mlagen/mlagen/ptx/manifest"
)

// rig is a loaded decode with tensors for a batch of 3 in a pool of 10 pages.
type rig struct {
	t      *testing.T
	driver *fakeDriver
	decode *Decode
	stream *fakeStream
	args   DecodeArgs
	sched  ScheduleArgs
}

func newRig(t *testing.T, heads, sq, blockH int) *rig {
	t.Helper()
	r := &rig{t: t, driver: newFake(), stream: &fakeStream{}}
	var err error
	if r.decode, err = LoadDecode(r.driver, decodeVariants(heads, sq, blockH)); err != nil {
		t.Fatal(err)
	}
	const batch, pages, width = 3, 10, 5
	h, s := int64(heads), int64(sq)
	r.sched = ScheduleArgs{
		Batch: batch, KVLen: r.tensor("kv_len", S32, batch), Buffer: r.buffer("schedule", r.decode.ScheduleBytes(batch, 0)),
	}
	r.args = DecodeArgs{
		Batch: batch, Q: r.tensor("q", BF16, batch, s, h, 576), KV: r.tensor("kv", BF16, pages, 64, 576),
		BlockTable: r.tensor("block_table", S32, batch, width), KVLen: r.sched.KVLen, Schedule: r.sched.Buffer,
		Workspace: r.buffer("workspace", r.decode.WorkspaceBytes(batch, 0)),
		Out:       r.tensor("out", BF16, batch, s, h, 512), LSE: r.tensor("lse", F32, batch, s, h), Scale: 0.125,
	}
	return r
}

func (r *rig) tensor(name string, d DType, shape ...int64) Tensor {
	t := Dense(0, d, shape...)
	n, _ := t.span()
	t.Ptr = r.buffer(name, n).Ptr
	return t
}

func (r *rig) buffer(name string, n int64) Buffer {
	p, err := r.driver.Alloc(name, n)
	if err != nil {
		r.t.Fatal(err)
	}
	return Buffer{p, n}
}

// value reads a launched parameter.
func (r *rig) value(k *Kernel, l Launch, name string) uint64 {
	r.t.Helper()
	for _, p := range k.Manifest.Params {
		if p.Name == name {
			if p.Size == 4 {
				return uint64(binary.LittleEndian.Uint32(l.Params[p.Offset:]))
			}
			return binary.LittleEndian.Uint64(l.Params[p.Offset:])
		}
	}
	r.t.Fatalf("no parameter %q", name)
	return 0
}

func (r *rig) values(k *Kernel, l Launch) map[string]uint64 {
	all := map[string]uint64{}
	for _, p := range k.Manifest.Params {
		if p.Kind != manifest.TensorMapParam {
			all[p.Name] = r.value(k, l, p.Name)
		}
	}
	return all
}

func float(v float64) uint64 { return uint64(math.Float32bits(float32(v))) }

func TestDecodeRun(t *testing.T) {
	r := newRig(t, 16, 2, 16)
	if err := r.decode.Schedule(r.stream, r.sched); err != nil {
		t.Fatal(err)
	}
	if err := r.decode.Run(r.stream, r.args); err != nil {
		t.Fatal(err)
	}
	if len(r.stream.launches) != 3 {
		t.Fatalf("%d launches, want schedule, attend, combine", len(r.stream.launches))
	}
	type shape struct {
		grid, block  Dim3
		programmatic bool
	}
	var got []shape
	for _, l := range r.stream.launches {
		got = append(got, shape{l.Grid, l.Block, l.Programmatic})
	}
	want := []shape{{Dim3{X: 1}, Dim3{X: 1024}, true}, {Dim3{X: 132}, Dim3{X: 160}, true}, {Dim3{X: 264}, Dim3{X: 128}, true}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(shape{})); diff != "" {
		t.Errorf("launches (-want +got):\n%s", diff)
	}

	// 32 rows in blocks of 16: two row blocks, 66 parts.
	schedule, workspace := uint64(r.args.Schedule.Ptr), uint64(r.args.Workspace.Ptr)
	partFirst, items := schedule, schedule+512 // 67 × 4 bytes, up to 256
	merges := items + 1280                     // (3 + 66) × 16 bytes, up to 256
	partialState := workspace + 2*66*32*512*2  // 132 slots
	kvLen, out, lse := uint64(r.args.KVLen.Ptr), uint64(r.args.Out.Ptr), uint64(r.args.LSE.Ptr)
	q := uint64(r.args.Q.Ptr)
	if diff := cmp.Diff(map[string]uint64{
		"kv_len": kvLen, "part_first": partFirst, "items": items, "merges": merges,
		"batch": 3, "parts": 66, "splits": 0, "page": 64,
	}, r.values(r.decode.schedule.kernel, r.stream.launches[0])); diff != "" {
		t.Errorf("schedule (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]uint64{
		"q_latent": q, "q_latent_batch": 2 * 16 * 576 * 2, "q_latent_token": 16 * 576 * 2, "q_latent_head": 576 * 2,
		"q_rope": q + 1024, "q_rope_batch": 2 * 16 * 576 * 2, "q_rope_token": 16 * 576 * 2, "q_rope_head": 576 * 2,
		"block_table": uint64(r.args.BlockTable.Ptr), "block_table_stride": 5, "kv_len": kvLen,
		"part_first": partFirst, "items": items,
		"out": out, "out_batch": 2 * 16 * 512 * 2, "out_token": 16 * 512 * 2, "out_head": 512 * 2, "lse": lse,
		"partial_out": workspace, "partial_state": partialState,
		"scale_log2": float(0.125 * math.Log2E), "lse_factor": float(math.Ln2),
	}, r.values(r.decode.attend.kernel, r.stream.launches[1])); diff != "" {
		t.Errorf("attend (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]uint64{
		"merges": merges, "partial_out": workspace, "partial_state": partialState,
		"out": out, "out_batch": 2 * 16 * 512 * 2, "out_token": 16 * 512 * 2, "out_head": 512 * 2, "lse": lse,
		"lse_factor": float(math.Ln2),
	}, r.values(r.decode.merge.kernel, r.stream.launches[2])); diff != "" {
		t.Errorf("combine (-want +got):\n%s", diff)
	}
	m := r.driver.encoded[0]
	if diff := cmp.Diff(TensorMap{
		TensorMap: r.decode.attend.kernel.Manifest.TensorMaps[0], Address: r.args.KV.Ptr,
		Sizes: []uint64{576, 64, 10}, Strides: []uint64{1152, 73728},
	}, m); diff != "" {
		t.Errorf("tensor map (-want +got):\n%s", diff)
	}
	if got := r.stream.launches[1].Params[:3]; got[0] != 1 || got[1] != 0 || got[2] != 3 {
		t.Errorf("tensor map in the launch starts with % x", got)
	}
}

func TestDecodeSplitStridedQuery(t *testing.T) {
	r := newRig(t, 16, 1, 16)
	a := &r.args
	a.Q = Tensor{}
	a.QLatent = r.tensor("latent", BF16, 3*1*20*1024)
	a.QLatent.Shape, a.QLatent.Strides = []int64{3, 1, 16, 512}, []int64{20480, -7, 1024, 1} // s_q is 1: its stride means nothing
	a.QRope = r.tensor("rope", BF16, 3, 1, 16, 64)
	a.KV = r.tensor("pool", BF16, 10*80*640)
	a.KV.Shape, a.KV.Strides = []int64{10, 64, 576}, []int64{80 * 640, 640, 1}
	a.LSEBase2 = true
	if err := r.decode.Run(r.stream, *a); err != nil {
		t.Fatal(err)
	}
	v := r.values(r.decode.attend.kernel, r.stream.launches[0])
	for name, want := range map[string]uint64{
		"q_latent": uint64(a.QLatent.Ptr), "q_latent_batch": 40960, "q_latent_token": 0, "q_latent_head": 2048,
		"q_rope": uint64(a.QRope.Ptr), "q_rope_batch": 16 * 128, "q_rope_head": 128, "lse_factor": float(1),
	} {
		if v[name] != want {
			t.Errorf("%s is %d, want %d", name, v[name], want)
		}
	}
	if diff := cmp.Diff([]uint64{1280, 80 * 640 * 2}, r.driver.encoded[0].Strides); diff != "" {
		t.Errorf("cache strides (-want +got):\n%s", diff)
	}
}

func TestDecodeEncodesTheCacheOnce(t *testing.T) {
	r := newRig(t, 16, 1, 16)
	other, shorter, strided := r.args, r.args, r.args
	other.KV = r.tensor("other", BF16, 10, 64, 576)
	shorter.KV.Shape = []int64{9, 64, 576}
	strided.KV.Shape, strided.KV.Strides = []int64{9, 64, 576}, []int64{36872, 576, 1}
	for i, step := range []struct {
		args DecodeArgs
		want int
	}{{r.args, 1}, {r.args, 1}, {other, 2}, {r.args, 3}, {shorter, 4}, {strided, 5}, {strided, 5}} {
		if err := r.decode.Run(r.stream, step.args); err != nil {
			t.Fatal(err)
		}
		if got := len(r.driver.encoded); got != step.want {
			t.Errorf("after step %d: %d encodings, want %d", i, got, step.want)
		}
	}
}

func TestDecodeBatchZero(t *testing.T) {
	r := newRig(t, 16, 1, 16)
	if err := errors.Join(r.decode.Schedule(r.stream, ScheduleArgs{}), r.decode.Run(r.stream, DecodeArgs{})); err != nil {
		t.Error(err)
	}
	if len(r.stream.launches) != 0 {
		t.Errorf("%d launches", len(r.stream.launches))
	}
}

func TestDecodeEmptyTable(t *testing.T) {
	r := newRig(t, 16, 1, 16)
	r.args.BlockTable = Dense(0, S32, 3, 0)
	if err := r.decode.Run(r.stream, r.args); err != nil {
		t.Error(err)
	}
}

func TestDecodeLaunchFailure(t *testing.T) {
	r := newRig(t, 16, 1, 16)
	r.stream.fail = errors.New("no room")
	if err := r.decode.Run(r.stream, r.args); err == nil || err.Error() != "launch absorb_decode: no room" {
		t.Errorf("got %v", err)
	}
}

func TestDecodeAllocatesNothing(t *testing.T) {
	r := newRig(t, 16, 2, 16)
	r.stream.forget = true
	step := func() {
		if err := errors.Join(r.decode.Schedule(r.stream, r.sched), r.decode.Run(r.stream, r.args)); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations per step", n)
	}
}
