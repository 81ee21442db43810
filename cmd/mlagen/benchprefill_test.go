package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/bench"
	"github.com/mlagen/mlagen/templates"
)

func TestBenchPrefillShapes(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return file
	}
	file := write("anchors.csv", "heads,batch,q_len,kv_len,causal,a_us\n128,1,1024,1024,1,93.2\n16,4,4096,4096,1,500\n128,1,2048,8192,0,2045\n")
	sustained := write("sustained.csv", "what,heads,s_q,batch,kv_len,burst_us,burst_tflops,sustained_us,sustained_tflops\na-prefill-causal,128,1024,1,1024,90,1,100,1\n")
	for _, c := range []struct {
		f    benchFlags
		want []string
	}{
		{benchFlags{}, []string{"heads 128, batch 1, queries 1024, keys 1024, causal", "heads 128, batch 1, queries 4096, keys 4096, causal",
			"heads 128, batch 1, queries 8192, keys 8192, causal"}},
		{benchFlags{heads: numbers{16}, batch: numbers{2}, kv: numbers{300}, sq: numbers{100, 200}, noncausal: true},
			[]string{"heads 16, batch 2, queries 100, keys 300, non-causal", "heads 16, batch 2, queries 200, keys 300, non-causal"}},
		{benchFlags{anchors: file + "," + sustained}, []string{"heads 128, batch 1, queries 1024, keys 1024, causal", "heads 16, batch 4, queries 4096, keys 4096, causal",
			"heads 128, batch 1, queries 2048, keys 8192, non-causal"}},
		{benchFlags{anchors: file, heads: numbers{128}, sq: numbers{1024}}, []string{"heads 128, batch 1, queries 1024, keys 1024, causal"}},
		{benchFlags{anchors: file, noncausal: true}, []string{"heads 128, batch 1, queries 2048, keys 8192, non-causal"}},
	} {
		c.f.replays = 1
		shapes, err := c.f.prefillShapes()
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
		{}, {replays: 1, sustained: -1}, {replays: 1, splits: 2}, {replays: 1, invariant: 1}, {replays: 1, variant: "all"}, {replays: 1, varlen: true},
		{replays: 1, tune: templates.Spec{BlockH: 16}}, {replays: 1, anchors: file, heads: numbers{7}}, {replays: 1, anchors: file + "x"},
	} {
		if _, err := f.prefillShapes(); err == nil {
			t.Errorf("%+v was accepted", f)
		}
	}
}

// fakePrefills answers with a time, or with an error.
type fakePrefills map[int]error // by heads

func (f fakePrefills) Prefill(s bench.PrefillShape) (bench.PrefillResult, error) {
	return bench.PrefillResult{PrefillShape: s, Microseconds: 5}, f[s.Heads]
}

func TestBenchPrefillMeasures(t *testing.T) {
	shape := func(heads int) bench.PrefillAnchor {
		return bench.PrefillAnchor{PrefillShape: bench.PrefillShape{Heads: heads, Batch: 1, Q: 1, KV: 1}}
	}
	lost := errors.New("device lost")
	f := fakePrefills{2: fmt.Errorf("x: %w", &bench.WrongError{Text: "off by one"}), 4: lost}
	var r prefillReport
	var said bytes.Buffer
	wrong, err := r.measure(f, []bench.PrefillAnchor{shape(1), shape(2), shape(3)}, progress{}, &said)
	if err != nil || wrong != 1 || len(r.rows) != 2 || !strings.Contains(said.String(), "x: WRONG RESULT, no time: off by one") {
		t.Errorf("%v, %d wrong, %d rows, said %q", err, wrong, len(r.rows), said.String())
	}
	if _, err := r.measure(f, []bench.PrefillAnchor{shape(4), shape(1)}, progress{}, &said); !errors.Is(err, lost) || len(r.rows) != 2 {
		t.Errorf("%v, %d rows", err, len(r.rows))
	}
}

