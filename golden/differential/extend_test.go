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

// extendCase is a line of extendCases.
type extendCase struct {
	heads, blockN, sms, chunk int
	dtype, more               string // more of the case's JSON
}

// extendCases are the steps: one chunk and several, sequences that begin and end
// in the same one, both types, with and without a mask, other tiles, layouts,
// and references that are outgrown from chunk to chunk.
var extendCases = []extendCase{
	{heads: 2, sms: 132, chunk: 128},
	{heads: 1, sms: 2},
	{heads: 2, sms: 3, chunk: 256, dtype: "fp16"},
	{heads: 1, sms: 2, chunk: 200, blockN: 96},
	{heads: 1, sms: 2, chunk: 128, more: `"causal": false`},
	{heads: 1, sms: 2, chunk: 128, more: `"layout": {"q": "split", "kv_row": 640}, "lse_base": "2"`},
	{heads: 1, sms: 1, chunk: 128, more: `"fill": {"q": "normal*6", "kv": "normal*2"}`},
}

func (c *extendCase) parse(t *testing.T, seed uint64) ExtendCase {
	t.Helper()
	more := ""
	if c.more != "" {
		more = ", " + c.more
	}
	text := fmt.Sprintf(`{"name": "case", "op": "extend", "model": {"heads": %d, "latent": 512, "rope": 64, "nope": 128, "value": 128},
		"dtype": %q, "q_len": [140, 0, 20, 5], "kv_len": [400, 9, 150, 3], "chunk": %d, "seed": %d%s}`, c.heads, cmp.Or(c.dtype, "bf16"), c.chunk, seed, more)
	parsed, err := cases.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	e := ExtendCase{Case: parsed, BlockN: c.blockN, SMs: c.sms}
	s := e.spec()
	parsed.Name = fmt.Sprintf("heads=%d,%dx%d,%s,sms=%d,chunk=%d%s", s.Heads, s.BlockM, s.BlockN, s.DType, c.sms, c.chunk, strings.NewReplacer(`"`, "", " ", "", "{", "", "}", "").Replace(more))
	return e
}

// extendPlanCases are batches of few and of many sequences, in one chunk and in
// many, of more blocks than are sorted, and with more queries than keys.
func extendPlanCases() []ExtendPlanCase {
	random := func(seed uint64, sequences, queries, keys, chunk int, causal bool) ExtendPlanCase {
		r := rand.New(rand.NewPCG(seed, 6))
		l := ExtendLengths{Causal: causal, Chunk: chunk}
		for range sequences {
			q, k := r.IntN(queries+1), r.IntN(keys+1)
			if r.IntN(4) > 0 {
				k += q
			}
			l.Queries, l.Keys = append(l.Queries, q), append(l.Keys, k)
			l.QueryTokens, l.KeyTokens = l.QueryTokens+q, l.KeyTokens+k
		}
		l.QueryTokens, l.KeyTokens = l.QueryTokens+r.IntN(300), l.KeyTokens+r.IntN(300)
		return ExtendPlanCase{ExtendLengths: l}
	}
	one := ExtendPlanCase{ExtendLengths: ExtendLengths{Queries: []int{512}, Keys: []int{33280}, QueryTokens: 512, KeyTokens: 33280, Chunk: 8192, Causal: true}}
	narrow := random(5, 9, 700, 2000, 1000, true)
	narrow.Spec = templates.Spec{Heads: 3, BlockN: 96}
	wide := random(9, 7, 900, 1500, 1000, true)
	wide.Spec = templates.Spec{Heads: 2, BlockM: 192}
	many := random(6, 17_000, 128, 5, 1_200_000, true) // more sequences, and blocks, than are sorted
	many.Queries, many.Keys = many.Queries[:16_000], many.Keys[:16_000]
	all := []ExtendPlanCase{
		one, random(1, 3, 900, 3000, 512, true), random(2, 4, 600, 900, 0, true), random(3, 33, 300, 900, 4096, false), random(4, 1100, 40, 200, 100_000, true),
		narrow, wide, random(7, 0, 0, 0, 0, true), random(8, 6, 300, 0, 128, true), many,
	}
	for i := range all {
		c := &all[i]
		c.Spec, _ = templates.Defaults("extend-schedule", c.Spec) // the kernel exists
		c.Name = fmt.Sprintf("heads=%d,%dx%d,sequences=%d,tokens=%d+%d,chunk=%d,causal=%v",
			c.Spec.Heads, c.Spec.BlockM, c.Spec.BlockN, len(c.Queries), c.QueryTokens, c.KeyTokens, c.Chunk, c.Causal)
	}
	return all
}

// extendRows compares extend's kernels.
func extendRows(t *testing.T, p *Pair, report func(*testing.T, []Row, error)) {
	for i, c := range extendCases {
		ec := c.parse(t, uint64(i+1))
		t.Run("extend/"+ec.Name, func(t *testing.T) {
			rows, err := p.Extend(ec)
			report(t, rows, err)
		})
	}
	for _, c := range extendPlanCases() {
		t.Run("extend-schedule/"+c.Name, func(t *testing.T) {
			rows, err := p.ExtendPlan(c)
			report(t, rows, err)
		})
	}
}

