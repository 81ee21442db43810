package plan

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

var v3 = DeepSeek(128)

// TestPublishedFigures: the counts are those that are published for DeepSeek-V3.
func TestPublishedFigures(t *testing.T) {
	giga := func(x float64) string { return fmt.Sprintf("%.1f", x/1e9) }
	decode, prefill := Request{1, 8191}, Request{8192, 0}
	few, many := Request{64, 32768}, Request{512, 32768}
	for _, c := range []struct{ what, got, want string }{
		{"expand per pair", fmt.Sprint(v3.ExpandPair()), "81920"},
		{"absorb per pair", fmt.Sprint(v3.AbsorbPair()), "278528"},
		{"expand per key token", fmt.Sprintf("%.0f", v3.ExpandToken()), "33554432"},
		{"absorb per query token", fmt.Sprintf("%.0f", v3.AbsorbToken()), "33554432"},
		{"crossover", fmt.Sprintf("%.0f", v3.Crossover()), "171"},
		{"decode at 8K, expand", giga(v3.ExpandFLOP(decode)), "275.5"},
		{"decode at 8K, absorb", giga(v3.AbsorbFLOP(decode)), "2.3"},
		{"prefill of 8K, expand", giga(v3.ExpandFLOP(prefill)), "3024.0"},
		{"prefill of 8K, absorb", giga(v3.AbsorbFLOP(prefill)), "9621.9"},
		{"64 on 32K, expand", giga(v3.ExpandFLOP(few)), "1273.6"},
		{"64 on 32K, absorb", giga(v3.AbsorbFLOP(few)), "586.8"},
		{"512 on 32K, expand", giga(v3.ExpandFLOP(many)), "2501.8"},
		{"512 on 32K, absorb", giga(v3.AbsorbFLOP(many)), "4726.7"},
		{"record", fmt.Sprint(61 * v3.RecordBytes()), "70272"},
		{"expanded token", fmt.Sprint(v3.ExpandedBytes()), "65536"},
	} {
		if c.got != c.want {
			t.Errorf("%s is %s, want %s", c.what, c.got, c.want)
		}
	}
}

