package random

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/dtype"
)

// contents is a fill and its elements' deviation.
type contents struct {
	fill      string
	deviation float64
}

func normal(s float64) contents { return contents{fmt.Sprintf("normal*%g", s), s} }

// drawFills draws what fills the tensors, and with it how exact a result can be.
func drawFills(r *rand.Rand, c *cases.Case) {
	c.Fill.Unused = pick(r, "nan", "nan", "nan", "inf", "const:-Inf", "zero", "normal*1e4")
	c.Fill.Out = pick(r, "nan", "nan", "nan", "zero", "const:1", "inf")
	q := pick(r, normal(1), normal(1), normal(1), normal(0.2), normal(3), contents{"uniform", 0.6}, contents{"ramp", 0.6}, contents{"zero", 0}, contents{"const:0.5", 0.5})
	kv := pick(r, normal(0.25), normal(0.25), normal(1), normal(0.05), contents{"uniform", 0.6}, contents{"const:0.25", 0.25})
	rope := kv
	if one(r, 3) {
		rope = pick(r, normal(0.25), normal(1), normal(2), contents{"zero", 0}, contents{"const:-4", 4}, contents{"uniform", 0.6})
	}
	weights := pick(r, normal(0.04), normal(0.04), normal(0.02), normal(0.1))
	attends := c.Op == "decode" || c.Op == "prefill"
	switch {
	case attends && one(r, 8): // the running maximum moves again and again
		q, kv = normal(4), normal(2)
		rope = kv
	case attends && one(r, 25) && c.DType == dtype.BF16: // one key takes all
		q, kv = normal(1e6), normal(1e6)
		rope = kv
	case attends && one(r, 25): // below what others mask with
		q, rope = contents{"const:40", 40}, contents{"const:-448", 448}
	case !attends && one(r, 30) && c.Op != "layer" && c.Op != "extend":
		kv = contents{"zero", 0}
		rope = kv
	}
	c.Fill.Q, c.Fill.KV, c.Fill.Weights = q.fill, kv.fill, weights.fill
	if rope != kv {
		c.Fill.Rope = rope.fill
	}
	if one(r, 6) {
		c.Scale = pick(r, 0.01, 0.1, 0.3, 1/math.Sqrt(576))
	}
	setTolerance(c, q.deviation, kv.deviation, rope.deviation, weights.deviation)
}

// setTolerance bounds a result's distance from the oracle. What a row is made
// of is rounded to 16 bits, of 2⁻⁹; a product of keys and queries is rounded in
// f32, against the size of its terms; and where keys or queries are products
// themselves, of 16 bits, so are its terms.
func setTolerance(c *cases.Case, q, kv, rope, weights float64) {
	m, scale := c.Model, c.SoftmaxScale()
	nope, columns := kv, float64(m.Nope)
	if c.Op == "decode" {
		columns = float64(m.Latent)
	}
	expands := c.Op == "extend" || c.Op == "layer"
	if expands {
		nope = weights * kv * math.Sqrt(float64(m.Latent))
	}
	sum := scale * q * (columns*nope + float64(m.Rope)*rope) // of the terms' sizes
	// 5e-3 is what most rows keep to; of thousands, with a few keys that weigh alike
	// and point apart, the worst is a little further off. An H200's products are
	// less exact in long sums of large terms than the emulator's.
	c.Tolerance.Out, c.Tolerance.LSE = 6.5e-3, 1e-3+4e-6*sum
	switch {
	case c.Op == "merge": // the result so far is rounded after every 64 states
		states := c.Splits
		if c.Chunk > 0 {
			states = slices.Max(append([]int{0}, c.KVLen...)) / c.Chunk
		}
		c.Tolerance.Out += 2e-3 * math.Sqrt(float64(states)/64)
	case expands:
		rounding := scale * q * math.Hypot(math.Sqrt(columns)*nope, math.Sqrt(float64(m.Rope))*rope) / 256
		c.Tolerance.Out, c.Tolerance.LSE = 1e-2+3*rounding, 4e-3+8*rounding
	case sum < 1e9: // beyond, one key takes all
		c.Tolerance.Out += 7e-7 * sum
	}
}
