package golden_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/check"
	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/golden/faults"
	"github.com/mlagen/mlagen/golden/oracle"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
)

// TestStateCasesUnderManySchedules: merging and appending are right, give the
// same bits, and no observer finds or doubts anything.
func TestStateCasesUnderManySchedules(t *testing.T) {
	files, err := filepath.Glob("cases/testdata/*.json")
	must(t, err)
	ran := map[string]int{}
	for _, file := range files {
		op, _, _ := strings.Cut(filepath.Base(file), "-")
		if op != "merge" && op != "append" {
			continue
		}
		ran[op]++
		t.Run(filepath.Base(file), func(t *testing.T) {
			c, err := cases.Read(file)
			must(t, err)
			runState(t, c, source{}, scheduleCount())
		})
	}
	if ran["merge"] < 10 || ran["append"] < 8 {
		t.Errorf("only %v cases", ran)
	}
}

// runState runs a case, which must pass without a finding.
func runState(t *testing.T, c *cases.Case, s source, seeds int) {
	t.Helper()
	driver, err := emu.Open(emu.Options{Programs: programs, SMs: 3})
	must(t, err)
	r := check.New(check.Options{Driver: driver, Source: s, Hazards: true, Seeds: seeds, Inspect: func(uint64) error { return findings(driver) }})
	if outcome := r.Case(c); outcome.Status != check.OK {
		t.Error(outcome)
	}
	must(t, r.Close())
}

// TestRandomStates: merges and appends of random shapes are right.
func TestRandomStates(t *testing.T) {
	trials := 40
	if testing.Short() {
		trials = 8
	}
	pick := func(r *rand.Rand, choices ...string) string { return choices[r.IntN(len(choices))] }
	lengths := func(r *rand.Rand, n, most int) (list []int) {
		for range n {
			list = append(list, r.IntN(most))
		}
		return list
	}
	text := func(list []int) string { return strings.ReplaceAll(fmt.Sprint(list), " ", ",") }
	for i := range trials {
		seed := uint64(i + *firstTrial)
		r := rand.New(rand.NewPCG(seed, 17))
		sequences := 1 + r.IntN(4)
		d := pick(r, "bf16", "fp16")
		merge := fmt.Sprintf(`{"name": "merge-%d", "op": "merge", "model": {"heads": %d, "latent": 512, "rope": 64, "nope": 128, "value": %s},
			"dtype": %q, "partial": %q, "lse_base": %q, "q_len": %s, "kv_len": %s, "splits": %d, "layout": {"out": %q}, "seed": %d}`,
			seed, 1+r.IntN(5), pick(r, "64", "128", "256", "512"), d, pick(r, "", "f32"), pick(r, "e", "2"),
			text(lengths(r, sequences, 12)), text(lengths(r, sequences, 60)), 1+r.IntN(70), pick(r, "dense", "padded"), seed)
		news, all := lengths(r, sequences, 100), []int{}
		for _, n := range news {
			all = append(all, n+r.IntN(150))
		}
		rope := []int{64, 128}[r.IntN(2)]
		row := 512 + rope + 8*r.IntN(3)
		appended := fmt.Sprintf(`{"name": "append-%d", "op": "append", "model": {"heads": 1, "latent": 512, "rope": %d, "nope": 128, "value": 128},
			"dtype": %q, "rotate": %q, "q_len": %s, "kv_len": %s, "layout": {"q": %q, "kv_row": %d, "kv_page": %d},
			"pages": {"order": %q, "base": %d}, "fill": {"unused": %q}, "seed": %d}`,
			seed, rope, d, pick(r, "", "half", "interleaved"), text(news), text(all), pick(r, "joint", "split"), row, 64*row+8*r.IntN(9),
			pick(r, "identity", "reversed", "scattered"), r.IntN(5), pick(r, "nan", "inf", "zero"), seed)
		for _, fields := range []string{merge, appended} {
			c, err := cases.Parse([]byte(fields))
			must(t, err)
			t.Run(c.Name, func(t *testing.T) {
				runState(t, c, source{}, 1)
				if t.Failed() {
					t.Log(fields)
				}
			})
		}
	}
}