func plan(t *testing.T, workspace int64, heads int, r Request) *Plan {
	t.Helper()
	p, err := (&Planner{Card: H200, Model: DeepSeek(heads), Workspace: workspace}).Plan(r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestChoices are what engines must get right, whatever the constants.
func TestChoices(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		r         Request
		heads     int
		workspace int64
		want      Path
	}{
		{Request{1, 8191}, 128, Unlimited, Absorb},
		{Request{8192, 0}, 128, Unlimited, Expand},
		{Request{64, 32768}, 128, Unlimited, Absorb},
		{Request{512, 32768}, 128, Unlimited, Expand},
		{Request{64, 32768}, 16, Unlimited, Absorb},
		{Request{512, 32768}, 16, Unlimited, Expand},
		{Request{64, 32768}, 128, 512 * mib, Absorb},
		{Request{512, 32768}, 128, 512 * mib, ExpandChunked},
		{Request{512, 32768}, 128, 33280 * 65664, Expand}, // to the byte
		{Request{512, 32768}, 128, 33280*65664 - 1, ExpandChunked},
		{Request{512, 32768}, 128, 128 * mib, ExpandChunked},
		{Request{512, 32768}, 128, 128*65664 + 128*128*136*4 - 1, Absorb}, // not even a tile and a block's state
		{Request{8192, 0}, 128, 512 * mib, ExpandChunked},
		{Request{512, 32768}, 128, 0, Absorb},
		{Request{4, 131072}, 128, Unlimited, Absorb},
		{Request{8192, 131072}, 128, 512 * mib, ExpandChunked},
	} {
		got := plan(t, c.workspace, c.heads, c.r)
		if got.Choice != c.want {
			t.Errorf("%+v, %d heads, %d bytes: %s, want %s", c.r, c.heads, c.workspace, got.Choice, c.want)
		}
		if e := got.Chosen(); e.Path != c.want || !e.Possible || !(e.Seconds > 0) {
			t.Errorf("chosen is %+v", e)
		}
	}
}

func TestChunks(t *testing.T) {
	p := plan(t, 512<<20, 128, Request{512, 32768})
	e := p.Estimates[2]
	if e.Chunk != 6656 || e.Chunks != 5 || e.Workspace != 6656*65664+4*128*128*136*4 {
		t.Errorf("%d chunks of %d tokens in %d bytes, want 5 of 6656 and the states of 4 × 128 blocks", e.Chunks, e.Chunk, e.Workspace)
	}
	launches := map[string]int{}
	for _, s := range e.Stages {
		launches[s.Kernel] = s.Launches
	}
	if launches["up-project"] != 5 || launches["extend-attend"] != 5 || e.Launches != 10 {
		t.Errorf("launches %v, %d in all, want two for each of five chunks", launches, e.Launches)
	}
	if one := p.Estimates[1]; e.FLOP != one.FLOP || e.Seconds < one.Seconds || one.Possible || !strings.Contains(one.Reason, "2185297920 bytes") {
		t.Errorf("in one piece: %+v", one)
	}
	// What 20000 new tokens carry does not fit: pieces of even size, each on those
	// before it.
	planner := &Planner{Card: H200, Model: v3, Workspace: 512 << 20}
	at := 10000
	pieces := planner.Pieces(Request{20000, 10000})
	for i, r := range pieces {
		if r.Prefix != at || i+1 < len(pieces) && r.New != pieces[0].New || v3.StateBytes(r.New) > 256<<20 {
			t.Errorf("pieces %v", pieces)
		}
		at += r.New
	}
	if at != 30000 || len(pieces) != 6 {
		t.Errorf("pieces %v", pieces)
	}
	if e := plan(t, 512<<20, 128, Request{20000, 10000}).Estimates[2]; !e.Possible || e.Workspace > 512<<20 {
		t.Errorf("%+v", e)
	}
}

// TestEstimates: no estimate is below what its FLOP and bytes take, and more
// work takes longer.
func TestEstimates(t *testing.T) {
	for _, heads := range []int{1, 8, 16, 20, 128} {
		for _, prefix := range []int{0, 1, 100, 5000, 1 << 17} {
			var before []float64
			for _, n := range []int{1, 2, 63, 65, 128, 1000, 9000} {
				p := plan(t, 256<<20, heads, Request{n, prefix})
				for i, e := range p.Estimates {
					floor := math.Max(e.FLOP/900e12, e.Bytes/H200.Stream)
					if math.IsNaN(e.Seconds) || math.IsInf(e.Seconds, 0) || e.Seconds < floor {
						t.Errorf("%d heads, %d on %d, %s: %g s, its work alone takes %g", heads, n, prefix, e.Path, e.Seconds, floor)
					}
					if before != nil && e.Seconds < 0.5*before[i] {
						t.Errorf("%d heads, %d on %d, %s: %g s, and fewer new tokens take %g", heads, n, prefix, e.Path, e.Seconds, before[i])
					}
				}
				before = nil
				for _, e := range p.Estimates {
					before = append(before, e.Seconds)
				}
			}
		}
	}
}

// TestMeasured: the model of a kernel's time gives what was measured on an H200.
func TestMeasured(t *testing.T) {
	for _, c := range []struct {
		heads, q, k int
		causal      bool
		us          float64 // this project's expand-prefill
	}{
		{128, 1024, 1024, true, 80.8}, {128, 2048, 2048, true, 256.3}, {128, 4096, 4096, true, 910.1}, {128, 8192, 8192, true, 3418.3},
		{16, 8192, 8192, true, 434.5}, {16, 32768, 32768, true, 6540.5}, {128, 2048, 8192, false, 1710.5}, {16, 4096, 32768, false, 1630.9},
	} {
		got := 1e6 * H200.prefill(DeepSeek(c.heads), float64(c.q), float64(c.k), c.causal).Seconds
		if got < c.us/1.03 || got > c.us*1.03 {
			t.Errorf("prefill of %d on %d, %d heads: %.1f µs, measured %.1f", c.q, c.k, c.heads, got, c.us)
		}
	}
	for _, c := range []struct {
		heads, q, k int
		us          float64 // this project's decode, with its merge
	}{{8, 1, 1024, 4.9}, {16, 1, 4096, 6.2}, {128, 1, 4096, 11.3}, {16, 1, 32768, 15.0}, {128, 1, 32768, 25.8}, {128, 1, 131072, 65.6}, {128, 4, 32768, 66.5}} {
		m, r := DeepSeek(c.heads), Request{c.q, c.k - c.q}
		got := 1e6 * (H200.decode(m, r).Seconds + H200.combine(m, r).Seconds)
		if got < c.us/1.15 || got > c.us*1.15 {
			t.Errorf("decode of %d on %d, %d heads: %.1f µs, measured %.1f", c.q, c.k, c.heads, got, c.us)
		}
	}
	if got := 1e6 * H200.upProject(v3, 8192).Seconds; got < 416/1.03 || got > 416*1.03 {
		t.Errorf("up-projection of 8192 tokens: %.1f µs, measured 416", got)
	}
	for _, c := range []struct {
		kernel  string
		n       int
		in, out int
		us      float64
	}{{"absorb-q", 1, 128, 512, 4.75}, {"absorb-q", 4096, 128, 512, 226.8}, {"absorb-o", 4096, 512, 128, 187.2}} {
		got := 1e6 * H200.product(c.kernel, v3, Request{New: c.n}, c.in, c.out).Seconds
		if got < c.us/1.15 || got > c.us*1.15 {
			t.Errorf("%s of %d tokens: %.1f µs, measured %.1f", c.kernel, c.n, got, c.us)
		}
	}
}

// TestMeasuredPaths: whole paths take what was measured on an H200 with 512 MiB
// for what is expanded, to 15 %.
func TestMeasuredPaths(t *testing.T) {
	for _, c := range []struct {
		heads, n, prefix int
		absorb, expand   float64 // µs
	}{
		{128, 64, 1024, 54.5, 95.8}, {128, 512, 1024, 502.8, 158.3}, {128, 64, 8192, 216.5, 590.6},
		{128, 512, 8192, 1822.4, 960.6}, {128, 64, 32768, 769.9, 2261.6}, {128, 512, 32768, 6360.4, 3581.9},
		{16, 64, 8192, 46.3, 147.9}, {16, 256, 8192, 129.7, 149.5}, {16, 64, 32768, 117.3, 557.6}, {16, 256, 32768, 408.4, 558.4},
	} {
		p := plan(t, 512<<20, c.heads, Request{c.n, c.prefix})
		for _, e := range p.Estimates {
			want := map[Path]float64{Absorb: c.absorb, ExpandChunked: c.expand}[e.Path]
			if got := 1e6 * e.Seconds; want > 0 && (got < want/1.15 || got > want*1.15) {
				t.Errorf("%d heads, %d on %d, %s: %.1f µs, measured %.1f", c.heads, c.n, c.prefix, e.Path, got, want)
			}
		}
	}
}

// TestBatch: requests that share launches and weights are decided about together.
func TestBatch(t *testing.T) {
	decode, prefill, few, many := Request{1, 4000}, Request{4096, 0}, Request{64, 32768}, Request{512, 32768}
	for _, c := range []struct {
		requests  []Request
		workspace int64
		want      []Path
	}{
		{nil, Unlimited, []Path{}},
		{[]Request{{0, 0}, {0, 500}}, Unlimited, []Path{"", ""}},
		{[]Request{decode, {0, 70}, decode}, Unlimited, []Path{Absorb, "", Absorb}},
		{[]Request{decode, decode, prefill, few, many}, Unlimited, []Path{Absorb, Absorb, Expand, Absorb, Expand}},
		{[]Request{decode, prefill, many}, 0, []Path{Absorb, Absorb, Absorb}},
		{[]Request{decode, {8192, 0}, {8192, 500}}, 512 << 20, []Path{Absorb, Expand, Expand}}, // in pieces
		{[]Request{many}, Unlimited, []Path{Expand}},
		{[]Request{many}, 512 << 20, []Path{ExpandChunked}},
		// A short request beside a long one does what that does: it is not worth the
		// other path's launches and weights.
		{[]Request{{400, 0}, {1, 20}}, Unlimited, []Path{Expand, Expand}},
		{[]Request{{1, 130000}, {300, 0}}, Unlimited, []Path{Absorb, Expand}},
	} {
		got, err := (&Planner{Card: H200, Model: v3, Workspace: c.workspace}).Batch(c.requests)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%v in %d bytes: %v %v, want %v", c.requests, c.workspace, got, err, c.want)
		}
	}
	if _, err := (&Planner{Card: H200, Model: v3}).Batch([]Request{decode, {1, -1}}); err == nil || !strings.Contains(err.Error(), "request 1: prefix was -1") {
		t.Error(err)
	}
}

