package runtime

import (
	"errors"
	"math"
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

func newProductRig(t *testing.T) *productRig {
	t.Helper()
	r := &productRig{rig: &rig{t: t, driver: newFake(), stream: &fakeStream{}}}
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
		`takes "paged" as a pointer; this runtime passes a scalar`:      up(with(upVariant(), func(v *Variant) { kind(v, "paged", manifest.PointerParam) })),
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

// mistake is a change to a rig's arguments and what the error must say.
type mistake struct {
	name   string
	change func(*productRig)
	want   string
}

// usual are the mistakes that can be made with any tensor argument, of which
// describe tells the type and shape. Of a tensor of more than 16-bit elements
// mistakes with alignment differ.
func usual(argument, shape string, of func(*productRig) *Tensor) (list []mistake) {
	add := func(name string, change func(r *productRig, t *Tensor), want string) {
		list = append(list, mistake{argument + ": " + name, func(r *productRig) {
			t := of(r)
			t.Shape = append([]int64{}, t.Shape...)
			change(r, t)
		}, argument + ": " + want})
	}
	add("dtype", func(_ *productRig, t *Tensor) { t.DType = "e4m3" }, `dtype was "e4m3", must be `)
	add("rank", func(_ *productRig, t *Tensor) { t.Shape = append(t.Shape, 1) }, "shape was ")
	add("width", func(_ *productRig, t *Tensor) { t.Shape[len(t.Shape)-1]++ }, "shape was ")
	add("negative", func(_ *productRig, t *Tensor) { t.Shape[0] = -1 }, "shape was ")
	add("shape", func(_ *productRig, t *Tensor) { t.Shape[len(t.Shape)-1]++ }, "")
	list[len(list)-1].want = ", must be " + shape
	add("null", func(_ *productRig, t *Tensor) { t.Ptr = 0 }, "address was null, must be an address in device memory")
	add("alignment", func(_ *productRig, t *Tensor) { t.Ptr += 2 }, "address was 0x")
	add("strides", func(_ *productRig, t *Tensor) { t.Strides = make([]int64, len(t.Shape)+1) }, "strides were [")
	add("inner stride", func(_ *productRig, t *Tensor) { t.Strides = t.strides(); t.Strides[len(t.Shape)-1] = 2 }, "")
	list[len(list)-1].want = " stride was 2 elements, must be 1 element"
	add("host", func(_ *productRig, t *Tensor) { t.Ptr = 0xc000010000 }, "address 0xc000010000 was not device memory, must be memory of fake")
	add("another device", func(r *productRig, t *Tensor) {
		t.Ptr = 0x7e0000000000
		r.driver.foreign = []Location{{Where: "memory of GPU 1", Base: t.Ptr, Size: 1 << 30}}
	}, "address 0x7e0000000000 was memory of GPU 1, must be memory of fake")
	add("outside", func(r *productRig, t *Tensor) { t.Ptr = r.buffer("small", 8).Ptr }, "it ran from 0x")
	return list
}

// mapped are those with a tensor that a tensor map describes: axis is its
// outermost.
func mapped(argument, axis string, of func(*productRig) *Tensor) (list []mistake) {
	stride := func(n int64, want string) mistake {
		return mistake{argument + ": " + axis + " stride", func(r *productRig) {
			t := of(r)
			t.Strides = t.strides()
			t.Strides[0] = n
			r.driver.blocks = []Location{{Local: true, Base: 0, Size: math.MaxInt64}}
		}, argument + ": " + want}
	}
	odd := int64(4*576*64 + 4)
	return []mistake{
		stride(odd, axis+" stride was 147460 elements (294920 bytes), must be a multiple of 16 bytes"),
		stride(-8, axis+" stride was -8 elements, must be at least 0 and less than 2^63 bytes"),
		stride(1<<39, axis+" stride was 549755813888 elements (1099511627776 bytes), must be more than 0 and less than 1099511627776 bytes"),
		stride(1<<62, ""),
	}
}

// overlap is the mistake of an output whose rows share memory.
func overlap(argument string, of func(*productRig) *Tensor) mistake {
	return mistake{argument + ": overlap", func(r *productRig) {
		t := of(r)
		t.Strides = t.strides()
		t.Strides[0] = 8
	}, argument + ": shape was "}
}

// check makes each mistake; the error must name the argument, and nothing be
// launched.
func checkMistakes(t *testing.T, call string, list []mistake, run func(*productRig) error) {
	t.Helper()
	for _, m := range list {
		t.Run(m.name, func(t *testing.T) {
			r := newProductRig(t)
			m.change(r)
			err := run(r)
			var argument *ArgumentError
			if !errors.As(err, &argument) {
				t.Fatalf("got %v, want an ArgumentError", err)
			}
			if text := err.Error(); !strings.HasPrefix(text, call) || !strings.Contains(text, m.want) {
				t.Errorf("got  %s\nwant %s%s", text, call, m.want)
			}
			if name, _, _ := strings.Cut(m.name, ": "); argument.Argument != name || argument.Was == "" || argument.Must == "" {
				t.Errorf("%+v, want one of %s", argument, name)
			}
			if len(r.stream.launches) > 0 {
				t.Error("launched all the same")
			}
		})
	}
}

// concat joins lists of mistakes.
func concat(lists ...[]mistake) (all []mistake) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

func TestUpProjectMisuse(t *testing.T) {
	huge := func(r *productRig) { r.driver.blocks = []Location{{Local: true, Base: 0, Size: math.MaxInt64}} }
	kv := func(r *productRig) *Tensor { return &r.paged.KV }
	table := func(r *productRig) *Tensor { return &r.paged.BlockTable }
	first := func(r *productRig) *Tensor { return &r.paged.FirstToken }
	cu := func(r *productRig) *Tensor { return &r.paged.CuSeqlens }
	w := func(r *productRig) *Tensor { return &r.paged.Weights }
	up := func(r *productRig) *Tensor { return &r.paged.KVUp }
	rope := func(r *productRig) *Tensor { return &r.paged.KRope }
	ints := func(list []mistake) (kept []mistake) { // any multiple of 4 bytes is aligned
		for _, m := range list {
			if !strings.HasSuffix(m.name, ": width") {
				kept = append(kept, m)
			}
		}
		return kept
	}
	checkMistakes(t, "up-projection: ", concat(
		usual("kv", "[pages, page 64, latent+rope 576]", kv), mapped("kv", "pages", kv),
		ints(usual("block_table", "[batch, width]", table))[:1], // a table may be as wide as it likes
		usual("first_token", "[batch 3]", first), usual("cu_seqlens", "[batch+1 4]", cu),
		usual("weights", "[heads 4, nope+value 256, latent 512]", w), mapped("weights", "heads", w),
		usual("kv_up", "[rows, heads 4, nope+value 256]", up), mapped("kv_up", "rows", up),
		usual("k_rope", "[rows 300, rope 64]", rope),
		[]mistake{
			overlap("kv_up", up), overlap("k_rope", rope),
			{"block_table: null", func(r *productRig) { r.paged.BlockTable.Ptr = 0 }, "block_table: address was null"},
			{"block_table: alignment", func(r *productRig) { r.paged.BlockTable.Ptr += 2 }, "block_table: address was 0x"},
			{"block_table: missing", func(r *productRig) { r.paged.BlockTable = Tensor{} }, "block_table: was not given, must be a s32 tensor [batch, width]"},
			{"block_table: outside", func(r *productRig) { r.paged.BlockTable.Shape = []int64{3, 100} }, "block_table: it ran from 0x"},
			{"block_table: host", func(r *productRig) { r.paged.BlockTable.Ptr = 64 }, "block_table: address 0x40 was not device memory"},
			{"block_table: too many", func(r *productRig) {
				huge(r)
				r.paged.BlockTable.Shape = []int64{1<<14 + 1, 5}
			}, "block_table: it had 16385 sequences, must be at most 16384"},
			{"kv: missing", func(r *productRig) { r.paged.KV = Tensor{} }, "kv: was not given, must be a bf16 tensor [pages, page 64, latent+rope 576]"},
			{"kv: no page", func(r *productRig) { r.paged.KV.Shape = []int64{0, 64, 576} }, "kv: it had 0 pages, must be 1 to 2147483647"},
			{"kv: too many pages", func(r *productRig) {
				huge(r)
				r.paged.KV.Shape = []int64{1 << 31, 64, 576}
			}, "kv: it had 2147483648 pages, must be 1 to 2147483647: the block table numbers them in 31 bits"},
			{"kv: page", func(r *productRig) { r.paged.KV.Shape = []int64{20, 32, 576} }, "kv: shape was [20 32 576], must be [pages, page 64, latent+rope 576]"},
			{"kv: record stride", func(r *productRig) { r.paged.KV.Strides = []int64{64 * 576, 577, 1} }, "kv: page stride was 577 elements (1154 bytes), must be a multiple of 16 bytes"},
			{"cu_seqlens: missing", func(r *productRig) { r.paged.CuSeqlens = Tensor{} }, "cu_seqlens: was not given, must be a s32 tensor [batch+1 4]"},
			{"kv_up: missing", func(r *productRig) { r.paged.KVUp = Tensor{} }, "kv_up: was not given, must be a bf16 tensor [rows, heads 4, nope+value 256]"},
			{"kv_up: too many rows", func(r *productRig) {
				huge(r)
				r.paged.KVUp.Shape = []int64{math.MaxInt32 - 1023, 4, 256}
			}, "kv_up: it had 2147482624 rows, must be at most 2147482623"},
			{"weights: missing", func(r *productRig) { r.paged.Weights = Tensor{} }, "weights: was not given, must be a bf16 tensor [heads 4, nope+value 256, latent 512]"},
			{"k_rope: row stride", func(r *productRig) { r.paged.KRope.Strides = []int64{68, 1} }, "k_rope: rows stride was 68 elements (136 bytes), must be a multiple of 16 bytes"},
			{"latents: beside a cache", func(r *productRig) { r.paged.Latents = r.dense.Latents },
				"latents: was given beside kv and block_table, must be either dense rows, or a cache: kv and block_table"},
			{"latents: no source", func(r *productRig) { r.paged.KV, r.paged.BlockTable = Tensor{}, Tensor{} },
				"latents: was not given, must be either dense rows, or a cache: kv and block_table"},
		},
	), func(r *productRig) error { return r.up.Run(r.stream, r.paged) })

	latents := func(r *productRig) *Tensor { return &r.dense.Latents }
	checkMistakes(t, "up-projection: ", concat(
		usual("latents", "[rows 300, latent+rope 576]", latents), mapped("latents", "rows", latents),
		[]mistake{
			{"latents: rope keys wanted", func(r *productRig) {
				r.dense.Latents.Shape, r.dense.Latents.Strides = []int64{300, 512}, []int64{576, 1}
			},
				"latents: shape was [300 512], must be [rows 300, latent+rope 576]"},
			{"latents: rows", func(r *productRig) { r.dense.Latents.Shape = []int64{299, 576} }, "latents: shape was [299 576], must be [rows 300, latent+rope 576]"},
			{"cu_seqlens: several sequences", func(r *productRig) { r.dense.CuSeqlens = r.paged.CuSeqlens }, "cu_seqlens: shape was [4], must be [batch+1 2]"},
			{"first_token: of dense rows", func(r *productRig) { r.dense.FirstToken = r.tensor("first", S32, 1) },
				"first_token: was given beside latents, must be of a cache: dense rows begin with the first"},
		},
	), func(r *productRig) error { return r.up.Run(r.stream, r.dense) })
	if err := newProductRig(t).up.Run(nil, UpProjectArgs{}); err == nil || !strings.Contains(err.Error(), "up-projection: stream: was nil, must be") {
		t.Error(err)
	}
}

func TestAbsorbQueryMisuse(t *testing.T) {
	q := func(r *productRig) *Tensor { return &r.q.Q }
	w := func(r *productRig) *Tensor { return &r.q.Weights }
	out := func(r *productRig) *Tensor { return &r.q.Out }
	run := func(r *productRig) error { return r.query.Run(r.stream, r.q) }
	checkMistakes(t, "absorbed query: ", concat(
		usual("q", "[tokens, heads 4, nope+rope 192]", q), mapped("q", "tokens", q),
		usual("weights", "[heads 4, nope 128, latent 512]", w), mapped("weights", "heads", w),
		usual("out", "[tokens 300, heads 4, latent+rope 576]", out), mapped("out", "tokens", out),
		[]mistake{
			overlap("out", out),
			{"q: missing", func(r *productRig) { r.q.Q = Tensor{} }, "q: was not given, must be either one tensor, or q_nope and, for rope parts, q_rope"},
			{"q: twice", func(r *productRig) { r.q.QNope = r.tensor("q_nope", BF16, 300, 4, 128) }, "q: was given beside q_nope or q_rope, must be either one tensor"},
			{"q: too many", func(r *productRig) {
				r.driver.blocks = []Location{{Local: true, Base: 0, Size: math.MaxInt64}}
				r.q.Q.Shape = []int64{math.MaxInt32, 4, 192}
			}, "q: it had 2147483647 rows, must be at most 2147482623"},
			{"q: heads", func(r *productRig) { r.q.Q.Shape = []int64{300, 8, 192} }, "q: shape was [300 8 192], must be [tokens, heads 4, nope+rope 192]"},
			{"q: head stride", func(r *productRig) { r.q.Q.Strides = []int64{768, 0, 1} }, "q: heads stride was 0 elements (0 bytes), must be more than 0"},
			{"weights: missing", func(r *productRig) { r.q.Weights = Tensor{} }, "weights: was not given, must be a bf16 tensor [heads 4, nope 128, latent 512]"},
			{"weights: not split", func(r *productRig) { r.q.Weights = r.paged.Weights }, "weights: shape was [4 256 512], must be [heads 4, nope 128, latent 512]"},
			{"out: missing", func(r *productRig) { r.q.Out = Tensor{} }, "out: was not given, must be either one tensor, or out_latent and, for rope parts, out_rope"},
			{"out: twice", func(r *productRig) { r.q.OutLatent = r.q.Out }, "out: was given beside out_latent or out_rope, must be either one tensor"},
			{"out: tokens", func(r *productRig) { r.q.Out.Shape = []int64{299, 4, 576} }, "out: shape was [299 4 576], must be [tokens 300, heads 4, latent+rope 576]"},
		},
	), run)

	split := func(list []mistake) []mistake {
		for i := range list {
			change := list[i].change
			list[i].change = func(r *productRig) { r.splitQuery(); change(r) }
		}
		return list
	}
	nope := func(r *productRig) *Tensor { return &r.q.QNope }
	rope := func(r *productRig) *Tensor { return &r.q.QRope }
	latent := func(r *productRig) *Tensor { return &r.q.OutLatent }
	ropeOut := func(r *productRig) *Tensor { return &r.q.OutRope }
	checkMistakes(t, "absorbed query: ", split(concat(
		usual("q_nope", "[tokens, heads 4, nope 128]", nope), mapped("q_nope", "tokens", nope),
		usual("q_rope", "[tokens 300, heads 4, rope 64]", rope),
		usual("out_latent", "[tokens 300, heads 4, latent 512]", latent), mapped("out_latent", "tokens", latent),
		usual("out_rope", "[tokens 300, heads 4, rope 64]", ropeOut),
		[]mistake{
			overlap("out_latent", latent), overlap("out_rope", ropeOut),
			{"q_nope: missing", func(r *productRig) { r.q.QNope = Tensor{} }, "q_nope: was not given, must be a bf16 tensor [tokens, heads 4, nope 128]"},
			{"q_rope: missing", func(r *productRig) { r.q.QRope = Tensor{} }, "q_rope: was not given, must be given where the result has rope parts"},
			{"out_latent: missing", func(r *productRig) { r.q.OutLatent = Tensor{} }, "out_latent: was not given, must be a bf16 tensor [tokens 300, heads 4, latent 512]"},
			{"q_rope: tokens", func(r *productRig) { r.q.QRope.Shape = []int64{299, 4, 64} }, "q_rope: shape was [299 4 64], must be [tokens 300, heads 4, rope 64]"},
			{"q_rope: stride", func(r *productRig) { r.q.QRope.Strides = []int64{260, 64, 1} }, "q_rope: tokens stride was 260 elements (520 bytes), must be a multiple of 16 bytes"},
			{"out_rope: stride", func(r *productRig) { r.q.OutRope.Strides = []int64{260, 64, 1} }, "out_rope: tokens stride was 260 elements (520 bytes), must be a multiple of 16 bytes"},
		},
	)), run)
	if err := newProductRig(t).query.Run(nil, AbsorbQueryArgs{}); err == nil || !strings.Contains(err.Error(), "absorbed query: stream: was nil, must be") {
		t.Error(err)
	}
}

func TestAbsorbOutputMisuse(t *testing.T) {
	latent := func(r *productRig) *Tensor { return &r.o.Latent }
	w := func(r *productRig) *Tensor { return &r.o.Weights }
	out := func(r *productRig) *Tensor { return &r.o.Out }
	checkMistakes(t, "absorbed output: ", concat(
		usual("latent", "[tokens, heads 4, latent 512]", latent), mapped("latent", "tokens", latent),
		usual("weights", "[heads 4, value 128, latent 512]", w), mapped("weights", "heads", w),
		usual("out", "[tokens 300, heads 4, value 128]", out), mapped("out", "tokens", out),
		[]mistake{
			overlap("out", out),
			{"latent: missing", func(r *productRig) { r.o.Latent = Tensor{} }, "latent: was not given, must be a bf16 tensor [tokens, heads 4, latent 512]"},
			{"weights: missing", func(r *productRig) { r.o.Weights = Tensor{} }, "weights: was not given, must be a bf16 tensor [heads 4, value 128, latent 512]"},
			{"out: missing", func(r *productRig) { r.o.Out = Tensor{} }, "out: was not given, must be a bf16 tensor [tokens 300, heads 4, value 128]"},
			{"out: tokens", func(r *productRig) { r.o.Out.Shape = []int64{299, 4, 128} }, "out: shape was [299 4 128], must be [tokens 300, heads 4, value 128]"},
			{"latent: too many", func(r *productRig) {
				r.driver.blocks = []Location{{Local: true, Base: 0, Size: math.MaxInt64}}
				r.o.Latent.Shape = []int64{math.MaxInt32, 4, 512}
			}, "latent: it had 2147483647 rows, must be at most 2147482623"},
		},
	), func(r *productRig) error { return r.output.Run(r.stream, r.o) })
	if err := newProductRig(t).output.Run(nil, AbsorbOutputArgs{}); err == nil || !strings.Contains(err.Error(), "absorbed output: stream: was nil, must be") {
		t.Error(err)
	}
}
