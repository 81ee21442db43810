package golden_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/check"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
	"github.com/mlagen/mlagen/templates"
)

// TestExtendCasesUnderManySchedules: extending is right, gives the same bits,
// and no observer finds or doubts anything.
func TestExtendCasesUnderManySchedules(t *testing.T) {
	files, err := filepath.Glob("cases/testdata/extend-*.json")
	must(t, err)
	if len(files) < 14 {
		t.Errorf("only %d cases", len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c, err := cases.Read(file)
			must(t, err)
			runState(t, c, source{}, min(2, scheduleCount()))
		})
	}
}

// TestExtendWithThreeWarpgroups: extending is right with tiles of 192 queries as
// well, those for which registers hold two tiles' scores and those for which they
// do not.
func TestExtendWithThreeWarpgroups(t *testing.T) {
	for _, n := range []int{96, 80} {
		for _, more := range []string{
			`"q_len": [200, 1, 0, 33], "kv_len": [430, 300, 9, 33], "chunk": 256, "fill": {"q": "normal*6"}, "tolerance": {"out": 1e-2, "lse": 1e-2}`,
			`"q_len": [250], "kv_len": [190], "chunk": 128, "dtype": "fp16", "layout": {"q": "split", "out": "padded"}`,
		} {
			t.Run(fmt.Sprint(n, " ", strings.ReplaceAll(more, `"`, "")), func(t *testing.T) {
				c, err := cases.Parse([]byte(`{"name": "wide", "op": "extend", "model": {"heads": 2, "latent": 512, "rope": 64, "nope": 128, "value": 128}, ` + more + `}`))
				must(t, err)
				runState(t, c, source{templates.Spec{BlockM: 192, BlockN: n}}, min(2, scheduleCount()))
			})
		}
	}
}

// extended runs a case and returns the bytes of its results.
func extended(t *testing.T, c *cases.Case, s source) (out, lse []byte) {
	t.Helper()
	driver, err := emu.Open(emu.Options{Programs: programs, SMs: 3})
	must(t, err)
	dir := t.TempDir()
	r := check.New(check.Options{Driver: driver, Source: s, Hazards: true, Seeds: 1, Dump: dir})
	if outcome := r.Case(c); outcome.Status != check.OK {
		t.Fatal(outcome)
	}
	must(t, r.Close())
	out, err = os.ReadFile(filepath.Join(dir, c.Name, "out.npy"))
	must(t, err)
	lse, err = os.ReadFile(filepath.Join(dir, c.Name, "lse.npy"))
	must(t, err)
	return out, lse
}

// TestExtendIsTheSameInAnyChunks: where chunks end shows in no bit, since a
// block's state is carried on unrounded and sequences are cut between tiles.
func TestExtendIsTheSameInAnyChunks(t *testing.T) {
	for _, text := range []string{
		`"model": {"heads": 2, "latent": 512, "rope": 64, "nope": 128, "value": 128}, "q_len": [150, 1, 33], "kv_len": [430, 300, 33], "fill": {"q": "normal*6"}, "tolerance": {"out": 1e-2, "lse": 1e-2}`,
		`"model": {"heads": 1, "latent": 512, "rope": 64, "nope": 128, "value": 128}, "q_len": [20, 5], "kv_len": [390, 520], "dtype": "fp16", "lse_base": "2"`,
	} {
		for _, tune := range []templates.Spec{{}, {BlockM: 192}} {
			var out, lse []byte
			for _, chunk := range []int{0, 128, 256, 640} {
				c, err := cases.Parse([]byte(fmt.Sprintf(`{"name": "chunks", "op": "extend", %s, "chunk": %d}`, text, chunk)))
				must(t, err)
				o, l := extended(t, c, source{tune})
				if out == nil {
					out, lse = o, l
				}
				if !bytes.Equal(out, o) || !bytes.Equal(lse, l) {
					t.Errorf("chunks of %d give other bits than all keys in one, with tiles %+v: %s", chunk, tune, text)
				}
			}
		}
	}
}