func TestRefused(t *testing.T) {
	good := Planner{Card: H200, Model: v3, Workspace: Unlimited}
	for want, change := range map[string]func(*Planner, *Request){
		"new was 0 tokens, must be 1 to":      func(_ *Planner, r *Request) { r.New = 0 },
		"new was 2147483648 tokens":           func(_ *Planner, r *Request) { r.New = 1 << 31 },
		"prefix was -1 tokens, must be 0":     func(_ *Planner, r *Request) { r.Prefix = -1 },
		"heads was 0, must be 1":              func(p *Planner, _ *Request) { p.Model.Heads = 0 },
		"heads was 20000, must be":            func(p *Planner, _ *Request) { p.Model.Heads = 20000 },
		"workspace was -5 bytes, must be":     func(p *Planner, _ *Request) { p.Workspace = -5 },
		"has a width below its least":         func(p *Planner, _ *Request) { p.Model.Nope = 0 },
		"has 0 multiprocessors, must be 1 to": func(p *Planner, _ *Request) { p.Card = Card{} },
		"has a rate of NaN, must be above 0":  func(p *Planner, _ *Request) { p.Card.Stream = math.NaN() },
		"prefix was 4611686018427387904 toke": func(_ *Planner, r *Request) { r.Prefix = 1 << 62 },
	} {
		p, r := good, Request{New: 5, Prefix: 5}
		change(&p, &r)
		if _, err := p.Plan(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := good.Plan(Request{MaxTokens, MaxTokens}); err != nil {
		t.Error(err)
	}
}

func TestJSON(t *testing.T) {
	text, err := json.Marshal(plan(t, 1<<30, 128, Request{512, 32768}))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"choice":"expand-chunked"`, `"path":"absorb","possible":true`, `"new":512,"prefix":32768`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s\nlacks %s", text, want)
		}
	}
}
