package golden_test

import (
	"math"
	"reflect"
	"slices"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/plan"
)

func reflectOf(x any) reflect.Value { return reflect.ValueOf(x) }

func slicesAppend[T any](s []T, x T) []T { return append(slices.Clip(s), x) }

// capacityRows are those of an ExtendCapacity.
func capacityRows(prefix string, blames ...string) map[string]row {
	rows := map[string]row{}
	for field, name := range map[string]string{
		"Sequences": "sequences", "QueryTokens": "query tokens", "KeyTokens": "key tokens", "MostQueries": "most queries", "WithKeys": "with keys",
	} {
		rows[prefix+field] = row{name: name, blames: blames}
	}
	return rows
}

func with(rows map[string]row, more map[string]row) map[string]row {
	for k, v := range more {
		rows[k] = v
	}
	return rows
}

func extendMisuse(k *paperKernels) []misuse {
	capacity := runtime.ExtendCapacity{Sequences: 3, QueryTokens: 300, KeyTokens: 1000, MostQueries: 200, WithKeys: 3}
	load := func(dev *paper) (*runtime.Extend, runtime.ExtendPlan) {
		e := loaded(runtime.LoadExtend(dev, k.layer.Extend))
		return e, loaded(e.Plan(capacity, 384, 0))
	}
	planRows := func() map[string]row {
		rows := capacityRows("Plan.ExtendCapacity.", "plan", "query tokens", "most queries", "with keys", "q", "cu_q", "kv_len")
		return with(rows, map[string]row{
			"Plan.Chunk": {bad: []int{0, 1, 128, 500}, blames: []string{"plan"}}, "Plan.Chunks": {name: "plan", bad: []int{0, 1}},
			"Plan.ScheduleBytes": {name: "plan", bad: []int{0}}, "Plan.WorkspaceBytes": {name: "plan", bad: []int{0}},
		})
	}
	schedule := func(dev *paper, e *runtime.Extend, p runtime.ExtendPlan) *runtime.ExtendScheduleArgs {
		return &runtime.ExtendScheduleArgs{Plan: p, CuQ: on(dev, s32, 4), KVLen: on(dev, s32, 3), Causal: true, Buffer: bytesOn(dev, p.ScheduleBytes)}
	}
	run := func(split bool) func(dev *paper) (any, func(runtime.Stream) error) {
		return func(dev *paper) (any, func(runtime.Stream) error) {
			e, p := load(dev)
			x := schedule(dev, e, p)
			scheduled(e.Schedule(dev, *x))
			a := &runtime.ExtendArgs{
				Plan: p, KV: on(dev, bf16, 20, 64, 576), BlockTable: on(dev, s32, 3, 9), Weights: on(dev, bf16, 16, 256, 512), Schedule: x.Buffer,
				Workspace: bytesOn(dev, p.WorkspaceBytes), Out: on(dev, bf16, 300, 16, 128), LSE: on(dev, f32, 300, 16), Scale: 0.07,
			}
			if split {
				a.QNope, a.QRope = on(dev, bf16, 300, 16, 128), on(dev, bf16, 300, 16, 64)
			} else {
				a.Q = on(dev, bf16, 300, 16, 192)
			}
			return a, func(s runtime.Stream) error { return e.Run(s, *a) }
		}
	}
	rows := with(planRows(), map[string]row{
		"Q": {}, "QNope": {blames: []string{"q_rope"}}, "QRope": {}, "KV": cacheRow, "BlockTable": tableRow, "Weights": {},
		"Schedule": bufferRow, "Workspace": {output: true, bad: []int{16, 64}}, "Out": outputRow, "LSE": outputRow, "Scale": scaleRow, "LSEBase2": anyValue,
	})
	type planArgs struct {
		Capacity  runtime.ExtendCapacity
		Chunk     int
		Workspace int64
	}
	return []misuse{
		{
			name: "extend plan", host: true,
			open: func(dev *paper) (any, func(runtime.Stream) error) {
				e, _ := load(dev)
				a := &planArgs{Capacity: capacity, Workspace: 1 << 30}
				return a, func(runtime.Stream) error { _, err := e.Plan(a.Capacity, a.Chunk, a.Workspace); return err }
			},
			rows: with(capacityRows("Capacity.", "query tokens", "most queries", "with keys"), map[string]row{"Chunk": anyValue, "Workspace": anyValue}),
			more: []mistake{
				{"chunk negative", func(_ *paper, a any) { a.(*planArgs).Chunk = -1 }, []string{"chunk"}},
				{"chunk the least", func(_ *paper, a any) { a.(*planArgs).Chunk = math.MinInt }, []string{"chunk"}},
				{"workspace negative", func(_ *paper, a any) { a.(*planArgs).Workspace = -1 }, []string{"workspace"}},
				{"workspace the least", func(_ *paper, a any) { a.(*planArgs).Workspace = math.MinInt64 }, []string{"workspace"}},
				{"workspace small", func(_ *paper, a any) { a.(*planArgs).Workspace = 1000 }, []string{"workspace"}},
			},
		},
		{
			name: "extend schedule",
			open: func(dev *paper) (any, func(runtime.Stream) error) {
				e, p := load(dev)
				a := schedule(dev, e, p)
				return a, func(s runtime.Stream) error { return e.Schedule(s, *a) }
			},
			rows: with(planRows(), map[string]row{"CuQ": {}, "KVLen": {}, "Causal": anyValue, "Buffer": {name: "schedule buffer", output: true}}),
		},
		{name: "extend", open: run(false), rows: rows, more: []mistake{
			{"q given twice", func(dev *paper, args any) { args.(*runtime.ExtendArgs).QRope = on(dev, bf16, 300, 16, 64) }, []string{"q"}},
			{"another plan than scheduled", func(dev *paper, args any) {
				a := args.(*runtime.ExtendArgs)
				e, _ := load(dev)
				other := capacity
				other.WithKeys, other.KeyTokens = 2, 1120
				a.Plan = loaded(e.Plan(other, 384, 0))
			}, []string{"plan"}},
		}},
		{name: "extend of a query in two parts", open: run(true), rows: rows},
	}
}

