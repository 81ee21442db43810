package runtime

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestDecodeMisuse(t *testing.T) {
	strides := func(t *Tensor, s ...int64) { t.Strides = s }
	for name, test := range map[string]struct {
		change func(*rig, *DecodeArgs)
		want   string
	}{
		"batch": {func(r *rig, a *DecodeArgs) { a.Batch = -1 }, "batch: was -1, must be at least 0"},
		"batch limit": {func(r *rig, a *DecodeArgs) { a.Batch = 1 << 30 },
			"batch: was 1073741824, must be at most 67108863: query rows are numbered in 31 bits"},
		"splits": {func(r *rig, a *DecodeArgs) { a.Splits = -2 },
			"splits: was -2, must be 0 for a balanced schedule, or the number of pieces per request"},
		"splits limit": {func(r *rig, a *DecodeArgs) { a.Splits = 1 << 26 },
			"splits: was 67108864, must be at most 22369621 for a batch of 3: partial rows are numbered in 31 bits"},
		"no query": {func(r *rig, a *DecodeArgs) { a.Q = Tensor{} },
			"q: was not given, must be either one tensor, or two: q_latent and q_rope"},
		"two queries": {func(r *rig, a *DecodeArgs) { a.QLatent = a.Q },
			"q: was given beside q_latent and q_rope, must be either one tensor, or two: q_latent and q_rope"},
		"half a query": {func(r *rig, a *DecodeArgs) { a.Q, a.QLatent = Tensor{}, r.tensor("latent", BF16, 3, 2, 16, 512) },
			"q_rope: was not given, must be a bf16 tensor [batch 3, s_q 2, heads 16, rope 64]"},
		"query dtype": {func(r *rig, a *DecodeArgs) { a.Q.DType = FP16 }, `q: dtype was "fp16", must be bf16`},
		"query shape": {func(r *rig, a *DecodeArgs) { a.Q.Shape = []int64{3, 2, 16, 512} },
			"q: shape was [3 2 16 512], must be [batch 3, s_q 2, heads 16, latent+rope 576]"},
		"query rank": {func(r *rig, a *DecodeArgs) { a.Q.Shape = []int64{3, 2, 16 * 576} },
			"q: shape was [3 2 9216], must be [batch 3, s_q 2, heads 16, latent+rope 576]"},
		"query null":      {func(r *rig, a *DecodeArgs) { a.Q.Ptr = 0 }, "q: address was null, must be an address in device memory"},
		"query alignment": {func(r *rig, a *DecodeArgs) { a.Q.Ptr += 8 }, "must be aligned to 16 bytes"},
		"query strides": {func(r *rig, a *DecodeArgs) { strides(&a.Q, 18432, 9216, 576) },
			"q: strides were [18432 9216 576], must be 4 strides, or none for a dense tensor"},
		"query inner stride": {func(r *rig, a *DecodeArgs) { strides(&a.Q, 18432, 9216, 1, 16) },
			"q: latent+rope stride was 16 elements, must be 1 element"},
		"query head stride": {func(r *rig, a *DecodeArgs) { strides(&a.Q, 18432, 9216, 577, 1) },
			"q: heads stride was 577 elements (1154 bytes), must be a multiple of 16 bytes"},
		"query negative stride": {func(r *rig, a *DecodeArgs) { strides(&a.Q, -18432, 9216, 576, 1) },
			"q: batch stride was -18432 elements, must be at least 0 and less than 2^63 bytes"},
		"query end": {func(r *rig, a *DecodeArgs) { strides(&a.Q, 1<<61, 9216, 576, 1) },
			"must be a tensor that ends below 2^63 bytes"},
		"query past its allocation": {func(r *rig, a *DecodeArgs) { strides(&a.Q, 18440, 9216, 576, 1) },
			"32 bytes past the end of its allocation (110592 bytes at 0x"},
		"query on the host": {func(r *rig, a *DecodeArgs) { a.Q.Ptr = 0xc000010000 },
			"q: address 0xc000010000 was not device memory, must be memory of fake"},
		"cache on another device": {func(r *rig, a *DecodeArgs) {
			a.KV.Ptr = 0x7e0000000000
			r.driver.foreign = []Location{{Where: "memory of GPU 1", Base: a.KV.Ptr, Size: 1 << 30}}
		}, "kv: address 0x7e0000000000 was memory of GPU 1, must be memory of fake"},
		"cache dtype": {func(r *rig, a *DecodeArgs) { a.KV.DType = "e4m3" }, `kv: dtype was "e4m3", must be bf16`},
		"cache page": {func(r *rig, a *DecodeArgs) { a.KV.Shape = []int64{20, 32, 576} },
			"kv: shape was [20 32 576], must be [pages, page 64, latent+rope 576]"},
		"cache row": {func(r *rig, a *DecodeArgs) { strides(&a.KV, 64*578, 578, 1) },
			"kv: page stride was 578 elements (1156 bytes), must be a multiple of 16 bytes"},
		"cache page stride": {func(r *rig, a *DecodeArgs) { strides(&a.KV, 36868, 576, 1) },
			"kv: pages stride was 36868 elements (73736 bytes), must be a multiple of 16 bytes"},
		"cache stride zero": {func(r *rig, a *DecodeArgs) { strides(&a.KV, 36864, 0, 1) },
			"kv: page stride was 0 elements (0 bytes), must be more than 0 and less than 1099511627776 bytes"},
		"cache stride limit": {func(r *rig, a *DecodeArgs) {
			strides(&a.KV, 1<<39, 576, 1)
			r.driver.blocks = []Location{{Local: true, Base: 0, Size: math.MaxInt64}}
		}, "kv: pages stride was 549755813888 elements (1099511627776 bytes), must be more than 0 and less than 1099511627776 bytes"},
		"no pages": {func(r *rig, a *DecodeArgs) { a.KV.Shape = []int64{0, 64, 576} },
			"kv: it had 0 pages, must be 1 to 2147483647: the block table numbers them in 31 bits"},
		"too many pages": {func(r *rig, a *DecodeArgs) {
			a.KV.Shape = []int64{1 << 31, 64, 576}
			r.driver.blocks = []Location{{Local: true, Base: 0, Size: math.MaxInt64}}
		}, "kv: it had 2147483648 pages, must be 1 to 2147483647: the block table numbers them in 31 bits"},
		"cache missing": {func(r *rig, a *DecodeArgs) { a.KV = Tensor{} },
			"kv: was not given, must be a bf16 tensor [pages, page 64, latent+rope 576]"},
		"table dtype": {func(r *rig, a *DecodeArgs) { a.BlockTable.DType = "s64" }, `block_table: dtype was "s64", must be s32`},
		"table shape": {func(r *rig, a *DecodeArgs) { a.BlockTable.Shape = []int64{4, 5} },
			"block_table: shape was [4 5], must be [batch 3, width]"},
		"table width": {func(r *rig, a *DecodeArgs) { a.BlockTable.Shape = []int64{3, -1} },
			"block_table: shape was [3 -1], must be [batch 3, width]"},
		"table transposed": {func(r *rig, a *DecodeArgs) { strides(&a.BlockTable, 1, 3) },
			"block_table: width stride was 3 elements, must be 1 element"},
		"table alignment": {func(r *rig, a *DecodeArgs) { a.BlockTable.Ptr += 2 }, "must be aligned to 4 bytes"},
		"lengths shape":   {func(r *rig, a *DecodeArgs) { a.KVLen.Shape = []int64{2} }, "kv_len: shape was [2], must be [batch 3]"},
		"lengths null":    {func(r *rig, a *DecodeArgs) { a.KVLen.Ptr = 0 }, "kv_len: address was null, must be an address in device memory"},
		"lengths stride": {func(r *rig, a *DecodeArgs) { strides(&a.KVLen, 2) },
			"kv_len: batch stride was 2 elements, must be 1 element"},
		"schedule null":      {func(r *rig, a *DecodeArgs) { a.Schedule = Buffer{} }, "schedule: address was null, must be 3328 bytes of device memory"},
		"schedule capacity":  {func(r *rig, a *DecodeArgs) { a.Schedule.Bytes-- }, "schedule: size was 3327 bytes, must be at least 3328"},
		"schedule alignment": {func(r *rig, a *DecodeArgs) { a.Schedule.Ptr += 4 }, "must be aligned to 16 bytes"},
		"workspace null": {func(r *rig, a *DecodeArgs) { a.Workspace.Ptr = 0 },
			"workspace: address was null, must be 4595712 bytes of device memory"},
		"workspace capacity": {func(r *rig, a *DecodeArgs) { a.Workspace.Bytes = 4096 },
			"workspace: size was 4096 bytes, must be at least 4595712"},
		"workspace allocation": {func(r *rig, a *DecodeArgs) { a.Workspace = Buffer{r.buffer("small", 4096).Ptr, 1 << 30} },
			"4591616 bytes past the end of its allocation (4096 bytes at 0x"},
		"workspace allocation, one byte": {func(r *rig, a *DecodeArgs) { a.Workspace.Ptr = r.buffer("small", a.Workspace.Bytes-1).Ptr },
			"1 bytes past the end of its allocation (4595711 bytes at 0x"},
		"out dtype": {func(r *rig, a *DecodeArgs) { a.Out.DType = F32 }, `out: dtype was "f32", must be bf16`},
		"out shape": {func(r *rig, a *DecodeArgs) { a.Out.Shape = []int64{3, 2, 16, 576} },
			"out: shape was [3 2 16 576], must be [batch 3, s_q 2, heads 16, latent 512]"},
		"out overlap": {func(r *rig, a *DecodeArgs) { strides(&a.Out, 16384, 0, 512, 1) },
			"out: shape was [3 2 16 512] with strides [16384 0 512 1], must be strides that give every element a place of its own, for it is written"},
		"out missing": {func(r *rig, a *DecodeArgs) { a.Out = Tensor{} },
			"out: was not given, must be a bf16 tensor [batch 3, s_q 2, heads 16, latent 512]"},
		"lse dense": {func(r *rig, a *DecodeArgs) { strides(&a.LSE, 64, 32, 1) },
			"lse: s_q stride was 32 elements, must be dense, 16 elements"},
		"lse missing": {func(r *rig, a *DecodeArgs) { a.LSE = Tensor{} },
			"lse: was not given, must be a f32 tensor [batch 3, s_q 2, heads 16]"},
		"scale": {func(r *rig, a *DecodeArgs) { a.Scale = 0 },
			"scale: was 0, must be finite and greater than 0, 1/sqrt(nope+rope) times what the model adds"},
		"fewer new tokens than queries": {func(r *rig, a *DecodeArgs) { a.NewTokens = 1 },
			"new tokens: was 1, must be 0 where any token may have just been written, or 2, the query tokens of a request, to 2147483647"},
		"negative new tokens": {func(r *rig, a *DecodeArgs) { a.NewTokens = -1 }, "new tokens: was -1, must be 0"},
		"scale NaN": {func(r *rig, a *DecodeArgs) { a.Scale = float32(math.NaN()) },
			"scale: was NaN, must be finite and greater than 0, 1/sqrt(nope+rope) times what the model adds"},
		"scale infinite": {func(r *rig, a *DecodeArgs) { a.Scale = math.MaxFloat32 }, "scale: was 3.4028235e+38, must be finite"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 16, 2, 16)
			test.change(r, &r.args)
			err := r.decode.Run(r.stream, r.args)
			var argument *ArgumentError
			if !errors.As(err, &argument) {
				t.Fatalf("got %v, want an ArgumentError", err)
			}
			if text := err.Error(); !strings.HasPrefix(text, "decode: ") || !strings.Contains(text, test.want) {
				t.Errorf("got  %s\nwant decode: %s", text, test.want)
			}
			if argument.Argument == "" || argument.Was == "" || argument.Must == "" {
				t.Errorf("incomplete: %+v", argument)
			}
			if len(r.stream.launches) > 0 {
				t.Error("launched all the same")
			}
		})
	}
}

