package golden_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/check"
	"github.com/mlagen/mlagen/runtime/faulty"
)

// FuzzCase: whatever a case file says, running it on a device ends with an outcome
// in bounded time, and everything is given back. The device's kernels do nothing,
// so that no outcome is good.
func FuzzCase(f *testing.F) {
	files, _ := filepath.Glob("cases/testdata/*.json")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	from := paperSource{made: map[string]any{}}
	f.Fuzz(func(t *testing.T, text []byte) {
		hollowCase(t, from, text)
	})
}

// hollowCase runs a case of moderate size, if text is one, on a device whose
// kernels do nothing. It reports whether it did.
func hollowCase(t *testing.T, from paperSource, text []byte) bool {
	c, err := cases.Parse(text)
	if err != nil || c.Elements() > 1<<18 || c.Repeat > 3 || len(from.made) > 1<<10 {
		return false
	}
	hollow := faulty.NewHollow()
	hollow.Sizes.MemoryBytes = 64 << 20
	d := faulty.New(hollow)
	begin := time.Now()
	r := check.New(check.Options{Driver: d.Device(), Source: from})
	outcome := r.Case(c)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if outcome.Status == check.Failed && outcome.Reason == "" || strings.Contains(outcome.Reason, "panic") {
		t.Errorf("%+v", outcome)
	}
	if held := d.Held(); len(held) > 0 {
		t.Errorf("not given back: %v", held)
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
	return true
}

var caseMutants = flag.Int("case-mutants", 6, "mutants of every conformance case")

// TestMutatedCases puts extreme numbers, and strings of other fields, in the places
// of a case's values: it is refused, or runs to an outcome.
func TestMutatedCases(t *testing.T) {
	files, err := filepath.Glob("cases/testdata/*.json")
	must(t, err)
	from := paperSource{made: map[string]any{}}
	made, ran := 0, 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		for i := range *caseMutants {
			seed := uint64(i + *firstTrial)
			mutant, how := mutateCase(t, rand.New(rand.NewPCG(seed, 5)), text)
			made++
			ok := func() bool {
				defer func() {
					if p := recover(); p != nil {
						t.Errorf("%s, mutation %d, %s: panic: %v\n%s", filepath.Base(file), seed, how, p, debug.Stack())
					}
				}()
				return hollowCase(t, from, mutant)
			}()
			if ok {
				ran++
			}
			if t.Failed() {
				t.Fatalf("%s, mutation %d, %s", filepath.Base(file), seed, how)
			}
		}
	}
	t.Logf("%d of %d mutants ran", ran, made)
	if ran == 0 || ran == made {
		t.Errorf("%d of %d mutants ran: the mutations are too strong or too weak", ran, made)
	}
}

// mutateCase changes a case in one or two places, and says how.
func mutateCase(t *testing.T, r *rand.Rand, text []byte) (mutant []byte, how string) {
	var c map[string]any
	must(t, json.Unmarshal(text, &c))
	defaults := cases.Default() // fields that the file leaves out may be mutated too
	whole, err := json.Marshal(&defaults)
	must(t, err)
	var all map[string]any
	must(t, json.Unmarshal(whole, &all))
	for name, v := range all {
		inner, ok := v.(map[string]any)
		given, has := c[name].(map[string]any)
		switch {
		case ok && has:
			for n, v := range inner {
				if _, has := given[n]; !has {
					given[n] = v
				}
			}
		case c[name] == nil:
			c[name] = v
		}
	}
	for range 1 + r.IntN(2) {
		how += mutateIn(r, c, "") + " "
	}
	mutant, err = json.Marshal(c)
	must(t, err)
	return mutant, how
}

// mutateIn changes a value somewhere in a JSON object.
func mutateIn(r *rand.Rand, c map[string]any, path string) string {
	name := pick(r, slices.Sorted(maps.Keys(c))...)
	path += "." + name
	numbers := []any{0, -1, 1, 2, 63, 64, 65, 127, 512, 1000, 1 << 16, 1 << 31, -1 << 31, 1 << 32, math.MaxInt64, math.MinInt64, 1e300, -0.5}
	change := func(v any) any {
		switch v := v.(type) {
		case float64:
			return pick(r, numbers...)
		case string:
			return pick[any](r, "", "nan", "inf", "zero", "const:1e300", "normal*-1", "e", "2", "split", "padded", "heads", "reversed", "identity", "absorb", "f32", "fp16", "half", "../x", "extend", "layer", "merge", "append", "absorb", "upproject", "prefill", "decode")
		case bool:
			return !v
		}
		return pick[any](r, nil, 5, []any{}, []any{3}, []any{1, 2}, map[string]any{}, "x")
	}
	switch v := c[name].(type) {
	case map[string]any:
		if len(v) > 0 {
			return mutateIn(r, v, path)
		}
	case []any:
		if len(v) > 0 && r.IntN(3) > 0 {
			i := r.IntN(len(v))
			v[i] = change(v[i])
			return fmt.Sprintf("%s[%d] = %v", path, i, v[i])
		}
		if len(v) > 0 {
			c[name] = pick(r, v[1:], append(slices.Clone(v), v...))
			return fmt.Sprintf("%s of %d", path, len(c[name].([]any)))
		}
	}
	c[name] = change(c[name])
	return fmt.Sprintf("%s = %v", path, c[name])
}
