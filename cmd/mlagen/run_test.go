package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/golden/faults"
	"github.com/mlagen/mlagen/ptx/emu"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
	"github.com/mlagen/mlagen/templates/variants"
)

// report is what run -json prints.
func report(t *testing.T, text string) (r runReport) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return r
}

func TestRunIsRight(t *testing.T) {
	code, stdout, stderr := mlagen("run")
	if code != 0 || stderr != "" {
		t.Fatal(code, stdout, stderr)
	}
	for _, want := range []string{
		"16 heads", "preset absorb-decode-h16", "emulator", "decode_schedule", "absorb_decode", "decode_combine",
		"no hazards", "schedule from seed 0", "out is off by", "\nok\n",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the report lacks %q:\n%s", want, stdout)
		}
	}
	if _, again, _ := mlagen("run"); again != stdout {
		t.Errorf("a second run says something else: %s", cmp.Diff(stdout, again))
	}
}

// The counts of a run are those that the shape implies.
func TestRunCounts(t *testing.T) {
	code, stdout, stderr := mlagen("run", "-json", "-heads", "8", "-kv", "130,0", "-batch", "3", "-splits", "2", "-dtype", "fp16", "-seed", "7")
	if code != 0 {
		t.Fatal(code, stdout, stderr)
	}
	r := report(t, stdout)
	if d := cmp.Diff([]int{130, 0, 130}, r.KVLen); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]uint64{7}, r.Seeds); d != "" {
		t.Error(d)
	}
	if r.Status != "ok" || r.Spec.Heads != 8 || r.Spec.DType != "fp16" || r.Splits != 2 || r.Preset != "absorb-decode-h8-fp16" || len(r.Hazards) != 0 {
		t.Errorf("%+v", r)
	}
	if r.Errors.Out == 0 || r.Errors.Out > r.Errors.OutTolerance || r.Errors.LSE > r.Errors.LSETolerance {
		t.Errorf("errors %+v", r.Errors)
	}
	const tiles = 3 * 2 // of 64 tokens: both lengths of 130 have three
	decode := r.kernel("absorb_decode")
	if want := uint64(tiles * 64 * 8 * 2 * (576 + 512)); decode.Stats.WgmmaFLOPs != want {
		t.Errorf("%d wgmma FLOP, want %d", decode.Stats.WgmmaFLOPs, want)
	}
	if want := uint64(tiles * 64 * 576 * 2); decode.Stats.TMABytes != want {
		t.Errorf("%d bytes by TMA, want %d", decode.Stats.TMABytes, want)
	}
	var sum emu.Stats
	for _, k := range r.Kernels {
		if k.Launches != 1 || k.Stats.Instructions == 0 || k.Stats.GlobalBytes == 0 {
			t.Errorf("%s: %d launches, %+v", k.Kernel, k.Launches, k.Stats)
		}
		sum.Add(k.Stats)
	}
	if d := cmp.Diff(sum, r.Total); d != "" || len(r.Kernels) != 2 { // two pieces need no merge but decode's own
		t.Errorf("%d kernels: %s", len(r.Kernels), d)
	}
}

func TestRunUnderSchedules(t *testing.T) {
	code, stdout, stderr := mlagen("run", "-json", "-seeds", "3", "-seed", "10", "-heads", "64", "-kv", "200")
	if code != 0 {
		t.Fatal(code, stdout, stderr)
	}
	r := report(t, stdout)
	if d := cmp.Diff([]uint64{10, 11, 12}, r.Seeds); d != "" {
		t.Error(d)
	}
	if k := r.kernel("absorb_decode"); k.Launches != 1 {
		t.Errorf("%d launches; the first schedule's alone are told", k.Launches)
	}
}

func TestRunUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"x"}, "no arguments"},
		{[]string{"-device", "tpu"}, `device "tpu" does not exist`},
		{[]string{"-block-h", "48"}, "the nearest that can is 40"},
		{[]string{"-seeds", "0"}, "-seeds 0"},
		{[]string{"-device", "cuda", "-seeds", "2"}, "the hardware decides"},
		{[]string{"-splits", "-1"}, "-splits -1"},
		{[]string{"-kv", "4,x"}, `"x" is not a number of at least 0`},
		{[]string{"-kv", "4,5,6", "-batch", "2"}, "-kv has 3 lengths"},
		{[]string{"-kv", "10000000"}, "GFLOP are too many for emulator"},
	} {
		code, stdout, stderr := mlagen(append([]string{"run"}, c.args...)...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit %d, stdout %q, stderr %q; want exit 2 and %q", c.args, code, stdout, stderr, c.want)
		}
	}
}