func TestScheduleMisuse(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*ScheduleArgs)
		want   string
	}{
		"batch":    {func(a *ScheduleArgs) { a.Batch = -1 }, "decode schedule: batch: was -1, must be at least 0"},
		"lengths":  {func(a *ScheduleArgs) { a.KVLen.Shape = []int64{4} }, "decode schedule: kv_len: shape was [4], must be [batch 3]"},
		"dtype":    {func(a *ScheduleArgs) { a.KVLen.DType = F32 }, `decode schedule: kv_len: dtype was "f32", must be s32`},
		"null":     {func(a *ScheduleArgs) { a.Buffer.Ptr = 0 }, "decode schedule: schedule buffer: address was null, must be 3328 bytes of device memory"},
		"capacity": {func(a *ScheduleArgs) { a.Splits = 100 }, "decode schedule: schedule buffer: size was 3328 bytes, must be at least 9216"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 16, 2, 16)
			test.change(&r.sched)
			err := r.decode.Schedule(r.stream, r.sched)
			if err == nil || err.Error() != test.want {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
			if len(r.stream.launches) > 0 {
				t.Error("launched all the same")
			}
		})
	}
	r := newRig(t, 16, 2, 16)
	for _, err := range []error{r.decode.Schedule(nil, r.sched), r.decode.Run(nil, r.args)} {
		if err == nil || !strings.Contains(err.Error(), "stream: was nil, must be a stream of the driver that loaded the kernels") {
			t.Errorf("got %v", err)
		}
	}
}

func TestOpenAllocationMayContinue(t *testing.T) {
	r := newRig(t, 16, 1, 16)
	for i := range r.driver.blocks {
		r.driver.blocks[i].Open = true
		r.driver.blocks[i].Size = 64
	}
	if err := r.decode.Run(r.stream, r.args); err != nil {
		t.Error(err)
	}
}
