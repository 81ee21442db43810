package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/bench"
)

func TestBenchShapes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "anchors.csv")
	const table = "heads,s_q,batch,kv_len,causal,varlen,a_us\n16,1,1,4096,0,0,16.2\n16,1,128,8192,0,1,164.6\n128,2,1,4096,1,0,21.4\n"
	if err := os.WriteFile(file, []byte(table), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		f    benchFlags
		want []string
	}{
		{benchFlags{op: "decode", replays: 1}, []string{
			"heads 16, s_q 1, batch 1, kv 4096", "heads 16, s_q 1, batch 16, kv 4096", "heads 16, s_q 1, batch 128, kv 4096"}},
		{benchFlags{op: "decode", replays: 1, heads: numbers{1, 2}, batch: numbers{3}, kv: numbers{64, 65}, varlen: true}, []string{
			"heads 1, s_q 1, batch 3, kv 64 varlen", "heads 1, s_q 1, batch 3, kv 65 varlen", "heads 2, s_q 1, batch 3, kv 64 varlen", "heads 2, s_q 1, batch 3, kv 65 varlen"}},
		{benchFlags{op: "decode", replays: 1, anchors: file}, []string{
			"heads 16, s_q 1, batch 1, kv 4096", "heads 16, s_q 1, batch 128, kv 8192 varlen", "heads 128, s_q 2, batch 1, kv 4096"}},
		{benchFlags{op: "decode", replays: 1, anchors: file, heads: numbers{16}, kv: numbers{4096}}, []string{"heads 16, s_q 1, batch 1, kv 4096"}},
		{benchFlags{op: "decode", replays: 1, anchors: file, varlen: true}, []string{"heads 16, s_q 1, batch 128, kv 8192 varlen"}},
	} {
		shapes, err := c.f.shapes()
		if err != nil {
			t.Error(err)
		}
		var got []string
		for _, s := range shapes {
			got = append(got, s.String())
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Error(d)
		}
	}
	for _, f := range []benchFlags{
		{op: "prefill", replays: 1}, {op: "decode"}, {op: "decode", replays: 1, sustained: -1},
		{op: "decode", replays: 1, anchors: file, heads: numbers{7}}, {op: "decode", replays: 1, anchors: file + "x"},
	} {
		if _, err := f.shapes(); err == nil {
			t.Errorf("%+v was accepted", f)
		}
	}
}

func TestNumbers(t *testing.T) {
	var n numbers
	if err := n.Set("16, 128"); err != nil || n.String() != "16,128" {
		t.Error(n, err)
	}
	for _, bad := range []string{"", "x", "0", "1,,2", "-1"} {
		if err := n.Set(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestBenchReport(t *testing.T) {
	shape := bench.Shape{Heads: 16, SQ: 1, Batch: 128, KV: 4096}
	r := benchReport{
		device: "GPU", attributes: runtime.Attributes{SMs: 132, DriverVersion: 13000}, pool: 20e9, stream: 4.5, streamAfter: 4.51, sustained: true,
		rows: []benchRow{{
			bench.Anchor{Shape: shape, Peers: []bench.Peer{{Name: "slow", Microseconds: 200}, {Name: "quick", Microseconds: 144}}},
			bench.Result{Shape: shape, Microseconds: 120, Calls: 30, Spread: 0.012, BurstMicroseconds: 121, SustainedMicroseconds: 130},
		}},
	}
	var out bytes.Buffer
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"stream 4.50 TB/s before, 4.51 after", "120.00", "5.07", "152", "quick", "144.00", "1.200", "all", "1.2%", "130.00"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "varlen") {
		t.Errorf("an empty group is shown:\n%s", out.String())
	}
	const want = `# GPU, driver for CUDA 13.0, bf16, page 64, stream 4.500 TB/s before and 4.510 after; microseconds per call incl. combine
heads,s_q,batch,kv_len,causal,varlen,us,tb_per_s,tflops,spread,calls,out_error,lse_error,burst_us,sustained_us,best_peer,best_peer_us,ratio
16,1,128,4096,0,0,120.000,5.0704,152.11,0.0120,30,0.00e+00,0.00e+00,121.000,130.000,quick,144.000,1.2000
`
	if d := cmp.Diff(want, string(r.csv())); d != "" {
		t.Error(d)
	}
}
