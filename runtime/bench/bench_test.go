package bench

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func newBench(t *testing.T, d *hostDriver, c Config) *Bench {
	t.Helper()
	c.Driver, c.Source, c.Stream, c.Reference = d, fakeSource{}, fakeVariant("stream", streamParams, 8), fakeReference
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDecodeIsTimedPerCall(t *testing.T) {
	for _, s := range []Shape{
		{Heads: fakeHeads, SQ: fakeSQ, Batch: 3, KV: 130},
		{Heads: fakeHeads, SQ: fakeSQ, Batch: 5, KV: 100, Varlen: true},
		{Heads: fakeHeads, SQ: fakeSQ, Batch: 1, KV: 1}, // query 0 sees nothing
	} {
		d := newHostDriver()
		b := newBench(t, d, Config{Replays: 3, Sustained: 0.004})
		r, err := b.Decode(s)
		if err != nil {
			t.Errorf("%v: %v", s, err)
			continue
		}
		// Two launches of a microsecond each.
		if math.Abs(r.Microseconds-2) > 1e-9 || math.Abs(r.SustainedMicroseconds-2) > 1e-9 || math.Abs(r.BurstMicroseconds-2) > 1e-9 || r.Spread != 0 {
			t.Errorf("%v: %+v", s, r)
		}
		if (r.OutError == 0) != (s.KV == 1) || r.OutError > 3e-3 {
			t.Errorf("%v: out error %v; rounding must show", s, r.OutError)
		}
		if n := len(d.launched); d.launched[0] != "decode_schedule" || slices.Contains(d.launched[1:], "decode_schedule") || n < 1+4*2*r.Calls {
			t.Errorf("%v: %d launches, the first %s", s, n, d.launched[0])
		}
		if err := b.Close(); err != nil || d.live != 0 {
			t.Errorf("%v: %d buffers left, %v", s, d.live, err)
		}
	}
}

// TestNoMemory: whichever allocation fails, its error comes through and the
// others are freed.
func TestNoMemory(t *testing.T) {
	for n := 1; ; n++ {
		d := newHostDriver()
		d.room = n
		b, err := New(Config{Driver: d, Source: fakeSource{}, Stream: fakeVariant("stream", streamParams, 8), Reference: fakeReference, Replays: 1})
		if err == nil {
			_, err = b.Decode(Shape{Heads: fakeHeads, SQ: fakeSQ, Batch: 1, KV: 1})
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		if d.live != 0 {
			t.Errorf("allocation %d fails: %d buffers left", n, d.live)
		}
		if d.room > 0 {
			if err != nil || n < 8 {
				t.Errorf("%d allocations, %v", n-1, err)
			}
			return
		}
		if err == nil || !strings.Contains(err.Error(), "bytes (1 of 2 bytes free)") {
			t.Errorf("allocation %d fails: %v", n, err)
		}
	}
}

func TestWrongResultsAreNotTimed(t *testing.T) {
	for name, spoil := range map[string]func(out, lse []byte){
		"an output that is too large": func(out, _ []byte) {
			for i := 1; i < 3*fakeSQ*fakeHeads*latent*2; i += 2 {
				out[i]++
			}
		},
		"a NaN": func(out, _ []byte) {
			for i := range 3 * fakeSQ * fakeHeads * latent * 2 {
				out[i] = 0xff
			}
		},
		"one lse not written": func(_, lse []byte) { copy(lse[8:], "\xff\xff\xff\xff") },
		"one lse of minus infinity": func(_, lse []byte) {
			copy(lse[8:], []byte{0, 0, 0x80, 0xff})
		},
	} {
		d := newHostDriver()
		d.spoil = spoil
		b := newBench(t, d, Config{Replays: 1})
		_, err := b.Decode(Shape{Heads: fakeHeads, SQ: fakeSQ, Batch: 3, KV: 130})
		var wrong *WrongError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "WRONG RESULT") || !strings.Contains(err.Error(), "heads 2, s_q 2, batch 3, kv 130") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestResultsThatChangeAreNotTimed(t *testing.T) {
	d := newHostDriver()
	runs := byte(0)
	d.spoil = func(_, lse []byte) { runs++; lse[0] ^= runs }
	b := newBench(t, d, Config{Replays: 1})
	_, err := b.Decode(Shape{Heads: fakeHeads, SQ: fakeSQ, Batch: 3, KV: 130})
	var wrong *WrongError
	if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "differs from the first") {
		t.Error(err)
	}
}

func TestTablesRotateThroughThePool(t *testing.T) {
	d := newHostDriver()
	b := newBench(t, d, Config{})
	if b.pages != 40 {
		t.Fatalf("%d pages", b.pages)
	}
	seen := map[int32]int{}
	for range 4 { // 4 calls of 10 pages: all pages once
		table := b.table([]int32{300, 64, 257}, 5)
		for i, p := range table {
			past := i%5 >= []int{5, 1, 5}[i/5]
			if past != (p == -1) {
				t.Errorf("entry %d is %d", i, p)
			}
			if p >= 0 {
				seen[p]++
			}
		}
	}
	if len(seen) != 40 {
		t.Errorf("%d different pages, want 40", len(seen))
	}
	_, err := b.Decode(Shape{Heads: fakeHeads, SQ: fakeSQ, Batch: 41, KV: 64})
	if err == nil || !strings.Contains(err.Error(), "41 pages") {
		t.Error(err)
	}
}

func TestHostKnowsThePoolsContents(t *testing.T) {
	d := newHostDriver()
	b := newBench(t, d, Config{})
	raw := d.from(b.pool)[:b.Pool()]
	for _, page := range []int32{0, 17, 39} {
		for _, slot := range []int{0, 63} {
			got := b.record(page, slot)
			at := raw[int(page)*pageBytes+slot*recordBytes:]
			for j, v := range got {
				if bf16(v) != uint16(at[2*j])|uint16(at[2*j+1])<<8 {
					t.Fatalf("page %d slot %d column %d differs", page, slot, j)
				}
			}
		}
	}
}

func TestBlockRepeatsAndIsRandom(t *testing.T) {
	d := newHostDriver()
	s, _ := d.NewStream()
	k := newBlock(7, 0.25, 1)
	const rows = 20 // not a multiple of 7
	p, _ := d.Alloc("x", rows*recordBytes)
	if err := k.tile(d, s, p, rows*recordBytes); err != nil {
		t.Fatal(err)
	}
	raw := d.from(p)
	if !bytes.Equal(raw[19*recordBytes:20*recordBytes], k.data[5*recordBytes:6*recordBytes]) {
		t.Error("row 19 is not row 5 of the block")
	}
	if d := cmp.Diff(k.row(19), k.row(5)); d != "" {
		t.Error(d)
	}
	sum, squares := 0.0, 0.0
	for i := range int64(7) {
		for _, v := range k.row(i) {
			sum += float64(v)
			squares += float64(v) * float64(v)
		}
	}
	n := float64(7 * record)
	if dev := math.Sqrt(squares / n); math.Abs(dev-0.25) > 0.01 || math.Abs(sum/n) > 0.02 {
		t.Errorf("deviation %v, mean %v", dev, sum/n)
	}
	if !bytes.Equal(newBlock(7, 0.25, 1).data, k.data) || bytes.Equal(newBlock(7, 0.25, 2).data, k.data) {
		t.Error("the seed does not decide the data")
	}
}

func TestBandwidth(t *testing.T) {
	d := newHostDriver()
	b := newBench(t, d, Config{Replays: 3})
	tbps, err := b.Bandwidth()
	if want := 40.0 * pageBytes / 1e6; err != nil || math.Abs(tbps-want) > 1e-9 { // in one microsecond
		t.Errorf("%v TB/s, want %v, %v", tbps, want, err)
	}
}

func TestCallsKeepTheCacheCold(t *testing.T) {
	d := newHostDriver()
	d.attributes.L2Bytes = 60 << 20
	b := &Bench{Config: Config{Driver: d}}
	for _, s := range []Shape{
		{Heads: 16, SQ: 1, Batch: 1, KV: 1024}, {Heads: 16, SQ: 1, Batch: 128, KV: 8192},
		{Heads: 128, SQ: 4, Batch: 128, KV: 4096}, {Heads: 16, SQ: 1, Batch: 16, KV: 4096},
	} {
		n := b.calls(s)
		if bytes := int64(n) * s.pages() * pageBytes; bytes < 4*60<<20 {
			t.Errorf("%v: %d calls turn over %d bytes only", s, n, bytes)
		}
		if n > maxCalls || n < 4 {
			t.Errorf("%v: %d calls", s, n)
		}
	}
}

func TestCounts(t *testing.T) {
	s := Shape{Heads: 16, SQ: 1, Batch: 128, KV: 4096}
	if got, want := s.FLOP(), 2.0*(576+512)*16*128*4096; got != want {
		t.Errorf("FLOP %g, want %g", got, want)
	}
	if got, want := s.Bytes(), 128*4096*1152.0+128*16*(1152+1024+4); got != want {
		t.Errorf("bytes %g, want %g", got, want)
	}
	s = Shape{Heads: 1, SQ: 3, Batch: 1, KV: 2} // the queries see 0, 1 and 2 tokens
	if got, want := s.FLOP(), 2.0*(576+512)*3; got != want {
		t.Errorf("FLOP %g, want %g", got, want)
	}
	s = Shape{Heads: 1, SQ: 1, Batch: 4000, KV: 8192, Varlen: true}
	low, high, sum := int32(math.MaxInt32), int32(0), 0.0
	for _, n := range s.Lengths() {
		low, high, sum = min(low, n), max(high, n), sum+float64(n)
	}
	if mean := sum / 4000; low < 1 || low > 100 || high > 8192 || high < 8092 || math.Abs(mean-4096) > 150 {
		t.Errorf("lengths %d to %d, mean %v", low, high, mean)
	}
	if slices.IsSorted(s.Lengths()) || !slices.Equal(s.Lengths(), s.Lengths()) {
		t.Error("lengths are in order, or change")
	}
	s.Batch, sum = 32, 0
	for _, n := range s.Lengths() {
		sum += float64(n)
	}
	if mean := sum / 32; math.Abs(mean-4096) > 100 {
		t.Errorf("mean of 32 lengths is %v", mean)
	}
}

func TestReadAnchors(t *testing.T) {
	const table = `# a comment, with commas
heads,s_q,batch,kv_len,causal,varlen,a_us,b_us
8,1,1,1024,0,0,10.96,13.24
16,5,16,4096,1,0,42.20,41.5
16,1,128,8192,0,1,164.58,174.22
`
	got, err := ReadAnchors(strings.NewReader(table))
	if err != nil {
		t.Fatal(err)
	}
	want := []Anchor{
		{Shape: Shape{8, 1, 1, 1024, false}, Peers: []Peer{{"a", 10.96}, {"b", 13.24}}},
		{Shape: Shape{16, 5, 16, 4096, false}, Peers: []Peer{{"a", 42.20}, {"b", 41.5}}},
		{Shape: Shape{16, 1, 128, 8192, true}, Peers: []Peer{{"a", 164.58}, {"b", 174.22}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if best := got[1].Best(); best.Name != "b" {
		t.Errorf("best is %+v", best)
	}
	for _, c := range []struct{ text, want string }{
		{"", "header"},
		{"heads,s_q\n", "header"},
		{strings.Replace(table, "10.96", "fast", 1), "a_us"},
		{strings.Replace(table, "8,1,1,1024", "8,x,1,1024", 1), "s_q"},
		{strings.Replace(table, "5,16,4096,1,", "5,16,4096,0,", 1), "causal"},
		{strings.Replace(table, "8,1,1,1024", "8,1,0,1024", 1), "at least 1"},
	} {
		if _, err := ReadAnchors(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}

func TestReadSustainedAnchors(t *testing.T) {
	const table = `# replayed without pause
what,heads,s_q,batch,kv_len,burst_us,burst_tflops,sustained_us,sustained_tflops
flashmla,128,2,64,4096,212.3,687.7,248.1,588.7
fa3mla,128,2,64,4096,230,650,260.5,560
fa3-prefill-causal,128,8192,1,8192,3587.5,766.3,4175.1,658.5
cublas-8192x8192x8192,0,0,0,0,1397.7,786.7,1632.6,673.5
`
	sustained, err := ReadAnchors(strings.NewReader(table))
	if err != nil {
		t.Fatal(err)
	}
	want := []Anchor{{Shape: Shape{128, 2, 64, 4096, false}, Sustained: []Peer{{"flashmla", 248.1}, {"fa3mla", 260.5}}}}
	if d := cmp.Diff(want, sustained); d != "" {
		t.Error(d)
	}
	if best := sustained[0].BestSustained(); best.Name != "flashmla" {
		t.Errorf("best is %+v", best)
	}
	if got := sustained[0].TFLOPS(248.1); math.Abs(got-588.7) > 0.5 {
		t.Errorf("%v TFLOPS; the table says 588.7", got)
	}
	// Together with the times of bursts.
	burst := Anchor{Shape: want[0].Shape, Peers: []Peer{{"flashmla", 212.9}}}
	other := Anchor{Shape: Shape{16, 1, 1, 64, false}, Peers: []Peer{{"flashmla", 9}}}
	got := MergeAnchors([]Anchor{other, burst, sustained[0]})
	burst.Sustained = want[0].Sustained
	if d := cmp.Diff([]Anchor{other, burst}, got); d != "" {
		t.Error(d)
	}
	for _, c := range []struct{ old, new, want string }{
		{"248.1", "0", "sustained_us"}, {"128,2,64", "128,x,64", "s_q"}, {"128,2,64", "0,2,64", "at least 1"}, {"sustained_us", "us", "header"},
	} {
		if _, err := ReadAnchors(strings.NewReader(strings.Replace(table, c.old, c.new, 1))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestGroups(t *testing.T) {
	in := func(s Shape) (names []string) {
		for _, g := range Groups[1:] {
			if g.Has(s) {
				names = append(names, g.Name)
			}
		}
		return names
	}
	for _, c := range []struct {
		s    Shape
		want []string
	}{
		{Shape{16, 1, 4, 8192, false}, []string{"batch ≤ 4, tokens ≥ 4096"}},
		{Shape{16, 1, 4, 1024, false}, nil},
		{Shape{16, 5, 16, 4096, false}, []string{"batch 16", "16 heads × s_q 5"}},
		{Shape{16, 1, 32, 32768, true}, []string{"varlen"}},
	} {
		if d := cmp.Diff(c.want, in(c.s)); d != "" {
			t.Errorf("%v: %s", c.s, d)
		}
	}
	if got := GeometricMean([]float64{2, 8}); math.Abs(got-4) > 1e-12 {
		t.Error(got)
	}
}

func TestMedian(t *testing.T) {
	if median([]float64{3, 1, 2}) != 2 || median([]float64{4, 1, 2, 3}) != 2.5 {
		t.Error("median")
	}
}

// TestFromCapacity: what suits a capacity is the source's to say, once, and for
// the longest request.
func TestFromCapacity(t *testing.T) {
	b := &Bench{Config: Config{Driver: newHostDriver(), Source: fakeSource{}}}
	s := Shape{Heads: fakeHeads, SQ: fakeSQ, Batch: 3, KV: 1 << 20, Varlen: true}
	set, err := b.resolved(s, Setting{Splits: FromCapacity})
	if want := (Setting{BlockH: 8, Splits: 11}); err != nil || set != want {
		t.Errorf("%+v, %v: want %+v", set, err, want)
	}
	if same, err := b.resolved(s, Setting{BlockH: 16, Splits: 2}); err != nil || same != (Setting{BlockH: 16, Splits: 2}) {
		t.Errorf("%+v, %v", same, err)
	}
}
