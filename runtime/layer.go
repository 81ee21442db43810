package runtime

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// LayerShape is the attention of a model's layers.
type LayerShape struct {
	Heads  int   // query heads on this device
	Latent int   // width of the cached latent: 512
	Rope   int   // width of the rope key: 64
	Nope   int   // width of a head's key without the rope key: 128
	Value  int   // width of a head's value: 128
	Page   int   // tokens per page of the cache: 64
	DType  DType // of all tensors
	// Groups are the numbers of query tokens for which decode is loaded, nil for
	// DefaultGroups. A request that is absorbed is split into groups of these
	// sizes, so 1 is among them.
	Groups []int
}

// DefaultGroups returns the sizes of groups that serve any mixture: many query
// tokens together where a request has them, since each group reads the
// request's cache.
func DefaultGroups() []int { return []int{16, 4, 1} }

// LayerVariants is the set of kernels that a layer takes.
type LayerVariants struct {
	Extend       ExtendVariants
	Decode       []DecodeVariants // one for each size of groups
	AbsorbQuery  []Variant        // see AbsorbSource
	AbsorbOutput []Variant
	Groups       Variant // layer_groups
	Rows         Variant // layer_rows
}

// LayerSource is a source that makes all of a layer's kernels.
type LayerSource interface {
	Source
	ExtendSource
	AbsorbSource
	LayerGroups(page int) (Variant, error)
	LayerRows() (Variant, error)
}

// LayerKernels makes the kernels for a shape.
func LayerKernels(from LayerSource, shape LayerShape) (v LayerVariants, err error) {
	groups := shape.Groups
	if groups == nil {
		groups = DefaultGroups()
	}
	for _, n := range groups {
		d, err := from.Decode(DecodeShape{Heads: shape.Heads, SQ: n, Latent: shape.Latent, Rope: shape.Rope, Page: shape.Page, DType: shape.DType})
		if err != nil {
			return v, err
		}
		v.Decode = append(v.Decode, d)
	}
	v.Extend, err = from.Extend(ExtendShape{
		Heads: shape.Heads, Latent: shape.Latent, Rope: shape.Rope, Nope: shape.Nope, Value: shape.Value, Page: shape.Page, DType: shape.DType,
	})
	if err != nil {
		return v, err
	}
	absorb := AbsorbShape{Heads: shape.Heads, Latent: shape.Latent, Rope: shape.Rope, Nope: shape.Nope, Value: shape.Value, DType: shape.DType}
	if v.AbsorbQuery, err = from.AbsorbQuery(absorb); err != nil {
		return v, err
	}
	if v.AbsorbOutput, err = from.AbsorbOutput(absorb); err != nil {
		return v, err
	}
	if v.Groups, err = from.LayerGroups(shape.Page); err != nil {
		return v, err
	}
	v.Rows, err = from.LayerRows()
	return v, err
}

// Layer is the attention of one model layer over a batch in which some requests
// decode, some prefill and some add tokens to a long prefix: from queries, the
// paged cache and the up-projection's weights to the output of each head. How a
// request is computed does not show in the result, but for rounding:
//
//   - absorbed: queries go into the latent space (q·W_UK), attend to the cache as
//     it lies, and what they attended to comes back (·W_UV). Costs nothing per
//     cached token but reading it; for few new tokens.
//   - expanded: the request's cached tokens become keys and values of each head
//     (·W_kv_b), in chunks that fit the workspace, and attention is to those. For
//     many new tokens.
//
// A step of an engine is three calls.
//
//	plan, err := layer.Plan(requests, LayerOptions{Workspace: room})
//	step := LayerStep{Plan: plan, KVLen: …, BlockTable: …, Schedule: …}
//	err = layer.Schedule(stream, step)       // once for all model layers
//	err = layer.Run(stream, LayerArgs{…})    // for each model layer
//
// Plan runs on the host, from the numbers of new and of cached tokens, which an
// engine has; it decides each request's path and says how large the buffers must
// be. Schedule and Run launch what was planned; they allocate nothing and never
// wait for the device. Requests lie end to end: the new tokens of request 0 are
// the first rows of q and out. Before Run, the new tokens must have been appended to
// the cache (AppendKV) and q's rope part must have been rotated.
//
// Lengths are read on the device. So Schedule and Run can be captured in a graph
// and replayed while a plan holds, with other lengths and tables in the same
// memory: new tokens are as planned, a request has at most as many cached tokens as
// planned, and one that fell out of the batch has length 0, which gives out 0.
//
// The methods of a layer must not be called concurrently, and a layer's steps run
// one after the other where they share buffers.
type Layer struct {
	shape   LayerShape
	driver  Driver
	sms     int
	extend  *Extend
	query   *AbsorbQuery
	output  *AbsorbOutput
	decodes []*Decode // by their query tokens, descending to 1

	groups, rows           *Kernel
	groupParams, rowParams *Params
	words                  []uint64 // of the table of runs
	runsAtOnce             int
	decodeBytes            int64 // of decode's workspace
	places                 places
	scheduled              schedules[*LayerPlan]
	views                  [layerViews]view
}

