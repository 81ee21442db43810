package differential

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/runtime/emu"
	"github.com/mlagen/mlagen/templates"
)

// prefillCase is a line of prefillCases.
type prefillCase struct {
	heads, blockM, blockN, sms int
	dtype, more                string // more of the case's JSON
}

// prefillCases are the steps: every shape of tiles, both types, ragged and empty
// sequences, rows without a key, with and without a mask, and layouts.
var prefillCases = []prefillCase{
	{heads: 3, sms: 132},
	{heads: 2, sms: 2, dtype: "fp16"},
	{heads: 2, sms: 3, blockN: 112},
	{heads: 1, sms: 2, blockN: 96, dtype: "fp16"},
	{heads: 1, sms: 2, blockN: 80},
	{heads: 1, sms: 2, blockN: 64},
	{heads: 2, sms: 3, blockM: 192},
	{heads: 1, sms: 2, blockM: 192, blockN: 80, dtype: "fp16"},
	{heads: 2, sms: 4, more: `"causal": false`},
	{heads: 2, sms: 4, more: `"layout": {"q": "split", "kv_row": 640}, "lse_base": "2"`},
	{heads: 2, sms: 4, more: `"fill": {"q": "normal*6", "kv": "normal*2"}`}, // references that are outgrown
	{heads: 1, sms: 2, dtype: "fp16", more: `"fill": {"q": "normal*4", "kv": "normal"}`},
}

func (c *prefillCase) parse(t *testing.T, seed uint64) PrefillCase {
	t.Helper()
	more := ""
	if c.more != "" {
		more = ", " + c.more
	}
	text := fmt.Sprintf(`{"name": "case", "op": "prefill", "model": {"heads": %d, "latent": 512, "rope": 64, "nope": 128, "value": 128},
		"dtype": %q, "q_len": [150, 0, 20, 130, 5], "kv_len": [420, 9, 70, 128, 3], "seed": %d%s}`, c.heads, cmp.Or(c.dtype, "bf16"), seed, more)
	parsed, err := cases.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p := PrefillCase{Case: parsed, BlockM: c.blockM, BlockN: c.blockN, SMs: c.sms}
	s := p.spec()
	parsed.Name = fmt.Sprintf("heads=%d,%dx%d,%s,sms=%d%s", s.Heads, s.BlockM, s.BlockN, s.DType, c.sms, strings.NewReplacer(`"`, "", " ", "", "{", "", "}", "").Replace(more))
	return p
}

// prefillPlanCases are batches of few and of many sequences, of more blocks than
// are sorted, and of lengths that contradict the tensors.
func prefillPlanCases() []PrefillPlanCase {
	random := func(seed uint64, sequences, queries, keys int, causal bool) PrefillPlanCase {
		r := rand.New(rand.NewPCG(seed, 3))
		l := PrefillLengths{Causal: causal}
		for range sequences {
			q, k := r.IntN(queries+1), r.IntN(keys+1)
			if r.IntN(4) == 0 {
				q = 0
			}
			l.Queries, l.Keys = append(l.Queries, q), append(l.Keys, k)
			l.QueryTokens, l.KeyTokens = l.QueryTokens+q, l.KeyTokens+k
		}
		l.QueryTokens, l.KeyTokens = l.QueryTokens+r.IntN(300), l.KeyTokens+r.IntN(300)
		return PrefillPlanCase{PrefillLengths: l}
	}
	tight := random(7, 20, 900, 900, true)
	tight.QueryTokens, tight.KeyTokens = tight.QueryTokens/2, tight.KeyTokens/3
	narrow := random(8, 9, 3000, 3000, true)
	narrow.Spec = templates.Spec{Heads: 3, BlockM: 192}
	many := random(9, 17_000, 128, 500, true) // more blocks than are sorted
	one := PrefillPlanCase{PrefillLengths: PrefillLengths{Queries: []int{32768}, Keys: []int{32768}, QueryTokens: 32768, KeyTokens: 32768, Causal: true}}
	all := []PrefillPlanCase{
		one, random(1, 1, 5000, 9000, true), random(2, 4, 4096, 4096, true), random(3, 33, 3000, 9000, false), random(4, 1500, 100, 400, true),
		random(5, 5, 10, 1, true), random(6, 0, 0, 0, true), tight, narrow, many,
	}
	for i := range all {
		c := &all[i]
		c.Spec, _ = templates.Defaults("expand-schedule", c.Spec) // the kernel exists
		c.Name = fmt.Sprintf("heads=%d,%dx%d,sequences=%d,tokens=%d+%d,causal=%v", c.Spec.Heads, c.Spec.BlockM, c.Spec.BlockN, len(c.Queries), c.QueryTokens, c.KeyTokens, c.Causal)
	}
	return all
}