// TestRandomExtends: extends of random shapes are right.
func TestRandomExtends(t *testing.T) {
	trials := 24
	if testing.Short() {
		trials = 4
	}
	for i := range trials {
		seed := uint64(i + *firstTrial)
		r := rand.New(rand.NewPCG(seed, 23))
		heads, sequences := 1+r.IntN(3), r.IntN(5)
		var news, all []int
		for range sequences {
			n, k := r.IntN(pick(r, 3, 20, 140, 300)), r.IntN(pick(r, 2, 100, 300, 600))
			if r.IntN(4) > 0 {
				k += n // else there may be more queries than keys
			}
			news, all = append(news, n), append(all, k)
		}
		list := func(x []int) string {
			return "[" + strings.Trim(strings.ReplaceAll(fmt.Sprint(x), " ", ","), "[]") + "]"
		}
		text := fmt.Sprintf(`{"name": "extend-%d", "op": "extend", "model": {"heads": %d, "latent": 512, "rope": 64, "nope": 128, "value": 128},
			"dtype": %q, "lse_base": %q, "q_len": %s, "kv_len": %s, "chunk": %d, "causal": %v, "layout": {"q": %q, "out": %q}, "seed": %d,
			"pages": {"tail": %d}, "fill": {"unused": %q}, "tolerance": {"out": 5e-3, "lse": 2e-3}}`,
			seed, heads, pick(r, "bf16", "fp16"), pick(r, "e", "2"), list(news), list(all), pick(r, 0, 100, 128, 200, 256, 384, 500), r.IntN(5) > 0,
			pick(r, "joint", "split"), pick(r, "dense", "padded"), seed, pick(r, -1, 2147480000), pick(r, "nan", "inf"))
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c, err := cases.Parse([]byte(text))
			must(t, err)
			s := source{}
			if r.IntN(3) == 0 {
				s.tune = templates.Spec{BlockN: pick(r, 64, 80, 96, 112)}
			}
			driver, err := emu.Open(emu.Options{Programs: programs, SMs: pick(r, 1, 2, 3, 5, 8), Seed: r.Uint64()})
			must(t, err)
			run := check.New(check.Options{Driver: driver, Source: s, Hazards: true, Seeds: 1, Inspect: func(uint64) error { return findings(driver) }})
			if outcome := run.Case(c); outcome.Status != check.OK {
				t.Errorf("%v\n%s, -block-n %d", outcome, text, s.tune.BlockN)
			}
			must(t, run.Close())
		})
	}
}

// TestExtendStopsAtLengthsBeyondThePlan: lengths that the plan has no room for
// must not give a result.
func TestExtendStopsAtLengthsBeyondThePlan(t *testing.T) {
	driver, err := emu.Open(emu.Options{Programs: programs, SMs: 2})
	must(t, err)
	v, err := source{}.Extend(runtime.ExtendShape{Heads: 1, Latent: 512, Rope: 64, Nope: 128, Value: 128, Page: 64, DType: runtime.BF16})
	must(t, err)
	e, err := runtime.LoadExtend(driver, v)
	must(t, err)
	plan, err := e.Plan(runtime.ExtendCapacity{Sequences: 2, QueryTokens: 200, KeyTokens: 600, MostQueries: 128}, 256, 0)
	must(t, err)
	upload := func(x ...int32) runtime.Tensor {
		p, err := driver.Alloc("lengths", int64(4*len(x)))
		must(t, err)
		var raw []byte
		for _, v := range x {
			raw = append(raw, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
		}
		must(t, driver.Upload(p, raw))
		return runtime.Dense(p, runtime.S32, int64(len(x)))
	}
	buffer, err := driver.Alloc("schedule", plan.ScheduleBytes)
	must(t, err)
	for _, c := range []struct {
		cuQ, kvLen runtime.Tensor
		stops      bool
	}{
		{upload(0, 100, 200), upload(300, 300), false},
		{upload(0, 100, 200), upload(500, 400), true},
		{upload(0, 100, 200), upload(math.MaxInt32, math.MaxInt32), true},
		{upload(0, 100, 200), upload(1<<30, 1<<30), true},
		{upload(0, 140, 200), upload(300, 300), true},   // more queries of a sequence than there are states for
		{upload(0, 140, 200), upload(140, 300), false},  // none of which is carried on
		{upload(0, 100, 200), upload(-5, 300), false},   // no key
		{upload(150, 100, 200), upload(300, 30), false}, // cu_q falls: nothing of the first
	} {
		s, err := driver.NewStream()
		must(t, err)
		err = e.Schedule(s, runtime.ExtendScheduleArgs{Plan: plan, CuQ: c.cuQ, KVLen: c.kvLen, Causal: true, Buffer: runtime.Buffer{Ptr: buffer, Bytes: plan.ScheduleBytes}})
		if err == nil {
			err = s.Synchronize()
		}
		if (err != nil) != c.stops {
			t.Errorf("cu_q %+v, kv_len %+v: %v, must stop %v", c.cuQ, c.kvLen, err, c.stops)
		}
		_ = s.Destroy()
	}
	must(t, e.Close())
}