// LoadLayer loads the kernels and makes sure that they fit each other, this
// runtime and the device.
func LoadLayer(drv Driver, v LayerVariants, o ...LoadOption) (*Layer, error) {
	return loadAhead(drv, o, v.all(), func(from *loader) (*Layer, error) { return loadLayer(from, v) })
}

// all lists the variants.
func (v *LayerVariants) all() []Variant {
	all := slices.Concat(v.Extend.all(), v.AbsorbQuery, v.AbsorbOutput, []Variant{v.Groups, v.Rows})
	for _, d := range v.Decode {
		all = append(all, d.all()...)
	}
	return all
}

func loadLayer(from *loader, v LayerVariants) (_ *Layer, err error) {
	drv := from.driver
	l := &Layer{driver: drv}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if l.extend, err = loadExtend(from, v.Extend); err != nil {
		return nil, err
	}
	if l.query, err = loadAbsorbQuery(from, v.AbsorbQuery); err != nil {
		return nil, err
	}
	if l.output, err = loadAbsorbOutput(from, v.AbsorbOutput); err != nil {
		return nil, err
	}
	for _, variants := range v.Decode {
		d, err := loadDecode(from, variants)
		if err != nil {
			return nil, err
		}
		l.decodes = append(l.decodes, d)
	}
	slices.SortFunc(l.decodes, func(a, b *Decode) int { return cmp.Compare(b.model.SQ, a.model.SQ) })
	for _, load := range []struct {
		to      **Kernel
		variant Variant
		kernel  string
	}{{&l.groups, v.Groups, "layer_groups"}, {&l.rows, v.Rows, "layer_rows"}} {
		if m := load.variant.Manifest; m != nil && m.Kernel != load.kernel {
			return nil, fmt.Errorf("%s is kernel %q, must be %q", load.variant.label(), m.Kernel, load.kernel)
		}
		if *load.to, err = from.load(load.variant); err != nil {
			return nil, err
		}
	}
	if err := l.fits(); err != nil {
		return nil, err
	}
	l.sms = max(1, drv.Attributes().SMs)
	l.places = newPlaces(drv, layerArguments)
	for _, d := range l.decodes {
		l.decodeBytes = max(l.decodeBytes, d.WorkspaceBytes(1, 0)) // the same for any batch
	}
	return l, l.prepareParams()
}