// prefillRows compares prefill's kernels.
func prefillRows(t *testing.T, p *Pair, report func(*testing.T, []Row, error)) {
	for i, c := range prefillCases {
		pc := c.parse(t, uint64(i+1))
		t.Run("prefill/"+pc.Name, func(t *testing.T) {
			rows, err := p.Prefill(pc)
			report(t, rows, err)
		})
	}
	for _, c := range prefillPlanCases() {
		t.Run("prefill-schedule/"+c.Name, func(t *testing.T) {
			rows, err := p.PrefillPlan(c)
			report(t, rows, err)
		})
	}
}

// reference lists the blocks that a schedule must have, in their order, as
// vectors of query token, rows, key token, keys, seen, tiles.
func (c *PrefillPlanCase) reference() (blocks [][6]int) {
	m, n := c.Spec.BlockM, c.Spec.BlockN
	query, key := 0, 0
	add := func(queries, keys int) {
		lastQuery, lastKey := min(query+queries, c.QueryTokens), min(key+keys, c.KeyTokens)
		q, k := min(query, c.QueryTokens), min(key, c.KeyTokens)
		query, key = query+queries, key+keys
		queries, keys = lastQuery-q, lastKey-k
		for first := (queries - 1) / m * m; queries > 0 && first >= 0; first -= m { // the last sees most
			rows := min(m, queries-first)
			seen := keys
			if c.Causal {
				seen = keys - queries + first + 1
			}
			tiles := (max(0, min(keys, seen+rows-1)) + n - 1) / n
			blocks = append(blocks, [6]int{q + first, rows, k, keys, seen, tiles})
		}
	}
	for i := range c.Queries {
		add(c.Queries[i], c.Keys[i])
	}
	key = 0 // query tokens after the last sequence see nothing
	if left := c.QueryTokens - query; left > 0 {
		add(left, 0)
	}
	if len(blocks) <= 1<<14 {
		slices.SortStableFunc(blocks, func(a, b [6]int) int { return b[5] - a[5] })
	}
	return blocks
}

// TestPrefillSchedule: a schedule lists every block of query tokens once,
// longest first, with the keys that its queries see.
func TestPrefillSchedule(t *testing.T) {
	driver, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := &Pair{A: driver, B: driver}
	for _, c := range prefillPlanCases() {
		contents, err := each(p, 132, func(dev *device) (map[string][]byte, error) {
			pre, err := p.loadPrefill(dev, c.Spec)
			if err != nil {
				return nil, err
			}
			defer pre.Close()
			s, err := plannedPrefill(dev, pre, c.PrefillLengths)
			return s.contents, err
		})
		if err != nil {
			t.Fatal(err)
		}
		want := c.reference()
		word := func(part string, i int) int { return int(int32(binary.LittleEndian.Uint32(contents[0][part][4*i:]))) }
		if got := word("work_head", 0); got != len(want) {
			t.Errorf("%s: %d blocks, want %d", c.Name, got, len(want))
			continue
		}
		if next := word("work_head", 4); next != 0 {
			t.Errorf("%s: %d items are dealt", c.Name, next)
		}
		if section := word("work_head", 1); section < 1 || section > c.Spec.Heads {
			t.Errorf("%s: sections of %d heads", c.Name, section)
		}
		var got [][6]int
		for i := range want {
			var b [6]int
			for j := range b {
				b[j] = word("work_blocks", 8*i+j)
			}
			got = append(got, b)
		}
		for i := range want { // without keys nothing is read, wherever they were
			if want[i][5] == 0 {
				want[i][2], got[i][2] = 0, 0
				want[i][4], got[i][4] = min(0, want[i][4]), min(0, got[i][4])
			}
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%.1500s", c.Name, diff)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
