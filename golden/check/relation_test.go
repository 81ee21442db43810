package check

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/runtime"
)

// mergedByOracle merges states without a device, and moves the first LSE.
func mergedByOracle(off float32) func(*cases.Merge) (out, lse []byte, err error) {
	return func(m *cases.Merge) (out, lse []byte, err error) {
		r := m.Oracle()
		for i, l := range r.LSE {
			for _, v := range r.Row(i) {
				out = m.Case.DType.Encode(out, []float32{float32(v)})
			}
			if i == 0 {
				l += float64(off)
			}
			if m.Case.LSEBase == "2" {
				l /= math.Ln2
			}
			lse = dtype.F32.Encode(lse, []float32{float32(l)})
		}
		return out, lse, nil
	}
}

// holds runs decode with a relation; the oracle must find nothing in it.
func holds(t *testing.T, relation, fields string, spoil func(f *fakeDecoder, out, lse []byte), lse float32) error {
	t.Helper()
	r := fake(newHostDriver(), spoil)
	r.states = mergedByOracle(lse)
	c := testCase(t, fields+`,"holds":["`+relation+`"],"fill":{"rope":"normal"}`)
	c.Tolerance = cases.Tolerance{Out: 0.5, LSE: 0.2} // faults here are too small for the oracle
	return r.relate(c)
}

// TestRelationsHoldAndAreFound: each relation holds for what is right, and finds
// a fault of the kind that it is for.
func TestRelationsHoldAndAreFound(t *testing.T) {
	rowOf := func(f *fakeDecoder, out []byte, request int) []byte { return out[request*f.call.in.QLen*2*8*2:] }
	grow := func(row []byte, by float32) {
		copy(row, dtype.BF16.Encode(nil, []float32{dtype.BF16.Decode(nil, row[:2])[0] + by}))
	}
	for _, c := range []struct {
		relation, fields string
		spoil            func(f *fakeDecoder, out, lse []byte)
		lse              float32
		want             string
	}{
		{cases.PagesPermuted, ``, func(f *fakeDecoder, out, _ []byte) {
			if f.call.in.Table[0] == 2 { // where the cache begins changes a bit
				out[0] ^= 1
			}
		}, 0, "out[0] is another"},
		{cases.RequestsPermuted, `,"splits":2`, func(_ *fakeDecoder, out, _ []byte) { out[0] ^= 1 }, 0, "out[0] is another"},
		{cases.RequestsPermuted, ``, func(_ *fakeDecoder, out, _ []byte) { grow(out, 4) }, 0, "out moved by"},
		{cases.HeadsPermuted, ``, func(_ *fakeDecoder, out, _ []byte) { grow(out, 4) }, 0, "out moved by"},
		{cases.ForeignNaN, ``, func(f *fakeDecoder, out, _ []byte) {
			for _, page := range f.call.in.Pool.Used {
				if v := page.Values[0]; v != v { // 0·NaN
					grow(out, v)
					grow(rowOf(f, out, 2), v)
				}
			}
		}, 0, "became NaN"},
		{cases.LogitsShifted, ``, func(f *fakeDecoder, out, lse []byte) {
			top := math.Float32frombits(binary.LittleEndian.Uint32(lse))
			if top > 4 { // an exponential that saturates
				grow(out, 4)
			}
		}, 0, "out moved by"},
		{cases.LogitsShifted, ``, func(_ *fakeDecoder, _, lse []byte) {
			top := math.Float32frombits(binary.LittleEndian.Uint32(lse))
			binary.LittleEndian.PutUint32(lse, math.Float32bits(min(top, 3)))
		}, 0, "which should be"},
		{cases.WeightlessKey, ``, func(f *fakeDecoder, out, _ []byte) {
			if f.call.in.KVLen[0] == 10 { // the further key has some weight
				grow(out, 3)
			}
		}, 0, "out moved by"},
		{cases.SplitMerged, ``, nil, 1, "lse was"},
		{cases.SplitMerged, ``, func(f *fakeDecoder, out, _ []byte) {
			if n := f.call.in.KVLen[0]; n > 0 && n < 9 { // a part is not what it is in the whole
				grow(out, 9)
			}
		}, 0, "out moved by"},
	} {
		for _, more := range []string{``, `,"dtype":"fp16"`, `,"lse_base":"2"`, `,"layout":{"q":"split","q_rows":"heads","out":"heads"}`} {
			if err := holds(t, c.relation, c.fields+more, nil, 0); err != nil {
				t.Errorf("%s%s%s does not hold for the oracle: %v", c.relation, c.fields, more, err)
			}
		}
		if err := holds(t, c.relation, c.fields, c.spoil, c.lse); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s%s: error %v, want %q", c.relation, c.fields, err, c.want)
		}
	}
	if err := holds(t, cases.WeightlessKey, `,"q_len":3`, nil, 0); err != nil {
		t.Errorf("several query tokens: %v", err)
	}
}

