package runtime

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestPrefillMisuse(t *testing.T) {
	strides := func(t *Tensor, s ...int64) { t.Strides = s }
	for name, test := range map[string]struct {
		change func(*prefillRig, *PrefillArgs)
		want   string
	}{
		"sequences": {func(r *prefillRig, a *PrefillArgs) { a.Sequences = -1 }, "sequences: was -1, must be at least 0"},
		"sequences limit": {func(r *prefillRig, a *PrefillArgs) { a.Sequences = 1 << 30 },
			"query tokens: were 300 in 1073741824 sequences, must be at most 1073741823, as the sequences must"},
		"blocks limit": {func(r *prefillRig, a *PrefillArgs) { a.Sequences = 1 << 26 },
			"query tokens: were 300 in 67108864 sequences, up to 67108867 blocks, must be at most 67108862 blocks of 128 tokens: with 16 heads each they are numbered in 30 bits"},
		"no query": {func(r *prefillRig, a *PrefillArgs) { a.Q = Tensor{} },
			"q: was not given, must be either one tensor, or two: q_nope and q_rope"},
		"two queries": {func(r *prefillRig, a *PrefillArgs) { a.QRope = r.tensor("rope", BF16, 300, 16, 64) },
			"q: was given beside q_nope and q_rope, must be either one tensor, or two: q_nope and q_rope"},
		"half a query": {func(r *prefillRig, a *PrefillArgs) { r.splitQuery(); a.QRope = Tensor{} },
			"q_rope: was not given, must be a bf16 tensor [query tokens 300, heads 16, rope 64]"},
		"the other half": {func(r *prefillRig, a *PrefillArgs) { r.splitQuery(); a.QNope = Tensor{} },
			"q_nope: was not given, must be a bf16 tensor [query tokens, heads 16, nope 128]"},
		"split tokens": {func(r *prefillRig, a *PrefillArgs) { r.splitQuery(); a.QRope = r.tensor("rope", BF16, 299, 16, 64) },
			"q_rope: shape was [299 16 64], must be [query tokens 300, heads 16, rope 64]"},
		"query dtype":     {func(r *prefillRig, a *PrefillArgs) { a.Q.DType = FP16 }, `q: dtype was "fp16", must be bf16`},
		"query heads":     {func(r *prefillRig, a *PrefillArgs) { a.Q.Shape = []int64{300, 8, 192} }, "q: shape was [300 8 192], must be [query tokens, heads 16, nope+rope 192]"},
		"query width":     {func(r *prefillRig, a *PrefillArgs) { a.Q.Shape = []int64{300, 16, 128} }, "q: shape was [300 16 128], must be [query tokens, heads 16, nope+rope 192]"},
		"query rank":      {func(r *prefillRig, a *PrefillArgs) { a.Q.Shape = []int64{300, 3072} }, "q: shape was [300 3072], must be [query tokens, heads 16, nope+rope 192]"},
		"query null":      {func(r *prefillRig, a *PrefillArgs) { a.Q.Ptr = 0 }, "q: address was null, must be an address in device memory"},
		"query alignment": {func(r *prefillRig, a *PrefillArgs) { a.Q.Ptr += 8 }, "must be aligned to 16 bytes"},
		"query strides": {func(r *prefillRig, a *PrefillArgs) { strides(&a.Q, 3072, 192) },
			"q: strides were [3072 192], must be 3 strides, or none for a dense tensor"},
		"query inner stride": {func(r *prefillRig, a *PrefillArgs) { strides(&a.Q, 3072, 1, 16) },
			"q: nope+rope stride was 16 elements, must be 1 element"},
		"query head stride": {func(r *prefillRig, a *PrefillArgs) { strides(&a.Q, 3072, 193, 1) },
			"q: heads stride was 193 elements (386 bytes), must be a multiple of 16 bytes"},
		"query stride zero": {func(r *prefillRig, a *PrefillArgs) { strides(&a.Q, 3072, 0, 1) },
			"q: heads stride was 0 elements (0 bytes), must be more than 0 and less than 1099511627776 bytes"},
		"query negative stride": {func(r *prefillRig, a *PrefillArgs) { strides(&a.Q, -3072, 192, 1) },
			"q: query tokens stride was -3072 elements, must be at least 0 and less than 2^63 bytes"},
		"query stride limit": {func(r *prefillRig, a *PrefillArgs) {
			strides(&a.Q, 1<<39, 192, 1)
			r.driver.blocks = []Location{{Local: true, Base: 0, Size: math.MaxInt64}}
		}, "q: query tokens stride was 549755813888 elements (1099511627776 bytes), must be more than 0 and less than 1099511627776 bytes"},
		"query end": {func(r *prefillRig, a *PrefillArgs) { strides(&a.Q, 1<<61, 192, 1) }, "q: shape was [300 16 192] with strides [2305843009213693952 192 1] at"},
		"query past its allocation": {func(r *prefillRig, a *PrefillArgs) { strides(&a.Q, 3080, 192, 1) },
			"4784 bytes past the end of its allocation (1843200 bytes at 0x"},
		"query on the host": {func(r *prefillRig, a *PrefillArgs) { a.Q.Ptr = 0xc000010000 },
			"q: address 0xc000010000 was not device memory, must be memory of fake"},
		"split query stride": {func(r *prefillRig, a *PrefillArgs) { r.splitQuery(); strides(&a.QNope, 2052, 128, 1) },
			"q_nope: query tokens stride was 2052 elements (4104 bytes), must be a multiple of 16 bytes"},
		"split rope alignment": {func(r *prefillRig, a *PrefillArgs) { r.splitQuery(); a.QRope.Ptr += 2 }, "q_rope: address was"},
		"keys missing": {func(r *prefillRig, a *PrefillArgs) { a.KVUp = Tensor{} },
			"kv_up: was not given, must be a bf16 tensor [key tokens, heads 16, nope+value 256]"},
		"keys dtype": {func(r *prefillRig, a *PrefillArgs) { a.KVUp.DType = "e4m3" }, `kv_up: dtype was "e4m3", must be bf16`},
		"keys width": {func(r *prefillRig, a *PrefillArgs) { a.KVUp.Shape = []int64{500, 16, 128} },
			"kv_up: shape was [500 16 128], must be [key tokens, heads 16, nope+value 256]"},
		"keys null": {func(r *prefillRig, a *PrefillArgs) { a.KVUp.Ptr = 0 }, "kv_up: address was null"},
		"keys on another device": {func(r *prefillRig, a *PrefillArgs) {
			a.KVUp.Ptr = 0x7e0000000000
			r.driver.foreign = []Location{{Where: "memory of GPU 1", Base: a.KVUp.Ptr, Size: 1 << 30}}
		}, "kv_up: address 0x7e0000000000 was memory of GPU 1, must be memory of fake"},
		"keys stride": {func(r *prefillRig, a *PrefillArgs) { strides(&a.KVUp, 4096, 258, 1) },
			"kv_up: heads stride was 258 elements (516 bytes), must be a multiple of 16 bytes"},
		"keys token stride": {func(r *prefillRig, a *PrefillArgs) { strides(&a.KVUp, 0, 256, 1) },
			"kv_up: key tokens stride was 0 elements (0 bytes), must be more than 0"},
		"too many keys": {func(r *prefillRig, a *PrefillArgs) {
			a.KVUp.Shape = []int64{1 << 30, 16, 256}
			r.driver.blocks = []Location{{Local: true, Base: 0, Size: math.MaxInt64}}
		}, "kv_up: it had 1073741824 key tokens, must be at most 1073741823"},
		"rope missing": {func(r *prefillRig, a *PrefillArgs) { a.KRope = Tensor{} },
			"k_rope: was not given, must be a bf16 tensor [key tokens 500, rope 64]"},
		"rope tokens": {func(r *prefillRig, a *PrefillArgs) { a.KRope.Shape = []int64{499, 64} },
			"k_rope: shape was [499 64], must be [key tokens 500, rope 64]"},
		"rope of every head": {func(r *prefillRig, a *PrefillArgs) { a.KRope.Shape = []int64{500, 16, 64} },
			"k_rope: shape was [500 16 64], must be [key tokens 500, rope 64]"},
		"rope stride": {func(r *prefillRig, a *PrefillArgs) { strides(&a.KRope, 68, 1) },
			"k_rope: key tokens stride was 68 elements (136 bytes), must be a multiple of 16 bytes"},
		"rope past its allocation": {func(r *prefillRig, a *PrefillArgs) { strides(&a.KRope, 576, 1) }, "k_rope: it ran from"},
		"schedule null":            {func(r *prefillRig, a *PrefillArgs) { a.Schedule = Buffer{} }, "schedule: address was null, must be 768 bytes of device memory"},
		"schedule capacity":        {func(r *prefillRig, a *PrefillArgs) { a.Schedule.Bytes-- }, "schedule: size was 767 bytes, must be at least 768"},
		"schedule alignment":       {func(r *prefillRig, a *PrefillArgs) { a.Schedule.Ptr += 4 }, "must be aligned to 16 bytes"},
		"schedule of fewer sequences": {func(r *prefillRig, a *PrefillArgs) { a.Sequences = 30 },
			"schedule: size was 768 bytes, must be at least 1792"},
		"schedule allocation": {func(r *prefillRig, a *PrefillArgs) { a.Schedule = Buffer{r.buffer("small", 700).Ptr, 1 << 20} },
			"68 bytes past the end of its allocation (700 bytes at 0x"},
		"out missing": {func(r *prefillRig, a *PrefillArgs) { a.Out = Tensor{} },
			"out: was not given, must be a bf16 tensor [query tokens 300, heads 16, value 128]"},
		"out dtype": {func(r *prefillRig, a *PrefillArgs) { a.Out.DType = F32 }, `out: dtype was "f32", must be bf16`},
		"out tokens": {func(r *prefillRig, a *PrefillArgs) { a.Out.Shape = []int64{299, 16, 128} },
			"out: shape was [299 16 128], must be [query tokens 300, heads 16, value 128]"},
		"out overlap": {func(r *prefillRig, a *PrefillArgs) { strides(&a.Out, 2048, 64, 1) },
			"out: shape was [300 16 128] with strides [2048 64 1], must be strides that give every element a place of its own, for it is written"},
		"out stride": {func(r *prefillRig, a *PrefillArgs) { strides(&a.Out, 2052, 128, 1) },
			"out: query tokens stride was 2052 elements (4104 bytes), must be a multiple of 16 bytes"},
		"out alignment": {func(r *prefillRig, a *PrefillArgs) { a.Out.Ptr += 8 }, "out: address was"},
		"lse missing": {func(r *prefillRig, a *PrefillArgs) { a.LSE = Tensor{} },
			"lse: was not given, must be a f32 tensor [query tokens 300, heads 16]"},
		"lse dtype": {func(r *prefillRig, a *PrefillArgs) { a.LSE.DType = BF16 }, `lse: dtype was "bf16", must be f32`},
		"lse dense": {func(r *prefillRig, a *PrefillArgs) { strides(&a.LSE, 32, 1) },
			"lse: query tokens stride was 32 elements, must be dense, 16 elements"},
		"lse transposed": {func(r *prefillRig, a *PrefillArgs) { strides(&a.LSE, 1, 300) }, "lse: heads stride was 300 elements, must be 1 element"},
		"scale": {func(r *prefillRig, a *PrefillArgs) { a.Scale = 0 },
			"scale: was 0, must be finite and greater than 0, 1/sqrt(nope+rope) times what the model adds"},
		"scale negative": {func(r *prefillRig, a *PrefillArgs) { a.Scale = -0.1 }, "scale: was -0.1, must be finite and greater than 0"},
		"scale NaN":      {func(r *prefillRig, a *PrefillArgs) { a.Scale = float32(math.NaN()) }, "scale: was NaN, must be finite"},
		"scale infinite": {func(r *prefillRig, a *PrefillArgs) { a.Scale = math.MaxFloat32 }, "scale: was 3.4028235e+38, must be finite"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPrefillRig(t)
			test.change(r, &r.args)
			misused(t, r, "prefill: ", test.want, r.prefill.Run(r.stream, r.args))
		})
	}
}

