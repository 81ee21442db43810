package differential

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/mlagen/mlagen/golden/dtype"
)

// Figures say how far two results are apart.
type Figures struct {
	Elements int     // compared, LSEs not counted
	Differ   int     // elements with other bits
	ULP      float64 // largest distance, see the package's documentation
	Own      float64 // largest distance in ulp of the element itself
	LSEs     int     // compared
	LSE      float64 // largest absolute difference; +Inf where only one is infinite
	LSEUnit  float64 // largest difference relative to max(1, |LSE|)
	LSEBits  int     // LSEs with other bits
}

// Limits are how far results may be apart.
type Limits struct {
	ULP     float64
	LSEUnit float64
	// Exact allows no other bit.
	Exact bool
}

// HardwareLimits are those for a GPU and the emulator.
var HardwareLimits = Limits{ULP: 2, LSEUnit: 2e-5}

// Err is nil when f is within the limits.
func (l Limits) Err(f Figures) error {
	switch {
	case l.Exact && f.Differ+f.LSEBits > 0:
		return fmt.Errorf("%d of %d elements and %d of %d LSEs differ and none may", f.Differ, f.Elements, f.LSEBits, f.LSEs)
	case !(f.ULP <= l.ULP):
		return fmt.Errorf("%.3g ulp apart, at most %.3g allowed", f.ULP, l.ULP)
	case !(f.LSEUnit <= l.LSEUnit):
		return fmt.Errorf("LSEs %.3g apart, %.3g of max(1, |LSE|), at most %.3g allowed", f.LSE, f.LSEUnit, l.LSEUnit)
	}
	return nil
}

// ulp returns the distance between t's neighbouring values at |x|.
func ulp(t dtype.Type, x float64) float64 {
	bits, least := 8, -126 // of precision; the smallest normal exponent
	switch t {
	case dtype.FP16:
		bits, least = 11, -14
	case dtype.F32:
		bits = 24
	}
	exponent := least
	if x != 0 {
		_, e := math.Frexp(x)
		exponent = max(e-1, least)
	}
	return math.Ldexp(1, exponent-(bits-1))
}

// rms returns the root mean square of x.
func rms(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum / float64(max(1, len(x))))
}

// largest returns the largest magnitude in x.
func largest(x []float32) float64 {
	m := 0.0
	for _, v := range x {
		m = math.Max(m, math.Abs(float64(v)))
	}
	return m
}

// f16ULP returns the distance between fp16's neighbours at |x|, were its exponents
// without end.
func f16ULP(x float64) float64 {
	_, e := math.Frexp(x)
	return math.Ldexp(1, e-11)
}

// row adds a row of elements measured in ulp of t. scale gives the magnitude
// below which elements are measured at it.
func (f *Figures) row(t dtype.Type, a, b []float32, scale func([]float32) float64) {
	f.rowBut(0, t, a, b, scale)
}

// rowBut is row with a distance that elements may be apart besides.
func (f *Figures) rowBut(spare float64, t dtype.Type, a, b []float32, scale func([]float32) float64) {
	floor := math.Max(scale(a), scale(b))
	for i := range a {
		f.Elements++
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			f.Differ++
		}
		x, y := float64(a[i]), float64(b[i])
		d := math.Abs(x - y)
		if math.IsNaN(d) || math.IsInf(x, 0) || math.IsInf(y, 0) {
			f.ULP, f.Own = math.Inf(1), math.Inf(1)
			continue
		}
		own := math.Max(math.Abs(x), math.Abs(y))
		f.Own = math.Max(f.Own, d/ulp(t, own))
		if !math.IsNaN(floor) && !math.IsInf(floor, 0) {
			own = math.Max(own, floor)
		}
		f.ULP = math.Max(f.ULP, math.Max(0, d-spare)/ulp(t, own))
	}
}

// lses adds LSEs; −∞ is equal to itself alone.
func (f *Figures) lses(a, b []float32) {
	for i := range a {
		f.LSEs++
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			f.LSEBits++
		}
		x, y := float64(a[i]), float64(b[i])
		if math.IsInf(x, -1) && math.IsInf(y, -1) {
			continue
		}
		d := math.Abs(x - y)
		if math.IsNaN(d) {
			d = math.Inf(1)
		}
		f.LSE = math.Max(f.LSE, d)
		if !math.IsInf(d, 1) {
			d /= math.Max(1, math.Max(math.Abs(x), math.Abs(y)))
		}
		f.LSEUnit = math.Max(f.LSEUnit, d)
	}
}

// words adds 32-bit words, of which none may differ on whatever devices: the
// distance of a difference is infinite.
func (f *Figures) words(a, b []byte) {
	f.Elements += len(a) / 4
	if len(a) != len(b) {
		f.Differ++
		f.ULP = math.Inf(1)
		return
	}
	for at := 0; at < len(a); at += 4 {
		if !bytes.Equal(a[at:at+4], b[at:at+4]) {
			f.Differ++
			f.ULP = math.Inf(1)
		}
	}
}

// add joins the figures of two results.
func (f *Figures) add(g Figures) {
	f.Elements += g.Elements
	f.Differ += g.Differ
	f.ULP = math.Max(f.ULP, g.ULP)
	f.Own = math.Max(f.Own, g.Own)
	f.LSEs += g.LSEs
	f.LSE = math.Max(f.LSE, g.LSE)
	f.LSEUnit = math.Max(f.LSEUnit, g.LSEUnit)
	f.LSEBits += g.LSEBits
}

// encodeInts returns the bytes of s32 words.
func encodeInts(x []int32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return b
}

// decodeInts reads s32 words.
func decodeInts(b []byte) []int32 {
	x := make([]int32, len(b)/4)
	for i := range x {
		x[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return x
}
