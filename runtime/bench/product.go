package bench

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mlagen/mlagen/runtime"
)

// ProductOp is a product of rows and the weights of heads.
type ProductOp string

// Products.
const (
	UpProject    ProductOp = "up-project"
	AbsorbQuery  ProductOp = "absorb-q"
	AbsorbOutput ProductOp = "absorb-o"
)

// widths returns the elements of a row of a head that are multiplied, and of
// the result. An up-projection's rows are the same for all heads.
func (op ProductOp) widths() (depth, columns int) {
	switch op {
	case AbsorbQuery:
		return nope, latent
	case AbsorbOutput:
		return latent, value
	}
	return latent, nope + value
}

// ProductShape is a product to be timed.
type ProductShape struct {
	Op     ProductOp
	Heads  int
	Tokens int
}

func (s ProductShape) String() string {
	return fmt.Sprintf("%s of %d heads, %d tokens", s.Op, s.Heads, s.Tokens)
}

// FLOP counts multiplications and additions.
func (s ProductShape) FLOP() float64 {
	depth, columns := s.Op.widths()
	return 2 * float64(s.Tokens) * float64(s.Heads) * float64(depth*columns)
}

// WeightBytes is the size of the weights.
func (s ProductShape) WeightBytes() float64 {
	depth, columns := s.Op.widths()
	return float64(s.Heads*depth*columns) * elementSize
}

// Bytes is the traffic that a call cannot avoid: weights, rows and results once.
func (s ProductShape) Bytes() float64 {
	depth, columns := s.Op.widths()
	rows := float64(s.Tokens) * float64(s.Heads)
	in := rows * float64(depth)
	if s.Op == UpProject {
		in = float64(s.Tokens * depth)
	}
	return s.WeightBytes() + (in+rows*float64(columns))*elementSize
}

// ProductResult is what was measured for a product.
type ProductResult struct {
	ProductShape
	BlockM, BlockN int     // the kernel's tile
	Microseconds   float64 // per call, median of the bursts
	Spread         float64 // (slowest−fastest)/median of the bursts
	Calls          int     // per replay
	Error          float64 // worst of the rows that were held against the reference

	// Per call, only with Config.Sustained.
	SustainedMicroseconds float64
	Power                 *Power
}

// TFLOPS is the tera floating-point operations per second.
func (r ProductResult) TFLOPS() float64 { return r.FLOP() / r.Microseconds / 1e6 }

// TBps is the terabytes per second of unavoidable traffic.
func (r ProductResult) TBps() float64 { return r.Bytes() / r.Microseconds / 1e6 }

// Bound is the share of a time that reading the weights once takes, at so many
// terabytes per second.
func (r ProductResult) Bound(tbps float64) float64 {
	return r.WeightBytes() / tbps / 1e6 / r.Microseconds
}

// ProductReference computes one row of a product in higher precision, from a
// head's weights, [nope+value][latent], the key rows first, and the row.
type ProductReference func(op ProductOp, weights [][]float32, row []float32) []float64

// productRun is a product in device memory.
type productRun struct {
	ProductShape
	data    flat // weights
	weights runtime.Ptr
	copies  int
	rows    func(call, token, head int) []float32
	out     runtime.Ptr
	model   runtime.ProductModel
	run     func(call int) error
	close   func() error
	calls   int
}

// flat is a block as one run of elements, over and over.
type flat struct{ block }

func (f flat) values(at int64, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		j := (at + int64(i)) % (f.rows * record)
		x[i] = f.block.element(j)
	}
	return x
}

// weightRows is the rows of the block of random weights, a prime.
const weightRows = 7_297

// weightDeviation is that of the weights, about what models have.
const weightDeviation = 0.04

// Product times a product: random bf16 data, weights that rotate through more
// memory than the L2 holds, rows and results that lie where the kernel before
// left them, and a graph of many calls. A result that the reference
// contradicts, or that changes from replay to replay, is an error.
func (b *Bench) Product(s ProductShape, reference ProductReference) (r ProductResult, err error) {
	r = ProductResult{ProductShape: s}
	fail := func(err error) (ProductResult, error) { return r, fmt.Errorf("%v: %w", s, err) }
	m := &memory{drv: b.Driver}
	defer func() { err = errors.Join(err, m.free()) }()
	p, err := b.placeProduct(s, m)
	if err != nil {
		return fail(err)
	}
	defer func() { err = errors.Join(err, p.close()) }()
	r.Calls = p.calls
	r.BlockM, r.BlockN = p.model.BlockM, p.model.BlockN
	var sample []sampled
	t, err := b.measure(p.calls, p.run, func() (err error) {
		if sample, err = b.sampleProduct(p); err != nil {
			return err
		}
		r.Error, err = b.verifyProduct(p, sample, reference)
		return err
	}, func() error {
		for _, was := range sample {
			now, err := b.productRow(p, was.token, was.head)
			if err != nil {
				return err
			}
			if !slices.Equal(now, was.got) {
				return &WrongError{fmt.Sprintf("token %d, head %d: the last replay's result differs from the first's", was.token, was.head)}
			}
		}
		return nil
	})
	r.Microseconds, r.Spread, r.SustainedMicroseconds, r.Power = t.median, t.spread, t.sustained, t.power
	if err != nil {
		return fail(err)
	}
	return r, nil
}

