package cases

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mlagen/mlagen/golden/oracle"
)

// Further streams of the seed.
const streamAppend = 16

// Append is the inputs of an append case: the last q_len tokens of every
// sequence are new. Tokens that are not to be stored, of slot −1, lie between
// them; their records are NaN, their positions are no positions.
type Append struct {
	Case    *Case
	Tokens  int
	Latent  []float32 // [token][latent]
	RopeKey []float32 // [token][rope], not rotated yet
	Slots   []int64

	Positions []int32   // for cases that rotate
	Cos, Sin  []float32 // [position][rope/2]
	Angles    int       // positions in the tables

	Before Pool // the new tokens' slots hold what the case says of unused memory
	After  Pool // as it must be, but for rounding of rotated rope keys
	New    []NewToken
}

// NewToken is a token that an append case stores.
type NewToken struct {
	Page int64
	Slot int // in the page
	Rope []float64
}

// Append builds the inputs of an append case.
func (c *Case) Append() (*Append, error) {
	d, err := c.Decode()
	if err != nil {
		return nil, err
	}
	unused, err := ParseFill(c.Fill.Unused)
	if err != nil {
		return nil, err
	}
	m, record := c.Model, c.Model.Record()
	a := &Append{Case: c, Before: d.Pool, After: d.Pool}
	a.After.Used, a.Before.Used = clonePages(d.Pool.Used), clonePages(d.Pool.Used)
	if c.Rotate != "" {
		a.Angles = slices.Max(append([]int{0}, c.KVLen...)) + 3
		a.Cos, a.Sin = angles(a.Angles, m.Rope)
	}
	skip := func() {
		for range m.Latent {
			a.Latent = append(a.Latent, float32(math.NaN()))
		}
		for range m.Rope {
			a.RopeKey = append(a.RopeKey, float32(math.NaN()))
		}
		a.Slots, a.Positions = append(a.Slots, -1), append(a.Positions, math.MinInt32)
	}
	r := rand.New(rand.NewPCG(c.Seed, streamAppend))
	for s, n := range c.KVLen {
		skip()
		for position := n - c.Queries(s); position < n; position++ {
			page := int64(d.Table[s*d.Width+position/c.PageSize])
			slot := position % c.PageSize
			row := a.After.Find(page).Values[slot*record:][:record]
			unused(r, a.Before.Find(page).Values[slot*record:][:record])
			a.Latent = append(a.Latent, row[:m.Latent]...)
			a.RopeKey = append(a.RopeKey, row[m.Latent:]...)
			a.Slots, a.Positions = append(a.Slots, page*int64(c.PageSize)+int64(slot)), append(a.Positions, int32(position))
			token := NewToken{Page: page, Slot: slot}
			if c.Rotate != "" {
				half := m.Rope / 2
				token.Rope = oracle.Rotate(row[m.Latent:], a.Cos[position*half:][:half], a.Sin[position*half:][:half], c.Rotate == "interleaved")
				for i, x := range token.Rope {
					row[m.Latent+i] = c.DType.Round(float32(x))
				}
			}
			a.New = append(a.New, token)
		}
	}
	skip()
	for i := range a.Before.Used {
		round(c.DType, a.Before.Used[i].Values)
	}
	a.Tokens = len(a.Slots)
	return a, nil
}

func clonePages(pages []Page) []Page {
	clone := slices.Clone(pages)
	for i := range clone {
		clone[i].Values = slices.Clone(clone[i].Values)
	}
	return clone
}

// angles makes tables of the usual frequencies, 10000^(−2i/rope).
func angles(positions, rope int) (cos, sin []float32) {
	for p := range positions {
		for i := range rope / 2 {
			angle := float64(p) * math.Pow(10000, -2*float64(i)/float64(rope))
			cos, sin = append(cos, float32(math.Cos(angle))), append(sin, float32(math.Sin(angle)))
		}
	}
	return cos, sin
}
