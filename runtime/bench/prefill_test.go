package bench

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/runtime"
)

func TestPrefillIsTimedPerCall(t *testing.T) {
	for _, s := range []PrefillShape{
		{Heads: 2, Batch: 3, Q: 17, KV: 40, Causal: true},
		{Heads: 1, Batch: 2, Q: 9, KV: 30},
		{Heads: 2, Batch: 1, Q: 12, KV: 5, Causal: true}, // the first seven see nothing
		{Heads: 1, Batch: 1, Q: 1, KV: 1, Causal: true},
	} {
		d := newHostDriver()
		b := newBench(t, d, Config{Replays: 3, Sustained: 0.004})
		r, err := b.Prefill(s)
		if err != nil {
			t.Errorf("%v: %v", s, err)
			continue
		}
		// Every launch takes a microsecond.
		for name, us := range map[string]float64{
			"burst": r.Microseconds, "first burst": r.BurstMicroseconds, "sustained": r.SustainedMicroseconds, "schedule": r.ScheduleMicros,
		} {
			if math.Abs(us-1) > 1e-9 {
				t.Errorf("%v: %s took %v µs per call", s, name, us)
			}
		}
		if r.PrefillShape != s || r.BlockM != 128 || r.BlockN != 96 || r.Spread != 0 {
			t.Errorf("%v: %+v", s, r)
		}
		if (r.OutError == 0) != (s.KV == 1) || r.OutError > 3e-3 {
			t.Errorf("%v: out error %v; rounding must show", s, r.OutError)
		}
		// One schedule serves all calls; it is timed by itself, last.
		n := r.Calls * 4
		if d.launched[0] != "expand_schedule" || slices.Contains(d.launched[1:n], "expand_schedule") || d.launched[len(d.launched)-1] != "expand_schedule" {
			t.Errorf("%v: launched %v", s, d.launched)
		}
		// Two calls of each of the sets of tensors at least.
		if r.Calls < 4 || r.Calls > maxCalls {
			t.Errorf("%v: %d calls", s, r.Calls)
		}
		if d.live != 2 {
			t.Errorf("%v: %d buffers are left beside the pool's", s, d.live-2)
		}
		loaded := len(b.Compiled())
		if again, err := b.Prefill(s); err != nil || len(b.Compiled()) != loaded || again.Microseconds != r.Microseconds {
			t.Errorf("%v again: %+v, %v", s, again, err)
		}
		if err := b.Close(); err != nil || d.live != 0 {
			t.Errorf("%v: %d buffers left, %v", s, d.live, err)
		}
	}
}

// TestPrefillKeepsTheCacheCold: before a tensor is read again, four times the
// L2 has passed.
func TestPrefillKeepsTheCacheCold(t *testing.T) {
	d := newHostDriver()
	d.attributes.L2Bytes = 1 << 20
	b := newBench(t, d, Config{Replays: 1})
	s := PrefillShape{Heads: 2, Batch: 1, Q: 100, KV: 100, Causal: true}
	p, err := b.prefill(s.Heads)
	if err != nil {
		t.Fatal(err)
	}
	m := &memory{drv: d}
	c, err := b.placePrefill(s, p, m)
	if err != nil {
		t.Fatal(err)
	}
	bytes := int64(100*2*192*2 + 100*2*256*2 + 100*64*2)
	if n := int64(len(c.sets)); (n-1)*bytes < 4<<20 || (n-3)*bytes > 4<<20 {
		t.Errorf("%d sets of %d bytes", n, bytes)
	}
	seen := map[runtime.Ptr]bool{}
	for _, set := range c.sets {
		for _, ptr := range []runtime.Ptr{set.Q.Ptr, set.KVUp.Ptr, set.KRope.Ptr, set.Out.Ptr, set.LSE.Ptr} {
			if seen[ptr] {
				t.Errorf("%#x is in two sets", ptr)
			}
			seen[ptr] = true
		}
	}
	if n := b.prefillCalls(c); n < 2*len(c.sets) {
		t.Errorf("%d calls for %d sets", n, len(c.sets))
	}
	if err := m.free(); err != nil {
		t.Error(err)
	}
}

func TestWrongPrefillsAreNotTimed(t *testing.T) {
	s := PrefillShape{Heads: 2, Batch: 2, Q: 9, KV: 20, Causal: true}
	runs := byte(0)
	for name, c := range map[string]struct {
		spoil func(out, lse []byte)
		says  string
	}{
		"an output that is too large": {func(out, _ []byte) {
			for i := 1; i < 2*9*2*value*2; i += 2 {
				out[i]++
			}
		}, "out is off by"},
		"a NaN": {func(out, _ []byte) {
			for i := range 2 * 9 * 2 * value * 2 {
				out[i] = 0xff
			}
		}, "out is off by NaN"},
		"an lse not written":        {func(_, lse []byte) { copy(lse[4*2*9*2-4:], "\xff\xff\xff\xff") }, "sequence 1, query 8, head 1: lse is NaN"},
		"an lse of minus infinity":  {func(_, lse []byte) { copy(lse, []byte{0, 0, 0x80, 0xff}) }, "sequence 0, query 0, head 0: lse is -Inf"},
		"results that change":       {func(_, lse []byte) { runs++; lse[0] ^= runs }, "differs from the first"},
		"every lse a little larger": {func(_, lse []byte) { addToEach(lse[:4*2*9*2], 0.1) }, "lse is"},
	} {
		d := newHostDriver()
		d.spoil = c.spoil
		b := newBench(t, d, Config{Replays: 1})
		_, err := b.Prefill(s)
		var wrong *WrongError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "heads 2, batch 2, queries 9, keys 20, causal") {
			t.Errorf("%s: %v", name, err)
		}
		if d.live != 2 {
			t.Errorf("%s: %d buffers are left beside the pool's", name, d.live-2)
		}
	}
}

