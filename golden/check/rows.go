package check

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/runtime"
)

// Gaps after a row, in elements.
const (
	outGap   = 64 // of outputs
	queryGap = 8  // of queries: 16 bytes, the least that strides allow
)

// rowLayout is how the rows of a tensor [tokens][heads][width] lie in memory:
// equally far apart, tokens or heads outermost.
type rowLayout struct {
	tokens, heads, width, gap int
	headsFirst                bool
}

// layRows reads a layout's name, see cases.Layout.
func layRows(kind string, tokens, heads, width, gap int) rowLayout {
	l := rowLayout{tokens: tokens, heads: heads, width: width, gap: gap, headsFirst: kind == "heads"}
	if kind == "dense" {
		l.gap = 0
	}
	return l
}

func queryRows(c *cases.Case, tokens, width int) rowLayout {
	return layRows(c.Layout.QRows, tokens, c.Model.Heads, width, queryGap)
}

func outRows(c *cases.Case, tokens, width int) rowLayout {
	return layRows(c.Layout.Out, tokens, c.Model.Heads, width, outGap)
}

// pitch is the elements from a row to the next in memory, its gap included.
func (l rowLayout) pitch() int { return l.width + l.gap }

func (l rowLayout) elements() int { return l.tokens * l.heads * l.pitch() }

// place is how many rows lie before a row; rows count heads fastest.
func (l rowLayout) place(row int) int {
	if l.headsFirst {
		return row%l.heads*l.tokens + row/l.heads
	}
	return row
}

// row is the row that lies at a place.
func (l rowLayout) row(place int) int {
	if l.headsFirst {
		return place%l.tokens*l.heads + place/l.tokens
	}
	return place
}

// strides returns the elements from a token to the next and from a head to the next.
func (l rowLayout) strides() (token, head int64) {
	if l.headsFirst {
		return int64(l.pitch()), int64(l.tokens * l.pitch())
	}
	return int64(l.heads * l.pitch()), int64(l.pitch())
}

// tensor is the tensor [tokens, heads, width] at p.
func (l rowLayout) tensor(p runtime.Ptr, t runtime.DType) runtime.Tensor {
	token, head := l.strides()
	return runtime.Tensor{Ptr: p, DType: t, Shape: []int64{int64(l.tokens), int64(l.heads), int64(l.width)}, Strides: []int64{token, head, 1}}
}

// batched is the tensor [batch, tokens of each, heads, width] at p.
func (l rowLayout) batched(p runtime.Ptr, t runtime.DType, batch, each int64) runtime.Tensor {
	token, head := l.strides()
	return runtime.Tensor{Ptr: p, DType: t, Shape: []int64{batch, each, int64(l.heads), int64(l.width)}, Strides: []int64{each * token, token, head, 1}}
}

// spread lays dense rows out in memory, NaN between them.
func (l rowLayout) spread(dense []float32) []float32 {
	if l.gap == 0 && !l.headsFirst {
		return dense
	}
	x := make([]float32, l.elements())
	for place := range l.tokens * l.heads {
		at := x[place*l.pitch():][:l.pitch()]
		copy(at, dense[l.row(place)*l.width:][:l.width])
		for i := l.width; i < len(at); i++ {
			at[i] = float32(math.NaN())
		}
	}
	return x
}

// gather returns an output of 16-bit elements as dense rows. Where the case
// poisons outputs, every element of a row must have been written and none of a
// gap.
func (l rowLayout) gather(c *cases.Case, raw []byte, describe func(row int) string) ([]byte, error) {
	const size = 2
	dense := make([]byte, l.tokens*l.heads*l.width*size)
	for place := range l.tokens * l.heads {
		at, row := raw[place*l.pitch()*size:][:l.pitch()*size], l.row(place)
		copy(dense[row*l.width*size:], at[:l.width*size])
		if c.Fill.Out != "nan" {
			continue
		}
		for i := 0; i < l.width*size; i += size {
			if binary.LittleEndian.Uint16(at[i:]) == 0xffff {
				return nil, fmt.Errorf("%s: out[%d] was not written", describe(row), i/size)
			}
		}
		for i, b := range at[l.width*size:] {
			if b != 0xff {
				return nil, fmt.Errorf("%s: byte %d of the gap after it was written", describe(row), i)
			}
		}
	}
	return dense, nil
}

// lseWritten reports rows whose LSE still holds the poison.
func lseWritten(lse []byte, describe func(row int) string) error {
	for i := 0; i < len(lse); i += 4 {
		if binary.LittleEndian.Uint32(lse[i:]) == 0xffffffff {
			return fmt.Errorf("%s: lse was not written", describe(i/4))
		}
	}
	return nil
}
