package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/golden/oracle"
)

// small is a load whose requests share steps, wait for pages and are cut into
// two pieces.
var small = []string{"-requests", "5", "-capacity", "4", "-prompt", "500", "-generate", "3", "-seed", "7"}

// TestRun: the requests get what they ask for, and the same alone.
func TestRun(t *testing.T) {
	c, err := parse(small, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	tokens := 0
	for _, r := range newRequests(&c) {
		tokens += r.generate
	}
	var stdout, stderr strings.Builder
	if code := run(small, &stdout, &stderr); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	for _, want := range []string{"up to 2 pieces", fmt.Sprintf("verified %d tokens of 5 requests", tokens), fmt.Sprintf(" %d tokens: ", tokens)} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, &stdout)
		}
	}
}

// TestVerifyFails: where a schedule follows the batch, so do the bits, and
// verifying says so.
func TestVerifyFails(t *testing.T) {
	var stdout, stderr strings.Builder
	code := run(append(slices.Clone(small), "-balanced"), &stdout, &stderr)
	if code != exitFailure || !strings.Contains(stderr.String(), "depend on their batch mates") || strings.Contains(stdout.String(), "verified") {
		t.Errorf("exit code %d, %q, %q; a balanced schedule must not verify", code, &stdout, &stderr)
	}
}

// TestAttention: what the requests get in a batch is what the oracle computes
// from their own rows.
func TestAttention(t *testing.T) {
	c, err := parse(small, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	drv, err := c.open()
	if err != nil {
		t.Fatal(err)
	}
	e, err := newEngine(drv, &c)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()

	caches := map[int][][]float32{}
	results := 0
	s, err := e.serveWatched(newRequests(&c), func(l *live, out, lse []byte) {
		cache := caches[l.id]
		for position := range l.prompt - len(cache) {
			record := make([]byte, rowBytes)
			e.model.promptRow(record, l.id, position)
			cache = append(cache, floats(record))
		}
		query, record := make([]byte, c.heads*rowBytes), make([]byte, rowBytes)
		e.model.input(query, record, &l.last)
		cache = append(cache, floats(record))
		caches[l.id] = cache
		problem := oracle.Decode[float32]{
			Heads: c.heads, QLen: 1, Latent: latent, Rope: rope, Scale: softmaxScale, KVLen: []int{len(cache)},
			Q:   func(_, _, head int) []float32 { return floats(at(query, head, rowBytes)) },
			Row: func(_, position int) []float32 { return cache[position] },
		}
		want := problem.Run()
		for i, got := range floats(out) {
			// Weights and output are rounded to bf16, 8 bits.
			if !(math.Abs(float64(got)-want.Out[i]) <= 0.03) {
				t.Fatalf("request %d, token %d: output %d is %v, want %v", l.id, len(l.tokens), i, got, want.Out[i])
			}
		}
		for head, w := range want.LSE {
			if got := math.Float32frombits(binary.LittleEndian.Uint32(lse[4*head:])); !(math.Abs(float64(got)-w) <= 1e-4) {
				t.Fatalf("request %d, token %d: LSE of head %d is %v, want %v", l.id, len(l.tokens), head, got, w)
			}
		}
		results++
	})
	if err != nil {
		t.Fatal(err)
	}
	if results != s.generated || s.steps >= s.generated || s.most < 2 {
		t.Errorf("%d results for %d tokens in %d steps, up to %d requests at a time; some must share a step", results, s.generated, s.steps, s.most)
	}
}

// floats reads bf16.
func floats(raw []byte) []float32 {
	x := make([]float32, len(raw)/element)
	for i := range x {
		x[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw[element*i:])) << 16)
	}
	return x
}

// TestUsage: what cannot be carried out is refused with the reason.
func TestUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"-device \"tpu\" does not exist": {"-device", "tpu"},
		"there are flags only":           {"serve"},
		"-heads was -1":                  {"-heads", "-1"},
		"must be at least 7":             {"-pages", "6"},
		"-pages was 0":                   {"-pages", "0"},
		"-requests was 0":                {"-requests", "0"},
		"-capacity was 99999999":         {"-capacity", "99999999"},
		"-prompt was 999999999999":       {"-prompt", "999999999999"},
		"-generate was 9223372036854":    {"-generate", "9223372036854775807"},
		"pages are too many":             {"-capacity", "1000000", "-prompt", "1000000"},
		"4611686018427387904 pages":      {"-pages", "4611686018427387904"},
	} {
		var stdout, stderr strings.Builder
		if code := run(args, &stdout, &stderr); code != exitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("%q: exit code %d, %q, want %q", args, code, &stderr, want)
		}
	}
}

// TestPagePool: what was promised can be taken, and no more.
func TestPagePool(t *testing.T) {
	p := newPagePool(3, 1)
	if !p.promise(2) || p.promise(2) || !p.promise(1) {
		t.Fatal("of 3 pages, 2 and 1 can be promised, not 2 and 2")
	}
	a, b := p.take(), p.take()
	if p.put([]int32{b}); p.promise(2) || !p.promise(1) {
		t.Fatal("of 2 pages 1 is promised")
	}
	if got := p.take(); got != b {
		t.Errorf("page %d was taken, want the last that came back, %d", got, b)
	}
	got := []int32{a, b, p.take()}
	if slices.Sort(got); !slices.Equal(got, []int32{0, 1, 2}) {
		t.Errorf("pages %v are out, want each once", got)
	}
}