func layerMisuse(k *paperKernels) []misuse {
	paths := []plan.Path{plan.Absorb, plan.Expand, plan.Absorb}
	load := func(dev *paper) (*runtime.Layer, *runtime.LayerPlan) {
		l := loaded(runtime.LoadLayer(dev, k.layer))
		return l, loaded(l.Plan(layerRequests, runtime.LayerOptions{Paths: paths}))
	}
	step := func(dev *paper, p *runtime.LayerPlan) runtime.LayerStep {
		return runtime.LayerStep{Plan: p, KVLen: on(dev, s32, 3), BlockTable: on(dev, s32, 3, 9), Schedule: bytesOn(dev, p.ScheduleBytes)}
	}
	run := func(split bool) func(dev *paper) (any, func(runtime.Stream) error) {
		return func(dev *paper) (any, func(runtime.Stream) error) {
			l, p := load(dev)
			a := &runtime.LayerArgs{
				LayerStep: step(dev, p), KV: on(dev, bf16, 20, 64, 576), Weights: on(dev, bf16, 16, 256, 512),
				Workspace: bytesOn(dev, p.WorkspaceBytes), Out: on(dev, bf16, 206, 16, 128), Scale: 0.07,
			}
			if split {
				a.QNope, a.QRope = on(dev, bf16, 206, 16, 128), on(dev, bf16, 206, 16, 64)
			} else {
				a.Q = on(dev, bf16, 206, 16, 192)
			}
			scheduled(l.Schedule(dev, a.LayerStep))
			return a, func(s runtime.Stream) error { return l.Run(s, *a) }
		}
	}
	stepRows := func(prefix string) map[string]row {
		return map[string]row{prefix + "Plan": {}, prefix + "KVLen": {}, prefix + "BlockTable": tableRow, prefix + "Schedule": bufferRow}
	}
	rows := with(stepRows("LayerStep."), map[string]row{
		"Q": {}, "QNope": {blames: []string{"q_rope"}}, "QRope": {}, "KV": cacheRow, "NewTokens": {name: "new tokens"}, "Weights": {}, "Workspace": {output: true, bad: []int{16, 64}}, "Out": outputRow, "Scale": scaleRow,
	})
	another := func(dev *paper) *runtime.LayerPlan { _, p := load(dev); return p }
	type planArgs struct {
		Requests []plan.Request
		Options  runtime.LayerOptions
	}
	type capacityArgs struct {
		Capacity  runtime.LayerCapacity
		Workspace int64
	}
	rate, seconds := row{name: "card"}, row{name: "card", spread: true}
	p := func(a any) *planArgs { return a.(*planArgs) }
	return []misuse{
		{
			name: "layer plan", host: true,
			open: func(dev *paper) (any, func(runtime.Stream) error) {
				l, _ := load(dev)
				a := &planArgs{slices.Clone(layerRequests), runtime.LayerOptions{Paths: slices.Clone(paths), Card: plan.H200}}
				return a, func(runtime.Stream) error { _, err := l.Plan(a.Requests, a.Options); return err }
			},
			rows: map[string]row{
				"Requests": anyValue, "Requests[].New": {name: "requests", blames: []string{"workspace"}}, "Requests[].Prefix": {name: "requests"},
				"Options.Workspace": anyValue, "Options.Chunk": anyValue, "Options.Paths": anyValue,
				"Options.Card.Name": anyValue, "Options.Card.SMs": {name: "card", bad: []int{0}},
				"Options.Card.Decode": rate, "Options.Card.Prefill": rate, "Options.Card.UpProject": rate, "Options.Card.Absorb": rate, "Options.Card.Stream": rate,
				"Options.Card.Launch": seconds, "Options.Card.Follow": seconds, "Options.Card.Tile": seconds, "Options.Card.Group": seconds,
			},
			more: []mistake{
				{"a path less", func(_ *paper, a any) { p(a).Options.Paths = paths[:2] }, []string{"paths"}},
				{"a strange path", func(_ *paper, a any) { p(a).Options.Paths[1] = "fly" }, []string{"paths"}},
				{"workspace negative", func(_ *paper, a any) { p(a).Options.Workspace = -1 }, []string{"options", "workspace"}},
				{"workspace small", func(_ *paper, a any) { p(a).Options.Workspace = 1000 }, []string{"workspace"}},
				{"chunk negative", func(_ *paper, a any) { p(a).Options.Chunk = -1 }, []string{"options", "chunk"}},
				{"too many requests", func(_ *paper, a any) {
					p(a).Requests, p(a).Options.Paths = make([]plan.Request, 16385), nil
				}, []string{"requests"}},
			},
		},
		{
			name: "layer buffers", host: true,
			open: func(dev *paper) (any, func(runtime.Stream) error) {
				l, _ := load(dev)
				a := &capacityArgs{runtime.LayerCapacity{Requests: 3, QueryTokens: 300, KeyTokens: 3000, Context: 2000}, 1 << 30}
				return a, func(runtime.Stream) error { _, _, err := l.Buffers(a.Capacity, a.Workspace); return err }
			},
			rows: map[string]row{
				"Capacity.Requests": {}, "Capacity.QueryTokens": {name: "query tokens"}, "Capacity.KeyTokens": {name: "key tokens"}, "Capacity.Context": {}, "Workspace": anyValue,
			},
			more: []mistake{
				{"workspace negative", func(_ *paper, a any) { a.(*capacityArgs).Workspace = -1 }, []string{"workspace"}},
				{"workspace the least", func(_ *paper, a any) { a.(*capacityArgs).Workspace = math.MinInt64 }, []string{"workspace"}},
			},
		},
		{
			name: "layer schedule",
			open: func(dev *paper) (any, func(runtime.Stream) error) {
				l, p := load(dev)
				a := step(dev, p)
				return &a, func(s runtime.Stream) error { return l.Schedule(s, a) }
			},
			rows: stepRows(""),
			more: []mistake{
				{"another layer's plan", func(dev *paper, a any) { a.(*runtime.LayerStep).Plan = another(dev) }, []string{"plan"}},
				{"no layer's plan", func(_ *paper, a any) { a.(*runtime.LayerStep).Plan = &runtime.LayerPlan{} }, []string{"plan"}},
			},
		},
		{name: "layer", open: run(false), rows: rows, more: []mistake{
			{"q given twice", func(dev *paper, args any) { args.(*runtime.LayerArgs).QRope = on(dev, bf16, 206, 16, 64) }, []string{"q"}},
			{"another layer's plan", func(dev *paper, a any) { a.(*runtime.LayerArgs).Plan = another(dev) }, []string{"plan"}},
		}},
		{name: "layer of a query in two parts", open: run(true), rows: rows},
	}
}
