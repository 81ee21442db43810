package golden_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/check"
	"github.com/mlagen/mlagen/golden/faults"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
	"github.com/mlagen/mlagen/templates"
)

// runProduct runs a case of op on so many multiprocessors with tiles of tune; it
// must pass without a finding, and give the same bits under every schedule.
func runProduct(t *testing.T, op, fields string, tune templates.Spec, sms, seeds int) {
	t.Helper()
	c, err := cases.Parse([]byte(fmt.Sprintf(`{"name": "products", "op": %q, %s}`, op, fields)))
	must(t, err)
	driver, err := emu.Open(emu.Options{Programs: programs, SMs: sms})
	must(t, err)
	r := check.New(check.Options{Driver: driver, Source: source{tune}, Hazards: true, Seeds: seeds, Inspect: func(uint64) error { return findings(driver) }})
	if outcome := r.Case(c); outcome.Status != check.OK {
		t.Errorf("%v\n%s, tiles %+v, %d SMs", outcome, fields, tune, sms)
	}
	must(t, r.Close())
}

// model is the model of a case.
func model(heads, latent, rope, nope, value int) string {
	return fmt.Sprintf(`"model": {"heads": %d, "latent": %d, "rope": %d, "nope": %d, "value": %d}`, heads, latent, rope, nope, value)
}

// TestProductsUnderManySchedules: whichever copy lands first, whichever warp or
// CTA of a cluster goes first, products are right and give the same bits with
// every shape of tiles, rings that wrap within a tile included.
func TestProductsUnderManySchedules(t *testing.T) {
	small := model(2, 128, 64, 128, 128)
	for _, c := range []struct {
		op, fields string
		sms        int
		tiles      []templates.Spec
	}{
		// Fewer row tiles than clusters, and more; one of which has no partner.
		{"upproject", small + `, "kv_len": [200, 0, 70, 1, 64]`, 4, []templates.Spec{{}, {Cluster: 1}, {Cluster: 4}, {BlockN: 64}, {BlockN: 32, Stages: 7}, {Stages: 2}, {Cluster: 1, Stages: 3}}},
		{"upproject", small + `, "kv_len": [250, 90], "chunk": 150, "dtype": "fp16", "layout": {"out": "padded"}`, 2, []templates.Spec{{}, {Cluster: 1, BlockN: 64}, {Stages: 3}}},
		{"upproject", model(3, 128, 64, 64, 64) + `, "kv_len": [130, 300]`, 2, []templates.Spec{{}, {Cluster: 1}, {BlockN: 32, Stages: 5}}},
		{"absorb", small + `, "q_len": 9`, 3, []templates.Spec{{BlockM: 16}, {BlockM: 16, BlockN: 128, Stages: 3}, {BlockM: 8, Stages: 2}, {BlockM: 8, BlockN: 64}, {BlockM: 128}}},
		{"absorb", small + `, "q_len": 130, "dtype": "fp16"`, 3, []templates.Spec{{}, {BlockM: 120}, {BlockM: 24, BlockN: 64}, {BlockM: 128, BlockN: 64, Stages: 2}, {BlockM: 256, BlockN: 128}, {BlockM: 128, Stages: 4}}},
		{"absorb", small + `, "q_len": 300, "layout": {"q": "split", "out": "padded"}`, 2, []templates.Spec{{}, {BlockM: 64, BlockN: 128}, {BlockM: 256, BlockN: 64, Stages: 3}}},
	} {
		for _, tune := range c.tiles {
			t.Run(fmt.Sprintf("%s,%dx%d,stages=%d,cluster=%d,%s", c.op, tune.BlockM, tune.BlockN, tune.Stages, tune.Cluster, strings.ReplaceAll(c.fields[len(small)-20:], `"`, "")), func(t *testing.T) {
				runProduct(t, c.op, c.fields, tune, c.sms, scheduleCount())
			})
		}
	}
}

// TestRandomProducts draws models, tiles, devices, lengths, layouts and
// contents. A trial's number is its seed.
func TestRandomProducts(t *testing.T) {
	trials := 10
	if testing.Short() {
		trials = 4
	}
	for i := range trials {
		seed := uint64(i + *firstTrial)
		r := rand.New(rand.NewPCG(seed, 31))
		for _, op := range []string{"upproject", "absorb"} {
			t.Run(fmt.Sprintf("%s/%d", op, seed), func(t *testing.T) {
				heads, latent, nope, value := 1+r.IntN(3), 64*(1+r.IntN(8)), 64*(1+r.IntN(3)), 64*(1+r.IntN(3))
				fields := model(heads, latent, pick(r, 64, 64, 128, 8, 72), nope, value) + fmt.Sprintf(`, "dtype": %q, "seed": %d, "layout": {"out": %q, "q": %q`,
					pick(r, "bf16", "fp16"), seed, pick(r, "dense", "padded"), pick(r, "joint", "split"))
				tune := drawTiles(r, op, latent, nope, value)
				if op == "absorb" {
					fields += fmt.Sprintf(`}, "q_len": %d`, pick(r, 0, 1, 7, 8, 1+r.IntN(64), 1+r.IntN(300)))
				} else {
					var lengths []string
					for range r.IntN(5) {
						lengths = append(lengths, fmt.Sprint(pick(r, 0, 1, 64, 128, r.IntN(300))))
					}
					fields += fmt.Sprintf(`}, "kv_len": [%s], "chunk": %d, "pages": {"order": %q, "tail": %d}, "fill": {"unused": %q}`,
						strings.Join(lengths, ", "), pick(r, 0, 0, 64, 37+r.IntN(200)), pick(r, "identity", "reversed", "scattered"), pick(r, -1, 1<<30), pick(r, "nan", "inf"))
				}
				runProduct(t, op, fields, tune, pick(r, 1, 2, 3, 5, 132), 2)
			})
		}
	}
}