// stateRig is an emulator with a stream.
type stateRig struct {
	t      *testing.T
	driver *emu.Driver
	stream runtime.Stream
}

func newStateRig(t *testing.T) *stateRig {
	t.Helper()
	r := &stateRig{t: t}
	var err error
	r.driver, err = emu.Open(emu.Options{Programs: programs, SMs: 3})
	must(t, err)
	r.stream, err = r.driver.NewStream()
	must(t, err)
	return r
}

func (r *stateRig) upload(name string, data []byte) runtime.Ptr {
	r.t.Helper()
	p, err := r.driver.Alloc(name, int64(len(data)))
	must(r.t, err)
	must(r.t, r.driver.Upload(p, data))
	return p
}

func (r *stateRig) floats(p runtime.Ptr, t dtype.Type, n int) []float32 {
	r.t.Helper()
	b := make([]byte, n*t.Size())
	must(r.t, r.driver.Download(b, p))
	return t.Decode(nil, b)
}

// state uploads rows of the given LSEs, whose outputs are value and then 1.
func (r *stateRig) state(width int, value float32, lses ...float32) runtime.State {
	r.t.Helper()
	var out []float32
	for range lses {
		for i := range width {
			out = append(out, []float32{value, 1}[i%2])
		}
	}
	rows := int64(len(lses))
	return runtime.State{
		Out: runtime.Dense(r.upload("out", dtype.BF16.Encode(nil, out)), runtime.BF16, rows, 1, int64(width)),
		LSE: runtime.Dense(r.upload("lse", dtype.F32.Encode(nil, lses)), runtime.F32, rows, 1),
	}
}

func (r *stateRig) merge(width int) *runtime.MergeStates {
	r.t.Helper()
	v, err := source{}.MergeStates(runtime.MergeShape{Width: width, DType: runtime.BF16, Partial: runtime.BF16})
	must(r.t, err)
	m, err := runtime.LoadMergeStates(r.driver, v)
	must(r.t, err)
	return m
}

// TestMergeInPlace: the result may be a state itself, named or accumulated
// into, and a running merge gives what one of all states gives.
func TestMergeInPlace(t *testing.T) {
	inf := float32(math.Inf(-1))
	const width = 128
	lses := [][]float32{{1, inf, inf, 30, 0.5}, {2, 0, inf, -30, 0.5}, {inf, 1, inf, 0, 0.5}}
	var states []oracle.Result
	for i, l := range lses {
		s := oracle.Result{Width: 1}
		for _, x := range l {
			s.Out, s.LSE = append(s.Out, float64(i+1)), append(s.LSE, float64(x))
		}
		states = append(states, s)
	}
	want := oracle.Merge(states...)
	for _, way := range []string{"accumulate", "named", "as it goes"} {
		r := newStateRig(t)
		m := r.merge(width)
		all := []runtime.State{r.state(width, 1, lses[0]...), r.state(width, 2, lses[1]...), r.state(width, 3, lses[2]...)}
		result := all[0]
		args := runtime.MergeArgs{Out: result.Out, LSE: result.LSE}
		switch way {
		case "accumulate":
			args.Accumulate, args.States = true, all[1:]
			must(t, m.Run(r.stream, args))
		case "named":
			args.States = all
			must(t, m.Run(r.stream, args))
		case "as it goes":
			args.Out = runtime.Dense(r.upload("result", dtype.BF16.Encode(nil, make([]float32, 5*width))), runtime.BF16, 5, 1, width)
			args.LSE = runtime.Dense(r.upload("result lse", dtype.F32.Encode(nil, []float32{inf, inf, inf, inf, inf})), runtime.F32, 5, 1)
			// An empty state may hold anything.
			must(t, r.driver.Fill(args.Out.Ptr, 0xff, 5*width*2))
			for i := range all {
				args.Accumulate, args.States = true, all[i:i+1]
				must(t, m.Run(r.stream, args))
			}
		}
		must(t, r.stream.Synchronize())
		must(t, findings(r.driver))
		out, lse := r.floats(args.Out.Ptr, dtype.BF16, 5*width), r.floats(args.LSE.Ptr, dtype.F32, 5)
		for row := range lse {
			if d := math.Abs(float64(lse[row]) - want.LSE[row]); d > 1e-5 || math.IsInf(want.LSE[row], -1) != math.IsInf(float64(lse[row]), -1) {
				t.Errorf("%s, row %d: lse %v, want %v", way, row, lse[row], want.LSE[row])
			}
			for i := range width {
				expected := []float64{want.Out[row], 1}[i%2]
				if want.Out[row] == 0 {
					expected = 0
				}
				if got := float64(out[row*width+i]); math.Abs(got-expected) > 0.01*expected {
					t.Errorf("%s, row %d: out[%d] is %v, want %v", way, row, i, got, expected)
				}
			}
		}
		must(t, m.Close())
	}
}

