package differential

import (
	"errors"
	"math/rand/v2"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

// StreamCase is the kernel stream on pages of random bits.
type StreamCase struct {
	Name   string
	Spec   templates.Spec
	Pages  int // in the pool
	Visits int // pages read, in random order, some of them repeatedly
	Blocks int // of the grid
	Gap    int // elements between rows
	Seed   uint64
}

// Stream compares the words that the CTAs make of their pages.
func (p *Pair) Stream(c StreamCase) ([]Row, error) {
	v, err := p.build("stream", c.Spec)
	if err != nil {
		return nil, err
	}
	results, err := each(p, 0, func(dev *device) ([]byte, error) { return c.run(dev, v) })
	if err != nil {
		return nil, err
	}
	r := Row{Kernel: "stream", Case: c.Name, Result: "sink"}
	r.words(results[0], results[1])
	return []Row{r}, nil
}

func (c *StreamCase) run(dev *device, v runtime.Variant) (words []byte, err error) {
	k, err := runtime.Load(dev, v)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.Unload()) }()
	spec := c.Spec.WithDefaults()
	row := uint64(2 * (spec.Width() + c.Gap))
	page := row * uint64(spec.Page)
	random := rand.New(rand.NewPCG(c.Seed, 3))
	bits := make([]byte, uint64(c.Pages)*page)
	for i := range bits {
		bits[i] = byte(random.Uint32())
	}
	pool, err := dev.upload("kv", bits)
	if err != nil {
		return nil, err
	}
	visits := make([]int32, c.Visits)
	for i := range visits {
		visits[i] = random.Int32N(int32(c.Pages))
	}
	list, err := dev.upload("pages", encodeInts(visits))
	if err != nil {
		return nil, err
	}
	sink, err := dev.alloc("sink", int64(4*c.Blocks))
	if err != nil {
		return nil, err
	}
	kv, err := k.EncodeTensorMap("kv", pool.Ptr, []uint64{uint64(spec.Width()), uint64(spec.Page), uint64(c.Pages)}, []uint64{row, page})
	if err != nil {
		return nil, err
	}
	params := k.NewParams().TensorMap("kv", &kv).Pointer("pages", list.Ptr).Int("count", int64(len(visits))).Pointer("sink", sink.Ptr)
	if err := k.Launch(dev.stream, runtime.Dim3{X: c.Blocks}, params, false); err != nil {
		return nil, err
	}
	if err := dev.stream.Synchronize(); err != nil {
		return nil, err
	}
	return dev.download(sink)
}
