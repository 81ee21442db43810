package runtime

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// productSpec is the model of the products under test, 4 heads of DeepSeek's.
func productSpec(blockM, blockN, cluster int) ProductModel {
	return ProductModel{Heads: 4, Latent: 512, Rope: 64, Nope: 128, Value: 128, Page: 64, BlockM: blockM, BlockN: blockN, Cluster: cluster, DType: BF16}
}

// productVariant is a kernel with the given parameters and a tensor map for
// each that is one.
func productVariant(name string, threads int, spec ProductModel, list ...string) Variant {
	v := variant(name, threads, spec, list...)
	v.Manifest.Cluster = max(1, spec.Cluster)
	for _, p := range v.Manifest.Params {
		if p.Kind == manifest.TensorMapParam {
			v.Manifest.TensorMaps = append(v.Manifest.TensorMaps, manifest.TensorMap{
				Param: p.Name, DType: "bf16", Dims: []string{"column", "row", "head"}, Box: []int{64, 64, 1}, Swizzle: 128, Promotion: 128,
			})
		}
	}
	return v
}

// upVariant is an up-projection with the parameters that the generator gives.
func upVariant() Variant {
	return productVariant("up_project", 384, productSpec(128, 128, 2),
		"weights", "map", "out", "*b32", "out_token", "s64", "out_head", "s64", "latents", "map", "paged", "u32", "block_table", "*s32", "block_table_stride", "s64",
		"copy_rope", "u32", "rope", "*b32", "rope_page", "s64", "rope_token", "s64", "k_rope", "*b32", "k_rope_row", "s64",
		"cu_seqlens", "*s32", "first_token", "*s32", "given", "u32", "sequences", "s32", "rows", "s32", "results", "map")
}

// absorbVariants are one narrow and one wide kernel.
func absorbVariants(query bool) []Variant {
	list := []string{"weights", "map", "out", "*b32", "out_token", "s64", "out_head", "s64", "rows", "map", "tokens", "s32"}
	name := "absorb_o"
	if query {
		name = "absorb_q"
		list = append(list, "copy_rope", "u32", "q_rope", "*b32", "q_rope_token", "s64", "q_rope_head", "s64", "rope_out", "*b32", "rope_out_token", "s64", "rope_out_head", "s64")
	}
	return []Variant{
		productVariant(name, 384, productSpec(128, 128, 1), append(list, "results", "map")...),
		productVariant(name, 192, productSpec(16, 64, 1), list...),
	}
}

// productRig is the three products with arguments of 300 tokens.
type productRig struct {
	*rig
	up     *UpProject
	query  *AbsorbQuery
	output *AbsorbOutput
	paged  UpProjectArgs
	dense  UpProjectArgs
	q      AbsorbQueryArgs
	o      AbsorbOutputArgs
}

const productTokens, productPages = 300, 20

// newProductRig has a device so small that wide tiles fill it.
func newProductRig(t *testing.T) *productRig {
	t.Helper()
	driver := newFake()
	driver.attributes.SMs = smallDevice
	r := &productRig{rig: &rig{t: t, driver: driver, stream: &fakeStream{}}}
	var errs [3]error
	r.up, errs[0] = LoadUpProject(r.driver, upVariant())
	r.query, errs[1] = LoadAbsorbQuery(r.driver, absorbVariants(true)...)
	r.output, errs[2] = LoadAbsorbOutput(r.driver, absorbVariants(false)...)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	w := r.tensor("weights", BF16, 4, 256, 512)
	keys, values := SplitWeights(w, 128)
	r.paged = UpProjectArgs{
		KV: r.tensor("kv", BF16, productPages, 64, 576), BlockTable: r.tensor("block_table", S32, 3, 5), FirstToken: r.tensor("first_token", S32, 3),
		CuSeqlens: r.tensor("cu_seqlens", S32, 4), Weights: w, KVUp: r.tensor("kv_up", BF16, productTokens, 4, 256), KRope: r.tensor("k_rope", BF16, productTokens, 64),
	}
	r.dense = UpProjectArgs{
		Latents: r.tensor("latents", BF16, productTokens, 576), CuSeqlens: r.tensor("cu_seqlens", S32, 2), Weights: w, KVUp: r.paged.KVUp, KRope: r.paged.KRope,
	}
	r.q = AbsorbQueryArgs{Q: r.tensor("q", BF16, productTokens, 4, 192), Weights: keys, Out: r.tensor("out", BF16, productTokens, 4, 576)}
	r.o = AbsorbOutputArgs{Latent: r.tensor("latent", BF16, productTokens, 4, 512), Weights: values, Out: r.tensor("out", BF16, productTokens, 4, 128)}
	return r
}

