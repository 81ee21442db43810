package differential

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/templates"
)

// ragged are lengths that, cut into evenParts, make requests of every kind:
// the first in four pieces, the last in two, the others whole.
const ragged = "[700, 0, 1, 64, 130, 65, 257]"

const evenParts = 12

// decodeCase is a line of decodeCases.
type decodeCase struct {
	heads, sq, blockH int
	parts             int // of the schedule; 0 = evenParts
	dtype, more       string
}

// decodeCases are the steps: every row block, both types, one and five query
// tokens, and layouts. more is more of the case's JSON.
var decodeCases = []decodeCase{
	{heads: 8},
	{heads: 8, dtype: "fp16"},
	{heads: 16},
	{heads: 16, dtype: "fp16"},
	{heads: 20}, // 24 rows, four of them padding
	{heads: 24, dtype: "fp16"},
	{heads: 32},
	{heads: 32, dtype: "fp16"},
	{heads: 40}, // two teams
	{heads: 64},
	{heads: 64, dtype: "fp16"},
	{heads: 80, blockH: 64}, // two row blocks, the second mostly padding
	{heads: 1, sq: 5},
	{heads: 2, sq: 5, dtype: "fp16"},
	{heads: 4, sq: 5},
	{heads: 6, sq: 5, dtype: "fp16"},
	{heads: 8, sq: 5, parts: 6},
	{heads: 8, sq: 5, blockH: 16, dtype: "fp16"}, // three row blocks
	{heads: 16, sq: 5, blockH: 64},
	{heads: 16, more: `"teams": 2`},
	{heads: 8, dtype: "fp16", more: `"teams": 2, "splits": 3`},
	{heads: 16, parts: 132},
	{heads: 64, parts: 132, more: `"kv_len": [1500, 40]`},
	{heads: 16, parts: 4}, // several items for each part
	{heads: 64, parts: 3, dtype: "fp16"},
	{heads: 16, parts: 6, more: `"layout": {"kv_row": 640, "kv_page": 48000, "out": "padded", "q": "split"}`},
	{heads: 64, dtype: "fp16", more: `"layout": {"kv_row": 584, "kv_page": 40000, "out": "padded"}, "lse_base": "2"`},
	{heads: 16, parts: 4, more: `"splits": 3`},
	{heads: 64, parts: 4, dtype: "fp16", more: `"splits": 11`},
	// Parts without a piece read ahead, for whole requests and for cut ones.
	{heads: 8, parts: 4, more: `"kv_len": [560, 570, 550]`},
	{heads: 24, dtype: "fp16", parts: 7, more: `"kv_len": [640, 600, 610, 580, 590]`},
	{heads: 32, parts: 9, more: `"kv_len": [2048, 2040]`},
	{heads: 16, sq: 2, blockH: 16, parts: 4, more: `"kv_len": [560, 570, 550]`}, // pairs of CTAs
	{heads: 16, more: `"fill": {"q": "normal*4", "kv": "normal"}`},              // logits so far apart that few weights count
	{heads: 64, more: `"fill": {"q": "normal*4", "kv": "normal"}`},
}

var planCases = []PlanCase{
	{SMs: 132, Batch: 1, Longest: 8192},
	{SMs: 132, Batch: 4, Longest: 20_000},
	{SMs: 132, Batch: 64, Longest: 4096},
	{SMs: 132, Batch: 131, Longest: 1000},
	{SMs: 132, Batch: 200, Longest: 6000},
	{SMs: 132, Batch: 1500, Longest: 3000},
	{SMs: 7, Batch: 33, Longest: 2000},
	{SMs: 132, Batch: 40, Longest: 0},
	{SMs: 132, Splits: 1, Batch: 50, Longest: 3000},
	{SMs: 132, Splits: 2, Batch: 70, Longest: 3000},
	{SMs: 132, Splits: 7, Batch: 100, Longest: 3000},
	{SMs: 132, Splits: 3, Batch: 1100, Longest: 900},
	{SMs: 132, Batch: 30, Longest: 9000, Spec: templates.Spec{Heads: 128}},
	{SMs: 132, Splits: 5, Batch: 30, Longest: 9000, Spec: templates.Spec{Heads: 128}},
}

