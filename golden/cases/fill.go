package cases

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Filler produces a tensor's elements in memory order.
type Filler func(r *rand.Rand, dst []float32)

// ParseFill reads a fill:
//
//	normal, normal*S   normally distributed with deviation 1 or S
//	uniform            evenly distributed in [−1, 1)
//	const:V            V
//	zero, nan, inf     0, NaN, +Inf
//	ramp               −1 to 1 in 509 steps, over and over along the tensor
func ParseFill(text string) (Filler, error) {
	constant := func(v float32) Filler {
		return func(_ *rand.Rand, dst []float32) {
			for i := range dst {
				dst[i] = v
			}
		}
	}
	number := func(s string) (float64, error) {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return 0, fmt.Errorf("fill %q: %q is not a number", text, s)
		}
		return v, nil
	}
	if s, ok := strings.CutPrefix(text, "normal*"); ok {
		scale, err := number(s)
		return normal(scale), err
	}
	if s, ok := strings.CutPrefix(text, "const:"); ok {
		v, err := number(s)
		return constant(float32(v)), err
	}
	switch text {
	case "normal":
		return normal(1), nil
	case "uniform":
		return func(r *rand.Rand, dst []float32) {
			for i := range dst {
				dst[i] = float32(2*r.Float64() - 1)
			}
		}, nil
	case "zero":
		return constant(0), nil
	case "nan":
		return constant(float32(math.NaN())), nil
	case "inf":
		return constant(float32(math.Inf(1))), nil
	case "ramp":
		at := 0
		return func(_ *rand.Rand, dst []float32) {
			for i := range dst {
				dst[i] = float32(2*float64(at%509)/508 - 1)
				at++
			}
		}, nil
	}
	return nil, fmt.Errorf("fill %q must be one of normal, normal*S, uniform, const:V, zero, nan, inf, ramp", text)
}

func normal(scale float64) Filler {
	return func(r *rand.Rand, dst []float32) {
		for i := range dst {
			dst[i] = float32(r.NormFloat64() * scale)
		}
	}
}

// fillByte is the byte that, repeated, makes the fill's value in any of the
// 16-bit types: devices can set memory to it without a host copy.
func fillByte(text string) (byte, bool) {
	switch text {
	case "nan":
		return 0xff, true
	case "zero":
		return 0, true
	}
	return 0, false
}
