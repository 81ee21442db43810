package runtime

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlanSizes(t *testing.T) {
	for _, test := range []struct {
		heads, sq, blockH, batch, splits int
		schedule, workspace              int64
	}{
		// 132 parts: 133 × 4 → 768; items (1 + 132) × 16 → 2304; merges 2 × 16 → 256;
		// arrivals 264 × 4 → 1280. 264 slots of 16 rows of 512 f16 and 64 bytes of states.
		{16, 1, 16, 1, 0, 768 + 2304 + 256 + 1280, 264*16*512*2 + 264*16*64},
		// items (128 + 132) × 16 → 4352; merges (1 + 128) × 16 → 2304.
		{16, 1, 16, 128, 0, 768 + 4352 + 2304 + 1280, 264*16*512*2 + 264*16*64},
		// merges are bounded by the parts: 133 × 16 → 2304; items 10132 × 16 → 162304.
		{16, 1, 16, 10000, 0, 768 + 162304 + 2304 + 1280, 264*16*512*2 + 264*16*64},
		// forced: items (4·8 + 132) × 16 → 2816; merges (1 + 4) × 16 → 256; 32 slots, arrivals 32 × 4 → 256.
		{16, 1, 16, 4, 8, 768 + 2816 + 256 + 256, 32*16*512*2 + 32*16*64},
		// 130 rows in blocks of 32: 5 row blocks, 26 parts; 27 × 4 → 256; items 27 × 16 → 512; 52 slots of
		// whole row blocks, 160 rows; arrivals 52 × 5 × 4 → 1280.
		{130, 1, 32, 1, 0, 256 + 512 + 256 + 1280, 52*160*512*2 + 52*160*64},
		// batch 0 needs what the device's parts need.
		{16, 1, 16, 0, 0, 768 + 2304 + 256 + 1280, 264*16*512*2 + 264*16*64},
		{16, 1, 16, 0, 3, 768 + 2304 + 256, 0},
	} {
		d, err := LoadDecode(newFake(), decodeVariants(test.heads, test.sq, test.blockH))
		if err != nil {
			t.Fatal(err)
		}
		if got := d.ScheduleBytes(test.batch, test.splits); got != test.schedule {
			t.Errorf("%+v: schedule is %d bytes", test, got)
		}
		if got := d.WorkspaceBytes(test.batch, test.splits); got != test.workspace {
			t.Errorf("%+v: workspace is %d bytes", test, got)
		}
	}
}

func TestPlanSectionsDoNotOverlap(t *testing.T) {
	d, err := LoadDecode(newFake(), decodeVariants(20, 3, 16))
	if err != nil {
		t.Fatal(err)
	}
	for _, batch := range []int{1, 2, 7, 64, 1000, 65536, 100_000} {
		for _, splits := range []int{0, 1, 2, 5} {
			p, err := d.plan(batch, splits)
			if err != nil {
				t.Fatalf("batch %d, splits %d: %v", batch, splits, err)
			}
			items := int64(batch*max(1, splits) + d.parts)
			slots, merges := int64(2*d.parts), int64(1+min(batch, d.parts))
			if splits > 0 {
				slots, merges = int64(batch*splits), int64(1+batch)
			}
			for _, section := range []struct {
				name             string
				start, size, end int64
			}{
				{"part_first", p.partFirst, 4 * int64(d.parts+1), p.items},
				{"items", p.items, 16 * items, p.merges},
				{"merges", p.merges, 16 * merges, p.arrivals},
				{"arrivals", p.arrivals, 4 * slots * 4, p.scheduleBytes}, // 60 rows are 4 blocks of 16
				{"partial_out", p.partialOut, slots * 64 * 512 * 2, p.partialState},
				{"partial_state", p.partialState, slots * 64 * 64, p.workspaceBytes},
			} {
				if section.start%256 != 0 || section.start+section.size > section.end {
					t.Errorf("batch %d, splits %d: %+v", batch, splits, section)
				}
			}
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	d, err := LoadDecode(newFake(), decodeVariants(128, 4, 16))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range [][2]int{{-1, 0}, {1, -1}, {1 << 23, 0}, {1 << 40, 0}, {1000, 1 << 20}, {1, 1 << 62}} {
		if s, w := d.ScheduleBytes(test[0], test[1]), d.WorkspaceBytes(test[0], test[1]); s != 0 || w != 0 {
			t.Errorf("batch %d, splits %d: sizes %d and %d, want 0", test[0], test[1], s, w)
		}
	}
}

func TestPlanParts(t *testing.T) {
	type result struct{ Parts, RowBlocks int }
	for _, test := range []struct {
		sms, rows, blockH, cluster int
		want                       result
	}{
		{132, 16, 16, 1, result{132, 1}},
		{132, 17, 16, 1, result{66, 2}},
		{132, 128, 16, 1, result{16, 8}},
		{132, 128 * 64, 16, 1, result{1, 512}}, // more row blocks than multiprocessors
		{1, 16, 16, 1, result{1, 1}},
		{132, 16, 16, 8, result{128, 1}}, // whole clusters
		{132, 32, 16, 4, result{66, 2}},
		{132, 32, 16, 8, result{64, 2}},
		{2, 16, 16, 8, result{8, 1}}, // one cluster at least
		{132, 128, 64, 2, result{66, 2}},
	} {
		parts, rowBlocks, err := planParts(test.sms, test.rows, test.blockH, test.cluster)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, result{parts, rowBlocks}); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", test, diff)
		}
	}
	if _, _, err := planParts(132, 1<<40, 16, 1); err == nil || !strings.Contains(err.Error(), "must be at most 2147483647") {
		t.Errorf("grid limit: %v", err)
	}
}

func TestLoadDecodeRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*DecodeVariants)
		want   string
	}{
		"unknown parameter": {func(v *DecodeVariants) { v.Combine = variant("decode_combine", 128, nil, "surprise", "u32") },
			`decode_combine takes a parameter "surprise", which this runtime does not know`},
		"kind": {func(v *DecodeVariants) { v.Schedule = variant("decode_schedule", 1024, nil, "kv_len", "u64") },
			`decode_schedule takes "kv_len" as a scalar; this runtime passes a pointer`},
		"type": {func(v *DecodeVariants) { v.Schedule = variant("decode_schedule", 1024, nil, "batch", "f32") },
			`decode_schedule: parameter "batch" is f32, not an integer`},
		"no spec": {func(v *DecodeVariants) { v.Decode.Manifest.Spec = nil },
			`spec of absorb_decode has heads 0, s_q 0, latent 0, rope 0, page 0, block_h 0, dtype "": not a decode kernel's`},
		"other heads": {func(v *DecodeVariants) { v.Combine.Manifest.Spec = fakeSpec{Heads: 8} },
			"decode_combine was made for heads 8, absorb_decode for 16"},
		"spec of a file": {func(v *DecodeVariants) { v.Combine.Manifest.Spec = map[string]any{"s_q": 2.0} },
			"decode_combine was made for s_q 2, absorb_decode for 1"},
		"other row block": {func(v *DecodeVariants) { v.Combine.Manifest.Spec = fakeSpec{BlockH: 32} },
			"decode_combine was made for block_h 32, absorb_decode for 16"},
		"schedule of another row block": {func(v *DecodeVariants) { v.Schedule.Manifest.Spec = fakeSpec{BlockH: 32} },
			"decode_schedule was made for block_h 32, absorb_decode for 16"},
		"other teams": {func(v *DecodeVariants) { v.Combine.Manifest.Spec = map[string]any{"heads": 16.0, "teams": 2.0} },
			"decode_combine was made for 2 teams, absorb_decode for 1"},
		"exchanged": {func(v *DecodeVariants) { v.Decode, v.Combine = v.Combine, v.Decode },
			`decode_combine is kernel "decode_combine", must be "absorb_decode"`},
		"one for all": {func(v *DecodeVariants) { v.Schedule, v.Combine = v.Decode, v.Decode },
			`absorb_decode is kernel "absorb_decode", must be "decode_schedule"`},
		"no threads": {func(v *DecodeVariants) { v.Combine.Manifest.Threads = 0 },
			"load decode_combine on fake: manifest: threads was 0, must be 1 to 1024"},
		"nothing": {func(v *DecodeVariants) { *v = DecodeVariants{} }, "it has no manifest"},
		"other out": {func(v *DecodeVariants) {
			v.Combine = variant("decode_combine", 128, nil, "out", "*f16")
		}, "decode_combine writes fp16, absorb_decode bf16"},
		"other dtype": {func(v *DecodeVariants) {
			v.Combine = variant("decode_combine", 128, fakeSpec{DType: "fp16"}, "out", "*b32")
		}, "decode_combine writes fp16, absorb_decode bf16"},
		"typed otherwise": {func(v *DecodeVariants) { v.Combine = variant("decode_combine", 128, nil, "out", "*f32") },
			"decode_combine writes out as f32; this runtime knows bf16 and f16"},
		"no out": {func(v *DecodeVariants) { v.Combine = variant("decode_combine", 128, nil, "lse", "*f32") },
			"decode_combine has no parameter out"},
		"box": {func(v *DecodeVariants) {
			v.Decode.Manifest.TensorMaps[0].Box = []int{64, 64}
			v.Decode.Manifest.TensorMaps[0].Dims = []string{"column", "token"}
		},
			"absorb_decode reads kv as bf16 in boxes of [64 64]"},
		"compile": {func(v *DecodeVariants) { v.Schedule.PTX, v.Schedule.Manifest.PTXSHA256 = []byte("broken"), "" },
			"load decode_schedule on fake: ptxas"},
	} {
		t.Run(name, func(t *testing.T) {
			d, v := newFake(), decodeVariants(16, 1, 16)
			test.change(&v)
			_, err := LoadDecode(d, v)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
			if d.loads != d.unloaded {
				t.Errorf("%d modules loaded, %d unloaded", d.loads, d.unloaded)
			}
		})
	}
}