func TestBenchPrefillReport(t *testing.T) {
	short := bench.PrefillShape{Heads: 128, Batch: 1, Q: 1024, KV: 1024, Causal: true}
	long := bench.PrefillShape{Heads: 128, Batch: 1, Q: 2048, KV: 8192}
	r := prefillReport{device: "GPU", attributes: runtime.Attributes{SMs: 132, DriverVersion: 13000}, rows: []prefillRow{
		{bench.PrefillAnchor{PrefillShape: short, Peers: []bench.Peer{{Name: "fa3", Microseconds: 93.2}, {Name: "cudnn", Microseconds: 106.5}}},
			bench.PrefillResult{PrefillShape: short, BlockM: 128, BlockN: 128, Microseconds: 80, Spread: 0.003, Calls: 40, ScheduleMicros: 3.5}},
		{bench.PrefillAnchor{PrefillShape: long, Peers: []bench.Peer{{Name: "fa3", Microseconds: 2045.6}}},
			bench.PrefillResult{PrefillShape: long, BlockM: 128, BlockN: 128, Microseconds: 2000, Calls: 4, ScheduleMicros: 4}},
	}}
	print := func() string {
		t.Helper()
		var out bytes.Buffer
		if err := r.print(&out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	out := print()
	wantLines(t, out, []string{"GPU, 132 SMs, driver for CUDA 13.0"},
		[]string{"128", "1", "1024", "1024", "yes", "128×128", "80.0", "537", "0.3%", "3.5", "93.2", "461", "1.165", "106.5", "404", "1.331"},
		[]string{"2048", "8192", "no", "2000.0", "687", "2045.6", "672", "1.023", "-", "-", "-"},
		[]string{"fa3 ÷ ours: geometric mean 1.092, least 1.023 of 2 shapes; up to 1024 query tokens 1.165, least 1.165 of 1"},
		[]string{"cudnn ÷ ours: geometric mean 1.331, least 1.331 of 1 shapes"})
	if strings.Contains(out, "sustained") || strings.Contains(out, "compile") {
		t.Errorf("what was not measured is told:\n%s", out)
	}
	const want = `# GPU, driver for CUDA 13.0, bf16; microseconds per call, the schedule computed beforehand
heads,batch,q_len,kv_len,causal,us,tflops,spread,calls,out_error,lse_error,schedule_us,block_m,block_n,burst_us,sustained_us,sustained_tflops,watts,sm_mhz,fa3_us,fa3_ratio,cudnn_us,cudnn_ratio
128,1,1024,1024,1,80.000,537.40,0.0030,40,0.00e+00,0.00e+00,3.500,128,128,,,,,,93.200,1.1650,106.500,1.3313
128,1,2048,8192,0,2000.000,687.19,0.0000,4,0.00e+00,0.00e+00,4.000,128,128,,,,,,2045.600,1.0228,,
`
	if d := cmp.Diff(want, string(r.csv())); d != "" {
		t.Error(d)
	}

	row := &r.rows[0]
	row.anchor.Sustained = []bench.Peer{{Name: "fa3", Microseconds: 100}}
	row.BurstMicroseconds, row.SustainedMicroseconds = 81, 90
	row.Power = &bench.Power{Watts: bench.Range{Mean: 690, Min: 650, Max: 701}, MHz: bench.Range{Mean: 1500, Min: 1400, Max: 1600}}
	wantLines(t, print(), []string{"1024", "81.0", "90.0", "478", "690 (650–701)", "1500 (1400–1600)", "100.0", "430", "1.111"},
		[]string{"fa3 ÷ ours, sustained: geometric mean 1.111, least 1.111 of 1 shapes"})
	if csv := string(r.csv()); !strings.Contains(csv, ",128,128,81.000,90.000,477.68,690.0,1500,93.200,1.1650,106.500,1.3313,100.000,1.1111\n") {
		t.Error(csv)
	}
	row.Power, r.meter = nil, errors.New("no library")
	wantLines(t, print(), []string{"90.0", "-", "-"}, []string{"power and clock were not measured: no library"})
}