// splitQuery gives query and result in two tensors each.
func (r *productRig) splitQuery() {
	r.q.Q, r.q.Out = Tensor{}, Tensor{}
	r.q.QNope, r.q.QRope = r.tensor("q_nope", BF16, productTokens, 4, 128), r.tensor("q_rope", BF16, productTokens, 4, 64)
	r.q.OutLatent, r.q.OutRope = r.tensor("out_latent", BF16, productTokens, 4, 512), r.tensor("out_rope", BF16, productTokens, 4, 64)
}

// sole returns the only launch.
func (r *productRig) sole() Launch {
	r.t.Helper()
	if n := len(r.stream.launches); n != 1 {
		r.t.Fatalf("%d launches", n)
	}
	return r.stream.launches[0]
}

func TestUpProjectRun(t *testing.T) {
	r := newProductRig(t)
	if err := r.up.Run(r.stream, r.paged); err != nil {
		t.Fatal(err)
	}
	l := r.sole()
	// 300/128 + 2 per sequence are 8 tiles, 4 pairs, each with 4 heads.
	if l.Grid != (Dim3{X: 32}) || l.Block.X != 384 || !l.Programmatic {
		t.Errorf("grid %v of %v", l.Grid, l.Block)
	}
	a := &r.paged
	if diff := cmp.Diff(map[string]uint64{
		"out": uint64(a.KVUp.Ptr), "out_token": 4 * 512, "out_head": 512, "paged": 1, "block_table": uint64(a.BlockTable.Ptr), "block_table_stride": 5,
		"copy_rope": 1, "rope": uint64(a.KV.Ptr) + 1024, "rope_page": 64 * 1152, "rope_token": 1152, "k_rope": uint64(a.KRope.Ptr), "k_rope_row": 128,
		"cu_seqlens": uint64(a.CuSeqlens.Ptr), "first_token": uint64(a.FirstToken.Ptr), "given": 3, "sequences": 3, "rows": productTokens,
	}, r.values(r.up.kernel.kernel, l)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	type described struct {
		Param          string
		Address        Ptr
		Sizes, Strides []uint64
	}
	var maps []described
	for _, m := range r.driver.encoded {
		maps = append(maps, described{m.Param, m.Address, m.Sizes, m.Strides})
	}
	if diff := cmp.Diff([]described{
		{"latents", a.KV.Ptr, []uint64{512, 64, productPages}, []uint64{1152, 64 * 1152}},
		{"weights", a.Weights.Ptr, []uint64{512, 256, 4}, []uint64{1024, 256 * 1024}},
		{"results", a.KVUp.Ptr, []uint64{256, productTokens, 4}, []uint64{4 * 512, 512}},
	}, maps); diff != "" {
		t.Errorf("tensor maps (-want +got):\n%s", diff)
	}

	r = newProductRig(t)
	r.dense.CuSeqlens, r.dense.KRope = Tensor{}, Tensor{}
	r.dense.Latents.Shape, r.dense.Latents.Strides = []int64{productTokens, 512}, []int64{576, 1}
	if err := r.up.Run(r.stream, r.dense); err != nil {
		t.Fatal(err)
	}
	v := r.values(r.up.kernel.kernel, r.sole())
	for name, want := range map[string]uint64{"paged": 0, "copy_rope": 0, "given": 0, "sequences": 1, "cu_seqlens": 0, "block_table": 0, "k_rope": 0, "k_rope_row": 0} {
		if v[name] != want {
			t.Errorf("dense rows: %s is %d, want %d", name, v[name], want)
		}
	}
	if m := r.driver.encoded[0]; m.Param != "latents" || m.Sizes[1] != productTokens || m.Sizes[2] != 1 || m.Strides[0] != 1152 {
		t.Errorf("dense rows: %+v", m)
	}
}

const smallDevice = 64

// TestAbsorbTiles: wide tiles are taken where they are enough for half of the
// device; otherwise the largest narrow ones, or all that there are.
func TestAbsorbTiles(t *testing.T) {
	for _, c := range []struct{ sms, tokens, want int }{
		{132, 8, 16}, {132, 16, 16}, {132, 17, 16}, {132, productTokens, 16}, {96, productTokens, 128}, {smallDevice, productTokens, 128}, {132, 10000, 128},
	} {
		driver := newFake()
		driver.attributes.SMs = c.sms
		q, err := LoadAbsorbQuery(driver, absorbVariants(true)...)
		if err != nil {
			t.Fatal(err)
		}
		if got := q.ModelFor(c.tokens).BlockM; got != c.want {
			t.Errorf("%d tokens on %d SMs: tiles of %d rows, want %d", c.tokens, c.sms, got, c.want)
		}
	}
	q, err := LoadAbsorbQuery(newFake(), absorbVariants(true)[0])
	if err != nil {
		t.Fatal(err)
	}
	if got := q.ModelFor(1).BlockM; got != 128 {
		t.Errorf("tiles of %d rows, want the only ones", got)
	}
}

func TestAbsorbRun(t *testing.T) {
	r := newProductRig(t)
	if err := r.query.Run(r.stream, r.q); err != nil {
		t.Fatal(err)
	}
	l := r.sole()
	if l.Grid != (Dim3{X: 3 * 4 * 4}) || l.Block.X != 384 { // tiles of 128 by 128
		t.Errorf("grid %v of %v", l.Grid, l.Block)
	}
	wide := r.query.kernels[1].kernel
	if diff := cmp.Diff(map[string]uint64{
		"out": uint64(r.q.Out.Ptr), "out_token": 4 * 1152, "out_head": 1152, "tokens": productTokens, "copy_rope": 1,
		"q_rope": uint64(r.q.Q.Ptr) + 256, "q_rope_token": 4 * 384, "q_rope_head": 384,
		"rope_out": uint64(r.q.Out.Ptr) + 1024, "rope_out_token": 4 * 1152, "rope_out_head": 1152,
	}, r.values(wide, l)); diff != "" {
		t.Errorf("query (-want +got):\n%s", diff)
	}

	// Few tokens take the narrow kernel, rope parts only on request.
	r = newProductRig(t)
	r.splitQuery()
	r.q.QRope, r.q.OutRope = Tensor{}, Tensor{}
	r.q.QNope.Shape[0], r.q.OutLatent.Shape[0] = 16, 16
	if err := r.query.Run(r.stream, r.q); err != nil {
		t.Fatal(err)
	}
	l = r.sole()
	if l.Grid != (Dim3{X: 4 * 8}) || l.Block.X != 192 { // a tile for each 64 columns
		t.Errorf("narrow: grid %v of %v", l.Grid, l.Block)
	}
	v := r.values(r.query.kernels[0].kernel, l)
	if v["copy_rope"] != 0 || v["q_rope"] != 0 || v["rope_out"] != 0 || v["tokens"] != 16 {
		t.Errorf("narrow: %v", v)
	}

	r = newProductRig(t)
	if err := r.output.Run(r.stream, r.o); err != nil {
		t.Fatal(err)
	}
	v = r.values(r.output.kernels[1].kernel, r.sole())
	if diff := cmp.Diff(map[string]uint64{"out": uint64(r.o.Out.Ptr), "out_token": 4 * 256, "out_head": 256, "tokens": productTokens}, v); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if m := r.driver.encoded[1]; m.Param != "weights" || m.Address != r.o.Weights.Ptr || m.Strides[1] != 256*1024 {
		t.Errorf("weights %+v", m)
	}
}

// TestProductStrideOfOne: where a dimension has one element its stride says
// nothing and must not matter, as it does not elsewhere.
func TestProductStrideOfOne(t *testing.T) {
	r := newProductRig(t)
	one := func(x *Tensor) { x.Shape[0], x.Strides = 1, append([]int64{7}, x.strides()[1:]...) }
	for _, x := range []*Tensor{&r.q.Q, &r.q.Out, &r.o.Latent, &r.o.Out, &r.dense.Latents, &r.dense.KVUp, &r.dense.KRope} {
		x.Shape = append([]int64{}, x.Shape...)
		one(x)
	}
	if err := errors.Join(r.query.Run(r.stream, r.q), r.output.Run(r.stream, r.o), r.up.Run(r.stream, r.dense)); err != nil {
		t.Fatal(err)
	}
	for _, m := range r.driver.encoded {
		for _, s := range m.Strides {
			if s == 0 || s%16 != 0 {
				t.Errorf("%s: strides %v", m.Param, m.Strides)
			}
		}
	}
}

// strides returns the strides, a dense tensor's included.
func (t *Tensor) strides() (all []int64) {
	for i := range t.Shape {
		all = append(all, t.stride(i))
	}
	return all
}

func TestProductNothing(t *testing.T) {
	r := newProductRig(t)
	empty := func(columns ...int64) Tensor { return Dense(0, BF16, append([]int64{0}, columns...)...) }
	noBatch := r.paged
	noBatch.BlockTable, noBatch.CuSeqlens, noBatch.FirstToken = Dense(0, S32, 0, 5), r.tensor("cu", S32, 1), Tensor{}
	noRows := r.paged
	noRows.KVUp, noRows.KRope = empty(4, 256), empty(64)
	if err := errors.Join(
		r.up.Run(r.stream, noBatch), r.up.Run(r.stream, noRows),
		r.up.Run(r.stream, UpProjectArgs{Latents: empty(512), Weights: r.paged.Weights, KVUp: empty(4, 256)}),
		r.query.Run(r.stream, AbsorbQueryArgs{Q: empty(4, 192), Weights: r.q.Weights, Out: empty(4, 576)}),
		r.output.Run(r.stream, AbsorbOutputArgs{Latent: empty(4, 512), Weights: r.o.Weights, Out: empty(4, 128)}),
	); err != nil {
		t.Error(err)
	}
	if n := len(r.stream.launches); n > 0 {
		t.Errorf("%d launches for nothing", n)
	}
}

func TestProductAllocatesNothing(t *testing.T) {
	r := newProductRig(t)
	r.stream.forget = true
	for name, call := range map[string]func() error{
		"up-projection, cache":      func() error { return r.up.Run(r.stream, r.paged) },
		"up-projection, dense rows": func() error { return r.up.Run(r.stream, r.dense) },
		"absorbed query":            func() error { return r.query.Run(r.stream, r.q) },
		"absorbed output":           func() error { return r.output.Run(r.stream, r.o) },
	} {
		if n := testing.AllocsPerRun(100, func() {
			if err := call(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations per call", name, n)
		}
	}
}

func TestProductClosed(t *testing.T) {
	r := newProductRig(t)
	for range 2 {
		if err := errors.Join(r.up.Close(), r.query.Close(), r.output.Close()); err != nil {
			t.Error(err)
		}
	}
	if r.driver.loads != 5 || r.driver.unloaded != 5 {
		t.Errorf("%d loaded, %d unloaded", r.driver.loads, r.driver.unloaded)
	}
	for want, err := range map[string]error{
		"up-projection": r.up.Run(r.stream, r.paged), "absorbed query": r.query.Run(r.stream, r.q), "absorbed output": r.output.Run(r.stream, r.o),
	} {
		if err == nil || err.Error() != want+": was closed, must be loaded" {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestLoadProductRefuses(t *testing.T) {
	drop := func(v Variant, name string) Variant {
		for i, p := range v.Manifest.Params {
			if p.Name == name {
				v.Manifest.Params[i].Name = "renamed"
			}
		}
		return v
	}
	with := func(v Variant, change func(*Variant)) Variant { change(&v); return v }
	up := func(v Variant) func(Driver) error {
		return func(d Driver) error { _, err := LoadUpProject(d, v); return err }
	}
	query := func(v ...Variant) func(Driver) error {
		return func(d Driver) error { _, err := LoadAbsorbQuery(d, v...); return err }
	}
	other := absorbVariants(true)
	other[1].Manifest.Spec = func() ProductModel { m := productSpec(16, 64, 1); m.Heads = 5; return m }()
	for want, load := range map[string]func(Driver) error{
		`up_project", must be "absorb_q"`:                               query(upVariant()),
		`absorb_q", must be "up_project"`:                               up(absorbVariants(true)[0]),
		`takes a parameter "renamed", which this runtime does not know`: up(drop(upVariant(), "paged")),
		`absorb_q takes no parameter "results"`:                         query(with(absorbVariants(true)[1], func(v *Variant) { v.Manifest.Spec = productSpec(128, 64, 1) })),
		`takes "out_token" as a pointer; this runtime passes a scalar`:  up(with(upVariant(), func(v *Variant) { kind(v, "out_token", manifest.PointerParam) })),
		"spec of up_project has heads 0":                                up(with(upVariant(), func(v *Variant) { v.Manifest.Spec = ProductModel{} })),
		"spec of up_project: ":                                          up(with(upVariant(), func(v *Variant) { v.Manifest.Spec = "128" })),
		"has rope 64, page 0: not an up-projection's":                   up(with(upVariant(), func(v *Variant) { m := productSpec(128, 128, 2); m.Page = 0; v.Manifest.Spec = m })),
		"reads latents as fp16":                                         up(with(upVariant(), func(v *Variant) { v.Manifest.TensorMaps[1].DType = "fp16" })),
		"absorbed query: no variant was given":                          query(),
		"absorb_q was made for":                                         query(other...),
	} {
		d := newFake()
		if err := load(d); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if d.loads != d.unloaded {
			t.Errorf("%s: %d loaded, %d unloaded", want, d.loads, d.unloaded)
		}
	}
}

// kind makes a parameter one of another kind.
func kind(v *Variant, name string, k manifest.ParamKind) {
	for i := range v.Manifest.Params {
		if p := &v.Manifest.Params[i]; p.Name == name {
			p.Kind = k
		}
	}
}
