package runtime

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestExtendMisuse(t *testing.T) {
	strides := func(t *Tensor, s ...int64) { t.Strides = s }
	everywhere := func(r *extendRig) { r.driver.blocks = []Location{{Local: true, Base: 0, Size: math.MaxInt64}} }
	for name, test := range map[string]struct {
		change func(*extendRig, *ExtendArgs)
		want   string
	}{
		"plan sequences":    {func(r *extendRig, a *ExtendArgs) { a.Plan.Sequences = -1 }, "sequences: was -1, must be 0 to 16384"},
		"plan query tokens": {func(r *extendRig, a *ExtendArgs) { a.Plan.QueryTokens = -1 }, "query tokens: was -1, must be 0 to 1073741823"},
		"plan key tokens":   {func(r *extendRig, a *ExtendArgs) { a.Plan.KeyTokens = 1 << 30 }, "key tokens: was 1073741824, must be 0 to 1073741823"},
		"plan most queries": {func(r *extendRig, a *ExtendArgs) { a.Plan.MostQueries = 301 }, "most queries: was 301, must be 0 to 300"},
		"plan chunk":        {func(r *extendRig, a *ExtendArgs) { a.Plan.Chunk = 0 }, "chunk: was 0, must be a multiple of 128, at most"},
		"plan chunk whole":  {func(r *extendRig, a *ExtendArgs) { a.Plan.Chunk = 500 }, "chunk: was 500, must be a multiple of 128, at most"},
		"plan chunk small": {func(r *extendRig, a *ExtendArgs) { a.Plan.Chunk = 128 },
			"plan: had 3 chunks, a schedule of 3840 bytes and a workspace of 8716288, must be as Plan returned it: 10, 12800 and"},
		"plan of more keys": {func(r *extendRig, a *ExtendArgs) { a.Plan.KeyTokens = 3000 }, "plan: had 3 chunks, a schedule of 3840 bytes"},
		"plan of more states": {func(r *extendRig, a *ExtendArgs) { a.Plan.MostQueries = 0 },
			"plan: had 3 chunks, a schedule of 3840 bytes and a workspace of 8716288, must be as Plan returned it: 3, 3840 and 10944512"},
		"plan of other tokens": {func(r *extendRig, a *ExtendArgs) { a.Plan.QueryTokens, a.Plan.MostQueries = 299, 200 },
			"q: it had 300 query tokens, must be as planned, 299"},

		"no query": {func(r *extendRig, a *ExtendArgs) { a.Q = Tensor{} },
			"q: was not given, must be either one tensor, or two: q_nope and q_rope"},
		"two queries": {func(r *extendRig, a *ExtendArgs) { a.QRope = r.tensor("rope", BF16, 300, 16, 64) },
			"q: was given beside q_nope and q_rope, must be either one tensor, or two: q_nope and q_rope"},
		"half a query": {func(r *extendRig, a *ExtendArgs) { r.splitQuery(); a.QRope = Tensor{} },
			"q_rope: was not given, must be a bf16 tensor [query tokens 300, heads 16, rope 64]"},
		"the other half": {func(r *extendRig, a *ExtendArgs) { r.splitQuery(); a.QNope = Tensor{} },
			"q_nope: was not given, must be a bf16 tensor [query tokens, heads 16, nope 128]"},
		"query tokens":    {func(r *extendRig, a *ExtendArgs) { a.Q.Shape = []int64{301, 16, 192} }, "q: it ran from"},
		"fewer queries":   {func(r *extendRig, a *ExtendArgs) { a.Q.Shape = []int64{299, 16, 192} }, "q: it had 299 query tokens, must be as planned, 300"},
		"no query tokens": {func(r *extendRig, a *ExtendArgs) { a.Q = Dense(0, BF16, 0, 16, 192) }, "q: it had 0 query tokens, must be as planned, 300"},
		"query dtype":     {func(r *extendRig, a *ExtendArgs) { a.Q.DType = FP16 }, `q: dtype was "fp16", must be bf16`},
		"query heads":     {func(r *extendRig, a *ExtendArgs) { a.Q.Shape = []int64{300, 8, 192} }, "q: shape was [300 8 192], must be [query tokens, heads 16, nope+rope 192]"},
		"query rank":      {func(r *extendRig, a *ExtendArgs) { a.Q.Shape = []int64{300, 3072} }, "q: shape was [300 3072], must be"},
		"query null":      {func(r *extendRig, a *ExtendArgs) { a.Q.Ptr = 0 }, "q: address was null, must be an address in device memory"},
		"query alignment": {func(r *extendRig, a *ExtendArgs) { a.Q.Ptr += 8 }, "must be aligned to 16 bytes"},
		"query stride":    {func(r *extendRig, a *ExtendArgs) { strides(&a.Q, 3072, 193, 1) }, "q: heads stride was 193 elements (386 bytes), must be a multiple of 16 bytes"},
		"query inner stride": {func(r *extendRig, a *ExtendArgs) { strides(&a.Q, 3072, 1, 16) },
			"q: nope+rope stride was 16 elements, must be 1 element"},
		"query negative stride": {func(r *extendRig, a *ExtendArgs) { strides(&a.Q, -3072, 192, 1) },
			"q: query tokens stride was -3072 elements, must be at least 0 and less than 2^63 bytes"},
		"query on the host": {func(r *extendRig, a *ExtendArgs) { a.Q.Ptr = 0xc000010000 },
			"q: address 0xc000010000 was not device memory, must be memory of fake"},

		"cache missing":   {func(r *extendRig, a *ExtendArgs) { a.KV = Tensor{} }, "kv: was not given, must be a bf16 tensor [pages, page 64, latent+rope 576]"},
		"cache dtype":     {func(r *extendRig, a *ExtendArgs) { a.KV.DType = "e4m3" }, `kv: dtype was "e4m3", must be bf16`},
		"cache page":      {func(r *extendRig, a *ExtendArgs) { a.KV.Shape = []int64{40, 32, 576} }, "kv: shape was [40 32 576], must be [pages, page 64, latent+rope 576]"},
		"cache width":     {func(r *extendRig, a *ExtendArgs) { a.KV.Shape = []int64{20, 64, 512} }, "kv: shape was [20 64 512], must be [pages, page 64, latent+rope 576]"},
		"cache null":      {func(r *extendRig, a *ExtendArgs) { a.KV.Ptr = 0 }, "kv: address was null"},
		"cache alignment": {func(r *extendRig, a *ExtendArgs) { a.KV.Ptr += 2 }, "kv: address was"},
		"cache stride":    {func(r *extendRig, a *ExtendArgs) { strides(&a.KV, 64*576, 577, 1) }, "kv: page stride was 577 elements (1154 bytes), must be a multiple of 16 bytes"},
		"cache past its allocation": {func(r *extendRig, a *ExtendArgs) { a.KV.Shape = []int64{21, 64, 576} },
			"73728 bytes past the end of its allocation (1474560 bytes at 0x"},
		"no pages": {func(r *extendRig, a *ExtendArgs) { a.KV = Dense(0, BF16, 0, 64, 576) }, "kv: it had 0 pages, must be 1 to 2147483647"},
		"too many pages": {func(r *extendRig, a *ExtendArgs) { a.KV.Shape = []int64{1 << 31, 64, 576}; everywhere(r) },
			"kv: it had 2147483648 pages, must be 1 to 2147483647"},

		"table missing":   {func(r *extendRig, a *ExtendArgs) { a.BlockTable = Tensor{} }, "block_table: was not given, must be a s32 tensor [sequences 3, width]"},
		"table dtype":     {func(r *extendRig, a *ExtendArgs) { a.BlockTable.DType = S64 }, `block_table: dtype was "s64", must be s32`},
		"table sequences": {func(r *extendRig, a *ExtendArgs) { a.BlockTable.Shape = []int64{2, 10} }, "block_table: shape was [2 10], must be [sequences 3, width]"},
		"table rank":      {func(r *extendRig, a *ExtendArgs) { a.BlockTable.Shape = []int64{30} }, "block_table: shape was [30], must be [sequences 3, width]"},
		"table null":      {func(r *extendRig, a *ExtendArgs) { a.BlockTable.Ptr = 0 }, "block_table: address was null"},
		"table alignment": {func(r *extendRig, a *ExtendArgs) { a.BlockTable.Ptr += 2 }, "block_table: address was"},
		"table stride":    {func(r *extendRig, a *ExtendArgs) { strides(&a.BlockTable, 10, 2) }, "block_table: width stride was 2 elements, must be 1 element"},
		"table negative":  {func(r *extendRig, a *ExtendArgs) { strides(&a.BlockTable, -10, 1) }, "block_table: sequences stride was -10 elements, must be at least 0"},
		"table outside":   {func(r *extendRig, a *ExtendArgs) { strides(&a.BlockTable, 16, 1) }, "past the end of its allocation (120 bytes at 0x"},

		"weights missing":   {func(r *extendRig, a *ExtendArgs) { a.Weights = Tensor{} }, "weights: was not given, must be a bf16 tensor [heads 16, nope+value 256, latent 512]"},
		"weights dtype":     {func(r *extendRig, a *ExtendArgs) { a.Weights.DType = F32 }, `weights: dtype was "f32", must be bf16`},
		"weights shape":     {func(r *extendRig, a *ExtendArgs) { a.Weights.Shape = []int64{16, 128, 512} }, "weights: shape was [16 128 512], must be [heads 16, nope+value 256, latent 512]"},
		"weights flat":      {func(r *extendRig, a *ExtendArgs) { a.Weights.Shape = []int64{4096, 512} }, "weights: shape was [4096 512], must be"},
		"weights null":      {func(r *extendRig, a *ExtendArgs) { a.Weights.Ptr = 0 }, "weights: address was null"},
		"weights alignment": {func(r *extendRig, a *ExtendArgs) { a.Weights.Ptr += 8 }, "weights: address was"},
		"weights stride":    {func(r *extendRig, a *ExtendArgs) { strides(&a.Weights, 256*512, 513, 1) }, "weights: nope+value stride was 513 elements (1026 bytes), must be a multiple of 16 bytes"},
		"weights transposed": {func(r *extendRig, a *ExtendArgs) { strides(&a.Weights, 256*512, 1, 256) },
			"weights: latent stride was 256 elements, must be 1 element"},
		"weights broadcast": {func(r *extendRig, a *ExtendArgs) { strides(&a.Weights, 0, 512, 1) },
			"weights: heads stride was 0 elements (0 bytes), must be more than 0"},

		"schedule null":      {func(r *extendRig, a *ExtendArgs) { a.Schedule = Buffer{} }, "schedule: address was null, must be 3840 bytes of device memory"},
		"schedule size":      {func(r *extendRig, a *ExtendArgs) { a.Schedule.Bytes-- }, "schedule: size was 3839 bytes, must be at least 3840"},
		"schedule negative":  {func(r *extendRig, a *ExtendArgs) { a.Schedule.Bytes = -1 }, "schedule: size was -1 bytes, must be at least 3840"},
		"schedule alignment": {func(r *extendRig, a *ExtendArgs) { a.Schedule.Ptr += 4 }, "schedule: address was"},
		"schedule allocation": {func(r *extendRig, a *ExtendArgs) { a.Schedule = Buffer{r.buffer("small", 3000).Ptr, 1 << 20} },
			"840 bytes past the end of its allocation (3000 bytes at 0x"},

		"workspace null":      {func(r *extendRig, a *ExtendArgs) { a.Workspace = Buffer{} }, "workspace: address was null, must be 8716288 bytes of device memory"},
		"workspace size":      {func(r *extendRig, a *ExtendArgs) { a.Workspace.Bytes-- }, "workspace: size was 8716287 bytes, must be at least 8716288"},
		"workspace alignment": {func(r *extendRig, a *ExtendArgs) { a.Workspace.Ptr += 64 }, "must be aligned to 128 bytes"},
		"workspace allocation": {func(r *extendRig, a *ExtendArgs) { a.Workspace = Buffer{r.buffer("small", 8715856).Ptr, 1 << 30} },
			"432 bytes past the end of its allocation (8715856 bytes at 0x"},
		"workspace on another device": {func(r *extendRig, a *ExtendArgs) {
			a.Workspace.Ptr = 0x7e0000000000
			r.driver.foreign = []Location{{Where: "memory of GPU 1", Base: a.Workspace.Ptr, Size: 1 << 30}}
		}, "workspace: address 0x7e0000000000 was memory of GPU 1, must be memory of fake"},

		"out missing":   {func(r *extendRig, a *ExtendArgs) { a.Out = Tensor{} }, "out: was not given, must be a bf16 tensor [query tokens 300, heads 16, value 128]"},
		"out dtype":     {func(r *extendRig, a *ExtendArgs) { a.Out.DType = F32 }, `out: dtype was "f32", must be bf16`},
		"out tokens":    {func(r *extendRig, a *ExtendArgs) { a.Out.Shape = []int64{299, 16, 128} }, "out: shape was [299 16 128], must be [query tokens 300, heads 16, value 128]"},
		"out null":      {func(r *extendRig, a *ExtendArgs) { a.Out.Ptr = 0 }, "out: address was null"},
		"out alignment": {func(r *extendRig, a *ExtendArgs) { a.Out.Ptr += 8 }, "out: address was"},
		"out overlap": {func(r *extendRig, a *ExtendArgs) { strides(&a.Out, 2048, 64, 1) },
			"must be strides that give every element a place of its own, for it is written"},
		"out stride":  {func(r *extendRig, a *ExtendArgs) { strides(&a.Out, 2052, 128, 1) }, "out: query tokens stride was 2052 elements (4104 bytes), must be a multiple of 16 bytes"},
		"out outside": {func(r *extendRig, a *ExtendArgs) { strides(&a.Out, 4096, 256, 1) }, "out: it ran from"},
		"lse missing": {func(r *extendRig, a *ExtendArgs) { a.LSE = Tensor{} }, "lse: was not given, must be a f32 tensor [query tokens 300, heads 16]"},
		"lse dtype":   {func(r *extendRig, a *ExtendArgs) { a.LSE.DType = BF16 }, `lse: dtype was "bf16", must be f32`},
		"lse shape":   {func(r *extendRig, a *ExtendArgs) { a.LSE.Shape = []int64{16, 300} }, "lse: shape was [16 300], must be [query tokens 300, heads 16]"},
		"lse dense":   {func(r *extendRig, a *ExtendArgs) { strides(&a.LSE, 32, 1) }, "lse: query tokens stride was 32 elements, must be dense, 16 elements"},
		"lse null":    {func(r *extendRig, a *ExtendArgs) { a.LSE.Ptr = 0 }, "lse: address was null"},
		"lse alignment": {func(r *extendRig, a *ExtendArgs) { a.LSE.Ptr += 2 },
			"lse: address was"},
		"scale": {func(r *extendRig, a *ExtendArgs) { a.Scale = 0 },
			"scale: was 0, must be finite and greater than 0, 1/sqrt(nope+rope) times what the model adds"},
		"scale negative": {func(r *extendRig, a *ExtendArgs) { a.Scale = -0.1 }, "scale: was -0.1, must be finite"},
		"scale NaN":      {func(r *extendRig, a *ExtendArgs) { a.Scale = float32(math.NaN()) }, "scale: was NaN, must be finite"},
		"scale infinite": {func(r *extendRig, a *ExtendArgs) { a.Scale = math.MaxFloat32 }, "scale: was 3.4028235e+38, must be finite"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newExtendRig(t)
			test.change(r, &r.args)
			misusedExtend(t, r, "extend: ", test.want, r.extend.Run(r.stream, r.args))
		})
	}
}