// TestMergeIsLoud: an LSE that is NaN or +∞ is a mistake upstream, and the
// result shows it.
func TestMergeIsLoud(t *testing.T) {
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
		r := newStateRig(t)
		m := r.merge(64)
		a, b := r.state(64, 1, 0, 0), r.state(64, 2, bad, 0)
		must(t, m.Run(r.stream, runtime.MergeArgs{States: []runtime.State{b, a}, Out: a.Out, LSE: a.LSE}))
		out, lse := r.floats(a.Out.Ptr, dtype.BF16, 128), r.floats(a.LSE.Ptr, dtype.F32, 2)
		if !math.IsNaN(float64(out[0])) || !math.IsNaN(float64(lse[0])) {
			t.Errorf("lse %v: out %v, lse %v, want NaN", bad, out[0], lse[0])
		}
		if out[64] != 1.5 || math.Abs(float64(lse[1])-math.Ln2) > 1e-6 {
			t.Errorf("the row beside it: out %v, lse %v", out[64], lse[1])
		}
		must(t, m.Close())
	}
}

// TestAppendStops: a slot past the cache or a position past the tables stops the
// kernel; nothing outside the cache is touched.
func TestAppendStops(t *testing.T) {
	const pages = 2
	for name, c := range map[string]struct {
		slot     int64
		position int32
		stops    bool
	}{
		"last slot":       {pages*64 - 1, 9, false},
		"past the cache":  {pages * 64, 9, true},
		"far past":        {1 << 40, 9, true},
		"position past":   {5, 10, true},
		"before the last": {5, -1, true},
		"skipped":         {-1, 1 << 30, false},
		"skipped too":     {math.MinInt64, -1 << 31, false},
	} {
		r := newStateRig(t)
		v, err := source{}.AppendKV(runtime.AppendShape{Latent: 512, Rope: 64, Page: 64, DType: runtime.BF16, Rotate: runtime.RotateHalf})
		must(t, err)
		a, err := runtime.LoadAppendKV(r.driver, v)
		must(t, err)
		zeros := func(n int) []byte { return make([]byte, n) }
		angle := r.upload("angles", zeros(10*32*4))
		slots := dtype.F32.Encode(nil, []float32{math.Float32frombits(uint32(c.slot)), math.Float32frombits(uint32(c.slot >> 32))})
		err = a.Run(r.stream, runtime.AppendArgs{
			Latent: runtime.Dense(r.upload("latent", zeros(1024)), runtime.BF16, 1, 512), RopeKey: runtime.Dense(r.upload("rope", zeros(128)), runtime.BF16, 1, 64),
			KV:        runtime.Dense(r.upload("kv", zeros(pages*64*1152)), runtime.BF16, pages, 64, 576),
			Slots:     runtime.Dense(r.upload("slots", slots), runtime.S64, 1),
			Positions: runtime.Dense(r.upload("positions", dtype.F32.Encode(nil, []float32{math.Float32frombits(uint32(c.position))})), runtime.S32, 1),
			Cos:       runtime.Dense(angle, runtime.F32, 10, 32), Sin: runtime.Dense(angle, runtime.F32, 10, 32),
		})
		if (err != nil) != c.stops || err != nil && !strings.Contains(err.Error(), "trap") {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			must(t, findings(r.driver))
		}
		must(t, a.Close())
	}
}

