package differential

import (
	"fmt"
	"math/rand/v2"

	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

// ProductCase is products with weights: an up-projection from a scattered cache
// of sequences of the given lengths, or both products with the absorbed weights
// of so many tokens.
type ProductCase struct {
	Name    string
	Spec    templates.Spec // its tiles are those of absorb-q's, or of up-project
	Lengths []int          // of an up-projection's sequences; their first tokens are left out
	First   []int          // so many
	Tokens  int            // of absorb
	SMs     int            // for which both devices launch
	Seed    uint64
}

// random puts random values of the case's type into memory.
func (c *ProductCase) random(dev *device, r *rand.Rand, name string, deviation float64, shape ...int64) (runtime.Tensor, error) {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * deviation)
	}
	b, err := dev.upload(name, dtype.Type(c.Spec.DType).Encode(nil, x))
	return runtime.Dense(b.Ptr, runtime.DType(c.Spec.DType), shape...), err
}

// result makes a poisoned tensor.
func (c *ProductCase) result(dev *device, name string, shape ...int64) (runtime.Tensor, runtime.Buffer, error) {
	n := int64(2)
	for _, d := range shape {
		n *= d
	}
	b, err := dev.alloc(name, n)
	return runtime.Dense(b.Ptr, runtime.DType(c.Spec.DType), shape...), b, err
}

// UpProject compares expanded keys and values, and rope keys to the bit.
func (p *Pair) UpProject(c ProductCase) ([]Row, error) {
	s, err := templates.Defaults("up-project", c.Spec)
	if err != nil {
		return nil, err
	}
	c.Spec = s
	v, err := p.build("up-project", s)
	if err != nil {
		return nil, err
	}
	results, err := each(p, c.SMs, func(dev *device) ([2][]byte, error) { return c.expand(dev, v) })
	if err != nil {
		return nil, err
	}
	up, rope := Row{Kernel: "up-project", Case: c.Name, Result: "kv_up"}, Row{Kernel: "up-project", Case: c.Name, Result: "k_rope"}
	c.compare(&up, results[0][0], results[1][0], s.Nope+s.Value)
	rope.words(results[0][1], results[1][1])
	return []Row{up, rope}, nil
}

// compare adds rows of so many elements.
func (c *ProductCase) compare(r *Row, a, b []byte, width int) {
	t := dtype.Type(c.Spec.DType)
	x, y := t.Decode(nil, a), t.Decode(nil, b)
	for at := 0; at < len(x); at += width {
		r.row(t, x[at:at+width], y[at:at+width], rms)
	}
}

func (c *ProductCase) expand(dev *device, v runtime.Variant) (results [2][]byte, err error) {
	u, err := runtime.LoadUpProject(dev, v)
	if err != nil {
		return results, err
	}
	defer u.Close()
	s, r := c.Spec, rand.New(rand.NewPCG(c.Seed, 7))
	const width, spare = 12, 3 // pages of a table, pages that are in none
	pool := int64(len(c.Lengths)*width + spare)
	var table, first, cu []int32
	for _, page := range r.Perm(int(pool))[spare:] {
		table = append(table, int32(page))
	}
	rows := int32(0)
	for i, n := range c.Lengths {
		cu, first = append(cu, rows), append(first, int32(c.First[i]))
		rows += int32(n - c.First[i])
	}
	cu = append(cu, rows)
	batch := int64(len(c.Lengths))
	ints := func(name string, x []int32, shape ...int64) (t runtime.Tensor) {
		if err == nil {
			var b runtime.Buffer
			b, err = dev.upload(name, encodeInts(x))
			t = runtime.Dense(b.Ptr, runtime.S32, shape...)
		}
		return t
	}
	a := runtime.UpProjectArgs{
		BlockTable: ints("block_table", table, batch, width), FirstToken: ints("first_token", first, batch), CuSeqlens: ints("cu_seqlens", cu, batch+1),
	}
	if err != nil {
		return results, err
	}
	if a.KV, err = c.random(dev, r, "kv", 1, pool, int64(s.Page), int64(s.Latent+s.Rope)); err != nil {
		return results, err
	}
	if a.Weights, err = c.random(dev, r, "weights", 0.05, int64(s.Heads), int64(s.Nope+s.Value), int64(s.Latent)); err != nil {
		return results, err
	}
	var up, rope runtime.Buffer
	if a.KVUp, up, err = c.result(dev, "kv_up", int64(rows), int64(s.Heads), int64(s.Nope+s.Value)); err != nil {
		return results, err
	}
	if a.KRope, rope, err = c.result(dev, "k_rope", int64(rows), int64(s.Rope)); err != nil {
		return results, err
	}
	if err := u.Run(dev.stream, a); err != nil {
		return results, err
	}
	if err := dev.stream.Synchronize(); err != nil {
		return results, err
	}
	if results[0], err = dev.download(up); err != nil {
		return results, err
	}
	results[1], err = dev.download(rope)
	return results, err
}

