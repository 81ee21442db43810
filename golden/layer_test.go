package golden_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sbinet/npyio"

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
			driver, err := emu.Open(emu.Options{Programs: programs, SMs: pick(r, 1, 2, 3, 5), Seed: r.Uint64()})
			must(t, err)
			run := check.New(check.Options{Driver: driver, Source: source{}, Hazards: true, Seeds: 1, Inspect: func(uint64) error { return findings(driver) }})
			if outcome := run.Case(c); outcome.Status != check.OK {
				t.Errorf("%v\n%s", outcome, text)
			}
			must(t, run.Close())
		})
	}
}

// layered runs a layer case and returns its output and what was planned.
func layered(t *testing.T, text string) (out []float32, notes string) {
	t.Helper()
	c, err := cases.Parse([]byte(text))
	must(t, err)
	driver, err := emu.Open(emu.Options{Programs: programs, SMs: 3})
	must(t, err)
	dir := t.TempDir()
	run := check.New(check.Options{Driver: driver, Source: source{}, Hazards: true, Seeds: 1, Dump: dir, Inspect: func(uint64) error { return findings(driver) }})
	outcome := run.Case(c)
	if outcome.Status != check.OK {
		t.Fatalf("%v\n%s", outcome, text)
	}
	must(t, run.Close())
	f, err := os.Open(filepath.Join(dir, c.Name, "out.npy"))
	must(t, err)
	defer f.Close()
	must(t, npyio.Read(f, &out))
	return out, outcome.Notes
}

// TestLayerPathsAgree: absorbing and expanding give the same output from the same
// weights, but for rounding, as both are the same mathematics.
func TestLayerPathsAgree(t *testing.T) {
	text := `{"name": "paths", "op": "layer", "model": {"heads": 2, "latent": 512, "rope": 64, "nope": 128, "value": 128},
		"q_len": [6, 130, 1, 33], "kv_len": [6, 200, 300, 20], "paths": [%[1]q, %[1]q, %[1]q, %[1]q], "tolerance": {"out": 1e-2}}`
	absorbed, notes := layered(t, fmt.Sprintf(text, "absorb"))
	if !strings.HasPrefix(notes, "4 absorbed") {
		t.Error(notes)
	}
	expanded, notes := layered(t, fmt.Sprintf(text, "expand"))
	if !strings.HasPrefix(notes, "4 expanded") {
		t.Error(notes)
	}
	const width, rows = 128, (6 + 130 + 1 + 33) * 2
	if len(absorbed) != rows*width || len(expanded) != rows*width {
		t.Fatal(len(absorbed), len(expanded))
	}
	for row := range rows {
		var diff, norm float64
		for i := row * width; i < (row+1)*width; i++ {
			a, e := float64(absorbed[i]), float64(expanded[i])
			diff, norm = diff+(a-e)*(a-e), norm+e*e
		}
		if diff > 1e-4*norm {
			t.Errorf("row %d: the paths are %.2e apart", row, math.Sqrt(diff/norm))
		}
	}
}

// TestLayerInSmallWorkspaces: what does not fit at once is computed in several
// goes, and a request may be cut anywhere.
func TestLayerInSmallWorkspaces(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`"q_len": [40, 1, 1, 30], "kv_len": [90, 64, 200, 31], "paths": ["absorb", "absorb", "absorb", "absorb"], "workspace": 150000`, "4 absorbed in 5 goes"},
		{`"q_len": [1, 1, 1, 1, 1, 1, 1], "kv_len": [90, 64, 200, 31, 1, 0, 130], "paths": ["absorb", "absorb", "absorb", "absorb", "absorb", "absorb", "absorb"], "workspace": 110000`, "7 absorbed in 4 goes"},
		{`"q_len": [3, 400, 1, 20], "kv_len": [60, 500, 200, 31], "paths": ["expand", "expand", "expand", "expand"], "workspace": 300000`, "4 expanded in 3 goes"},
		{`"q_len": [1, 300, 300], "kv_len": [200, 300, 450], "paths": ["absorb", "expand", "expand"], "workspace": 350000`, "1 absorbed; 2 expanded in 2 goes"},
	} {
		_, notes := layered(t, `{"name": "goes", "op": "layer", "model": {"heads": 1, "latent": 512, "rope": 64, "nope": 128, "value": 128}, "tolerance": {"out": 1e-2}, `+c.text+`}`)
		if !strings.HasPrefix(notes, c.want) {
			t.Errorf("%s: %s, want %s", c.text, notes, c.want)
		}
	}
}