// fits makes sure that the kernels are for one shape, and takes it.
func (l *Layer) fits() error {
	e := l.extend.Shape()
	l.shape = LayerShape{Heads: e.Heads, Latent: e.Latent, Rope: e.Rope, Nope: e.Nope, Value: e.Value, Page: e.Page, DType: e.DType}
	s := &l.shape
	for _, p := range []struct {
		kernel string
		model  ProductModel
		rope   int
	}{{"absorb_q", l.query.Model(), s.Rope}, {"absorb_o", l.output.Model(), 0}} {
		m := p.model
		if m.Heads != s.Heads || m.Latent != s.Latent || m.Nope != s.Nope || m.Value != s.Value || m.DType != s.DType || p.rope != 0 && m.Rope != p.rope {
			return fmt.Errorf("%s was made for %+v, extend's kernels for %+v", p.kernel, m, e)
		}
	}
	for _, d := range l.decodes {
		m := d.Model()
		if m.Heads != s.Heads || m.Latent != s.Latent || m.Rope != s.Rope || m.Page != s.Page || m.DType != s.DType || m.Out != s.DType {
			return fmt.Errorf("absorb_decode was made for %+v, extend's kernels for %+v", m, e)
		}
		if slices.Contains(s.Groups, m.SQ) {
			return fmt.Errorf("decode was given twice for groups of %d query tokens", m.SQ)
		}
		s.Groups = append(s.Groups, m.SQ)
	}
	if !slices.Contains(s.Groups, 1) {
		return fmt.Errorf("decode was given for groups of %v query tokens; 1 must be among them, for what others leave over", s.Groups)
	}
	var g struct {
		Page int `json:"page"`
	}
	if err := readShape(l.groups.Manifest, &g); err != nil {
		return err
	}
	if g.Page != s.Page {
		return fmt.Errorf("layer_groups was made for pages of %d tokens, extend's kernels for %+v", g.Page, e)
	}
	return nil
}

// Shape returns what the kernels were generated for.
func (l *Layer) Shape() LayerShape { return l.shape }

// Kernels returns the loaded kernels, for their compile times and warnings.
func (l *Layer) Kernels() (kernels []*Kernel) {
	if l.extend != nil {
		kernels = append(kernels, l.extend.Kernels()...)
	}
	if l.query != nil {
		kernels = append(kernels, l.query.Kernels()...)
	}
	if l.output != nil {
		kernels = append(kernels, l.output.Kernels()...)
	}
	for _, d := range l.decodes {
		kernels = append(kernels, d.Kernels()...)
	}
	for _, k := range []*Kernel{l.groups, l.rows} {
		if k != nil {
			kernels = append(kernels, k)
		}
	}
	return kernels
}

// Close unloads the kernels. None of them may be running.
func (l *Layer) Close() error {
	var all []error
	for _, k := range l.Kernels() {
		all = append(all, k.Unload())
	}
	l.extend, l.query, l.output, l.decodes, l.groups, l.rows = nil, nil, nil, nil, nil, nil
	return errors.Join(all...)
}

// LayerStep is a batch on the device: what Schedule prepares and Run takes.
type LayerStep struct {
	Plan *LayerPlan
	// KVLen is s32 [requests]: cached tokens of each request, its new ones
	// included, at least 0.
	KVLen Tensor
	// BlockTable is s32 [requests, width]: page ids; entries past a request's last
	// page are never read.
	BlockTable Tensor
	// Schedule is Plan.ScheduleBytes, aligned to 16 bytes. Schedule fills it, and
	// Run counts in it: two runs with one schedule must not overlap.
	Schedule Buffer
}

// LayerArgs are the arguments of Run. The query is either Q, or QNope and QRope.
// Addresses are aligned to 16 bytes; the innermost stride is 1 element and the
// others are multiples of 16 bytes.
type LayerArgs struct {
	LayerStep // as Schedule had it

	Q     Tensor // [query tokens, heads, nope+rope], of the shape's DType
	QNope Tensor // [query tokens, heads, nope]
	QRope Tensor // [query tokens, heads, rope]

	KV Tensor // [pages, page, latent+rope]; the query tokens are in it
	// NewTokens, where it is not 0, promises that the cache was complete before
	// Schedule was launched, but for at most so many of each request's newest tokens,
	// as for Decode.Run: as a rule the most that a request of the plan has new, and not
	// less.
	NewTokens int
	Weights   Tensor // [heads, nope+value, latent]: W_kv_b, the rows of k_nope first

	Workspace Buffer // Plan.WorkspaceBytes, aligned to 128 bytes; contents mean nothing before and after

	Out Tensor // [query tokens, heads, value], of the shape's DType; every element is written, 0 for a row without a key

	Scale float32 // of the logits, 1/sqrt(nope+rope) times what the model adds
}