func TestDecodeModel(t *testing.T) {
	d := newFake()
	decode, err := LoadDecode(d, decodeVariants(24, 2, 16))
	if err != nil {
		t.Fatal(err)
	}
	want := DecodeModel{Heads: 24, SQ: 2, Latent: 512, Rope: 64, Page: 64, BlockH: 16, BlockN: 64, Stages: 2, DType: BF16, Out: BF16}
	if diff := cmp.Diff(want, decode.Model()); diff != "" {
		t.Errorf("model (-want +got):\n%s", diff)
	}
	if len(decode.Kernels()) != 3 || decode.Parts() != 44 {
		t.Errorf("%d kernels, %d parts", len(decode.Kernels()), decode.Parts())
	}
	if err := decode.Close(); err != nil || d.unloaded != 3 {
		t.Errorf("close: %v, %d unloaded", err, d.unloaded)
	}
	if err := decode.Close(); err != nil || d.unloaded != 3 {
		t.Errorf("close again: %v, %d unloaded", err, d.unloaded)
	}
}

func TestClosed(t *testing.T) {
	r := newRig(t, 16, 2, 16)
	if err := r.decode.Close(); err != nil {
		t.Fatal(err)
	}
	for call, err := range map[string]error{"decode": r.decode.Run(r.stream, r.args), "decode schedule": r.decode.Schedule(r.stream, r.sched)} {
		if want := call + ": was closed, must be loaded"; err == nil || err.Error() != want {
			t.Errorf("%v: want %s", err, want)
		}
	}
}

func TestNoDriver(t *testing.T) {
	_, err := LoadDecode(nil, decodeVariants(16, 1, 16))
	if want := "load absorb_decode: driver was nil, must be a device"; err == nil || err.Error() != want {
		t.Errorf("%v: want %s", err, want)
	}
}

// TestMergeBlocks: blocks have work, where the next step does not gain from
// waiting for more.
func TestMergeBlocks(t *testing.T) {
	for _, c := range []struct{ rows, blockH, cluster, batch, splits, pages, want int }{
		{16, 16, 1, 1, 0, 16, 66},     // 64 units of half vectors
		{16, 16, 1, 4, 0, 16, 132},    // 256, each block two
		{16, 16, 1, 16, 0, 64, 66},    // a warp for a unit: 64 blocks
		{16, 16, 1, 40, 0, 64, 132},   // 160
		{16, 16, 1, 128, 0, 64, 132},  // hardly any request in three pieces
		{32, 32, 1, 128, 0, 64, 132},  // likewise
		{40, 40, 1, 128, 0, 64, 264},  // without room beside decode
		{16, 16, 1, 4, 12, 64, 66},    // half a block for a unit: 64
		{16, 16, 1, 128, 12, 64, 264}, // more than two each
		{32, 32, 1, 128, 12, 64, 396}, // more than are resident
		{32, 32, 1, 40, 0, 64, 320},
		{128, 64, 1, 64, 0, 64, 396}, // row blocks that read the same pages
		{128, 64, 2, 64, 0, 64, 264}, // and begin together
		{128, 64, 1, 64, 0, 1, 264},  // or take a tile at most in all
		{128, 64, 2, 4, 0, 128, 512}, // a warp for a unit
		{256, 64, 1, 1, 0, 512, 528},
		{16, 8, 1, 1, 0, 512, 66},
		{16, 16, 1, 1 << 30, 1 << 10, 1 << 20, 264},
	} {
		d := Decode{sms: 132, model: DecodeModel{BlockH: c.blockH, Latent: 512}, rowBlocks: c.rows / c.blockH, cluster: c.cluster}
		d.parts = d.sms / d.rowBlocks
		if got := d.mergeBlocks(c.batch, c.splits, int64(c.pages)); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
