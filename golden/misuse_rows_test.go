package golden_test

import (
	"testing"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/plan"
)

// paperKernels are all kernels with their real manifests, and of their texts only
// what loading looks at.
type paperKernels struct {
	layer    runtime.LayerVariants
	prefill  runtime.PrefillVariants
	merge    runtime.Variant // bf16 partial results
	mergeF32 runtime.Variant
	append   runtime.Variant
	rotate   runtime.Variant
	launched runtime.Variant // with the rules by which anyone launches it
}

// onPaper shortens a variant, so that it is loaded in no time.
func onPaper(v *runtime.Variant) {
	m := *v.Manifest
	m.PTXSHA256, m.Launch = "", nil // the rules are for others than this runtime
	v.Manifest, v.PTX = &m, []byte("// on paper\n")
}

func makePaperKernels(t *testing.T) *paperKernels {
	t.Helper()
	var k paperKernels
	var err error
	k.layer, err = runtime.LayerKernels(source{}, runtime.LayerShape{Heads: 16, Latent: 512, Rope: 64, Nope: 128, Value: 128, Page: 64, DType: runtime.BF16, Groups: []int{4, 2, 1}})
	must(t, err)
	k.prefill, err = source{}.Prefill(runtime.PrefillShape{Heads: 16, Nope: 128, Rope: 64, Value: 128, DType: runtime.BF16})
	must(t, err)
	k.merge, err = source{}.MergeStates(runtime.MergeShape{Width: 128, DType: runtime.BF16, Partial: runtime.BF16})
	must(t, err)
	k.mergeF32, err = source{}.MergeStates(runtime.MergeShape{Width: 128, DType: runtime.BF16, Partial: runtime.F32})
	must(t, err)
	k.append, err = source{}.AppendKV(runtime.AppendShape{Latent: 512, Rope: 64, Page: 64, DType: runtime.BF16})
	must(t, err)
	k.rotate, err = source{}.AppendKV(runtime.AppendShape{Latent: 512, Rope: 64, Page: 64, DType: runtime.BF16, Rotate: runtime.RotateHalf})
	must(t, err)
	l := &k.layer
	all := []*runtime.Variant{&k.merge, &k.mergeF32, &k.append, &k.rotate, &k.prefill.Attend, &k.prefill.Schedule, &l.Groups, &l.Rows,
		&l.Extend.UpProject, &l.Extend.Attend, &l.Extend.Schedule}
	for i := range l.Decode {
		all = append(all, &l.Decode[i].Decode, &l.Decode[i].Schedule, &l.Decode[i].Combine)
	}
	for i := range l.AbsorbQuery {
		all = append(all, &l.AbsorbQuery[i])
	}
	for i := range l.AbsorbOutput {
		all = append(all, &l.AbsorbOutput[i])
	}
	k.launched = l.Decode[1].Schedule
	rules := k.launched.Manifest.Launch
	for _, v := range append(all, &k.launched) {
		onPaper(v)
	}
	k.launched.Manifest.Launch = rules
	return &k
}

// decode2 is decode of two query tokens.
func (k *paperKernels) decode2() runtime.DecodeVariants { return k.layer.Decode[1] }

// on allocates exactly what a tensor takes.
func on(dev *paper, d runtime.DType, shape ...int64) runtime.Tensor {
	n := d.Bytes()
	for _, s := range shape {
		n *= s
	}
	at, _ := dev.Alloc("", n)
	return runtime.Dense(at, d, shape...)
}

func bytesOn(dev *paper, n int64) runtime.Buffer {
	at, _ := dev.Alloc("", n)
	return runtime.Buffer{Ptr: at, Bytes: n}
}

