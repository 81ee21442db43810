package differential

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/oracle"
)

// rangeCase is latents of other magnitudes than a cache has, in requests whose
// scores depend on the rope keys alone where latents would decide them.
type rangeCase struct {
	name    string
	latent  string // fill
	change  func(in *cases.Decode)
	cancels bool // the result is small beside the pieces
}

var rangeCases = []rangeCase{
	{name: "ordinary", latent: "normal*0.25"},
	{name: "tiny", latent: "normal*1e-30"},
	{name: "hardly anything", latent: "normal*1e-36"},
	{name: "huge", latent: "normal*1e30", change: blind},
	{name: "pieces of all magnitudes", latent: "normal", change: func(in *cases.Decode) {
		blind(in)
		tokens(in, func(token int, latent, _ []float32) {
			multiply(in, latent, []float64{1e-30, 1e30, 1, 1e10, 1e-10}[token/64%5])
		})
	}},
	{name: "rows of all magnitudes", latent: "normal", change: attendClasses},
	{name: "ramp", latent: "ramp"},
	{name: "pieces that cancel", latent: "normal", cancels: true, change: func(in *cases.Decode) {
		blind(in)
		tokens(in, func(token int, latent, _ []float32) {
			for i := range latent {
				latent[i] = in.Case.DType.Round(1 + latent[i]/4)
			}
			if token%700 >= 350 {
				multiply(in, latent, -1)
			}
		})
	}},
}

// TestRange: results that are merged from pieces are as exact as whole ones,
// whatever the latents' magnitude. Where pieces cancel they are less exact by what
// f16 rounds of the pieces.
func TestRange(t *testing.T) {
	p, _ := open(t)
	for _, shape := range []decodeCase{{heads: 16}, {heads: 8, sq: 5}, {heads: 64}} {
		for _, c := range rangeCases {
			dc := shape.parse(t, 7)
			dc.KVLen, dc.SMs = []int{700}, 16*dc.Spec().RowBlocks()
			dc.Fill.Latent, dc.Fill.Rope = c.latent, "normal"
			t.Run(fmt.Sprintf("%s/%s", c.name, shape.shape()), func(t *testing.T) {
				in, err := dc.Case.Decode()
				if err != nil {
					t.Fatal(err)
				}
				if c.change != nil {
					c.change(in)
				}
				want := in.Oracle().Run()
				rounding := make([]float64, len(want.LSE)) // of f16, by row
				if c.cancels {
					tokens(in, func(_ int, latent, _ []float32) {
						for i, v := range latent {
							latent[i] = max(v, -v)
						}
					})
					for row, all := range rowNorms(in.Oracle().Run()) {
						rounding[row] = all * 0x1p-11 / rowNorms(want)[row]
					}
					if in, err = dc.Case.Decode(); err != nil {
						t.Fatal(err)
					}
					c.change(in)
				}
				whole := 0.0
				for _, dc.Splits = range []int{1, 2, 3, 11} { // whole, a pair, decode_combine's ways
					results, err := each(p, dc.SMs, func(dev *device) (*decodeResult, error) { return p.decode(dev, dc, in) })
					if err != nil {
						t.Fatal(err)
					}
					for _, r := range results {
						errors, lse := distances(want, r)
						if dc.Splits == 1 {
							whole = max(whole, slices.Max(errors))
						}
						for row, e := range errors {
							if !(e <= 1.2*whole+rounding[row]) {
								t.Errorf("%d pieces, row %d: off by %.2e of its norm, the worst whole one by %.2e, and f16 rounds by %.2e", dc.Splits, row, e, whole, rounding[row])
							}
						}
						if !(lse <= 1e-4) || !c.cancels && whole > 4e-3 {
							t.Errorf("%d pieces: an LSE off by %.2e, a row whole by %.2e of its norm", dc.Splits, lse, whole)
						}
						t.Logf("%2d pieces: %.2e", dc.Splits, slices.Max(errors))
					}
				}
			})
		}
	}
}