// fakePrefiller prefills with the oracle.
type fakePrefiller struct {
	d     *hostDriver
	call  *prefillCall
	spoil func(call *prefillCall, out, lse []byte)
}

func (f *fakePrefiller) scheduleBytes() int64 { return 64 }

func (f *fakePrefiller) run(runtime.Stream) error {
	r, c := f.call.in.Oracle().Run(), f.call.in.Case
	out, lse := f.d.at(f.call.out.ptr, f.call.out.size), f.d.at(f.call.lse.ptr, f.call.lse.size)
	for i, l := range r.LSE {
		at := out[f.call.rows.place(i)*f.call.rows.pitch()*2:]
		for j, v := range r.Row(i) {
			copy(at[2*j:], c.DType.Encode(nil, []float32{float32(v)}))
		}
		if c.LSEBase == "2" {
			l /= math.Ln2
		}
		copy(lse[4*i:], dtype.F32.Encode(nil, []float32{float32(l)}))
	}
	if f.spoil != nil {
		f.spoil(f.call, out, lse)
	}
	return nil
}

// TestRelationsOfPrefill likewise.
func TestRelationsOfPrefill(t *testing.T) {
	relate := func(relation, fields string, spoil func(call *prefillCall, out, lse []byte)) error {
		c, err := cases.Parse([]byte(`{"name":"x","op":"prefill","model":{"heads":3,"nope":8,"rope":8,"value":8},"q_len":[4,2,3],"kv_len":[9,0,5],
			"holds":["` + relation + `"],"tolerance":{"out":0.2,"lse":0.2}` + fields + `}`))
		if err != nil {
			t.Fatal(err)
		}
		d := newHostDriver()
		r := fake(d, nil)
		r.states = mergedByOracle(0)
		r.openPrefills = func(call *prefillCall) (prefiller, error) { return &fakePrefiller{d, call, spoil}, nil }
		return r.relate(c)
	}
	bit := func(call *prefillCall, out, _ []byte) { out[0] ^= 1 }
	far := func(is func(call *prefillCall) bool) func(call *prefillCall, out, lse []byte) {
		return func(call *prefillCall, out, _ []byte) {
			if is(call) {
				out[1] ^= 0xc0
			}
		}
	}
	for relation, spoil := range map[string]func(call *prefillCall, out, lse []byte){
		cases.RequestsPermuted: bit,
		cases.HeadsPermuted:    bit,
		cases.ForeignNaN: func(call *prefillCall, out, _ []byte) {
			if up := call.in.Up; up[0] != up[0] || up[len(up)-201*3*16] != up[len(up)-201*3*16] {
				for i := range out {
					out[i] ^= 1
				}
			}
		},
		cases.SplitMerged:   far(func(call *prefillCall) bool { return call.in.CuK[1] < 9 }),
		cases.LogitsShifted: far(func(call *prefillCall) bool { return call.in.Q[15] == shiftQuery }),
		cases.WeightlessKey: far(func(call *prefillCall) bool { return call.in.CuK[1] == 10 }),
	} {
		for _, fields := range []string{``, `,"causal":false`, `,"dtype":"fp16","lse_base":"2"`, `,"layout":{"q_rows":"heads","out":"heads","kv_row":528}`} {
			if err := relate(relation, fields, nil); err != nil {
				t.Errorf("%s%s does not hold for the oracle: %v", relation, fields, err)
			}
		}
		if err := relate(relation, ``, spoil); err == nil {
			t.Errorf("%s: the fault was not found", relation)
		}
	}
}

