package bench

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

// FuzzAnchors: whatever the text, reading a table gives an error or shapes that
// can be reckoned with and times that are times.
func FuzzAnchors(f *testing.F) {
	for _, seed := range []string{
		"# why\nheads,s_q,batch,kv_len,causal,varlen,flashmla_us,fa3mla_us\n16,1,4,1024,0,0,12.7,14.0\n16,2,4,1024,1,1,13,15\n16,1,4,1024,0,0,1e1,0x1p3\n",
		"what,heads,s_q,batch,kv_len,burst_us,burst_tflops,sustained_us\nflashmla,16,1,128,4096,1,2,306.8\nfa3-prefill-causal,128,8192,1,8192,1,2,3\nfa3-prefill,1,2,3,4,5,6,7\n",
		"heads,batch,q_len,kv_len,causal,fa3_us,fa3_tflops,cudnn_us\n128,1,1024,1024,1,93.4,500,106\n",
		"heads,s_q,batch,kv_len,causal,varlen,x_us\n1,1,1,1,0,0,nan\n1,1,1,1,0,0,inf\n\"1\n\",1,1,1,0,0,1\n",
	} {
		f.Add([]byte(seed))
	}
	check := func(t *testing.T, err error, peers ...[]Peer) {
		if err != nil {
			t.Error(err)
		}
		for _, list := range peers {
			for _, p := range list {
				if !(p.Microseconds > 0) || math.IsInf(p.Microseconds, 0) {
					t.Errorf("%+v", p)
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if anchors, err := ReadAnchors(bytes.NewReader(text)); err == nil {
			for _, a := range anchors {
				check(t, a.check(), a.Peers, a.Sustained)
			}
		}
		if anchors, err := ReadPrefillAnchors(bytes.NewReader(text)); err == nil {
			for _, a := range anchors {
				check(t, a.check(), a.Peers, a.Sustained)
			}
		}
	})
}

func TestAnchorsRefused(t *testing.T) {
	const header = "heads,s_q,batch,kv_len,causal,varlen,x_us\n"
	for _, c := range []struct{ text, want string }{
		{"heads,s_q,batch,kv_len,causal,varlen,us,best_peer_us\n1,1,1,1,0,0,2,3\n", "tables that mlagen bench writes"},
		{header + "1,1,1,1,0,0,nan\n", `x_us is "nan" and must be a time`},
		{header + "1,1,1,1,0,0,inf\n", `x_us is "inf" and must be a time`},
		{header + "1,1,9223372036854775807,1,0,0,1\n", "heads must be at most"},
		{header + "1,1,1,1,0,0,\"1\x1b[2J\"\n", "cannot be printed"},
		{header + strings.Repeat("1,1,1,1,0,0,1\n", 1<<17), "larger than 1048576 bytes"},
	} {
		if _, err := ReadAnchors(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	// As many rows of one shape as there may be are put together in no time.
	text := header + strings.Repeat("1,1,1,1,0,0,1\n", (1<<20-len(header))/14)
	if a, err := ReadAnchors(strings.NewReader(text)); err != nil || len(a) != 1 || len(a[0].Peers) < 70000 {
		t.Error(len(a), err)
	}
}