var combineCases = []CombineCase{
	{Spec: templates.Spec{Heads: 8}, Counts: []int{3, 0, 8, 5}},
	{Spec: templates.Spec{Heads: 8, DType: "fp16"}, Counts: []int{3, 0, 8, 5}},
	{Spec: templates.Spec{Heads: 16}, Counts: []int{4, 0, 21}},
	{Spec: templates.Spec{Heads: 16, DType: "fp16"}, Counts: []int{0, 6}},
	{Spec: templates.Spec{Heads: 20}, Counts: []int{3, 0, 10}},
	{Spec: templates.Spec{Heads: 32}, Counts: []int{7, 0}},
	{Spec: templates.Spec{Heads: 40}, Counts: []int{3, 12}}, // two teams
	{Spec: templates.Spec{Heads: 64}, Counts: []int{0, 7}},
	{Spec: templates.Spec{Heads: 64, DType: "fp16"}, Counts: []int{13, 3}},
	{Spec: templates.Spec{Heads: 16, SQ: 5}, Counts: []int{3, 0, 4}},
	{Spec: templates.Spec{Heads: 8, SQ: 5, BlockH: 16}, Counts: []int{3, 9}},
	{Spec: templates.Spec{Heads: 8}, Counts: []int{40, 3}}, // so many that units are cut in halves
	{Spec: templates.Spec{Heads: 16, Teams: 2}, Counts: []int{0, 35}},
	{Spec: templates.Spec{Heads: 64}, Counts: []int{33}},
	{Spec: templates.Spec{Heads: 8, DType: "fp16"}, Counts: []int{9, 34}},
	{Spec: templates.Spec{Heads: 64, DType: "fp16"}, Counts: []int{36}},
	{Spec: templates.Spec{Heads: 8}, Counts: []int{64, 0, 33}}, // all under way at once
	{Spec: templates.Spec{Heads: 8}, Counts: []int{65, 3, 129}},
	{Spec: templates.Spec{Heads: 20}, Counts: []int{130}},
	// Most slots of each way and one more.
	{Spec: templates.Spec{Heads: 3}, Counts: []int{8, 4}},
	{Spec: templates.Spec{Heads: 3}, Counts: []int{9, 8}},
	{Spec: templates.Spec{Heads: 3}, Counts: []int{16, 5}},
	{Spec: templates.Spec{Heads: 3}, Counts: []int{17, 16}},
	{Spec: templates.Spec{Heads: 3}, Counts: []int{32, 31}},
	{Spec: templates.Spec{Heads: 3, DType: "fp16"}, Counts: []int{64, 65}},
}

var streamCases = []StreamCase{
	{Pages: 16, Visits: 700, Blocks: 132},
	{Pages: 16, Visits: 50, Blocks: 132, Gap: 64},
	{Pages: 5, Visits: 100, Blocks: 3, Spec: templates.Spec{DType: "fp16"}},
}

// shape names what a kernel was made for.
func shape(s templates.Spec) string {
	s = s.WithDefaults()
	return fmt.Sprintf("heads=%d,sq=%d,block-h=%d,%s", s.Heads, s.SQ, s.BlockH, s.DType)
}

