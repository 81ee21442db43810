package main

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/bench"
)

var reportShape = bench.Shape{Heads: 16, SQ: 1, Batch: 128, KV: 4096}

// measured is a result of reportShape.
func measured(blockH int, us float64) bench.Result {
	return bench.Result{Shape: reportShape, Setting: bench.Setting{BlockH: blockH}, Microseconds: us, Calls: 30, Spread: 0.012}
}

func newReport(rows ...benchRow) benchReport {
	return benchReport{device: "GPU", attributes: runtime.Attributes{SMs: 132, DriverVersion: 13000}, pool: 20e9, stream: 4.5, streamAfter: 4.51, rows: rows}
}

func printed(t *testing.T, r benchReport) string {
	t.Helper()
	var out bytes.Buffer
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// wantLines looks for lines that contain all of some texts, in their order.
func wantLines(t *testing.T, text string, lines ...[]string) {
	t.Helper()
next:
	for _, parts := range lines {
		for line := range strings.Lines(text) {
			rest, ok := line, true
			for _, p := range parts {
				var found bool
				_, rest, found = strings.Cut(rest, p)
				ok = ok && found
			}
			if ok {
				continue next
			}
		}
		t.Errorf("no line has %q:\n%s", parts, text)
	}
}

const csvHeader = "heads,s_q,batch,kv_len,causal,varlen,us,tb_per_s,tflops,spread,calls,out_error,lse_error,burst_us,sustained_us,best_peer,best_peer_us,ratio," +
	"block_h,splits,chosen,best,sustained_tb_per_s,sustained_tflops,watts,watts_min,watts_max,sm_mhz,sm_mhz_min,sm_mhz_max,joules_per_million_tokens," +
	"sustained_peer,sustained_peer_us,sustained_ratio,invariant_block_h,invariant_splits,invariant_us,invariant_cost\n"

func TestBenchReport(t *testing.T) {
	r := newReport(benchRow{
		anchor: bench.Anchor{Shape: reportShape, Peers: []bench.Peer{{Name: "slow", Microseconds: 200}, {Name: "quick", Microseconds: 144}}},
		Result: measured(16, 120),
	})
	out := printed(t, r)
	wantLines(t, out,
		[]string{"stream 4.50 TB/s before, 4.51 after"}, []string{"4096", "16", "120.00", "5.07", "152", "1.2%", "quick", "144.00", "1.200"}, []string{"all", "1", "1.200"})
	for _, no := range []string{"varlen", "sustained", "chosen", "invariant", "schedule µs"} {
		if strings.Contains(out, no) {
			t.Errorf("%q is shown:\n%s", no, out)
		}
	}
	want := "# GPU, driver for CUDA 13.0, bf16, page 64, stream 4.500 TB/s before and 4.510 after; microseconds per call incl. combine\n" + csvHeader +
		"16,1,128,4096,0,0,120.000,5.0704,152.11,0.0120,30,0.00e+00,0.00e+00,,,quick,144.000,1.2000,16,0,1,,,,,,,,,,,,,,,,,\n"
	if d := cmp.Diff(want, string(r.csv())); d != "" {
		t.Error(d)
	}
}

func TestBenchReportsPower(t *testing.T) {
	none := math.NaN()
	result := measured(16, 120)
	result.BurstMicroseconds, result.SustainedMicroseconds = 121, 130
	row := benchRow{anchor: bench.Anchor{Shape: reportShape, Sustained: []bench.Peer{{Name: "flashmla", Microseconds: 149.5}}}, Result: result}
	row.Power = &bench.Power{Watts: bench.Range{Mean: 690.04, Min: 650, Max: 701}, MHz: bench.Range{Mean: 1500, Min: 1400, Max: 1600}, Samples: 30, Drawn: 685, Counted: true}
	r := newReport(row)
	r.sustained = true
	out := printed(t, r)
	// 685 W × 130 µs for 128 × 4096 tokens.
	wantLines(t, out, []string{"121.00", "130.00", "4.68", "140", "690 (650–701)", "1500 (1400–1600)", "0.170", "flashmla", "149.50", "122", "1.150"}, []string{"by the energy counter"})
	if strings.Contains(out, "not measured") || strings.Contains(out, "mean power × time") || strings.Contains(out, "geometric mean") {
		t.Error(out)
	}
	const cells = "121.000,130.000,,,,16,0,1,,4.6803,140.41,690.0,650.0,701.0,1500,1400,1600,0.1698,flashmla,149.500,1.1500,,,,\n"
	if csv := string(r.csv()); !strings.HasSuffix(csv, cells) {
		t.Errorf("%s\nwant it to end with %s", csv, cells)
	}

	row.Power = &bench.Power{Watts: bench.Range{Mean: 300, Min: 300, Max: 300}, MHz: bench.Range{Mean: none, Min: none, Max: none}, Samples: 2, Drawn: 300}
	r.rows[0] = row
	wantLines(t, printed(t, r), []string{"300 (300–300)", " - ", "0.074"}, []string{"mean power × time"})

	row.Power = nil
	r.rows[0], r.meter = row, errors.New("libnvidia-ml.so.1: not there")
	wantLines(t, printed(t, r), []string{"130.00", " - ", " - ", " - "}, []string{"not measured: libnvidia-ml.so.1: not there"})
	if csv := string(r.csv()); !strings.Contains(csv, "140.41,,,,,,,,flashmla") {
		t.Error(csv)
	}
}

func TestBenchReportsVariants(t *testing.T) {
	chosen, quick := measured(16, 120), measured(8, 100)
	other := measured(32, 50)
	other.Shape.Batch = 16
	r := newReport(
		benchRow{anchor: bench.Anchor{Shape: reportShape, Peers: []bench.Peer{{Name: "peer", Microseconds: 240}}}, Result: chosen, variants: []bench.Result{quick, chosen}},
		benchRow{Result: other, variants: []bench.Result{other}},
	)
	wantLines(t, printed(t, r),
		[]string{"8 rows", "16 rows", "32 rows", "chosen", "best"},
		[]string{"128", "4096", "< 100.00", "* 120.00", " - ", "16", "8", "1.200"},
		[]string{"16", "4096", " - ", " - ", "*< 50.00", "32", "32", "1.000"},
		[]string{"all", "2", "1.095", "1.200", "1"},      // √1.2
		[]string{"batch 16", "1", "1.000", "1.000", "1"}, // the other alone
		[]string{"geometric mean of chosen / best"})
	lines := strings.Split(string(r.csv()), "\n")
	var got []string
	for _, l := range lines[2 : len(lines)-1] {
		c := strings.Split(l, ",")
		got = append(got, strings.Join([]string{c[2], c[6], c[15], c[17], c[18], c[20], c[21]}, " "))
	}
	if d := cmp.Diff([]string{"128 100.000   8 0 1", "128 120.000 peer 2.0000 16 1 0", "16 50.000   32 1 1"}, got); d != "" {
		t.Error(d)
	}
}

func TestBenchReportsInvariance(t *testing.T) {
	invariant := measured(8, 132)
	invariant.Splits = 16
	r := newReport(benchRow{Result: measured(16, 120), invariant: &invariant}, benchRow{Result: measured(16, 200)})
	wantLines(t, printed(t, r), []string{"128", "16", "120.00", "8", "16", "132.00", "1.100"}, []string{"all", "1", "1.100", "1.100", "0"})
	if csv := string(r.csv()); !strings.Contains(csv, ",8,16,132.000,1.1000\n") {
		t.Error(csv)
	}
}

func TestBenchReportsSchedules(t *testing.T) {
	r := newReport()
	r.stream, r.streamAfter = 0, 0
	r.schedules = []bench.ScheduleResult{{
		Shape: bench.Shape{Heads: 16, SQ: 1, Batch: 8192, KV: 4096, Varlen: true}, Setting: bench.Setting{BlockH: 16}, Microseconds: 11.5, Spread: 0.01, Calls: 256, Parts: 132, Pieces: 8300,
	}}
	out := printed(t, r)
	wantLines(t, out, []string{"8192", "≤4096", "16", "0", "132", "8300", "11.50", "1.0%", "256"})
	if strings.Contains(out, "stream") {
		t.Error(out)
	}
	const want = `# GPU, driver for CUDA 13.0, bf16, page 64; microseconds per call of the schedule kernel
heads,s_q,batch,kv_len,causal,varlen,us,spread,calls,block_h,splits,parts,pieces
16,1,8192,4096,0,1,11.500,0.0100,256,16,0,132,8300
`
	if d := cmp.Diff(want, string(r.csv())); d != "" {
		t.Error(d)
	}
}