// extendChunk is what a chunk's schedule must hold.
type extendChunk struct {
	CuK, First []int
	Blocks     [][8]int // query token, rows, row of the keys, keys, seen, tiles, state from, state to
}

// reference is the schedule of a chunk that begins at so many tokens on the line
// of sequences.
func (c *ExtendPlanCase) reference(begin, chunk int) extendChunk {
	m, n := c.Spec.BlockM, c.Spec.BlockN
	up := func(x, step int) int { return (x + step - 1) / step * step }
	r := extendChunk{CuK: []int{0}}
	line, query, row := 0, 0, 0
	add := func(queries, keys int) {
		first, end := min(max(begin-line, 0), keys), min(max(begin+chunk-line, 0), keys)
		var unseeing [][8]int
		for b := (queries - 1) / m; queries > 0 && b >= 0; b-- { // the last sees most
			rows, seen := min(m, queries-b*m), keys
			if c.Causal {
				seen = keys - queries + b*m + 1
			}
			reach := min(seen+rows-1, keys) // keys that the block's last query sees
			tiles, from, to := up(max(0, min(reach, end)-first), n)/n, -1, -1
			if tiles > 0 && first > 0 {
				from = b
			}
			if tiles > 0 && reach > end {
				to = b
			}
			block := [8]int{query + b*m, rows, row, end - first, seen - first, tiles, from, to}
			if reach <= 0 && begin == 0 {
				unseeing = append(unseeing, block)
			} else if tiles > 0 {
				r.Blocks = append(r.Blocks, block)
			}
		}
		r.Blocks = append(r.Blocks, unseeing...)
		query, row, line = query+queries, row+end-first, line+up(keys, n)
		r.First, r.CuK = append(r.First, first), append(r.CuK, row)
	}
	for i := range c.Queries {
		add(c.Queries[i], c.Keys[i])
	}
	add(c.QueryTokens-query, 0) // query tokens after the last sequence see nothing
	r.First, r.CuK = r.First[:len(c.Queries)], r.CuK[:len(c.Queries)+1]
	if len(r.Blocks) <= 1<<14 {
		slices.SortStableFunc(r.Blocks, func(a, b [8]int) int { return b[5] - a[5] })
	}
	return r
}

// TestExtendSchedule: a schedule lists each chunk's tokens, and every block of
// query tokens that sees one of them, longest first, with where its state comes
// from and goes to; blocks that see nothing are in the first.
func TestExtendSchedule(t *testing.T) {
	driver, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := &Pair{A: driver, B: driver}
	several := 0
	for _, c := range extendPlanCases() {
		length := 0
		contents, err := each(p, 132, func(dev *device) ([]map[string][]byte, error) {
			e, err := p.loadExtend(dev, c.Spec)
			if err != nil {
				return nil, err
			}
			defer e.Close()
			plan, err := c.plan(e)
			if err != nil {
				return nil, err
			}
			length = plan.Chunk
			s, err := plannedExtend(dev, e, plan, c.ExtendLengths)
			return s.parts, err
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, parts := range contents[0] {
			word := func(part string, i int) int { return int(int32(binary.LittleEndian.Uint32(parts[part][4*i:]))) }
			want := c.reference(i*length, length)
			if next := word("head", 4); next != 0 {
				t.Errorf("%s, chunk %d: %d items are dealt", c.Name, i, next)
			}
			if section := word("head", 1); section < 1 || section > c.Spec.Heads {
				t.Errorf("%s, chunk %d: sections of %d heads", c.Name, i, section)
			}
			blocks := word("head", 0)
			if blocks != len(want.Blocks) {
				t.Errorf("%s, chunk %d: %d blocks, want %d", c.Name, i, blocks, len(want.Blocks))
				continue
			}
			got := extendChunk{First: []int{}}
			for j := range want.CuK {
				got.CuK = append(got.CuK, word("cu_k", j))
			}
			for j := range want.First {
				got.First = append(got.First, word("first_token", j))
			}
			for j := range want.Blocks {
				var b [8]int
				for k := range b {
					b[k] = word("work_blocks", 8*j+k)
				}
				got.Blocks = append(got.Blocks, b)
				if b[6] >= 0 || b[7] >= 0 {
					several++
				}
				if w := &want.Blocks[j]; w[5] == 0 { // nothing is read, wherever it were
					w[2], got.Blocks[j][2] = 0, 0
					w[4], got.Blocks[j][4] = min(0, w[4]), min(0, b[4])
				}
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("%s, chunk %d (-want +got):\n%.1500s", c.Name, i, diff)
			}
		}
	}
	if several < 50 {
		t.Errorf("only %d blocks are in several chunks", several)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
