package cases

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/golden/oracle"
)

// Streams of the seed, so that each tensor is the same whatever the others are.
const (
	streamQ = iota + 1
	streamLatent
	streamRope
	streamOrder
	streamUnused
)

// Decode is the inputs of a decode case. Values are float32 that the case's
// type represents exactly.
type Decode struct {
	Case  *Case
	QLen  int       // query tokens per request
	Q     []float32 // [batch][QLen][heads][latent+rope]
	Pool  Pool
	Table []int32 // [batch][Width] page ids
	Width int     // entries per request; the last is past every sequence's end
	KVLen []int32
}

// Decode builds the inputs of a decode case.
func (c *Case) Decode() (*Decode, error) {
	qLen, _ := c.QLen.Uniform()
	d := &Decode{Case: c, QLen: qLen}
	batch, record := len(c.KVLen), c.Model.Record()
	random := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(c.Seed, stream)) }

	q, err := ParseFill(c.Fill.Q)
	if err != nil {
		return nil, err
	}
	d.Q = make([]float32, batch*qLen*c.Model.Heads*record)
	q(random(streamQ), d.Q)
	round(c.DType, d.Q)

	longest := 0
	for _, n := range c.KVLen {
		d.KVLen = append(d.KVLen, int32(n))
		longest = max(longest, n)
	}
	if c.Graph != nil {
		longest = max(longest, slices.Max(append([]int{0}, c.Graph.CaptureKVLen...)))
	}
	d.Width = pagesOf(longest, c.PageSize) + 1

	used := c.usedPages()
	pool := c.Pages.Pool
	if pool == 0 {
		pool = c.Pages.Base + int64(used) + 3
	}
	d.Pool = Pool{
		DType: c.DType, Pages: pool, PageSize: c.PageSize, Record: record,
		RowStride: c.RowStride(), PageStride: c.PageStride(), unused: c.Fill.Unused,
	}
	ids := c.order(used, pool, random(streamOrder))
	d.Table = make([]int32, batch*d.Width)
	for i := range d.Table {
		d.Table[i] = c.Pages.Tail
	}
	latent, err := ParseFill(c.Fill.latent())
	if err != nil {
		return nil, err
	}
	rope, err := ParseFill(c.Fill.rope())
	if err != nil {
		return nil, err
	}
	unused, err := ParseFill(c.Fill.Unused)
	if err != nil {
		return nil, err
	}
	rLatent, rRope, rUnused := random(streamLatent), random(streamRope), random(streamUnused)
	for b, n := range c.KVLen {
		for i := range pagesOf(n, c.PageSize) {
			page := Page{ID: ids[0], Values: make([]float32, c.PageSize*record)}
			ids = ids[1:]
			d.Table[b*d.Width+i] = int32(page.ID)
			for slot := range c.PageSize {
				row := page.Values[slot*record : (slot+1)*record]
				if i*c.PageSize+slot >= n {
					unused(rUnused, row)
					continue
				}
				latent(rLatent, row[:c.Model.Latent])
				rope(rRope, row[c.Model.Latent:])
			}
			round(c.DType, page.Values)
			d.Pool.Used = append(d.Pool.Used, page)
		}
	}
	slices.SortFunc(d.Pool.Used, func(a, b Page) int { return cmp.Compare(a.ID, b.ID) })
	return d, nil
}

func round(t dtype.Type, x []float32) {
	for i := range x {
		x[i] = t.Round(x[i])
	}
}

// Oracle is the reference problem over the same inputs.
func (d *Decode) Oracle() *oracle.Decode[float32] {
	c, record := d.Case, d.Pool.Record
	kvLen := make([]int, len(d.KVLen))
	for i, n := range d.KVLen {
		kvLen[i] = int(n)
	}
	return &oracle.Decode[float32]{
		Heads: c.Model.Heads, QLen: d.QLen, Latent: c.Model.Latent, Rope: c.Model.Rope,
		Scale: c.SoftmaxScale(), Causal: c.Causal, KVLen: kvLen,
		Q: func(request, token, head int) []float32 {
			at := ((request*d.QLen+token)*c.Model.Heads + head) * record
			return d.Q[at : at+record]
		},
		Row: oracle.Pages(c.PageSize,
			func(request, index int) int64 { return int64(d.Table[request*d.Width+index]) },
			func(page int64, slot int) []float32 {
				return d.Pool.Find(page).Values[slot*record : (slot+1)*record]
			}),
	}
}

// Alone returns the inputs with request i as the whole batch, in the same pool.
func (d *Decode) Alone(i int) *Decode {
	c := *d.Case
	c.KVLen, c.Graph = c.KVLen[i:i+1], nil
	perRequest := len(d.Q) / len(d.KVLen)
	return &Decode{
		Case: &c, QLen: d.QLen, Q: d.Q[i*perRequest : (i+1)*perRequest], Pool: d.Pool,
		Table: d.Table[i*d.Width : (i+1)*d.Width], Width: d.Width, KVLen: d.KVLen[i : i+1],
	}
}

// SplitQ returns the query as two tensors: [batch][QLen][heads][latent] and
// [batch][QLen][heads][rope].
func (d *Decode) SplitQ() (latent, rope []float32) {
	record, width := d.Pool.Record, d.Case.Model.Latent
	for at := 0; at < len(d.Q); at += record {
		latent = append(latent, d.Q[at:at+width]...)
		rope = append(rope, d.Q[at+width:at+record]...)
	}
	return latent, rope
}