// TestRowsThatMove: which rows become which when requests and heads are permuted.
func TestRowsThatMove(t *testing.T) {
	of := rowOf([]int{1, 0, 2}, []int{2, 1, 0}, []int{1, 0})
	for row, want := range []int{3, 2, 5, 4, 1, 0} {
		if got := of(row); got != want {
			t.Errorf("row %d was row %d, want %d", row, got, want)
		}
	}
	keep := others([]int{1, 0, 2}, 2, 0)
	for row, want := range []int{-1, -1, 2, 3, 4, 5} {
		if got := keep(row); got != want {
			t.Errorf("row %d stands for %d, want %d", row, got, want)
		}
	}
}

// TestRelationsOfExtendAndLayer: with the oracle in the kernels' place, and
// faults that depend on what must not matter.
func TestRelationsOfExtendAndLayer(t *testing.T) {
	c, err := cases.Parse([]byte(`{"name":"x","op":"layer","model":{"heads":3,"latent":16,"rope":4,"nope":8,"value":8},"page_size":4,"q_len":[4,0,2,3],"kv_len":[9,3,0,5],
		"fill":{"weights":"normal*0.3"},"tolerance":{"out":0.01,"lse":0.01}}`))
	if err != nil {
		t.Fatal(err)
	}
	of := func(spoil func(in *cases.Extend, out, lse []byte)) related[*cases.Extend] {
		return newRelated(c, (*cases.Case).Extend, func(in *cases.Extend) (answer, error) {
			r := in.Reference()
			a := answer{t: dtype.BF16, width: 8, name: newToken(in)}
			for i, l := range r.LSE {
				for _, v := range r.Row(i) {
					a.out = dtype.BF16.Encode(a.out, []float32{float32(v)})
				}
				a.lse = dtype.F32.Encode(a.lse, []float32{float32(l)})
			}
			if spoil != nil {
				spoil(in, a.out, a.lse)
			}
			return a, nil
		})
	}
	heads, sequences := count(3), count(4)
	type run = related[*cases.Extend]
	for _, x := range []struct {
		name  string
		holds func(x run) error
		spoil func(in *cases.Extend, out, lse []byte)
	}{
		{"pages", run.pagesPermuted, func(in *cases.Extend, out, _ []byte) { out[0] ^= byte(in.Table[0]) & 3 }},
		{"requests", func(x run) error { return x.permuted([]int{3, 1, 0, 2}, heads, permuteExtend, true) }, func(_ *cases.Extend, out, _ []byte) { out[0] ^= 1 }},
		{"heads", func(x run) error { return x.permuted(sequences, []int{2, 0, 1}, permuteExtend, true) }, func(_ *cases.Extend, _, lse []byte) { lse[4] ^= 1 }},
		{"NaN", func(x run) error { return x.foreignNaN(spoilCache) }, func(in *cases.Extend, out, _ []byte) {
			for _, page := range in.Pool.Used {
				if v := page.Values[0]; v != v {
					for i := range out {
						out[i] ^= 1
					}
				}
			}
		}},
		{"paths", absorbIsExpand, func(in *cases.Extend, out, _ []byte) {
			if len(in.Case.Paths) > 0 && in.Case.Paths[0] == "absorb" {
				out[1] ^= 0x80
			}
		}},
	} {
		if err := x.holds(of(nil)); err != nil {
			t.Errorf("%s: does not hold for the oracle: %v", x.name, err)
		}
		if err := x.holds(of(x.spoil)); err == nil {
			t.Errorf("%s: the fault was not found", x.name)
		}
	}
}