// sampled is a row of the last call's result.
type sampled struct {
	token, head int
	got         []byte
}

// sampledRows is how many rows are held against the reference: a first and a
// last token's, and random ones.
const sampledRows = 96

func (b *Bench) sampleProduct(p *productRun) (sample []sampled, err error) {
	for i := range sampledRows {
		x := sampled{token: b.random.IntN(p.Tokens), head: b.random.IntN(p.Heads)}
		switch i {
		case 0:
			x.token = 0
		case 1:
			x.token, x.head = p.Tokens-1, p.Heads-1
		}
		if x.got, err = b.productRow(p, x.token, x.head); err != nil {
			return nil, err
		}
		sample = append(sample, x)
	}
	return sample, nil
}

func (b *Bench) productRow(p *productRun, token, head int) ([]byte, error) {
	_, columns := p.Op.widths()
	row := make([]byte, columns*elementSize)
	at := (int64(token)*int64(p.Heads) + int64(head)) * int64(len(row))
	return row, b.Driver.Download(row, p.out+runtime.Ptr(at))
}

func (b *Bench) verifyProduct(p *productRun, sample []sampled, reference ProductReference) (worst float64, err error) {
	last := p.calls - 1
	for _, x := range sample {
		first := int64(last%p.copies*p.Heads+x.head) * (nope + value)
		var weights [][]float32
		for row := range int64(nope + value) {
			weights = append(weights, p.data.values((first+row)*latent, latent))
		}
		e := distance(reference(p.Op, weights, p.rows(last, x.token, x.head)), x.got)
		if !(e <= outTolerance) { // NaN never passes
			return e, &WrongError{fmt.Sprintf("token %d, head %d: off by %.2e of its norm (%.0e allowed)", x.token, x.head, e, outTolerance)}
		}
		worst = max(worst, e)
	}
	return worst, nil
}

// placeProduct allocates a product's memory: copies of W_kv_b for as many calls
// as turn the L2 over.
func (b *Bench) placeProduct(s ProductShape, m *memory) (*productRun, error) {
	p := &productRun{ProductShape: s, data: flat{newBlock(weightRows, weightDeviation, seed+2)}}
	bytes := int64(s.Heads) * (nope + value) * latent * elementSize
	l2 := b.Driver.Attributes().L2Bytes
	if l2 <= 0 {
		l2 = defaultL2
	}
	p.copies = int(min(maxWeightBytes/bytes+1, l2Turnover*l2/int64(s.WeightBytes())+1))
	guess := 4 + max(s.Bytes()/4e6, s.FLOP()/6e8) // microseconds
	p.calls = min(maxCalls, max(p.copies, 4, min(256, int(6000/guess))))
	var err error
	if p.weights, err = m.alloc("weights", int64(p.copies)*bytes); err != nil {
		return nil, err
	}
	if err := p.data.tile(b.Driver, b.stream, p.weights, int64(p.copies)*bytes); err != nil {
		return nil, err
	}
	_, columns := s.Op.widths()
	outBytes := int64(s.Tokens) * int64(s.Heads) * int64(columns) * elementSize
	if p.out, err = m.alloc("out", outBytes); err != nil {
		return nil, err
	}
	if err := b.Driver.Fill(p.out, 0xff, outBytes); err != nil {
		return nil, err
	}
	if s.Op == UpProject {
		return p, b.placeUpProject(p, m)
	}
	return p, b.placeAbsorb(p, m)
}

// maxWeightBytes bounds the copies of the weights.
const maxWeightBytes = 4 << 30

// weightsOf is a call's W_kv_b.
func (p *productRun) weightsOf(call int) runtime.Tensor {
	heads := int64(p.Heads)
	at := int64(call%p.copies) * heads * (nope + value) * latent * elementSize
	return runtime.Dense(p.weights+runtime.Ptr(at), runtime.BF16, heads, nope+value, latent)
}

