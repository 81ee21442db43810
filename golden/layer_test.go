package golden_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/check"
	"github.com/mlagen/mlagen/runtime/emu"
)

// TestLayerCasesUnderManySchedules: the layer is right whichever way its requests
// are computed, gives the same bits, and no observer finds or doubts anything.
func TestLayerCasesUnderManySchedules(t *testing.T) {
	files, err := filepath.Glob("cases/testdata/layer-*.json")
	must(t, err)
	if len(files) < 12 {
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

// TestRandomLayers: batches of random requests are right on random paths.
func TestRandomLayers(t *testing.T) {
	trials := 16
	if testing.Short() {
		trials = 3
	}
	for i := range trials {
		seed := uint64(i + *firstTrial)
		r := rand.New(rand.NewPCG(seed, 29))
		heads, requests := 1+r.IntN(3), r.IntN(7)
		var news, all []int
		var paths []string
		for range requests {
			n, k := pick(r, 1, 1, 1, r.IntN(6), r.IntN(40), r.IntN(160)), r.IntN(pick(r, 2, 100, 300))
			if len(news) > 0 && r.IntN(3) == 0 {
				n = news[len(news)-1]
			}
			if r.IntN(5) > 0 {
				k += n // else there may be more queries than keys
			}
			news, all, paths = append(news, n), append(all, k), append(paths, pick(r, `"absorb"`, `"absorb"`, `"expand"`))
		}
		if r.IntN(4) == 0 {
			paths = nil
		}
		list := func(x []int) string {
			return "[" + strings.Trim(strings.ReplaceAll(fmt.Sprint(x), " ", ","), "[]") + "]"
		}
		text := fmt.Sprintf(`{"name": "layer-%d", "op": "layer", "model": {"heads": %d, "latent": 512, "rope": 64, "nope": 128, "value": 128},
			"dtype": %q, "q_len": %s, "kv_len": %s, "paths": [%s], "chunk": %d, "workspace": %d, "layout": {"q": %q, "out": %q}, "seed": %d,
			"pages": {"tail": %d}, "fill": {"unused": %q}, "tolerance": {"out": 1e-2}}`,
			seed, heads, pick(r, "bf16", "fp16"), list(news), list(all), strings.Join(paths, ","), pick(r, 0, 128, 256),
			pick(r, 0, 3<<20), pick(r, "joint", "split"), pick(r, "dense", "padded"), seed, pick(r, -1, 2147480000), pick(r, "nan", "inf"))
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c, err := cases.Parse([]byte(text))
			must(t, err)
			driver, err := emu.Open(emu.Options{SMs: pick(r, 1, 2, 3, 5), Seed: r.Uint64()})
			must(t, err)
			run := check.New(check.Options{Driver: driver, Source: source{}, Hazards: true, Seeds: 1, Inspect: func(uint64) error { return findings(driver) }})
			if outcome := run.Case(c); outcome.Status != check.OK {
				t.Errorf("%v\n%s", outcome, text)
			}
			must(t, run.Close())
		})
	}
}
