package golden_test

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

// compareOne holds the launches that a runtime's call makes with random
// arguments against those by the rules of its only kernel.
func compareOne(t *testing.T, kernel string, s templates.Spec, load func(runtime.Driver, runtime.Variant) (run func(runtime.Stream, *call) error, close func() error)) {
	t.Helper()
	random := rand.New(rand.NewPCG(7, 8))
	n := &notebook{}
	v := kernelVariant(t, kernel, s)
	for i := range 12 {
		n.sms = []int{1, 132}[i%2]
		run, closed := load(n, v)
		rules := loadLaunched(t, n, v)
		stream, _ := n.NewStream()
		c := randomCall(t, rules, random)
		n.take()
		if err := run(stream, c); err != nil {
			t.Fatalf("%s %+v: %v", kernel, s, err)
		}
		want := n.take()
		rules.launch(0, stream, c)
		if diff := cmp.Diff(want, n.take()); diff != "" {
			t.Fatalf("%s %+v, %+v: the runtime and the rules launch otherwise:\n%s", kernel, s, c.integers, diff)
		}
		must(t, closed())
	}
}

func TestProductLaunchRules(t *testing.T) {
	for _, s := range []templates.Spec{{}, {Heads: 5, DType: "fp16"}, {BlockM: 8}, {BlockM: 64}} {
		compareOne(t, "absorb-q", s, func(drv runtime.Driver, v runtime.Variant) (func(runtime.Stream, *call) error, func() error) {
			a, err := runtime.LoadAbsorbQuery(drv, v)
			must(t, err)
			return func(stream runtime.Stream, c *call) error {
				if len(c.tensors["q_rope"].Shape) == 0 || len(c.tensors["out_rope"].Shape) == 0 { // both or none
					c.tensors["q_rope"], c.tensors["out_rope"] = runtime.Tensor{}, runtime.Tensor{}
				}
				return a.Run(stream, runtime.AbsorbQueryArgs{QNope: c.tensors["q_nope"], QRope: c.tensors["q_rope"], Weights: c.tensors["weights"],
					OutLatent: c.tensors["out_latent"], OutRope: c.tensors["out_rope"]})
			}, a.Close
		})
	}
	for _, s := range []templates.Spec{{}, {Heads: 5, DType: "fp16"}, {BlockM: 16}} {
		compareOne(t, "absorb-o", s, func(drv runtime.Driver, v runtime.Variant) (func(runtime.Stream, *call) error, func() error) {
			a, err := runtime.LoadAbsorbOutput(drv, v)
			must(t, err)
			return func(stream runtime.Stream, c *call) error {
				return a.Run(stream, runtime.AbsorbOutputArgs{Latent: c.tensors["latent"], Weights: c.tensors["weights"], Out: c.tensors["out"]})
			}, a.Close
		})
	}
	for _, s := range []templates.Spec{{}, {Heads: 1, DType: "fp16"}} {
		compareOne(t, "up-project", s, func(drv runtime.Driver, v runtime.Variant) (func(runtime.Stream, *call) error, func() error) {
			u, err := runtime.LoadUpProject(drv, v)
			must(t, err)
			return func(stream runtime.Stream, c *call) error {
				return u.Run(stream, runtime.UpProjectArgs{KV: c.tensors["kv"], BlockTable: c.tensors["block_table"], FirstToken: c.tensors["first_token"],
					CuSeqlens: c.tensors["cu_seqlens"], Weights: c.tensors["weights"], KVUp: c.tensors["kv_up"], KRope: c.tensors["k_rope"]})
			}, u.Close
		})
	}
}

func TestAppendLaunchRules(t *testing.T) {
	for _, s := range []templates.Spec{{}, {Rotate: "half", DType: "fp16"}, {Rotate: "interleaved", Rope: 128}} {
		compareOne(t, "append-kv", s, func(drv runtime.Driver, v runtime.Variant) (func(runtime.Stream, *call) error, func() error) {
			a, err := runtime.LoadAppendKV(drv, v)
			must(t, err)
			return func(stream runtime.Stream, c *call) error {
				if sin, ok := c.tensors["sin"]; ok { // as many positions as the cosines have
					sin.Shape[0] = c.tensors["cos"].Shape[0]
				}
				return a.Run(stream, runtime.AppendArgs{Latent: c.tensors["latent"], RopeKey: c.tensors["rope_key"], KV: c.tensors["kv"], Slots: c.tensors["slots"],
					Positions: c.tensors["positions"], Cos: c.tensors["cos"], Sin: c.tensors["sin"]})
			}, a.Close
		})
	}
}