// TestRangeOfColumns: a column a million times as large as the others costs these
// nothing where a request is cut, though a row's elements are counted in one unit.
func TestRangeOfColumns(t *testing.T) {
	p, _ := open(t)
	const column, large = 5, 1 << 20
	for _, shape := range []decodeCase{{heads: 16}, {heads: 64}} {
		dc := shape.parse(t, 7)
		dc.KVLen, dc.SMs = []int{700}, 16*dc.Spec().RowBlocks()
		dc.Fill.Latent, dc.Fill.Rope = "normal", "normal"
		in, err := dc.Case.Decode()
		if err != nil {
			t.Fatal(err)
		}
		blind(in)
		tokens(in, func(_ int, latent, _ []float32) { latent[column] = large })
		want := in.Oracle().Run()
		whole := 0.0
		for _, dc.Splits = range []int{1, 2, 3, 11} {
			results, err := each(p, dc.SMs, func(dev *device) (*decodeResult, error) { return p.decode(dev, dc, in) })
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range results {
				for row := range want.LSE {
					diff, norm := 0.0, 0.0
					for i, w := range want.Row(row) {
						if i != column {
							diff, norm = math.Hypot(diff, float64(r.out[row*want.Width+i])-w), math.Hypot(norm, w)
						}
					}
					switch e := diff / norm; {
					case dc.Splits == 1:
						whole = max(whole, e)
					case !(e <= 1.2*whole):
						t.Errorf("%s, %d pieces, row %d: the other columns are off by %.2e, whole by %.2e", shape.shape(), dc.Splits, row, e, whole)
					}
				}
			}
		}
		if whole > 5e-3 {
			t.Errorf("%s: whole rows are off by %.2e", shape.shape(), whole)
		}
	}
}

// shape names the case's kernel.
func (c decodeCase) shape() string {
	return fmt.Sprintf("heads=%d,sq=%d", c.heads, max(1, c.sq))
}

// distances returns every row's ‖row − reference‖ / ‖reference‖, and the LSE that is
// furthest off.
func distances(want oracle.Result, r *decodeResult) (out []float64, lse float64) {
	for row, norm := range rowNorms(want) {
		diff := 0.0
		for i, w := range want.Row(row) {
			diff = math.Hypot(diff, float64(r.out[row*want.Width+i])-w)
		}
		out = append(out, diff/norm)
		lse = max(lse, math.Abs(float64(r.lse[row])-want.LSE[row]))
	}
	return out, lse
}

func rowNorms(r oracle.Result) (norms []float64) {
	for row := range r.LSE {
		norm := 0.0
		for _, v := range r.Row(row) {
			norm = math.Hypot(norm, v)
		}
		norms = append(norms, norm)
	}
	return norms
}

// attendClasses has tokens in classes by their latents' magnitude, and each row
// sees one class, for all others have no weight.
func attendClasses(in *cases.Decode) {
	blind(in)
	magnitudes := []float64{1e-30, 1e30, 1, 1e10, 1e-10, 1e-20, 1e20}
	for at := 0; at < len(in.Q); at += in.Pool.Record {
		class := at / in.Pool.Record % len(magnitudes)
		q := in.Q[at+in.Case.Model.Latent:][:len(magnitudes)]
		clear(q)
		q[class] = 128
	}
	tokens(in, func(token int, latent, rope []float32) {
		class := token % len(magnitudes)
		multiply(in, latent, magnitudes[class])
		clear(rope[:len(magnitudes)])
		rope[class] = 32
	})
}

// blind has scores depend on the rope keys alone.
func blind(in *cases.Decode) {
	for at := 0; at < len(in.Q); at += in.Pool.Record {
		clear(in.Q[at : at+in.Case.Model.Latent])
	}
}

// tokens visits the records of the only request, in two parts.
func tokens(in *cases.Decode, visit func(token int, latent, rope []float32)) {
	width, size := in.Case.Model.Latent, in.Case.PageSize
	for token := range int(in.KVLen[0]) {
		page := in.Pool.Find(int64(in.Table[token/size]))
		record := page.Values[token%size*in.Pool.Record:][:in.Pool.Record]
		visit(token, record[:width], record[width:])
	}
}

// multiply rounds what it multiplies.
func multiply(in *cases.Decode, x []float32, by float64) {
	for i := range x {
		x[i] = in.Case.DType.Round(float32(float64(x[i]) * by))
	}
}
