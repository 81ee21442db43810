package runtime

import (
	"errors"
	"fmt"
	"math"
)

// UpProjectShape is what an up-projection is generated for.
type UpProjectShape struct {
	Heads  int   // heads on this device
	Latent int   // 512
	Rope   int   // 64
	Nope   int   // 128
	Value  int   // 128
	Page   int   // tokens per page
	DType  DType // of everything
}

// UpProjectSource makes the variant for a shape, or says why it cannot be had.
type UpProjectSource interface {
	UpProject(UpProjectShape) (Variant, error)
}

// UpProject expands latents to the keys and values of all heads: rows ×
// W_kv_bᵀ. It is loaded for one shape and serves any number of rows. Its
// methods allocate nothing and never wait for the device; they must not be
// called concurrently.
type UpProject struct {
	places places
	kernel *productKernel
	model  ProductModel
	sms    int64
	view   view // of the latents
}

// LoadUpProject loads the kernel and makes sure that it fits this runtime and
// the device.
func LoadUpProject(drv Driver, v Variant, o ...LoadOption) (*UpProject, error) {
	return loadAhead(drv, o, []Variant{v}, func(l *loader) (*UpProject, error) { return loadUpProject(l, v) })
}

func loadUpProject(l *loader, v Variant) (_ *UpProject, err error) {
	k, err := loadProduct(l, v, "up_project")
	if err == nil {
		err = k.accepts(
			[]string{"cu_seqlens", "first_token", "block_table", "rope", "k_rope", "out"},
			[]string{"given", "sequences", "rows", "paged", "block_table_stride", "copy_rope", "rope_page", "rope_token", "k_rope_row", "out_token", "out_head"},
			[]string{"latents", "weights", "results"})
	}
	if err == nil && (k.model.Rope < 1 || k.model.Page < 1) {
		err = fmt.Errorf("spec of up_project has rope %d, page %d: not an up-projection's", k.model.Rope, k.model.Page)
	}
	if err != nil {
		if k != nil {
			err = errors.Join(err, k.kernel.Unload())
		}
		return nil, err
	}
	return &UpProject{places: newPlaces(l.driver, upArguments), kernel: k, model: k.model, sms: int64(max(1, l.driver.Attributes().SMs))}, nil
}

// Model returns what the kernel was generated for.
func (u *UpProject) Model() ProductModel { return u.model }

// Kernels returns the loaded kernel, for its compile time and warnings.
func (u *UpProject) Kernels() []*Kernel {
	if u.kernel == nil {
		return nil
	}
	return []*Kernel{u.kernel.kernel}
}

// Close unloads the kernel, which must not be running.
func (u *UpProject) Close() error {
	if u.kernel == nil {
		return nil
	}
	k := u.kernel
	u.kernel = nil
	return k.kernel.Unload()
}

// UpProjectArgs are the arguments of Run. Latents come from a paged cache (KV
// and BlockTable) or from dense rows (Latents). Addresses are aligned to 16
// bytes; of all but the s32 tensors the innermost stride is 1 element and the
// others are multiples of 16 bytes.
type UpProjectArgs struct {
	KV         Tensor // [pages, page, latent+rope]
	BlockTable Tensor // s32 [batch, width]: page ids; entries of pages without a token of the range are never read

	// Latents is [rows, latent], or [rows, latent+rope] where the rope keys are
	// wanted too.
	Latents Tensor

	// FirstToken s32 [batch] says with which token of its sequence each range
	// begins; when it is not given, all begin with 0. Of a cache only.
	FirstToken Tensor
	// CuSeqlens s32 [batch+1] says where the ranges lie in the output: range b is
	// rows CuSeqlens[b] to CuSeqlens[b+1]−1, which are the tokens from
	// FirstToken[b] on. It begins with 0 and never falls. With Latents the batch
	// is 1, and when it is not given all rows are multiplied.
	CuSeqlens Tensor

	Weights Tensor // [heads, nope+value, latent], the rows of k_nope first

	// KVUp is [rows, heads, nope+value], written in the rows below
	// CuSeqlens[batch], which are no more than it has.
	KVUp Tensor
	// KRope is [rows, rope], where the rope keys of the same tokens are wanted in
	// dense rows.
	KRope Tensor
}

// The arguments whose addresses are looked up.
const (
	upLatents = iota
	upTable
	upFirst
	upCu
	upWeights
	upOut
	upRope
	upArguments
)