// placeUpProject has latents come from scattered pages of the pool.
func (b *Bench) placeUpProject(p *productRun, m *memory) error {
	source, ok := b.Source.(runtime.UpProjectSource)
	if !ok {
		return errors.New("the source of kernels makes no up-projection")
	}
	v, err := source.UpProject(runtime.UpProjectShape{
		Heads: p.Heads, Latent: latent, Rope: rope, Nope: nope, Value: value, Page: pageTokens, DType: runtime.BF16,
	})
	if err != nil {
		return &LoadError{err}
	}
	u, err := runtime.LoadUpProject(b.Driver, v)
	if err != nil {
		return &LoadError{err}
	}
	b.compiled = append(b.compiled, u.Kernels()...)
	p.close, p.model = u.Close, u.Model()
	tokens, width := int64(p.Tokens), pagesOf(int32(p.Tokens))
	if width > b.pages {
		return fmt.Errorf("a call reads %d pages and the pool has %d", width, b.pages)
	}
	var tables []int32
	for range p.calls {
		tables = append(tables, b.take(width)...)
	}
	table, err := m.upload("block tables", encodeInts(tables))
	if err != nil {
		return err
	}
	cu, err := m.upload("cu_seqlens", encodeInts([]int32{0, int32(p.Tokens)}))
	if err != nil {
		return err
	}
	ropeKeys, err := m.alloc("k_rope", tokens*rope*elementSize)
	if err != nil {
		return err
	}
	p.rows = func(call, token, _ int) []float32 {
		page := tables[int64(call)*width+int64(token/pageTokens)]
		return b.record(page, token%pageTokens)[:latent]
	}
	p.run = func(call int) error {
		return u.Run(b.stream, runtime.UpProjectArgs{
			KV:         runtime.Dense(b.pool, runtime.BF16, b.pages, pageTokens, record),
			BlockTable: runtime.Dense(table+runtime.Ptr(int64(call)*width*4), runtime.S32, 1, width),
			CuSeqlens:  runtime.Dense(cu, runtime.S32, 2),
			Weights:    p.weightsOf(call),
			KVUp:       runtime.Dense(p.out, runtime.BF16, tokens, int64(p.Heads), nope+value),
			KRope:      runtime.Dense(ropeKeys, runtime.BF16, tokens, rope),
		})
	}
	return nil
}

// placeAbsorb has the same rows in all calls: the kernel before has just
// written them.
func (b *Bench) placeAbsorb(p *productRun, m *memory) error {
	source, ok := b.Source.(runtime.AbsorbSource)
	if !ok {
		return errors.New("the source of kernels makes no absorb products")
	}
	shape := runtime.AbsorbShape{Heads: p.Heads, Latent: latent, Rope: rope, Nope: nope, Value: value, DType: runtime.BF16, Tokens: p.Tokens}
	tokens, heads := int64(p.Tokens), int64(p.Heads)
	depth, columns := p.Op.widths()
	data := flat{b.q}
	size := tokens * heads * int64(depth) * elementSize
	rows, err := m.alloc("rows", size)
	if err != nil {
		return err
	}
	if err := b.q.tile(b.Driver, b.stream, rows, size); err != nil {
		return err
	}
	p.rows = func(_, token, head int) []float32 {
		return data.values((int64(token)*heads+int64(head))*int64(depth), depth)
	}
	in := runtime.Dense(rows, runtime.BF16, tokens, heads, int64(depth))
	out := runtime.Dense(p.out, runtime.BF16, tokens, heads, int64(columns))
	if p.Op == AbsorbQuery {
		v, err := source.AbsorbQuery(shape)
		if err != nil {
			return &LoadError{err}
		}
		a, err := runtime.LoadAbsorbQuery(b.Driver, v...)
		if err != nil {
			return &LoadError{err}
		}
		b.compiled = append(b.compiled, a.Kernels()...)
		p.close, p.model = a.Close, a.ModelFor(p.Tokens)
		p.run = func(call int) error {
			keys, _ := runtime.SplitWeights(p.weightsOf(call), nope)
			return a.Run(b.stream, runtime.AbsorbQueryArgs{QNope: in, Weights: keys, OutLatent: out})
		}
		return nil
	}
	v, err := source.AbsorbOutput(shape)
	if err != nil {
		return &LoadError{err}
	}
	a, err := runtime.LoadAbsorbOutput(b.Driver, v...)
	if err != nil {
		return &LoadError{err}
	}
	b.compiled = append(b.compiled, a.Kernels()...)
	p.close, p.model = a.Close, a.ModelFor(p.Tokens)
	p.run = func(call int) error {
		_, values := runtime.SplitWeights(p.weightsOf(call), nope)
		return a.Run(b.stream, runtime.AbsorbOutputArgs{Latent: in, Weights: values, Out: out})
	}
	return nil
}
