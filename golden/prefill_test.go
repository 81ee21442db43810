package golden_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/check"
	"github.com/mlagen/mlagen/golden/faults"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
	"github.com/mlagen/mlagen/templates"
)

// prefillBlocks are the shapes of tiles that prefill is built with: query
// tokens, key tokens, stages (0: the default).
var prefillBlocks = [][3]int{
	{128, 128, 0}, {128, 112, 0}, {128, 96, 0}, {128, 80, 3}, {128, 64, 0}, {128, 64, 3}, {192, 96, 0}, {192, 80, 0}, {192, 64, 3},
}

// TestPrefillUnderManySchedules: whichever copy lands first and whichever warp
// goes first, prefill is right, gives the same bits, and no observer finds or
// doubts anything, with every shape of tiles.
func TestPrefillUnderManySchedules(t *testing.T) {
	for _, c := range []struct {
		heads, sms int
		fields     string
	}{
		{2, 2, `"q_len": [150, 20, 0, 5], "kv_len": [420, 70, 9, 3]`},
		{1, 1, `"q_len": [70, 129, 64], "kv_len": [400, 129, 0], "causal": false, "layout": {"q": "split", "out": "padded"}, "dtype": "fp16"`},
		{1, 1, `"q_len": [200], "kv_len": [190], "fill": {"q": "normal*8", "kv": "normal*2"}`}, // references that are outgrown, rows without a key
		{1, 2, `"q_len": [1, 1, 1, 1, 1, 1], "kv_len": [0, 0, 1, 300, 0, 2]`},
	} {
		for _, b := range prefillBlocks {
			t.Run(fmt.Sprintf("%dx%d,stages=%d,heads=%d,sms=%d,%s", b[0], b[1], b[2], c.heads, c.sms, strings.ReplaceAll(c.fields, `"`, "")), func(t *testing.T) {
				parsed, err := cases.Parse([]byte(fmt.Sprintf(
					`{"name": "schedules", "op": "prefill", "model": {"heads": %d, "latent": 512, "rope": 64, "nope": 128, "value": 128}, %s}`, c.heads, c.fields)))
				must(t, err)
				driver, err := emu.Open(emu.Options{Programs: programs, SMs: c.sms})
				must(t, err)
				r := check.New(check.Options{
					Driver: driver, Source: source{templates.Spec{BlockM: b[0], BlockN: b[1], Stages: b[2]}}, Hazards: true, Seeds: scheduleCount(),
					Inspect: func(uint64) error { return findings(driver) },
				})
				if outcome := r.Case(parsed); outcome.Status != check.OK {
					t.Error(outcome)
				}
				must(t, r.Close())
			})
		}
	}
}

// TestPrefillCasesWithThreeWarpgroups: the conformance cases hold with tiles of
// 192 × 96 as well.
func TestPrefillCasesWithThreeWarpgroups(t *testing.T) {
	files, err := filepath.Glob("cases/testdata/prefill-*.json")
	must(t, err)
	if len(files) < 20 {
		t.Errorf("only %d cases", len(files))
	}
	for _, file := range files {
		c, err := cases.Read(file)
		must(t, err)
		t.Run(c.Name, func(t *testing.T) { runState(t, c, source{templates.Spec{BlockM: 192}}, 1) })
	}
}

// TestPrefillWaits: a prefill whose query is the output of the prefill before
// it, which lets dependents start early, waits for that; without the wait the
// observers tell.
func TestPrefillWaits(t *testing.T) {
	chain := func(v runtime.PrefillVariants) error {
		t.Helper()
		driver, err := emu.Open(emu.Options{Programs: programs, SMs: 2})
		must(t, err)
		s, err := driver.NewStream()
		must(t, err)
		p, err := runtime.LoadPrefill(driver, v)
		must(t, err)
		defer func() { must(t, p.Close()) }()
		const tokens, keys = 140, 150
		up := uploader{t, driver, rand.New(rand.NewPCG(1, 29))}
		random := func(name string, shape ...int64) runtime.Tensor { return up.random(name, runtime.BF16, shape...) }
		schedule := runtime.Buffer{Bytes: p.ScheduleBytes(1, tokens)}
		schedule.Ptr, err = driver.Alloc("schedule", schedule.Bytes)
		must(t, err)
		must(t, p.Schedule(s, runtime.PrefillScheduleArgs{
			Sequences: 1, QueryTokens: tokens, KeyTokens: keys, CuQ: up.ints("cu_q", 0, tokens), CuK: up.ints("cu_k", 0, keys), Causal: true, Buffer: schedule,
		}))
		lse, err := driver.Alloc("lse", 4*tokens)
		must(t, err)
		a := runtime.PrefillArgs{
			Sequences: 1, QNope: random("q", tokens, 1, 128), QRope: random("q", tokens, 1, 64), KVUp: random("kv_up", keys, 1, 256), KRope: random("k_rope", keys, 64),
			Schedule: schedule, LSE: runtime.Dense(lse, runtime.F32, tokens, 1), Scale: 0.07,
		}
		for range 3 {
			a.Out = random("out", tokens, 1, 128)
			if err := p.Run(s, a); err != nil {
				return err
			}
			a.QNope = a.Out
		}
		must(t, s.Synchronize())
		return findings(driver)
	}
	v, err := source{}.Prefill(runtime.PrefillShape{Heads: 1, Nope: 128, Rope: 64, Value: 128, DType: runtime.BF16})
	must(t, err)
	if err := chain(v); err != nil {
		t.Error(err)
	}
	// The attending warps get their work by message, from the warp that loads.
	v.Attend, err = withFault(v.Attend, faults.Fault{Kernel: "expand_prefill", Pattern: `^\tgriddepcontrol\.wait;\n`, Nth: 1})
	must(t, err)
	if err := chain(v); err == nil || !strings.Contains(err.Error(), "missing-grid-dependency") {
		t.Errorf("loading without waiting for the grid before was not found: %v", err)
	}
}
