package differential

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
	"github.com/mlagen/mlagen/templates"
)

// faulty is a device that flips the signs of the first values uploaded to the
// allocation called name.
type faulty struct {
	runtime.Driver
	name string
	at   runtime.Ptr
}

func (f *faulty) Alloc(name string, size int64) (runtime.Ptr, error) {
	p, err := f.Driver.Alloc(name, size)
	if name == f.name {
		f.at = p
	}
	return p, err
}

func (f *faulty) Upload(dst runtime.Ptr, src []byte) error {
	if f.at != 0 && dst == f.at {
		src = slices.Clone(src)
		for i := 1; i < min(256, len(src)); i += 2 {
			src[i] ^= 0x80
		}
	}
	return f.Driver.Upload(dst, src)
}

// TestDifferencesShow: a device that is wrong is found out, in the result that
// it gets wrong.
func TestDifferencesShow(t *testing.T) {
	step := decodeCase{heads: 8, more: `"kv_len": [40, 200], "splits": 3`}
	for name, c := range map[string]struct {
		kernel, result string
		run            func(*Pair) ([]Row, error)
	}{
		"q": {"absorb-decode", whole, func(p *Pair) ([]Row, error) {
			rows, _, err := p.Decode(step.parse(t, 1))
			return rows, err
		}},
		"kv_len": {"decode-schedule", "items", func(p *Pair) ([]Row, error) {
			return p.Plan(PlanCase{SMs: 8, Batch: 3, Longest: 900, Seed: 1})
		}},
		"partial_out": {"decode-combine", "given", func(p *Pair) ([]Row, error) {
			return p.Combine(CombineCase{Spec: templates.Spec{Heads: 8}, Counts: []int{3}, Blocks: 8})
		}},
		"partial_state": {"decode-combine", "given", func(p *Pair) ([]Row, error) {
			return p.Combine(CombineCase{Spec: templates.Spec{Heads: 16}, Counts: []int{3}, Blocks: 8})
		}},
		"kv_up": {"expand-prefill", "output", func(p *Pair) ([]Row, error) {
			return p.Prefill((&prefillCase{heads: 1, sms: 2}).parse(t, 1))
		}},
		"cu_k": {"expand-schedule", "work_blocks", func(p *Pair) ([]Row, error) { return p.PrefillPlan(prefillPlanCases()[2]) }},
		"w_kv_b": {"extend-attend", "output", func(p *Pair) ([]Row, error) {
			return p.Extend((&extendCase{heads: 1, sms: 2, chunk: 128}).parse(t, 1))
		}},
		"cu_q":  {"extend-schedule", "work_blocks", func(p *Pair) ([]Row, error) { return p.ExtendPlan(extendPlanCases()[1]) }},
		"state": {"merge-states", "state", func(p *Pair) ([]Row, error) { return p.Merge(mergeCases[0]) }},
		"rope":  {"append-kv", "cache", func(p *Pair) ([]Row, error) { return p.Append(appendCases[1]) }},
		"kv": {"stream", "sink", func(p *Pair) ([]Row, error) {
			return p.Stream(StreamCase{Pages: 1, Visits: 3, Blocks: 1})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			good, err := emu.Open(emu.Options{})
			if err != nil {
				t.Fatal(err)
			}
			another, err := emu.Open(emu.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for fault, wrong := range map[string]bool{name: true, "nothing": false} {
				p := &Pair{A: good, B: &faulty{Driver: another, name: fault}}
				rows, err := c.run(p)
				if err := errors.Join(err, p.Close()); err != nil {
					t.Fatal(err)
				}
				found := false
				for _, r := range rows {
					bad := HardwareLimits.Err(r.Figures) != nil
					found = found || bad && r.Kernel == c.kernel && r.Result == c.result
					if bad && !wrong {
						t.Errorf("without a fault %s, %s differs: %+v", r.Kernel, r.Result, r.Figures)
					}
				}
				if found != wrong {
					t.Errorf("fault in %s: difference found: %v\n%s", fault, found, Table(rows, HardwareLimits))
				}
			}
		})
	}
}

// TestULP: the unit is the distance between neighbours.
func TestULP(t *testing.T) {
	for _, c := range []struct {
		t       dtype.Type
		x, want float64
	}{
		{dtype.BF16, 1, 0x1p-7},
		{dtype.BF16, 1.99, 0x1p-7},
		{dtype.BF16, 2, 0x1p-6},
		{dtype.BF16, 0.9, 0x1p-8},
		{dtype.BF16, 0, 0x1p-133},
		{dtype.FP16, 1, 0x1p-10},
		{dtype.FP16, 1000, 0.5},
		{dtype.FP16, 0, 0x1p-24},
		{dtype.F32, 1, 0x1p-23},
	} {
		if got := ulp(c.t, c.x); got != c.want {
			t.Errorf("ulp of %s at %v is %v, must be %v", c.t, c.x, got, c.want)
		}
	}
}

// TestFigures: elements are measured at their own magnitude, but not below
// their row's.
func TestFigures(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for name, c := range map[string]struct {
		a, b     []float32
		ulp, own float64
		differ   int
	}{
		"equal":                   {[]float32{1, 2}, []float32{1, 2}, 0, 0, 0},
		"one ulp":                 {[]float32{1, 1}, []float32{1 + 0x1p-7, 1}, 1, 1, 1},
		"one ulp below a power":   {[]float32{1, 1}, []float32{1 - 0x1p-8, 1}, 0.5, 0.5, 1},
		"large beside small":      {[]float32{64, 1, 1, 1}, []float32{65, 1, 1, 1}, 2, 2, 1},
		"small beside large":      {[]float32{64, 64, 64, 0x1p-9}, []float32{64, 64, 64, 0x1p-8}, 0x1p-9 / 0x1p-2, 64, 1},
		"another sign of nothing": {[]float32{0, 1}, []float32{float32(math.Copysign(0, -1)), 1}, 0, 0, 1},
		"NaN":                     {[]float32{nan, 1}, []float32{nan, 1}, math.Inf(1), math.Inf(1), 0},
		"infinity":                {[]float32{inf, 1}, []float32{inf, 1}, math.Inf(1), math.Inf(1), 0},
		"something and nothing":   {[]float32{0, 0}, []float32{1, 0}, 128, 128, 1},
	} {
		var f Figures
		f.row(dtype.BF16, c.a, c.b, rms)
		if f.ULP != c.ulp || f.Own != c.own || f.Differ != c.differ || f.Elements != len(c.a) {
			t.Errorf("%s: %+v, must be %+v", name, f, c)
		}
	}
	low := float32(math.Inf(-1))
	for name, c := range map[string]struct {
		a, b       float32
		want, unit float64
	}{
		"no key":       {low, low, 0, 0},
		"one infinite": {low, 0, math.Inf(1), math.Inf(1)},
		"NaN":          {nan, nan, math.Inf(1), math.Inf(1)},
		"apart":        {2, 2.5, 0.5, 0.2},
		"small":        {0.25, 0, 0.25, 0.25},
	} {
		var f Figures
		f.lses([]float32{c.a}, []float32{c.b})
		if f.LSE != c.want || f.LSEUnit != c.unit {
			t.Errorf("%s: LSEs %v apart, relatively %v, must be %v and %v", name, f.LSE, f.LSEUnit, c.want, c.unit)
		}
	}
	exact := Limits{Exact: true}
	if exact.Err(Figures{}) != nil || exact.Err(Figures{Differ: 1}) == nil || exact.Err(Figures{LSEBits: 1}) == nil {
		t.Error("exact limits allow a difference, or none at all")
	}
	if HardwareLimits.Err(Figures{ULP: 2, LSEUnit: 2e-5, Differ: 9}) != nil || HardwareLimits.Err(Figures{ULP: 2.01}) == nil || HardwareLimits.Err(Figures{LSEUnit: math.NaN()}) == nil {
		t.Error("limits for hardware are not what they say")
	}
}