// TestDevicesAgree compares every kernel template, prints a table, and fails
// where results are further apart than the package's documentation allows.
func TestDevicesAgree(t *testing.T) {
	p, limits := open(t)
	var all []Row
	report := func(t *testing.T, rows []Row, err error) {
		t.Helper()
		all = append(all, rows...)
		if err != nil {
			t.Error(err)
		}
		for _, r := range rows {
			if err := limits.Err(r.Figures); err != nil {
				t.Errorf("%s, %s: %v", r.Kernel, r.Result, err)
			}
		}
	}
	begin := time.Now()
	kinds := map[int][]string{} // by row block
	for i, c := range decodeCases {
		dc := c.parse(t, uint64(i+1))
		t.Run("decode/"+dc.Name, func(t *testing.T) {
			rows, k, err := p.Decode(dc)
			report(t, rows, err)
			block := dc.Spec().BlockH
			kinds[block] = append(kinds[block], k...)
		})
	}
	for i, c := range planCases {
		c.Name = fmt.Sprintf("%s,sms=%d,splits=%d,batch=%d,longest=%d", shape(c.Spec), c.SMs, c.Splits, c.Batch, c.Longest)
		c.Seed = uint64(i + 1)
		t.Run("schedule/"+c.Name, func(t *testing.T) {
			rows, err := p.Plan(c)
			report(t, rows, err)
		})
	}
	for i, c := range combineCases {
		c.Name = fmt.Sprintf("%s,pieces=%v", shape(c.Spec), c.Counts)
		c.Seed, c.Blocks = uint64(i+1), []int{4 * 132, 1, 5}[i%3] // few have several units of work
		t.Run("combine/"+c.Name, func(t *testing.T) {
			rows, err := p.Combine(c)
			report(t, rows, err)
		})
	}
	for i, c := range streamCases {
		c.Name = fmt.Sprintf("%s,visits=%d,blocks=%d,gap=%d", shape(c.Spec), c.Visits, c.Blocks, c.Gap)
		c.Seed = uint64(i + 1)
		t.Run("stream/"+c.Name, func(t *testing.T) {
			rows, err := p.Stream(c)
			report(t, rows, err)
		})
	}
	prefillRows(t, p, report)
	extendRows(t, p, report)
	stateRows(t, p, report)
	productRows(t, p, report)
	fmt.Printf("%s against %s, %.1f s\n%s\n%s\n", p.A.Name(), p.B.Name(), time.Since(begin).Seconds(), Table(all, limits), Summary(all, limits))
	if t.Failed() {
		return
	}

	// The cases are worth their name: every row block, with requests of every
	// kind, and every template.
	for _, block := range []int{8, 16, 24, 32, 40, 64} {
		for _, kind := range []string{whole, pair, merged} {
			if !slices.Contains(kinds[block], kind) {
				t.Errorf("no case with row blocks of %d has a request of kind %s", block, kind)
			}
		}
	}
	var compared, templated []string
	for _, r := range all {
		compared = append(compared, r.Kernel)
	}
	for _, k := range templates.Kernels() {
		templated = append(templated, k.Name)
	}
	for _, k := range comparedByCases {
		if slices.Contains(compared, k) {
			t.Errorf("%s is compared here as well: its name must go from comparedByCases", k)
		}
		compared = append(compared, k)
	}
	slices.Sort(compared)
	slices.Sort(templated)
	if diff := gocmp.Diff(templated, slices.Compact(compared)); diff != "" {
		t.Errorf("kernels (-templates +compared):\n%s", diff)
	}
}

// comparedByCases are kernels that only the conformance cases compare, on either
// device, with the oracle: products round once, and the layer's kernels copy.
var comparedByCases = []string{"layer-groups", "layer-rows"}

// parse makes a decode case of a line of decodeCases.
func (c *decodeCase) parse(t *testing.T, seed uint64) DecodeCase {
	t.Helper()
	sq, dtype, parts, more := max(1, c.sq), cmp.Or(c.dtype, "bf16"), cmp.Or(c.parts, evenParts), ""
	if c.more != "" {
		more = ", " + c.more
	}
	text := fmt.Sprintf(`{"name": "case", "op": "decode", "model": {"heads": %d, "latent": 512, "rope": 64, "nope": 128, "value": 128},
		"dtype": %q, "q_len": %d, "kv_len": %s, "seed": %d%s}`, c.heads, dtype, sq, ragged, seed, more)
	parsed, err := cases.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	dc := DecodeCase{Case: parsed, BlockH: c.blockH}
	dc.SMs = parts * dc.Spec().RowBlocks()
	parsed.Name = fmt.Sprintf("%s,parts=%d%s", shape(dc.Spec()), parts, strings.NewReplacer(`"`, "", " ", "", "{", "", "}", "").Replace(more))
	return dc
}