// Run multiplies. A mistake in the arguments is an ArgumentError and launches
// nothing; no rows, or no sequences, launch nothing.
//
// FirstToken, CuSeqlens and Weights are read as soon as the kernel before it in
// the stream lets its dependents start, as Decode.Run reads KVLen; BlockTable is
// not.
func (u *UpProject) Run(s Stream, a UpProjectArgs) error {
	if u.kernel == nil {
		return errors.New("up-projection: " + closed)
	}
	blocks, err := u.arguments(s, &a)
	if err != nil {
		return fmt.Errorf("up-projection: %w", err)
	}
	if blocks == 0 {
		return nil
	}
	return u.kernel.launch(s, blocks)
}

// arguments validates a and fills the parameters. It returns how many blocks
// to launch.
func (u *UpProject) arguments(s Stream, a *UpProjectArgs) (blocks int64, err error) {
	if s == nil {
		return 0, noStream()
	}
	m := &u.kernel.model
	u.places.begin()
	out := expectation{
		name: "kv_up", dtype: m.DType, rank: 3, align: rowAlign, output: true,
		axes: [4]axis{{"rows", -1}, {"heads", int64(m.Heads)}, {"nope+value", int64(m.Nope + m.Value)}},
	}
	if err := u.places.tensor(upOut, &out, &a.KVUp); err != nil {
		return 0, err
	}
	rows := a.KVUp.Shape[0]
	if err := checkRows("kv_up", rows); err != nil {
		return 0, err
	}
	if err := mapStrides(&out, &a.KVUp); err != nil {
		return 0, err
	}
	if err := u.weights(&a.Weights); err != nil {
		return 0, err
	}
	rope := !a.KRope.absent()
	if rope {
		x := expectation{
			name: "k_rope", dtype: m.DType, rank: 2, align: rowAlign, output: true,
			axes: [4]axis{{"rows", rows}, {"rope", int64(m.Rope)}},
		}
		if err := u.places.tensor(upRope, &x, &a.KRope); err != nil {
			return 0, err
		}
	}
	paged := !a.KV.absent() || !a.BlockTable.absent()
	if dense := !a.Latents.absent(); dense == paged {
		was := "was not given"
		if dense {
			was = "was given beside kv and block_table"
		}
		return 0, argumentError("latents", "either dense rows, or a cache: kv and block_table", "%s", was)
	}
	p := u.kernel.params
	p.Pointer("cu_seqlens", a.CuSeqlens.Ptr).Pointer("first_token", a.FirstToken.Ptr).Pointer("block_table", a.BlockTable.Ptr)
	p.Int("rows", rows).Int("copy_rope", flag(rope, 1)).Int("paged", flag(paged, 1))
	p.Pointer("k_rope", a.KRope.Ptr).Int("k_rope_row", rowBytes(&a.KRope))
	batch := int64(1)
	if paged {
		batch, err = u.cache(a)
	} else {
		err = u.dense(a, rows, rope)
	}
	if err != nil || rows == 0 || batch == 0 {
		return 0, err
	}
	if err := apart(&u.places); err != nil {
		return 0, err
	}
	p.Int("sequences", batch).Int("given", flag(!a.CuSeqlens.absent(), 1)|flag(!a.FirstToken.absent(), 2))
	if err := u.kernel.describeTensor("weights", &a.Weights, 1, 0); err != nil {
		return 0, err
	}
	if err := u.kernel.result(&a.KVUp); err != nil {
		return 0, err
	}
	// No range has more tiles than its rows fill, and one more at either end. A
	// cluster takes as many tiles as it has CTAs, with one head or more.
	tiles, cluster := rows/int64(m.BlockM)+2*batch, int64(max(1, m.Cluster))
	groups := (tiles + cluster - 1) / cluster
	return cluster * min(max(1, u.sms/cluster), groups*int64(m.Heads)), nil
}

// weights validates the weights.
func (u *UpProject) weights(w *Tensor) error {
	m := &u.kernel.model
	x := expectation{
		name: "weights", dtype: m.DType, rank: 3, align: rowAlign,
		axes: [4]axis{{"heads", int64(m.Heads)}, {"nope+value", int64(m.Nope + m.Value)}, {"latent", int64(m.Latent)}},
	}
	if err := u.places.tensor(upWeights, &x, w); err != nil {
		return err
	}
	return mapStrides(&x, w)
}

