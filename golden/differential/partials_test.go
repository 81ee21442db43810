package differential

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/mlagen/mlagen/golden/oracle"
	"github.com/mlagen/mlagen/runtime/emu"
	"github.com/mlagen/mlagen/templates"
)

// TestForm: every element of a row block has a place of its own, and a share has
// as many elements of each row as the others.
func TestForm(t *testing.T) {
	for _, spec := range []templates.Spec{
		{Heads: 8}, {Heads: 8, DType: "fp16"}, {Heads: 40, Teams: 1}, {Heads: 40}, {Heads: 24, Teams: 2, DType: "fp16"},
		{Heads: 128}, {Heads: 64, DType: "fp16"}, {Heads: 16, SQ: 5, BlockH: 16}, {Latent: 128}, {Heads: 64, Latent: 256}, {Latent: 256, Teams: 2},
	} {
		f := formOf(spec)
		type place struct{ row, column int }
		seen := map[place]int{}
		perShare := make([]int, f.shares()*f.paddedRows())
		elements := 0
		f.each(func(at, row, column, share int) {
			if at != elements {
				t.Fatalf("%+v: element %d after %d", spec, at, elements-1)
			}
			elements++
			seen[place{row, column}]++
			perShare[share*f.paddedRows()+row]++
		})
		if elements != f.elements() || len(seen) != elements {
			t.Errorf("%+v: %d elements in %d places, must be %d", spec, elements, len(seen), f.elements())
		}
		for _, n := range perShare {
			if n*f.shares() != f.latent {
				t.Errorf("%+v: a share has %d elements of a row of %d, and there are %d shares", spec, n, f.latent, f.shares())
				break
			}
		}
	}
}

// TestPartialRead: what decode would not leave is an error.
func TestPartialRead(t *testing.T) {
	for name, c := range map[string]struct {
		dtype string
		spoil func(f form, elements, states []float32)
		wrong bool
	}{
		"right":                  {"bf16", func(form, []float32, []float32) {}, false},
		"right, f32":             {"fp16", func(form, []float32, []float32) {}, false},
		"nothing":                {"bf16", func(f form, elements, states []float32) { zeroed(f, elements, states) }, false},
		"LSE of one share":       {"bf16", func(f form, _, states []float32) { states[f.state(3, 5)]++ }, true},
		"LSE not written":        {"bf16", func(f form, _, states []float32) { states[f.state(0, 5)] = float32(math.NaN()) }, true},
		"no power of two":        {"bf16", func(f form, _, states []float32) { states[f.state(1, 2)+1] *= 1.5 }, true},
		"a negative unit":        {"bf16", func(f form, _, states []float32) { states[f.state(1, 2)+1] *= -1 }, true},
		"a unit of f32":          {"fp16", func(f form, _, states []float32) { states[f.state(1, 2)+1] = 2 }, true},
		"too few units":          {"bf16", func(_ form, elements, _ []float32) { scaled(elements, 0.25) }, true},
		"too many":               {"bf16", func(_ form, elements, _ []float32) { scaled(elements, 4) }, true},
		"an element not written": {"bf16", func(_ form, elements, _ []float32) { elements[17] = float32(math.NaN()) }, true},
	} {
		f := formOf(templates.Spec{Heads: 8, DType: c.dtype})
		elements, states := make([]float32, f.elements()), make([]float32, f.states())
		for i := range elements {
			elements[i] = 20_000
		}
		for i := range states {
			states[i] = 1
		}
		c.spoil(f, elements, states)
		p, err := f.read(elements, states)
		if (err != nil) != c.wrong {
			t.Errorf("%s: error %v", name, err)
		}
		if name == "right" && (p.out[7][511] != 20_000 || p.lse[0][0] != 1) {
			t.Errorf("%s: %v, %v", name, p.out[7][511], p.lse[0][0])
		}
	}
}

func scaled(x []float32, by float32) {
	for i := range x {
		x[i] *= by
	}
}

// zeroed makes a piece without a key.
func zeroed(f form, elements, states []float32) {
	clear(elements)
	for share := range f.shares() {
		for row := range f.paddedRows() {
			states[f.state(share, row)], states[f.state(share, row)+1] = float32(math.Inf(-1)), leastUnit
		}
	}
}

// TestCombineGiven: decode_combine merges the worth of what it is given. Every
// share has another unit, so that no other's will do.
func TestCombineGiven(t *testing.T) {
	d, err := emu.Open(emu.Options{SMs: 132})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range combineCases {
		c.Seed, c.Blocks = uint64(100+i), 40
		t.Run(fmt.Sprintf("%s,pieces=%v", shape(c.Spec), c.Counts), func(t *testing.T) {
			p := &Pair{A: d, B: d}
			v, err := p.build("decode-combine", c.Spec)
			if err != nil {
				t.Fatal(err)
			}
			spec := c.Spec.WithDefaults()
			in := c.inputs(spec)
			got, err := each(p, 132, func(dev *device) (merging, error) { return combine(dev, v, spec, in, c.Blocks) })
			if err := errors.Join(err, p.Close()); err != nil {
				t.Fatal(err)
			}
			for request, slots := range in.slotsOf(c.Counts) {
				want := in.merged(t, spec, slots)
				var row Row
				row.request(spec, 0, got[0].out[request*spec.Rows()*spec.Latent:], want.out, got[0].lse[request*spec.Rows():], want.lse)
				// Half an ulp is what the output is rounded by.
				if err := (Limits{ULP: 0.52, LSEUnit: 1e-6}).Err(row.Figures); err != nil {
					t.Errorf("request %d: %v", request, err)
				}
			}
		})
	}
}

// slotsOf returns the slots of each request that has some.
func (in combineInputs) slotsOf(counts []int) map[int][2]int {
	slots, next := map[int][2]int{}, 0
	for request, n := range counts {
		if n > 0 {
			slots[request] = [2]int{next, next + n}
			next += n
		}
	}
	return slots
}

// merged merges a request's slots in float64.
func (in combineInputs) merged(t *testing.T, spec templates.Spec, slots [2]int) (m merging) {
	t.Helper()
	var states []oracle.Result
	f := in.form
	for slot := slots[0]; slot < slots[1]; slot++ {
		elements, state := in.out[slot*f.elements():(slot+1)*f.elements()], in.states[slot*f.states():(slot+1)*f.states()]
		r := oracle.Result{Width: f.latent, Out: make([]float64, f.elements()), LSE: make([]float64, f.paddedRows())}
		f.each(func(at, row, column, share int) {
			r.Out[row*f.latent+column] = float64(elements[at]) * float64(state[f.state(share, row)+1])
			r.LSE[row] = float64(state[f.state(0, row)]) * math.Ln2
		})
		states = append(states, r)
	}
	all := oracle.Merge(states...)
	for row := range spec.Rows() {
		for _, v := range all.Row(row) {
			m.out = append(m.out, float32(v))
		}
		m.lse = append(m.lse, float32(all.LSE[row]))
	}
	return m
}