func TestExtendScheduleMisuse(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*extendRig, *ExtendScheduleArgs)
		want   string
	}{
		"plan sequences":      {func(r *extendRig, a *ExtendScheduleArgs) { a.Plan.Sequences = -1 }, "sequences: was -1, must be 0 to 16384"},
		"plan sequences most": {func(r *extendRig, a *ExtendScheduleArgs) { a.Plan.Sequences = 16385 }, "sequences: was 16385, must be 0 to 16384"},
		"plan query tokens":   {func(r *extendRig, a *ExtendScheduleArgs) { a.Plan.QueryTokens = 1 << 30 }, "query tokens: was 1073741824, must be 0 to 1073741823"},
		"plan key tokens":     {func(r *extendRig, a *ExtendScheduleArgs) { a.Plan.KeyTokens = -1 }, "key tokens: was -1, must be 0 to 1073741823"},
		"plan most queries":   {func(r *extendRig, a *ExtendScheduleArgs) { a.Plan.MostQueries = -1 }, "most queries: was -1, must be 0 to 300"},
		"plan chunk":          {func(r *extendRig, a *ExtendScheduleArgs) { a.Plan.Chunk = -128 }, "chunk: was -128, must be a multiple of 128, at most"},
		"plan chunk most": {func(r *extendRig, a *ExtendScheduleArgs) { a.Plan.Chunk = math.MaxInt32/128*128 + 128 },
			"chunk: was 2147483648, must be a multiple of 128, at most"},
		"cu_q missing":   {func(r *extendRig, a *ExtendScheduleArgs) { a.CuQ = Tensor{} }, "cu_q: was not given, must be a s32 tensor [sequences+1 4]"},
		"cu_q short":     {func(r *extendRig, a *ExtendScheduleArgs) { a.CuQ.Shape = []int64{3} }, "cu_q: shape was [3], must be [sequences+1 4]"},
		"cu_q dtype":     {func(r *extendRig, a *ExtendScheduleArgs) { a.CuQ.DType = S64 }, `cu_q: dtype was "s64", must be s32`},
		"cu_q null":      {func(r *extendRig, a *ExtendScheduleArgs) { a.CuQ.Ptr = 0 }, "cu_q: address was null"},
		"cu_q alignment": {func(r *extendRig, a *ExtendScheduleArgs) { a.CuQ.Ptr += 2 }, "cu_q: address was"},
		"cu_q stride":    {func(r *extendRig, a *ExtendScheduleArgs) { a.CuQ.Strides = []int64{2} }, "cu_q: sequences+1 stride was 2 elements, must be 1 element"},
		"cu_q outside": {func(r *extendRig, a *ExtendScheduleArgs) { a.CuQ.Ptr = r.buffer("three", 12).Ptr },
			"4 bytes past the end of its allocation (12 bytes at 0x"},
		"kv_len missing":   {func(r *extendRig, a *ExtendScheduleArgs) { a.KVLen = Tensor{} }, "kv_len: was not given, must be a s32 tensor [sequences 3]"},
		"kv_len long":      {func(r *extendRig, a *ExtendScheduleArgs) { a.KVLen.Shape = []int64{4} }, "kv_len: shape was [4], must be [sequences 3]"},
		"kv_len dtype":     {func(r *extendRig, a *ExtendScheduleArgs) { a.KVLen.DType = F32 }, `kv_len: dtype was "f32", must be s32`},
		"kv_len null":      {func(r *extendRig, a *ExtendScheduleArgs) { a.KVLen.Ptr = 0 }, "kv_len: address was null"},
		"kv_len alignment": {func(r *extendRig, a *ExtendScheduleArgs) { a.KVLen.Ptr++ }, "kv_len: address was"},
		"kv_len stride":    {func(r *extendRig, a *ExtendScheduleArgs) { a.KVLen.Strides = []int64{-1} }, "kv_len: sequences stride was -1 elements, must be"},
		"kv_len on the host": {func(r *extendRig, a *ExtendScheduleArgs) { a.KVLen.Ptr = 0xc000010000 },
			"kv_len: address 0xc000010000 was not device memory, must be memory of fake"},
		"buffer null":      {func(r *extendRig, a *ExtendScheduleArgs) { a.Buffer = Buffer{} }, "schedule buffer: address was null, must be 3840 bytes of device memory"},
		"buffer size":      {func(r *extendRig, a *ExtendScheduleArgs) { a.Buffer.Bytes-- }, "schedule buffer: size was 3839 bytes, must be at least 3840"},
		"buffer alignment": {func(r *extendRig, a *ExtendScheduleArgs) { a.Buffer.Ptr += 8 }, "schedule buffer: address was"},
		"buffer allocation": {func(r *extendRig, a *ExtendScheduleArgs) { a.Buffer = Buffer{r.buffer("small", 3000).Ptr, 1 << 20} },
			"840 bytes past the end of its allocation (3000 bytes at 0x"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newExtendRig(t)
			test.change(r, &r.sched)
			misusedExtend(t, r, "extend schedule: ", test.want, r.extend.Schedule(r.stream, r.sched))
		})
	}
	r := newExtendRig(t)
	for _, err := range []error{r.extend.Schedule(nil, r.sched), r.extend.Run(nil, r.args)} {
		if err == nil || !strings.Contains(err.Error(), "stream: was nil, must be a stream of the driver that loaded the kernels") {
			t.Errorf("got %v", err)
		}
	}
}

// misusedExtend wants an error that names the argument, and nothing launched.
func misusedExtend(t *testing.T, r *extendRig, call, want string, err error) {
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
