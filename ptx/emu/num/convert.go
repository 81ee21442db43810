package num

import (
	"fmt"
	"math"

	"github.com/mlagen/mlagen/ptx/isa"
)

// Cvt is a scalar cvt instruction: cvt{.rnd}{.ftz}{.relu}{.satfinite}{.sat}.dst.src.
type Cvt struct {
	Dst, Src  isa.Type
	Round     Rounding
	Integral  bool // the rounding was written .rni, .rzi, .rmi or .rpi
	FTZ       bool
	Sat       bool
	SatFinite bool
	Relu      bool
}

// formats are the scalar floating-point types below f64.
var formats = map[isa.Type]*Format{isa.F16: F16, isa.BF16: BF16, isa.F32: F32, isa.E4M3: E4M3, isa.E5M2: E5M2}

// FormatOf returns the storage format of a scalar floating-point type of at
// most 32 bits, and of the elements of a packed one; nil for other types.
func FormatOf(t isa.Type) *Format {
	switch t {
	case isa.F16x2:
		return F16
	case isa.BF16x2:
		return BF16
	case isa.E4M3x2:
		return E4M3
	}
	return formats[t]
}

// Func returns the conversion from a source register to a destination
// register. Registers are passed as 64 bits; bits above the source's width
// are ignored, and those above the destination's are zero (unsigned and
// floating-point) or sign bits (signed).
func (c Cvt) Func() (func(uint64) uint64, error) {
	scalar := func(t isa.Type) bool {
		return t.Signed() || t.Unsigned() || t == isa.F64 || formats[t] != nil
	}
	if !scalar(c.Dst) || !scalar(c.Src) {
		return nil, fmt.Errorf("cvt.%v.%v: not a scalar conversion", c.Dst, c.Src)
	}
	switch srcFloat, dstFloat := c.Src.Float(), c.Dst.Float(); {
	case srcFloat && dstFloat:
		return c.floatToFloat, nil
	case srcFloat:
		return c.floatToInt, nil
	case dstFloat:
		return c.intToFloat, nil
	}
	return c.intToInt, nil
}

func (c Cvt) load(v uint64) float64 {
	if c.Src == isa.F64 {
		return math.Float64frombits(v)
	}
	f := formats[c.Src]
	if c.FTZ && c.Src == isa.F32 {
		v = uint64(f.Flush(uint32(v)))
	}
	return f.Decode(uint32(v))
}

func (c Cvt) floatToFloat(v uint64) uint64 {
	x := c.load(v)
	if c.Integral {
		x = roundIntegral(x, c.Round)
	}
	if c.Dst == isa.F64 {
		if c.Sat {
			x = math.Max(0, math.Min(1, x))
			if math.IsNaN(x) {
				x = 0
			}
		}
		return math.Float64bits(x)
	}
	f := formats[c.Dst]
	p := f.Encode(x, c.Round, c.SatFinite)
	if c.FTZ && c.Dst == isa.F32 {
		p = f.Flush(p)
	}
	if c.Relu {
		p = f.relu(p)
	}
	if c.Sat {
		p = f.saturate(p)
	}
	return uint64(p)
}

func (c Cvt) floatToInt(v uint64) uint64 {
	return FloatToInt(c.load(v), c.Dst.Bits(), c.Dst.Signed(), c.Round, c.Src == isa.F64)
}

func (c Cvt) intToFloat(v uint64) uint64 {
	v = extend(v, c.Src.Bits(), c.Src.Signed())
	if c.Dst == isa.F64 {
		return math.Float64bits(IntToF64(v, c.Src.Signed(), c.Round))
	}
	f := formats[c.Dst]
	p := f.Encode(IntToFloat(v, c.Src.Signed()), c.Round, c.SatFinite)
	if c.Sat {
		p = f.saturate(p)
	}
	return uint64(p)
}

func (c Cvt) intToInt(v uint64) uint64 {
	v = extend(v, c.Src.Bits(), c.Src.Signed())
	if c.Sat {
		return SaturateInt(v, c.Src.Signed(), c.Dst.Bits(), c.Dst.Signed())
	}
	return extend(v, c.Dst.Bits(), c.Dst.Signed())
}