func TestPrefillScheduleMisuse(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*prefillRig, *PrefillScheduleArgs)
		want   string
	}{
		"sequences": {func(r *prefillRig, a *PrefillScheduleArgs) { a.Sequences = -1 }, "sequences: was -1, must be at least 0"},
		"tokens":    {func(r *prefillRig, a *PrefillScheduleArgs) { a.QueryTokens = -1 }, "query tokens: was -1, must be at least 0"},
		"tokens limit": {func(r *prefillRig, a *PrefillScheduleArgs) { a.QueryTokens = 1 << 30 },
			"query tokens: were 1073741824 in 3 sequences, must be at most 1073741823"},
		"keys":       {func(r *prefillRig, a *PrefillScheduleArgs) { a.KeyTokens = -1 }, "key tokens: was -1, must be 0 to 1073741823"},
		"keys limit": {func(r *prefillRig, a *PrefillScheduleArgs) { a.KeyTokens = 1 << 30 }, "key tokens: was 1073741824, must be 0 to 1073741823"},
		"cu_q missing": {func(r *prefillRig, a *PrefillScheduleArgs) { a.CuQ = Tensor{} },
			"cu_q: was not given, must be a s32 tensor [sequences+1 4]"},
		"cu_q short":     {func(r *prefillRig, a *PrefillScheduleArgs) { a.CuQ.Shape = []int64{3} }, "cu_q: shape was [3], must be [sequences+1 4]"},
		"cu_q dtype":     {func(r *prefillRig, a *PrefillScheduleArgs) { a.CuQ.DType = S64 }, `cu_q: dtype was "s64", must be s32`},
		"cu_q null":      {func(r *prefillRig, a *PrefillScheduleArgs) { a.CuQ.Ptr = 0 }, "cu_q: address was null"},
		"cu_q alignment": {func(r *prefillRig, a *PrefillScheduleArgs) { a.CuQ.Ptr += 2 }, "cu_q: address was"},
		"cu_q stride":    {func(r *prefillRig, a *PrefillScheduleArgs) { a.CuQ.Strides = []int64{2} }, "cu_q: sequences+1 stride was 2 elements, must be 1 element"},
		"cu_q outside": {func(r *prefillRig, a *PrefillScheduleArgs) { a.CuQ.Ptr = r.buffer("three", 12).Ptr },
			"4 bytes past the end of its allocation (12 bytes at 0x"},
		"cu_k missing": {func(r *prefillRig, a *PrefillScheduleArgs) { a.CuK = Tensor{} }, "cu_k: was not given, must be a s32 tensor [sequences+1 4]"},
		"cu_k long":    {func(r *prefillRig, a *PrefillScheduleArgs) { a.CuK.Shape = []int64{5} }, "cu_k: shape was [5], must be [sequences+1 4]"},
		"cu_k on the host": {func(r *prefillRig, a *PrefillScheduleArgs) { a.CuK.Ptr = 0xc000010000 },
			"cu_k: address 0xc000010000 was not device memory, must be memory of fake"},
		"buffer null":      {func(r *prefillRig, a *PrefillScheduleArgs) { a.Buffer.Ptr = 0 }, "schedule buffer: address was null, must be 768 bytes of device memory"},
		"buffer capacity":  {func(r *prefillRig, a *PrefillScheduleArgs) { a.QueryTokens = 5000 }, "schedule buffer: size was 768 bytes, must be at least 2048"},
		"buffer alignment": {func(r *prefillRig, a *PrefillScheduleArgs) { a.Buffer.Ptr += 8 }, "schedule buffer: address was"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPrefillRig(t)
			test.change(r, &r.sched)
			misused(t, r, "prefill schedule: ", test.want, r.prefill.Schedule(r.stream, r.sched))
		})
	}
	r := newPrefillRig(t)
	for _, err := range []error{r.prefill.Schedule(nil, r.sched), r.prefill.Run(nil, r.args)} {
		if err == nil || !strings.Contains(err.Error(), "stream: was nil, must be a stream of the driver that loaded the kernels") {
			t.Errorf("got %v", err)
		}
	}
	for _, n := range [][2]int{{-1, 1}, {1, -1}, {1 << 30, 1}, {1, 1 << 30}} {
		if got := r.prefill.ScheduleBytes(n[0], n[1]); got != 0 {
			t.Errorf("%d sequences, %d tokens: a schedule of %d bytes", n[0], n[1], got)
		}
	}
}

// misused wants an error that names the argument, and nothing launched.
func misused(t *testing.T, r *prefillRig, call, want string, err error) {
	t.Helper()
	var argument *ArgumentError
	if !errors.As(err, &argument) {
		t.Fatalf("got %v, want an ArgumentError", err)
	}
	if text := err.Error(); !strings.HasPrefix(text, call) || !strings.Contains(text, want) {
		t.Errorf("got  %s\nwant %s%s", text, call, want)
	}
	if argument.Argument == "" || argument.Was == "" || argument.Must == "" {
		t.Errorf("incomplete: %+v", argument)
	}
	if len(r.stream.launches) > 0 {
		t.Error("launched all the same")
	}
}