// drawTiles draws what the kernels of an operation can be built with.
func drawTiles(r *rand.Rand, op string, latent, nope, value int) templates.Spec {
	builds := func(kernel string, s templates.Spec) bool {
		rows := []int{s.BlockM}
		if op == "absorb" && s.BlockM == 0 {
			rows = templates.AbsorbRows(kernel, 0)
		}
		for _, s.BlockM = range rows {
			if _, err := templates.Build(kernel, s); err != nil {
				return false
			}
		}
		return true
	}
	for range 100 {
		s := templates.Spec{Latent: latent, Nope: nope, Value: value, Stages: pick(r, 0, 0, 2, 3, 4)}
		if op == "upproject" {
			s.BlockN, s.Cluster = pick(r, 0, 0, 32, 64, 96, 128, 160), pick(r, 0, 1, 2, 4)
			if builds("up-project", s) {
				return s
			}
			continue
		}
		s.BlockM, s.BlockN = pick(r, 0, 0, 8, 16, 24, 40, 64, 96, 120, 128, 256), pick(r, 0, 0, 64, 128, 192, 256)
		if o := s; builds("absorb-q", s) {
			if o.BlockN > 0 && value%o.BlockN != 0 {
				o.BlockN = 0
			}
			if builds("absorb-o", o) {
				return s
			}
		}
	}
	return templates.Spec{Latent: latent, Nope: nope, Value: value} // the defaults, which build
}

// TestProductsWait: a product whose rows are another's result, which lets
// dependents start early, waits for that; without the wait the observers tell.
func TestProductsWait(t *testing.T) {
	const tokens, heads = 20, 2
	shape := runtime.AbsorbShape{Heads: heads, Latent: 256, Rope: 64, Nope: 128, Value: 128, DType: runtime.BF16, Tokens: tokens}
	chain := func(rows int, change func(v *runtime.Variant)) error {
		t.Helper()
		driver, err := emu.Open(emu.Options{Programs: programs, SMs: 2})
		must(t, err)
		s, err := driver.NewStream()
		must(t, err)
		made := source{templates.Spec{BlockM: rows}}
		queries, err := made.AbsorbQuery(shape)
		must(t, err)
		outputs, err := made.AbsorbOutput(shape)
		must(t, err)
		change(&outputs[0])
		q, err := runtime.LoadAbsorbQuery(driver, queries...)
		must(t, err)
		o, err := runtime.LoadAbsorbOutput(driver, outputs...)
		must(t, err)
		up := uploader{t, driver, rand.New(rand.NewPCG(1, 37))}
		random := func(name string, shape ...int64) runtime.Tensor { return up.random(name, runtime.BF16, shape...) }
		keys, values := runtime.SplitWeights(random("weights", heads, 256, 256), 128)
		input := random("q", tokens, heads, 128)
		for range 2 { // a query of the first output is the second's
			latent, out := random("latent", tokens, heads, 256), random("out", tokens, heads, 128)
			must(t, q.Run(s, runtime.AbsorbQueryArgs{QNope: input, Weights: keys, OutLatent: latent}))
			if err := o.Run(s, runtime.AbsorbOutputArgs{Latent: latent, Weights: values, Out: out}); err != nil {
				return err
			}
			input = out
		}
		must(t, s.Synchronize())
		must(t, q.Close())
		must(t, o.Close())
		return findings(driver)
	}
	for _, rows := range []int{24, 128} {
		if err := chain(rows, func(*runtime.Variant) {}); err != nil {
			t.Errorf("%d rows: %v", rows, err)
		}
		// Warps that multiply come after the wait of the warp that brings rows.
		found := false
		for nth := range 4 {
			err := chain(rows, func(v *runtime.Variant) {
				faulty, err := withFault(*v, faults.Fault{Kernel: "absorb_o", Pattern: `^\tgriddepcontrol\.wait;\n`, Nth: nth})
				if err != nil {
					return // no such wait
				}
				*v = faulty
			})
			found = found || err != nil && strings.Contains(err.Error(), "missing-grid-dependency: reads latent")
		}
		if !found {
			t.Errorf("%d rows: rows that are loaded without waiting for the grid before were not found", rows)
		}
	}
}