// Absorb compares absorbed queries, rope parts included, and outputs.
func (p *Pair) Absorb(c ProductCase) ([]Row, error) {
	query, err := templates.Defaults("absorb-q", c.Spec)
	if err != nil {
		return nil, err
	}
	output := c.Spec
	output.BlockN, output.Rope = 0, 0
	if output, err = templates.Defaults("absorb-o", output); err != nil {
		return nil, err
	}
	c.Spec = query
	q, err := p.build("absorb-q", query)
	if err != nil {
		return nil, err
	}
	o, err := p.build("absorb-o", output)
	if err != nil {
		return nil, err
	}
	results, err := each(p, c.SMs, func(dev *device) ([2][]byte, error) { return c.absorb(dev, q, o) })
	if err != nil {
		return nil, err
	}
	a, b := Row{Kernel: "absorb-q", Case: c.Name, Result: "q"}, Row{Kernel: "absorb-o", Case: c.Name, Result: "out"}
	c.compare(&a, results[0][0], results[1][0], query.Latent+query.Rope)
	c.compare(&b, results[0][1], results[1][1], query.Value)
	return []Row{a, b}, nil
}

func (c *ProductCase) absorb(dev *device, q, o runtime.Variant) (results [2][]byte, err error) {
	query, err := runtime.LoadAbsorbQuery(dev, q)
	if err != nil {
		return results, err
	}
	defer query.Close()
	output, err := runtime.LoadAbsorbOutput(dev, o)
	if err != nil {
		return results, err
	}
	defer output.Close()
	s, r := c.Spec, rand.New(rand.NewPCG(c.Seed, 8))
	tokens, heads := int64(c.Tokens), int64(s.Heads)
	w, err := c.random(dev, r, "weights", 0.05, heads, int64(s.Nope+s.Value), int64(s.Latent))
	if err != nil {
		return results, err
	}
	var qa runtime.AbsorbQueryArgs
	var oa runtime.AbsorbOutputArgs
	qa.Weights, oa.Weights = runtime.SplitWeights(w, s.Nope)
	if qa.Q, err = c.random(dev, r, "q", 1, tokens, heads, int64(s.Nope+s.Rope)); err != nil {
		return results, err
	}
	if oa.Latent, err = c.random(dev, r, "latent", 1, tokens, heads, int64(s.Latent)); err != nil {
		return results, err
	}
	var absorbed, out runtime.Buffer
	if qa.Out, absorbed, err = c.result(dev, "absorbed", tokens, heads, int64(s.Latent+s.Rope)); err != nil {
		return results, err
	}
	if oa.Out, out, err = c.result(dev, "out", tokens, heads, int64(s.Value)); err != nil {
		return results, err
	}
	if err := query.Run(dev.stream, qa); err != nil {
		return results, err
	}
	if err := output.Run(dev.stream, oa); err != nil {
		return results, err
	}
	if err := dev.stream.Synchronize(); err != nil {
		return results, err
	}
	if results[0], err = dev.download(absorbed); err != nil {
		return results, fmt.Errorf("absorbed query: %w", err)
	}
	results[1], err = dev.download(out)
	return results, err
}
