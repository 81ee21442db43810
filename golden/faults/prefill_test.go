package faults

import (
	"fmt"
	"testing"

	"github.com/mlagen/mlagen/golden/cases"
)

// prefillProblems exercise rings that wrap, items one after another in a CTA,
// diagonal and last tiles over tokens that hold NaN, empty sequences, rows
// without a key, references that are outgrown, logits that are far apart, items
// that pass no ring, and a list that is sorted. The quick ones come first.
func prefillProblems(t *testing.T) []problem {
	t.Helper()
	var out []problem
	for i, p := range []struct {
		fields string
		sms    int
	}{
		{`"q_len": [20, 70], "kv_len": [130, 300]`, 1},
		{`"q_len": [150, 20, 0, 5], "kv_len": [420, 70, 9, 3]`, 2},
		{`"q_len": [70, 129], "kv_len": [400, 129], "causal": false, "layout": {"q": "split"}`, 1},
		{`"q_len": [130], "kv_len": [390], "dtype": "fp16", "fill": {"q": "normal*6", "kv": "normal*3"}`, 1},
		{`"q_len": [9, 4], "kv_len": [140, 2], "fill": {"q": "normal*1000000", "kv": "normal*1000000"}, "tolerance": {"out": 0.005, "lse": 1e8}`, 1},
		{`"q_len": [1, 1, 1, 1, 1, 1, 1, 1, 130], "kv_len": [0, 0, 0, 0, 0, 0, 0, 0, 1]`, 1},
		{`"q_len": [1, 2, 1, 1, 200, 1, 7, 1, 1, 130, 1, 1], "kv_len": [1, 200, 3, 4, 200, 6, 7, 300, 9, 130, 11, 12]`, 3},
	} {
		c, err := cases.Parse([]byte(fmt.Sprintf(`{"name": "faults-%d", "op": "prefill", "model": {"heads": %d, "latent": 512, "rope": 64, "nope": 128, "value": 128}, %s}`, i, few, p.fields)))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, problem{c, p.sms})
	}
	return out
}

// TestPrefillCaught plants every fault of prefill and prints by which rule it is
// caught.
func TestPrefillCaught(t *testing.T) {
	testCaught(t, Prefill, map[int][]problem{few: prefillProblems(t)})
}
