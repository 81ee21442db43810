package runtime

import (
	"errors"
	"fmt"
	"math"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// DecodeVariants is the set of kernels that a decode step takes.
type DecodeVariants struct {
	Decode   Variant // absorb_decode
	Schedule Variant // decode_schedule
	Combine  Variant // decode_combine
}

// Decode runs absorbed MLA decode: for each request, s_q query tokens attend
// to a paged cache of latent rows. It is loaded for one head count, s_q and
// element type, and serves any batch. Its methods allocate nothing and never
// wait for the device; they must not be called concurrently.
//
// A step is two calls. Schedule distributes the work over the device, from the
// lengths that lie in device memory; one schedule serves every layer of the
// model. Run attends. Both may be captured in a graph and replayed with other
// lengths and tables in the same memory, for the launches depend on batch, splits
// and the tables' width alone; a request that fell out of the batch has length 0.
type Decode struct {
	model     DecodeModel
	parts     int
	rowBlocks int
	cluster   int // row blocks that begin together
	sms       int

	schedule, attend, merge boundKernel
	values                  decodeValues
	tensorMap               cachedMap
	places                  places
	scheduled               schedules[[2]int] // batch and splits
}

// LoadDecode loads the three kernels and makes sure that they fit each other,
// this runtime and the device.
func LoadDecode(drv Driver, v DecodeVariants, o ...LoadOption) (*Decode, error) {
	return loadAhead(drv, o, v.all(), func(l *loader) (*Decode, error) { return loadDecode(l, v) })
}

// all lists the variants.
func (v *DecodeVariants) all() []Variant { return []Variant{v.Decode, v.Schedule, v.Combine} }

func loadDecode(l *loader, v DecodeVariants) (_ *Decode, err error) {
	drv := l.driver
	d := &Decode{places: newPlaces(drv, argumentCount)}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	for _, load := range []struct {
		to      *boundKernel
		variant Variant
		kernel  string
	}{
		{&d.attend, v.Decode, "absorb_decode"}, {&d.schedule, v.Schedule, "decode_schedule"}, {&d.merge, v.Combine, "decode_combine"},
	} {
		if m := load.variant.Manifest; m != nil && m.Kernel != load.kernel {
			return nil, fmt.Errorf("%s is kernel %q, must be %q", load.variant.label(), m.Kernel, load.kernel)
		}
		k, err := l.load(load.variant)
		if err != nil {
			return nil, err
		}
		if *load.to, err = bindKernel(k); err != nil {
			return nil, err // Close unloads it
		}
	}
	attend := d.attend.kernel.Manifest
	if d.model, err = readModel(attend, d.merge.kernel.Manifest, d.schedule.kernel.Manifest); err != nil {
		return nil, err
	}
	if err := checkKVMap(attend, &d.model); err != nil {
		return nil, err
	}
	sms := max(1, drv.Attributes().SMs)
	d.cluster = max(1, attend.Cluster)
	if d.parts, d.rowBlocks, err = planParts(sms, d.model.Rows(), d.model.BlockH, attend.Cluster); err != nil {
		return nil, err
	}
	d.sms = sms
	return d, nil
}

// checkKVMap makes sure that the kernel's view of the cache is the one that
// Run describes to it.
func checkKVMap(m *manifest.Manifest, model *DecodeModel) error {
	for _, t := range m.TensorMaps {
		if t.Param != "kv" {
			return fmt.Errorf("%s has a tensor map %q, which this runtime does not know", m.Kernel, t.Param)
		}
		if len(t.Box) != 3 || t.DType != string(model.DType) {
			return fmt.Errorf("%s reads kv as %s in boxes of %v; this runtime describes it as %s in three dimensions: column, row, page",
				m.Kernel, t.DType, t.Box, model.DType)
		}
	}
	return nil
}

// Model returns what the kernels were generated for.
func (d *Decode) Model() DecodeModel { return d.model }

// Kernels returns the loaded kernels, for their compile times and warnings.
func (d *Decode) Kernels() []*Kernel {
	var kernels []*Kernel
	for _, b := range []*boundKernel{&d.attend, &d.schedule, &d.merge} {
		if b.kernel != nil {
			kernels = append(kernels, b.kernel)
		}
	}
	return kernels
}

// Parts returns into how many parts a balanced schedule cuts the batch.
func (d *Decode) Parts() int { return d.parts }

// Close unloads the kernels. None of them may be running.
func (d *Decode) Close() error {
	var all []error
	for _, k := range d.Kernels() {
		all = append(all, k.Unload())
	}
	d.attend, d.schedule, d.merge = boundKernel{}, boundKernel{}, boundKernel{}
	return errors.Join(all...)
}

// closed is what a call after Close is told.
const closed = "was closed, must be loaded"

// ScheduleArgs are the arguments of Schedule.
type ScheduleArgs struct {
	Batch int
	// Splits 0 balances the work over the device. n cuts every request into up
	// to n even pieces, by its own length alone, so that its result does not
	// depend on its batch mates by a bit.
	Splits int
	KVLen  Tensor // s32 [batch]: tokens in the cache, the new ones included
	Buffer Buffer // ScheduleBytes(Batch, Splits), aligned to 16 bytes; written
}

// Schedule plans the work of a batch, on the device, into a.Buffer. A mistake
// in the arguments is an ArgumentError and launches nothing; batch 0 launches
// nothing.
func (d *Decode) Schedule(s Stream, a ScheduleArgs) error {
	if d.schedule.kernel == nil {
		return errors.New("decode schedule: " + closed)
	}
	if err := d.scheduleArgs(s, &a); err != nil {
		return fmt.Errorf("decode schedule: %w", err)
	}
	if a.Batch == 0 {
		return nil
	}
	if err := d.schedule.launch(s, 1, &d.values); err != nil {
		return err
	}
	d.scheduled.fill(s, a.Buffer.Ptr, [2]int{a.Batch, a.Splits})
	return nil
}

// DecodeArgs are the arguments of Run. The query is either Q, or QLatent and
// QRope. Addresses are aligned to 16 bytes; of q, kv and out the innermost
// stride is 1 element and the others are multiples of 16 bytes.
type DecodeArgs struct {
	Batch  int // as in Schedule
	Splits int // as in Schedule

	Q       Tensor // [batch, s_q, heads, latent+rope], of the model's type
	QLatent Tensor // [batch, s_q, heads, latent]
	QRope   Tensor // [batch, s_q, heads, rope]

	KV         Tensor // [pages, page, latent+rope], of the model's type
	BlockTable Tensor // s32 [batch, width]: page ids; entries past a request's last page are never read
	KVLen      Tensor // s32 [batch], as in Schedule

	// NewTokens, where it is not 0, promises that the cache was complete before
	// Schedule was launched, but for at most so many of each request's newest tokens,
	// which kernels between Schedule and Run may write: as a rule s_q, and not less. It
	// counts positions of the request that reads, whoever writes them: of a page that
	// another request fills in the same step all tokens are new. The first of the pages
	// without new tokens may then be read before the kernel ahead of Run has ended,
	// which saves up to 2 µs. 0 promises nothing.
	NewTokens int

	Schedule  Buffer // as Schedule filled it; Run counts in it: two runs with one schedule must not overlap
	Workspace Buffer // WorkspaceBytes(Batch, Splits), aligned to 16 bytes; contents mean nothing before and after

	Out Tensor // [batch, s_q, heads, latent], of the model's Out type; every element is written
	LSE Tensor // f32 [batch, s_q, heads], dense; −∞ for a row without a key

	Scale    float32 // of the logits, 1/sqrt(nope+rope) times what the model adds
	LSEBase2 bool    // LSE to base 2 instead of e

	Tuning DecodeTuning
}

// Run attends. A mistake in the arguments is an ArgumentError and launches
// nothing; batch 0 launches nothing.
//
// KVLen, BlockTable and Schedule are read as soon as the kernel before it in the
// stream lets its dependents start. A kernel that does so early
// (griddepcontrol.launch_dependents) and writes one of them must have another
// between it and Run.
func (d *Decode) Run(s Stream, a DecodeArgs) error {
	if d.attend.kernel == nil {
		return errors.New("decode: " + closed)
	}
	if err := d.decodeArgs(s, &a); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	if a.Batch == 0 {
		return nil
	}
	if err := d.attend.launch(s, d.parts*d.rowBlocks, &d.values); err != nil {
		return err
	}
	if !needsMerge(a.Splits) {
		return nil
	}
	blocks := a.Tuning.MergeBlocks
	if blocks == 0 {
		blocks = d.mergeBlocks(a.Batch, a.Splits, a.BlockTable.Shape[1])
	}
	return d.merge.launch(s, blocks, &d.values)
}

// describeKV puts the cache's tensor map into the values, encoding it only
// when the cache is another than last time.
func (d *Decode) describeKV(kv *Tensor, promotion int) error {
	row, page := kv.strideBytes(1), kv.strideBytes(0)
	if row == 0 {
		row = int64(d.model.Key()) * kv.DType.Bytes()
	}
	if page == 0 {
		page = row * int64(d.model.Page)
	}
	c := &d.tensorMap
	if c.valid && c.address == kv.Ptr && c.pages == kv.Shape[0] && c.row == row && c.page == page && c.promotion == promotion {
		return nil
	}
	c.valid = false
	sizes := []uint64{uint64(d.model.Key()), uint64(d.model.Page), uint64(kv.Shape[0])}
	encoded, err := d.attend.kernel.encodePromoted("kv", promotion, kv.Ptr, sizes, []uint64{uint64(row), uint64(page)})
	if err != nil {
		return fmt.Errorf("kv: %w", err)
	}
	*c = cachedMap{valid: true, address: kv.Ptr, pages: kv.Shape[0], row: row, page: page, promotion: promotion}
	d.values.kv = encoded
	return nil
}

// cachedMap is what the tensor map in use describes.
type cachedMap struct {
	valid            bool
	address          Ptr
	pages, row, page int64
	promotion        int
}

// lseFactor converts the kernel's base-2 logarithms.
func lseFactor(base2 bool) float64 {
	if base2 {
		return 1
	}
	return math.Ln2
}