func loaded[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// scheduled makes sure that what a run needs was scheduled.
func scheduled(err error) {
	if err != nil {
		panic(err)
	}
}

func misuses(t *testing.T) []misuse {
	k := makePaperKernels(t)
	var list []misuse
	for _, from := range []func(*paperKernels) []misuse{decodeMisuse, prefillMisuse, extendMisuse, productMisuse, stateMisuse, layerMisuse} {
		list = append(list, from(k)...)
	}
	return list
}

const (
	bf16 = runtime.BF16
	f32  = runtime.F32
	s32  = runtime.S32
	s64  = runtime.S64
)

// Rows that several calls have.
var (
	anyValue  = row{any: true}
	scaleRow  = row{}
	cacheRow  = row{name: "kv", free: []int{0}, most: map[int]int64{0: 1<<31 - 1}}
	tableRow  = row{free: []int{1}, spread: true, table: true}
	outputRow = row{output: true}
	bufferRow = row{output: true}
)

func decodeMisuse(k *paperKernels) []misuse {
	run := func(split bool) func(dev *paper) (any, func(runtime.Stream) error) {
		return func(dev *paper) (any, func(runtime.Stream) error) {
			d := loaded(runtime.LoadDecode(dev, k.decode2()))
			a := &runtime.DecodeArgs{
				Batch: 3, KV: on(dev, bf16, 20, 64, 576), BlockTable: on(dev, s32, 3, 5), KVLen: on(dev, s32, 3),
				Schedule: bytesOn(dev, d.ScheduleBytes(3, 0)), Workspace: bytesOn(dev, d.WorkspaceBytes(3, 0)),
				Out: on(dev, bf16, 3, 2, 16, 512), LSE: on(dev, f32, 3, 2, 16), Scale: 0.07,
			}
			if split {
				a.QLatent, a.QRope = on(dev, bf16, 3, 2, 16, 512), on(dev, bf16, 3, 2, 16, 64)
			} else {
				a.Q = on(dev, bf16, 3, 2, 16, 576)
			}
			scheduled(d.Schedule(dev, runtime.ScheduleArgs{Batch: 3, KVLen: a.KVLen, Buffer: a.Schedule}))
			return a, func(s runtime.Stream) error { return d.Run(s, *a) }
		}
	}
	rows := map[string]row{
		"Batch": {bad: []int{0, 2, 4}, blames: []string{"q", "q_latent", "out"}}, "Splits": {bad: []int{1, 2}, blames: []string{"schedule", "workspace"}},
		"Q": {spread: true}, "QLatent": {spread: true}, "QRope": {spread: true}, "KV": cacheRow, "BlockTable": tableRow, "KVLen": {},
		"Schedule": bufferRow, "Workspace": bufferRow, "Out": outputRow, "LSE": outputRow, "Scale": scaleRow, "LSEBase2": anyValue,
		"NewTokens": {name: "new tokens"}, "Tuning.MergeBlocks": {name: "merge blocks"}, "Tuning.Promotion": {name: "promotion", bad: []int{1, 32, 100, 512}},
	}
	a := func(args any) *runtime.DecodeArgs { return args.(*runtime.DecodeArgs) }
	return []misuse{
		{
			name: "decode schedule",
			open: func(dev *paper) (any, func(runtime.Stream) error) {
				d := loaded(runtime.LoadDecode(dev, k.decode2()))
				a := &runtime.ScheduleArgs{Batch: 3, KVLen: on(dev, s32, 3), Buffer: bytesOn(dev, d.ScheduleBytes(3, 0))}
				return a, func(s runtime.Stream) error { return d.Schedule(s, *a) }
			},
			rows: map[string]row{
				"Batch": {bad: []int{0, 2, 4}, blames: []string{"kv_len"}}, "Splits": {bad: []int{1000}, blames: []string{"schedule buffer"}},
				"KVLen": {}, "Buffer": {name: "schedule buffer", output: true},
			},
		},
		{name: "decode", open: run(false), rows: rows, more: []mistake{
			{"q given twice", func(dev *paper, args any) { a(args).QLatent = on(dev, bf16, 3, 2, 16, 512) }, []string{"q"}},
			{"fewer requests than scheduled", func(dev *paper, args any) {
				x := a(args)
				x.Batch, x.Q.Shape[0], x.BlockTable.Shape[0], x.KVLen.Shape[0], x.Out.Shape[0], x.LSE.Shape[0] = 2, 2, 2, 2, 2, 2
			}, []string{"batch"}},
			{"other splits than scheduled", func(dev *paper, args any) {
				x := a(args)
				x.Splits, x.Schedule.Bytes, x.Workspace = 2, 1<<20, bytesOn(dev, 1<<20)
				dev.maps = false
			}, []string{"splits", "workspace"}},
		}},
		{name: "decode of a query in two parts", open: run(true), rows: rows},
	}
}

func prefillMisuse(k *paperKernels) []misuse {
	run := func(split bool) func(dev *paper) (any, func(runtime.Stream) error) {
		return func(dev *paper) (any, func(runtime.Stream) error) {
			p := loaded(runtime.LoadPrefill(dev, k.prefill))
			a := &runtime.PrefillArgs{
				Sequences: 3, KVUp: on(dev, bf16, 500, 16, 256), KRope: on(dev, bf16, 500, 64), Schedule: bytesOn(dev, p.ScheduleBytes(3, 300)),
				Out: on(dev, bf16, 300, 16, 128), LSE: on(dev, f32, 300, 16), Scale: 0.07,
			}
			if split {
				a.QNope, a.QRope = on(dev, bf16, 300, 16, 128), on(dev, bf16, 300, 16, 64)
			} else {
				a.Q = on(dev, bf16, 300, 16, 192)
			}
			scheduled(p.Schedule(dev, runtime.PrefillScheduleArgs{Sequences: 3, QueryTokens: 300, KeyTokens: 500, CuQ: on(dev, s32, 4), CuK: on(dev, s32, 4), Buffer: a.Schedule}))
			return a, func(s runtime.Stream) error { return p.Run(s, *a) }
		}
	}
	const limit = 1<<30 - 1
	rows := map[string]row{
		"Sequences": {bad: []int{2, 4}, blames: []string{"query tokens", "schedule"}},
		"Q":         {blames: []string{"query tokens", "out"}}, "QNope": {blames: []string{"q_rope", "query tokens"}}, "QRope": {},
		"KVUp": {blames: []string{"k_rope", "key tokens"}, most: map[int]int64{0: limit}}, "KRope": {}, "Schedule": bufferRow,
		"Out": outputRow, "LSE": outputRow, "Scale": scaleRow, "LSEBase2": anyValue,
	}
	a := func(args any) *runtime.PrefillArgs { return args.(*runtime.PrefillArgs) }
	return []misuse{
		{
			name: "prefill schedule",
			open: func(dev *paper) (any, func(runtime.Stream) error) {
				p := loaded(runtime.LoadPrefill(dev, k.prefill))
				a := &runtime.PrefillScheduleArgs{Sequences: 3, QueryTokens: 300, KeyTokens: 500, CuQ: on(dev, s32, 4), CuK: on(dev, s32, 4), Buffer: bytesOn(dev, p.ScheduleBytes(3, 300))}
				return a, func(s runtime.Stream) error { return p.Schedule(s, *a) }
			},
			rows: map[string]row{
				"Sequences": {bad: []int{2, 4}, blames: []string{"cu_q", "query tokens"}}, "QueryTokens": {name: "query tokens", bad: []int{30000}, blames: []string{"schedule buffer"}},
				"KeyTokens": {name: "key tokens"}, "CuQ": {}, "CuK": {}, "Causal": anyValue, "Buffer": {name: "schedule buffer", output: true},
			},
		},
		{name: "prefill", open: run(false), rows: rows, more: []mistake{
			{"q given twice", func(dev *paper, args any) { a(args).QRope = on(dev, bf16, 300, 16, 64) }, []string{"q"}},
			{"fewer tokens than scheduled", func(dev *paper, args any) {
				x := a(args)
				x.Q.Shape[0], x.Out.Shape[0], x.LSE.Shape[0] = 299, 299, 299
			}, []string{"query tokens"}},
			{"fewer keys than scheduled", func(dev *paper, args any) { a(args).KVUp.Shape[0], a(args).KRope.Shape[0] = 499, 499 }, []string{"key tokens"}},
		}},
		{name: "prefill of a query in two parts", open: run(true), rows: rows},
	}
}

func stateMisuse(k *paperKernels) []misuse {
	merge := func(v runtime.Variant, partial runtime.DType) func(dev *paper) (any, func(runtime.Stream) error) {
		return func(dev *paper) (any, func(runtime.Stream) error) {
			m := loaded(runtime.LoadMergeStates(dev, v))
			a := &runtime.MergeArgs{Out: on(dev, bf16, 9, 5, 128), LSE: on(dev, f32, 9, 5)}
			for range 2 {
				a.States = append(a.States, runtime.State{Out: on(dev, partial, 9, 5, 128), LSE: on(dev, f32, 9, 5)})
			}
			return a, func(s runtime.Stream) error { return m.Run(s, *a) }
		}
	}
	lse := row{output: true, loose: true}
	rows := func(itself bool) map[string]row {
		out := row{name: "state 1's out", spread: true, blames: []string{"out"}}
		if itself {
			out.itself = "Out"
		}
		return map[string]row{
			"States": {}, "States[].Out": out, "States[].LSE": {name: "state 1's lse", spread: true, loose: true, itself: "LSE"},
			"Accumulate": anyValue, "Out": {output: true, blames: []string{"lse"}}, "LSE": lse, "LSEBase2": anyValue,
		}
	}
	a := func(args any) *runtime.MergeArgs { return args.(*runtime.MergeArgs) }
	append := func(v runtime.Variant, rotate bool) func(dev *paper) (any, func(runtime.Stream) error) {
		return func(dev *paper) (any, func(runtime.Stream) error) {
			p := loaded(runtime.LoadAppendKV(dev, v))
			a := &runtime.AppendArgs{Latent: on(dev, bf16, 100, 512), RopeKey: on(dev, bf16, 100, 64), KV: on(dev, bf16, 20, 64, 576), Slots: on(dev, s64, 100)}
			if rotate {
				a.Positions, a.Cos, a.Sin = on(dev, s32, 100), on(dev, f32, 400, 32), on(dev, f32, 400, 32)
			}
			return a, func(s runtime.Stream) error { return p.Run(s, *a) }
		}
	}
	appendRows := map[string]row{
		"Latent": {spread: true, blames: []string{"rope_key"}, most: map[int]int64{0: 1 << 22}}, "RopeKey": {spread: true}, "KV": {name: "kv", output: true, free: []int{0}}, "Slots": {},
		"Positions": {}, "Cos": {spread: true, bad: []int{8}, blames: []string{"sin"}}, "Sin": {spread: true, bad: []int{8}},
	}
	given := func(name string) mistake {
		return mistake{name + " given, and no rotation", func(dev *paper, args any) {
			field(args, name).Set(reflectOf(on(dev, s32, 100)))
		}, []string{(&row{}).called(name)}}
	}
	return []misuse{
		{name: "merge states", open: merge(k.merge, bf16), rows: rows(true), more: []mistake{
			{"no state", func(_ *paper, args any) { a(args).States = a(args).States[:0] }, []string{"states"}},
			{"the result read by columns", func(_ *paper, args any) {
				x := a(args)
				x.States[1].LSE = x.LSE
				x.States[1].LSE.Strides = []int64{1, 9}
			}, []string{"state 1's lse"}},
			{"the result is the 65th", func(dev *paper, args any) {
				x := a(args)
				for len(x.States) < 64 {
					x.States = slicesAppend(x.States, x.States[0])
				}
				x.States = slicesAppend(x.States, runtime.State{Out: x.Out, LSE: x.LSE})
			}, []string{"state 64's out"}},
		}},
		{name: "merge f32 states", open: merge(k.mergeF32, f32), rows: rows(false)},
		{name: "append kv", open: append(k.append, false), rows: appendRows, more: []mistake{given("Positions"), given("Cos"), given("Sin")}},
		{name: "append kv with rotation", open: append(k.rotate, true), rows: appendRows},
	}
}

func productMisuse(k *paperKernels) []misuse {
	up := func(paged, rope bool) func(dev *paper) (any, func(runtime.Stream) error) {
		return func(dev *paper) (any, func(runtime.Stream) error) {
			u := loaded(runtime.LoadUpProject(dev, k.layer.Extend.UpProject))
			a := &runtime.UpProjectArgs{Weights: on(dev, bf16, 16, 256, 512), KVUp: on(dev, bf16, 300, 16, 256)}
			width := int64(512)
			if rope {
				a.KRope, width = on(dev, bf16, 300, 64), 576
			}
			if paged {
				a.KV, a.BlockTable, a.FirstToken, a.CuSeqlens = on(dev, bf16, 20, 64, 576), on(dev, s32, 3, 5), on(dev, s32, 3), on(dev, s32, 4)
			} else {
				a.Latents, a.CuSeqlens = on(dev, bf16, 300, width), on(dev, s32, 2)
			}
			return a, func(s runtime.Stream) error { return u.Run(s, *a) }
		}
	}
	const rows = 1<<31 - 1 - 1024
	upRows := func(table row) map[string]row {
		return map[string]row{
			"KV": {name: "kv", free: []int{0}, most: map[int]int64{0: 1<<31 - 1}, blames: []string{"latents"}}, "BlockTable": table,
			"Latents": {}, "FirstToken": {absent: true}, "CuSeqlens": {absent: table.free == nil},
			"Weights": {}, "KVUp": {output: true, free: []int{0}, blames: []string{"latents", "k_rope"}, most: map[int]int64{0: rows}}, "KRope": {output: true, absent: true},
		}
	}
	type upArgs = runtime.UpProjectArgs
	query := func(split bool) func(dev *paper) (any, func(runtime.Stream) error) {
		return func(dev *paper) (any, func(runtime.Stream) error) {
			q := loaded(runtime.LoadAbsorbQuery(dev, k.layer.AbsorbQuery...))
			a := &runtime.AbsorbQueryArgs{Weights: on(dev, bf16, 16, 128, 512)}
			if split {
				a.QNope, a.QRope, a.OutLatent, a.OutRope = on(dev, bf16, 30, 16, 128), on(dev, bf16, 30, 16, 64), on(dev, bf16, 30, 16, 512), on(dev, bf16, 30, 16, 64)
			} else {
				a.Q, a.Out = on(dev, bf16, 30, 16, 192), on(dev, bf16, 30, 16, 576)
			}
			return a, func(s runtime.Stream) error { return q.Run(s, *a) }
		}
	}
	queryRows := map[string]row{
		"Q": {blames: []string{"out"}, most: map[int]int64{0: rows}}, "QNope": {blames: []string{"q_rope"}, most: map[int]int64{0: rows}}, "QRope": {spread: true},
		"Weights": {}, "Out": outputRow, "OutLatent": outputRow, "OutRope": {output: true, absent: true},
	}
	return []misuse{
		{name: "up-projection of a cache", open: up(true, true), rows: upRows(row{free: []int{1}, spread: true, table: true, blames: []string{"cu_seqlens"}, most: map[int]int64{0: 16384}}), more: []mistake{
			{"latents beside a cache", func(dev *paper, args any) { args.(*upArgs).Latents = on(dev, bf16, 300, 576) }, []string{"latents"}},
			{"no source", func(dev *paper, args any) {
				args.(*upArgs).KV, args.(*upArgs).BlockTable = runtime.Tensor{}, runtime.Tensor{}
			}, []string{"latents"}},
		}},
		{name: "up-projection of dense rows", open: up(false, true), rows: upRows(row{}), more: []mistake{
			{"a first token", func(dev *paper, args any) { args.(*upArgs).FirstToken = on(dev, s32, 1) }, []string{"first_token"}},
		}},
		{name: "up-projection of dense latents", open: up(false, false), rows: upRows(row{})},
		{name: "absorbed query", open: query(false), rows: queryRows, more: []mistake{
			{"q given twice", func(dev *paper, args any) {
				args.(*runtime.AbsorbQueryArgs).QNope = on(dev, bf16, 30, 16, 128)
			}, []string{"q"}},
			{"out given twice", func(dev *paper, args any) {
				args.(*runtime.AbsorbQueryArgs).OutRope = on(dev, bf16, 30, 16, 64)
			}, []string{"out"}},
		}},
		{name: "absorbed query in two parts", open: query(true), rows: queryRows},
		{
			name: "absorbed output",
			open: func(dev *paper) (any, func(runtime.Stream) error) {
				o := loaded(runtime.LoadAbsorbOutput(dev, k.layer.AbsorbOutput...))
				a := &runtime.AbsorbOutputArgs{Latent: on(dev, bf16, 30, 16, 512), Weights: on(dev, bf16, 16, 128, 512), Out: on(dev, bf16, 30, 16, 128)}
				return a, func(s runtime.Stream) error { return o.Run(s, *a) }
			},
			rows: map[string]row{"Latent": {blames: []string{"out"}, most: map[int]int64{0: rows}}, "Weights": {}, "Out": outputRow},
		},
	}
}

var layerRequests = []plan.Request{{New: 1, Prefix: 100}, {New: 200}, {New: 5, Prefix: 70}}