// pages validates a cache.
func (u *UpProject) pages(kv *Tensor) error {
	m := &u.kernel.model
	x := expectation{
		name: "kv", dtype: m.DType, rank: 3, align: rowAlign,
		axes: [4]axis{{"pages", -1}, {"page", int64(m.Page)}, {"latent+rope", int64(m.Latent + m.Rope)}},
	}
	if err := u.places.tensor(upLatents, &x, kv); err != nil {
		return err
	}
	if pages := kv.Shape[0]; pages < 1 || pages > math.MaxInt32 {
		return argumentError("kv", fmt.Sprintf("1 to %d: the block table numbers them in 31 bits", math.MaxInt32), "it had %d pages", pages)
	}
	return mapStrides(&x, kv)
}

// cache validates a paged source and returns the number of sequences.
func (u *UpProject) cache(a *UpProjectArgs) (batch int64, err error) {
	m := &u.kernel.model
	if err := u.pages(&a.KV); err != nil {
		return 0, err
	}
	table := expectation{name: "block_table", dtype: S32, rank: 2, axes: [4]axis{{"batch", -1}, {"width", -1}}}
	if err := u.places.tensor(upTable, &table, &a.BlockTable); err != nil {
		return 0, err
	}
	batch = a.BlockTable.Shape[0]
	if batch > maxSequences {
		return 0, argumentError("block_table", fmt.Sprintf("at most %d", maxSequences), "it had %d sequences", batch)
	}
	cu := expectation{name: "cu_seqlens", dtype: S32, rank: 1, dense: true, axes: [4]axis{{"batch+1", batch + 1}}}
	if err := u.places.tensor(upCu, &cu, &a.CuSeqlens); err != nil {
		return 0, err
	}
	if !a.FirstToken.absent() {
		first := expectation{name: "first_token", dtype: S32, rank: 1, dense: true, axes: [4]axis{{"batch", batch}}}
		if err := u.places.tensor(upFirst, &first, &a.FirstToken); err != nil {
			return 0, err
		}
	}
	latents := u.view.columns(&a.KV, 2, 0, m.Latent)
	u.rope(&a.KV, a.KV.strideBytes(0), a.KV.strideBytes(1))
	u.kernel.params.Int("block_table_stride", a.BlockTable.stride(0))
	return batch, u.kernel.describeTensor("latents", &latents, 1, 0)
}

// maxSequences is the longest table that the kernel adds up at its start.
const maxSequences = 32 * 512

// dense validates dense rows.
func (u *UpProject) dense(a *UpProjectArgs, rows int64, rope bool) error {
	m := &u.kernel.model
	width := int64(m.Latent)
	if rope || len(a.Latents.Shape) == 2 && a.Latents.Shape[1] == width+int64(m.Rope) {
		width += int64(m.Rope)
	}
	x := expectation{name: "latents", dtype: m.DType, rank: 2, align: rowAlign, axes: [4]axis{{"rows", rows}, {"latent", width}}}
	if rope {
		x.axes[1].name = "latent+rope"
	}
	if err := u.places.tensor(upLatents, &x, &a.Latents); err != nil {
		return err
	}
	if err := mapStrides(&x, &a.Latents); err != nil {
		return err
	}
	if !a.FirstToken.absent() {
		return argumentError("first_token", "of a cache: dense rows begin with the first", "was given beside latents")
	}
	if !a.CuSeqlens.absent() {
		cu := expectation{name: "cu_seqlens", dtype: S32, rank: 1, dense: true, axes: [4]axis{{"batch+1", 2}}}
		if err := u.places.tensor(upCu, &cu, &a.CuSeqlens); err != nil {
			return err
		}
	}
	u.rope(&a.Latents, 0, a.Latents.strideBytes(0))
	u.kernel.params.Int("block_table_stride", 0)
	if rows == 0 {
		return nil
	}
	latents := u.view.dense(a.Latents.Ptr, m.DType, 1, rows, int64(m.Latent)) // one page
	latents.Strides[1] = a.Latents.stride(0)
	return u.kernel.describeTensor("latents", &latents, 1, 0)
}

// rope says where the source's rope keys lie.
func (u *UpProject) rope(t *Tensor, page, token int64) {
	u.kernel.params.Pointer("rope", t.Ptr+Ptr(int64(u.kernel.model.Latent)*t.DType.Bytes())).Int("rope_page", page).Int("rope_token", token)
}

// flag returns bit where on.
func flag(on bool, bit int64) int64 {
	if on {
		return bit
	}
	return 0
}

// rowBytes returns the stride of a matrix's rows in bytes, 0 when it is absent.
func rowBytes(t *Tensor) int64 {
	if t.absent() {
		return 0
	}
	return t.strideBytes(0)
}
