package differential

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/mlagen/mlagen/golden/dtype"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

// MergeCase is merge_states on random states, of which one row in eight has no
// key and the second row none in any state.
type MergeCase struct {
	Name   string
	Shape  runtime.MergeShape
	Tokens int
	Heads  int
	States int
	Seed   uint64
}

// Merge compares merged states.
func (p *Pair) Merge(c MergeCase) ([]Row, error) {
	v, err := p.build("merge-states", templates.Spec{Value: c.Shape.Width, DType: string(c.Shape.DType), Partial: string(c.Shape.Partial)})
	if err != nil {
		return nil, err
	}
	results, err := each(p, 132, func(dev *device) (merging, error) { return c.run(dev, v) })
	if err != nil {
		return nil, err
	}
	r := Row{Kernel: "merge-states", Case: c.Name, Result: "state"}
	a, b := results[0], results[1]
	for at := 0; at < len(a.out); at += c.Shape.Width {
		r.row(dtype.Type(c.Shape.DType), a.out[at:at+c.Shape.Width], b.out[at:at+c.Shape.Width], rms)
	}
	r.lses(a.lse, b.lse)
	return []Row{r}, nil
}

func (c *MergeCase) run(dev *device, v runtime.Variant) (res merging, err error) {
	m, err := runtime.LoadMergeStates(dev, v)
	if err != nil {
		return res, err
	}
	defer m.Close()
	random := rand.New(rand.NewPCG(c.Seed, 4))
	tokens, heads, width := int64(c.Tokens), int64(c.Heads), int64(c.Shape.Width)
	var args runtime.MergeArgs
	for i := range c.States {
		out, lse := make([]float32, c.Tokens*c.Heads*c.Shape.Width), make([]float32, c.Tokens*c.Heads)
		for j := range out {
			out[j] = float32(random.NormFloat64())
		}
		for row := range lse {
			lse[row] = float32(random.NormFloat64() * 3)
			if row == 1 || (row+i)%8 == 5 {
				lse[row] = float32(math.Inf(-1))
			}
		}
		o, err := dev.upload("state", dtype.Type(c.Shape.Partial).Encode(nil, out))
		if err != nil {
			return res, err
		}
		l, err := dev.upload("state lse", dtype.F32.Encode(nil, lse))
		if err != nil {
			return res, err
		}
		args.States = append(args.States, runtime.State{Out: runtime.Dense(o.Ptr, c.Shape.Partial, tokens, heads, width), LSE: runtime.Dense(l.Ptr, runtime.F32, tokens, heads)})
	}
	out, err := dev.alloc("out", tokens*heads*width*c.Shape.DType.Bytes())
	if err != nil {
		return res, err
	}
	lse, err := dev.alloc("lse", 4*tokens*heads)
	if err != nil {
		return res, err
	}
	args.Out, args.LSE = runtime.Dense(out.Ptr, c.Shape.DType, tokens, heads, width), runtime.Dense(lse.Ptr, runtime.F32, tokens, heads)
	if err := m.Run(dev.stream, args); err != nil {
		return res, err
	}
	if err := dev.stream.Synchronize(); err != nil {
		return res, err
	}
	if res.out, err = dev.floats(dtype.Type(c.Shape.DType), out); err != nil {
		return res, err
	}
	res.lse, err = dev.floats(dtype.F32, lse)
	return res, err
}

// AppendCase is append_kv of random records to random slots, of which one in
// eight is skipped.
type AppendCase struct {
	Name   string
	Shape  runtime.AppendShape
	Tokens int
	Pages  int
	Seed   uint64
}

// Append compares the caches, slots that nobody names included.
func (p *Pair) Append(c AppendCase) ([]Row, error) {
	v, err := p.build("append-kv", templates.Spec{
		Latent: c.Shape.Latent, Rope: c.Shape.Rope, Page: c.Shape.Page, DType: string(c.Shape.DType), Rotate: c.Shape.Rotate,
	})
	if err != nil {
		return nil, err
	}
	results, err := each(p, 132, func(dev *device) ([]byte, error) { return c.run(dev, v) })
	if err != nil {
		return nil, err
	}
	r := Row{Kernel: "append-kv", Case: c.Name, Result: "cache"}
	r.words(results[0], results[1])
	return []Row{r}, nil
}

func (c *AppendCase) run(dev *device, v runtime.Variant) ([]byte, error) {
	a, err := runtime.LoadAppendKV(dev, v)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	const positions = 50
	random := rand.New(rand.NewPCG(c.Seed, 5))
	upload := func(name string, data []byte) (p runtime.Ptr) {
		if err == nil {
			var b runtime.Buffer
			b, err = dev.upload(name, data)
			p = b.Ptr
		}
		return p
	}
	values := func(t runtime.DType, n int) []byte {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(random.NormFloat64())
		}
		return dtype.Type(t).Encode(nil, x)
	}
	s, tokens := c.Shape, int64(c.Tokens)
	latent, rope, angles := int64(s.Latent), int64(s.Rope), int64(s.Rope/2)
	var slots, at []byte
	for i, slot := range random.Perm(c.Pages * s.Page)[:c.Tokens] {
		if i%8 == 3 {
			slot = -1
		}
		slots = binary.LittleEndian.AppendUint64(slots, uint64(slot))
		at = binary.LittleEndian.AppendUint32(at, uint32(random.IntN(positions)))
	}
	args := runtime.AppendArgs{
		Latent:  runtime.Dense(upload("latent", values(s.DType, c.Tokens*s.Latent)), s.DType, tokens, latent),
		RopeKey: runtime.Dense(upload("rope", values(s.DType, c.Tokens*s.Rope)), s.DType, tokens, rope),
		Slots:   runtime.Dense(upload("slots", slots), runtime.S64, tokens),
	}
	if s.Rotate != "" {
		args.Positions = runtime.Dense(upload("positions", at), runtime.S32, tokens)
		args.Cos = runtime.Dense(upload("cos", values(runtime.F32, positions*s.Rope/2)), runtime.F32, positions, angles)
		args.Sin = runtime.Dense(upload("sin", values(runtime.F32, positions*s.Rope/2)), runtime.F32, positions, angles)
	}
	if err != nil {
		return nil, err
	}
	cache, err := dev.alloc("kv", int64(c.Pages*s.Page)*(latent+rope)*s.DType.Bytes())
	if err != nil {
		return nil, err
	}
	args.KV = runtime.Dense(cache.Ptr, s.DType, int64(c.Pages), int64(s.Page), latent+rope)
	if err := a.Run(dev.stream, args); err != nil {
		return nil, err
	}
	if err := dev.stream.Synchronize(); err != nil {
		return nil, err
	}
	return dev.download(cache)
}