// runWith runs kernels with a fault planted in one of them.
func runWith(t *testing.T, fault string, lines bool, f runFlags) (text string, err error) {
	t.Helper()
	s := templates.Spec{LineInfo: lines}.WithDefaults()
	c, err := f.problem(s)
	if err != nil {
		t.Fatal(err)
	}
	kernels, err := variants.Source{Tune: s}.Decode(runtime.DecodeShape{Heads: s.Heads, SQ: s.SQ, Latent: s.Latent, Rope: s.Rope, Page: s.Page, DType: runtime.DType(s.DType)})
	if err != nil {
		t.Fatal(err)
	}
	planted := false
	for _, candidate := range faults.Decode {
		if candidate.Name == fault {
			out, err := templates.Build("absorb-decode", s)
			if err != nil {
				t.Fatal(err)
			}
			m := *out.Manifest
			m.PTXSHA256 = ""
			kernels.Decode.Manifest = &m
			if kernels.Decode.PTX, err = candidate.Plant(out.PTX); err != nil {
				t.Fatal(err)
			}
			planted = true
		}
	}
	if !planted && fault != "" {
		t.Fatalf("there is no fault %q", fault)
	}
	d, err := findDevice("emu")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = (&app{stdout: &out}).runKernels(&f, d, s, c, kernels)
	return out.String(), err
}

func TestRunFindsHazards(t *testing.T) {
	text, err := runWith(t, "queries not fenced for wgmma", true, runFlags{kv: lengths{100}, seeds: 1})
	if !errors.Is(err, errQuiet) {
		t.Errorf("error %v\n%s", err, text)
	}
	for _, want := range []string{string(emu.RuleProxy), "wgmma", "absorb_decode: error:", "proven", "\nFAIL: ", " hazard",
		"from templates/query.go:", "more at other instructions"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	if text, err = runWith(t, "queries not fenced for wgmma", true, runFlags{kv: lengths{100}, seeds: 2, seed: 4, json: true}); !errors.Is(err, errQuiet) {
		t.Errorf("error %v", err)
	}
	r := report(t, text)
	if len(r.Seeds) != 1 || r.Status != "FAIL" || len(r.Hazards) == 0 || r.Hazards[0].Severity != "error" || r.Hazards[0].Seed != 4 ||
		!strings.HasPrefix(r.Reason, "seed 4: ") {
		t.Errorf("%s", text)
	}
}

func TestRunFindsWrongResults(t *testing.T) {
	text, err := runWith(t, "mask off by one", false, runFlags{kv: lengths{100}, seeds: 1})
	if !errors.Is(err, errQuiet) || !strings.Contains(text, "\nFAIL: request 0 (kv_len 100)") {
		t.Errorf("error %v\n%s", err, text)
	}
}

// hardware is a device that cannot tell what its kernels did.
type hardware struct{ runtime.Driver }

func (hardware) Name() string { return "hardware" }

func TestRunOnADeviceThatTellsNothing(t *testing.T) {
	s := templates.Spec{}.WithDefaults()
	f := runFlags{kv: lengths{70}, seeds: 1}
	c, err := f.problem(s)
	if err != nil {
		t.Fatal(err)
	}
	kernels, err := variants.Source{Tune: s}.Decode(runtime.DecodeShape{Heads: s.Heads, SQ: s.SQ, Latent: s.Latent, Rope: s.Rope, Page: s.Page, DType: runtime.DType(s.DType)})
	if err != nil {
		t.Fatal(err)
	}
	d := device{name: "hardware", open: func(keepGoing bool) (runtime.Driver, error) {
		drv, err := openEmulator(keepGoing)
		return hardware{drv}, err
	}}
	var out bytes.Buffer
	if err := (&app{stdout: &out}).runKernels(&f, d, s, c, kernels); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "device: hardware, 8 SMs; inputs from seed 1\nout is off by") || !strings.HasSuffix(text, "\nok\n") {
		t.Error(text)
	}
}

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1 000", 123456: "123 456", -1234567: "-1 234 567", -123: "-123"} {
		if got := grouped(n); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := listed([]int{1, 2, 3000}); got != "1 2 3 000" {
		t.Error(got)
	}
}
