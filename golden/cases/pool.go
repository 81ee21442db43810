package cases

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/mlagen/mlagen/golden/dtype"
)

// Page is a page of the pool that some sequence uses.
type Page struct {
	ID     int64
	Values []float32 // [page_size][record], exact values of the pool's type
}

// Pool is a paged cache. Only the pages in use have their contents here, so a
// pool may be far larger than the host's memory.
type Pool struct {
	DType      dtype.Type
	Pages      int64  // pages in the pool
	PageSize   int    // tokens per page
	Record     int    // elements per token
	RowStride  int    // elements from a token to the next
	PageStride int64  // elements from a page to the next
	Used       []Page // ascending by ID
	unused     string
}

// maxHostPool bounds the pool that is built whole on the host because its
// unused part has a value that devices cannot set by bytes.
const maxHostPool = 256 << 20

// Bytes is the size of the pool in device memory.
func (p *Pool) Bytes() int64 { return p.Pages * p.PageStride * int64(p.DType.Size()) }

// Span is bytes to be written at an offset of the pool.
type Span struct {
	Offset int64
	Data   []byte
}

// Upload plans how the pool gets into device memory: set all of it to the
// byte background, then write the spans, which do not overlap.
func (p *Pool) Upload() (background byte, spans []Span, err error) {
	size := int64(p.DType.Size())
	background, byBytes := fillByte(p.unused)
	if !byBytes {
		if p.Bytes() > maxHostPool {
			return 0, nil, fmt.Errorf("fill.unused %q needs the whole pool of %d bytes on the host; use nan or zero", p.unused, p.Bytes())
		}
		filler, err := ParseFill(p.unused)
		if err != nil {
			return 0, nil, err
		}
		values := make([]float32, p.Pages*p.PageStride)
		filler(rand.New(rand.NewPCG(0, streamUnused)), values)
		for _, page := range p.Used {
			p.scatter(values[page.ID*p.PageStride:], page)
		}
		return 0, []Span{{0, p.DType.Encode(make([]byte, 0, int64(len(values))*size), values)}}, nil
	}

	value := p.DType.Decode(nil, []byte{background, background})[0]
	length := int64(p.PageSize) * int64(p.RowStride)
	for _, page := range p.Used {
		values := make([]float32, length)
		for i := range values {
			values[i] = value
		}
		p.scatter(values, page)
		at := page.ID * p.PageStride * size
		if n := len(spans); n > 0 && spans[n-1].Offset+int64(len(spans[n-1].Data)) == at {
			spans[n-1].Data = p.DType.Encode(spans[n-1].Data, values)
			continue
		}
		spans = append(spans, Span{at, p.DType.Encode(nil, values)})
	}
	return background, spans, nil
}

func (p *Pool) scatter(dst []float32, page Page) {
	for slot := range p.PageSize {
		copy(dst[slot*p.RowStride:], page.Values[slot*p.Record:(slot+1)*p.Record])
	}
}

// Find returns the page called id, or nil when no sequence uses it.
func (p *Pool) Find(id int64) *Page {
	i, ok := slices.BinarySearchFunc(p.Used, id, func(page Page, id int64) int {
		return int(max(-1, min(1, page.ID-id)))
	})
	if !ok {
		return nil
	}
	return &p.Used[i]
}

// order returns the ids of n pages of the pool in the order that the case asks for.
func (c *Case) order(n int, pool int64, r *rand.Rand) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = c.Pages.Base + int64(i)
	}
	switch c.Pages.Order {
	case "reversed":
		slices.Reverse(ids)
	case "scattered":
		// A partial Fisher-Yates shuffle of [base, pool) that keeps only the
		// places it has touched.
		moved := map[int64]int64{}
		at := func(i int64) int64 {
			if v, ok := moved[i]; ok {
				return v
			}
			return i
		}
		room := pool - c.Pages.Base
		for i := range ids {
			j := int64(i) + r.Int64N(room-int64(i))
			ids[i] = c.Pages.Base + at(j)
			moved[j] = at(int64(i))
		}
	}
	return ids
}