// addToEach adds to every f32 of raw.
func addToEach(raw []byte, x float32) {
	for i := 0; i < len(raw); i += 4 {
		bits := uint32(raw[i]) | uint32(raw[i+1])<<8 | uint32(raw[i+2])<<16 | uint32(raw[i+3])<<24
		bits = math.Float32bits(math.Float32frombits(bits) + x)
		raw[i], raw[i+1], raw[i+2], raw[i+3] = byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24)
	}
}

// onlyDecode is a source without prefill.
type onlyDecode struct{ runtime.Source }

func TestPrefillKernelsThatCannotBeHad(t *testing.T) {
	b := newBench(t, newHostDriver(), Config{Replays: 1})
	var load *LoadError
	if _, err := b.Prefill(PrefillShape{Heads: 9, Batch: 1, Q: 1, KV: 1}); !errors.As(err, &load) {
		t.Errorf("nine heads: %v", err)
	}
	b.Source = onlyDecode{fakeSource{}}
	if _, err := b.Prefill(PrefillShape{Heads: 1, Batch: 1, Q: 1, KV: 1}); !errors.As(err, &load) || !strings.Contains(err.Error(), "no prefill kernels") {
		t.Errorf("a source of decode alone: %v", err)
	}
}

func TestPrefillCounts(t *testing.T) {
	for _, c := range []struct {
		s     PrefillShape
		pairs float64
	}{
		{PrefillShape{Heads: 128, Batch: 1, Q: 4096, KV: 4096, Causal: true}, 128 * 4096 * 4097 / 2},
		{PrefillShape{Heads: 16, Batch: 4, Q: 10, KV: 30}, 16 * 4 * 10 * 30},
		{PrefillShape{Heads: 1, Batch: 1, Q: 3, KV: 5, Causal: true}, 3 + 4 + 5},
		{PrefillShape{Heads: 1, Batch: 1, Q: 5, KV: 2, Causal: true}, 1 + 2},
	} {
		if got, want := c.s.FLOP(), 2*320*c.pairs; got != want {
			t.Errorf("%v: %g FLOP, want %g", c.s, got, want)
		}
	}
	s := PrefillShape{Heads: 128, Batch: 1, Q: 4096, KV: 4096, Causal: true}
	if got := s.TFLOPS(986); math.Abs(got-697.1) > 0.2 { // as the peers' tables count
		t.Errorf("%v TFLOPS", got)
	}
}

func TestReadPrefillAnchors(t *testing.T) {
	const table = `# a comment, with commas
heads,batch,q_len,kv_len,causal,a_us,a_tflops,b_us
128,1,1024,1024,1,93.2,461.2,106.5
128,1,2048,8192,0,2045.6,671.9,2332.8
`
	got, err := ReadPrefillAnchors(strings.NewReader(table))
	if err != nil {
		t.Fatal(err)
	}
	first := PrefillShape{Heads: 128, Batch: 1, Q: 1024, KV: 1024, Causal: true}
	want := []PrefillAnchor{
		{PrefillShape: first, Peers: []Peer{{"a", 93.2}, {"b", 106.5}}},
		{PrefillShape: PrefillShape{Heads: 128, Batch: 1, Q: 2048, KV: 8192}, Peers: []Peer{{"a", 2045.6}, {"b", 2332.8}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, c := range []struct{ old, new, want string }{
		{table, "", "header"}, {"heads,batch", "heads,s_q", "header"}, {"93.2", "fast", "a_us"}, {"93.2", "0", "a_us"},
		{"128,1,1024", "128,x,1024", "batch"}, {"128,1,1024", "0,1,1024", "at least 1"},
	} {
		if _, err := ReadPrefillAnchors(strings.NewReader(strings.Replace(table, c.old, c.new, 1))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q: %v, want %q", c.new, c.old, err, c.want)
		}
	}

	const sustained = `what,heads,s_q,batch,kv_len,burst_us,burst_tflops,sustained_us,sustained_tflops
flashmla,128,1,128,4096,227.2,642.7,275.2,530.6
a-prefill-causal,128,1024,1,1024,90,1,100.5,1
b-prefill,16,64,2,128,90,1,30.5,1
`
	also, err := ReadPrefillAnchors(strings.NewReader(sustained))
	if err != nil {
		t.Fatal(err)
	}
	other := PrefillAnchor{PrefillShape: PrefillShape{Heads: 16, Batch: 2, Q: 64, KV: 128}, Sustained: []Peer{{"b", 30.5}}}
	if d := cmp.Diff([]PrefillAnchor{{PrefillShape: first, Sustained: []Peer{{"a", 100.5}}}, other}, also); d != "" {
		t.Error(d)
	}
	want[0].Sustained = []Peer{{"a", 100.5}}
	if d := cmp.Diff(append(want, other), MergePrefillAnchors(append(got, also...))); d != "" {
		t.Error(d)
	}
	for _, c := range []struct{ old, new, want string }{{"100.5", "-1", "sustained_us"}, {"causal,128,1024", "causal,128,x", "s_q"}} {
		if _, err := ReadPrefillAnchors(strings.NewReader(strings.Replace(sustained, c.old, c.new, 1))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q: %v, want %q", c.new, c.old, err, c.want)
		}
	}
}
