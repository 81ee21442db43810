package differential

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

// CombineCase is decode_combine by itself, on partial results made up for it as
// decode leaves them, but that units do not follow from elements. The second row
// of every request has no key in any piece, and one row in eight none in the first
// piece.
type CombineCase struct {
	Name   string
	Spec   templates.Spec
	Counts []int // pieces of each request; 0 = not merged, must stay as it is
	Blocks int   // of the grid
	Seed   uint64
}

// combineInputs are the kernel's inputs.
type combineInputs struct {
	merges  []int32
	form    form
	out     []float32 // [slots] of form.elements
	states  []float32 // [slots] of form.states; LSEs in base 2
	batch   int
	longest int
}

func (c *CombineCase) inputs(spec templates.Spec) combineInputs {
	r := rand.New(rand.NewPCG(c.Seed, 2))
	in := combineInputs{form: formOf(spec), batch: len(c.Counts), merges: make([]int32, 4)}
	slots := 0
	for request, n := range c.Counts {
		if n == 0 {
			continue
		}
		in.merges[0]++
		in.merges = append(in.merges, int32(request), int32(slots), int32(n), 0)
		in.longest = max(in.longest, n)
		for piece := range n {
			in.slot(r, func(row int) bool { return row != 1 && !(piece == 0 && row%8 == 5) })
		}
		slots += n
	}
	in.merges[1] = int32(in.longest)
	return in
}

// slot adds a partial result, in which only rows that seen names have keys.
func (in *combineInputs) slot(r *rand.Rand, seen func(row int) bool) {
	f := in.form
	states, elements := make([]float32, f.states()), make([]float32, f.elements())
	for row := range f.paddedRows() {
		lse := float32(r.NormFloat64() * 3)
		if !seen(row) {
			lse = float32(math.Inf(-1))
		}
		for share := range f.shares() {
			states[f.state(share, row)], states[f.state(share, row)+1] = lse, f.randomUnit(r, seen(row))
		}
	}
	f.each(func(at, row, _, _ int) {
		switch {
		case !seen(row):
		case f.elem == dtype.F32:
			elements[at] = float32(r.NormFloat64() / 8)
		default:
			elements[at] = f.elem.Round(float32(max(-mostUnits, min(mostUnits, r.NormFloat64()*mostUnits/4))))
		}
	})
	in.states, in.out = append(in.states, states...), append(in.out, elements...)
}

// randomUnit makes elements of about 1/8, or of nothing.
func (f form) randomUnit(r *rand.Rand, something bool) float32 {
	switch {
	case f.elem == dtype.F32:
		return 1
	case !something:
		return leastUnit
	}
	return float32(math.Ldexp(1, -18+r.IntN(5)))
}

// merging is what decode_combine leaves.
type merging struct{ out, lse []float32 }

// Combine compares decode_combine.
func (p *Pair) Combine(c CombineCase) ([]Row, error) {
	spec := c.Spec.WithDefaults()
	v, err := p.build("decode-combine", spec)
	if err != nil {
		return nil, err
	}
	in := c.inputs(spec)
	results, err := each(p, 0, func(dev *device) (merging, error) { return combine(dev, v, spec, in, c.Blocks) })
	if err != nil {
		return nil, err
	}
	r := Row{Kernel: "decode-combine", Case: c.Name, Result: "given"}
	for request, n := range c.Counts {
		if n > 0 {
			r.request(spec, request, results[0].out, results[1].out, results[0].lse, results[1].lse)
			continue
		}
		for i, res := range results {
			at := request * spec.Rows()
			for _, v := range append(res.lse[at:at+spec.Rows():at+spec.Rows()], res.out[at*spec.Latent:(at+spec.Rows())*spec.Latent]...) {
				if v == v {
					return nil, fmt.Errorf("device %d wrote %v to request %d, which is in no merge", i, v, request)
				}
			}
		}
	}
	return []Row{r}, nil
}

func combine(dev *device, v runtime.Variant, spec templates.Spec, in combineInputs, blocks int) (res merging, err error) {
	k, err := runtime.Load(dev, v)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, k.Unload()) }()
	t := dtype.Type(spec.DType)
	row := int64(spec.Latent * t.Size())
	rows := int64(in.batch * spec.Rows())
	pointers := map[string]runtime.Buffer{}
	for _, x := range []struct {
		name string
		data []byte
	}{
		{"merges", encodeInts(in.merges)},
		{"partial_out", in.form.elem.Encode(nil, in.out)},
		{"partial_state", dtype.F32.Encode(nil, in.states)},
	} {
		if pointers[x.name], err = dev.upload(x.name, x.data); err != nil {
			return res, err
		}
	}
	if pointers["out"], err = dev.alloc("out", rows*row); err != nil {
		return res, err
	}
	if pointers["lse"], err = dev.alloc("lse", 4*rows); err != nil {
		return res, err
	}
	if pointers["arrivals"], err = dev.alloc("arrivals", 4); err != nil { // decode's alone; never read
		return res, err
	}
	integers := map[string]int64{
		"out_head": row, "out_token": row * int64(spec.Heads), "out_batch": row * int64(spec.Rows()),
	}
	params := k.NewParams()
	for _, p := range v.Manifest.Params {
		switch b, ok := pointers[p.Name]; {
		case ok && p.Kind == manifest.PointerParam:
			params.Pointer(p.Name, b.Ptr)
		case p.Name == "lse_factor":
			params.Float(p.Name, math.Ln2)
		default:
			if n, ok := integers[p.Name]; ok {
				params.Int(p.Name, n)
			}
		}
	}
	if err := k.Launch(dev.stream, runtime.Dim3{X: blocks}, params, false); err != nil {
		return res, err
	}
	if err := dev.stream.Synchronize(); err != nil {
		return res, err
	}
	if res.out, err = dev.floats(t, pointers["out"]); err != nil {
		return res, err
	}
	res.lse, err = dev.floats(dtype.F32, pointers["lse"])
	return res, err
}