// TestStateFaults plants faults in the kernels; the cases must show them.
func TestStateFaults(t *testing.T) {
	const merge, appended = "merge", "append"
	for _, f := range []faults.Fault{
		{Name: "outputs of empty states are looked at", Kernel: merge, Pattern: `selp\.b32 (%r\d+), (%r\d+), (?:0|%r\d+), (%p\d+);`, Nth: -1, Replace: "mov.b32 $1, $2;"},
		{Name: "a state's stride taken for another", Kernel: merge, Pattern: `(ld\.param\.b64 %rd\d+, \[%rd\d+)\+8\]`, Replace: "$1+16]"},
		{Name: "second of a pair not weighed", Kernel: merge, Pattern: `^\tfma\.rn\.f32.*\n`, Nth: -1, Replace: ""},
		{Name: "one state too many", Kernel: merge, Pattern: `setp\.lt(\.s32 %p\d+, %r\d+, %r\d+;\n\tand\.pred)`, Nth: -1, Replace: "setp.le$1"},
		{Name: "empty rows divided", Kernel: merge, Pattern: `selp\.f32 (%f\d+), 0f00000000, (%f\d+), %p\d+;`, Nth: -1, Replace: "mov.f32 $1, $2;"},
		{Name: "a row too many", Kernel: merge, Pattern: `(?s)setp\.lt(\.s32 %p\d+, %r\d+, %r\d+;)`, Nth: 0, Replace: "setp.le$1"},
		{Name: "weights to another base", Kernel: merge, Pattern: `mul\.rn\.f32 (%f\d+), (%f\d+), (%f\d+);\n(\tex2)`, Nth: 0, Replace: "mov.f32 $1, $2;\n$4"},

		{Name: "offsets of 32 bits", Kernel: appended, Pattern: `(\[kv_page\];\n\tmul\.lo\.s64 (%rd\d+), .*\n)`, Replace: "$1\tand.b64 $2, $2, 4294967295;\n"},
		{Name: "skipped tokens stored", Kernel: appended, Pattern: `setp\.ge\.s64 (%p\d+), (%rd\d+), 0;`, Nth: 0, Replace: "setp.ge.s64 $1, $2, -1;"},
		{Name: "a chunk not stored", Kernel: appended, Pattern: `^\t\S*\s?st\.global\.v4.*\n`, Nth: 0, Replace: ""},
		{Name: "turned the other way", Kernel: appended, Pattern: `0fBF800000`, Nth: 0, Replace: "0f3F800000"},
		{Name: "place in the page of a larger page", Kernel: appended, Pattern: `, 63;`, Nth: 0, Replace: ", 127;"},
	} {
		t.Run(f.Name, func(t *testing.T) {
			files, err := filepath.Glob("cases/testdata/" + f.Kernel + "-*.json")
			must(t, err)
			s := &faultySource{fault: f}
			for _, file := range files {
				c, err := cases.Read(file)
				must(t, err)
				driver, err := emu.Open(emu.Options{Programs: programs, SMs: 3})
				must(t, err)
				r := check.New(check.Options{Driver: driver, Source: s, Hazards: true})
				outcome := r.Case(c)
				_ = r.Close() // its error repeats the outcome's
				if outcome.Status == check.Failed {
					t.Logf("caught by %s: %s", c.Name, outcome.Reason)
					return
				}
			}
			if !s.planted {
				t.Fatal("no kernel has a place for it")
			}
			t.Error("no case shows it")
		})
	}
}

// faultySource plants a fault in the kernels that it makes.
type faultySource struct {
	source
	fault   faults.Fault
	planted bool
}

func (s *faultySource) plant(v runtime.Variant, err error) (runtime.Variant, error) {
	if err != nil {
		return v, err
	}
	faulty, err := withFault(v, s.fault)
	if err != nil {
		return v, nil // this variant has no such place
	}
	s.planted = true
	return faulty, nil
}

func (s *faultySource) MergeStates(shape runtime.MergeShape) (runtime.Variant, error) {
	return s.plant(s.source.MergeStates(shape))
}

func (s *faultySource) AppendKV(shape runtime.AppendShape) (runtime.Variant, error) {
	return s.plant(s.source.AppendKV(shape))
}
