package runtime

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// mistake is a change to a rig's arguments and what the error must say. What can be
// wrong with any argument is tried by golden.TestMisuse; these say it in words.
type mistake struct {
	name   string
	change func(*productRig)
	want   string
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

func TestUpProjectMisuse(t *testing.T) {
	huge := func(r *productRig) { r.driver.blocks = []Location{{Local: true, Base: 0, Size: math.MaxInt64}} }
	checkMistakes(t, "up-projection: ", []mistake{
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
	}, func(r *productRig) error { return r.up.Run(r.stream, r.paged) })

	checkMistakes(t, "up-projection: ", []mistake{
		{"latents: rope keys wanted", func(r *productRig) {
			r.dense.Latents.Shape, r.dense.Latents.Strides = []int64{300, 512}, []int64{576, 1}
		},
			"latents: shape was [300 512], must be [rows 300, latent+rope 576]"},
		{"latents: rows", func(r *productRig) { r.dense.Latents.Shape = []int64{299, 576} }, "latents: shape was [299 576], must be [rows 300, latent+rope 576]"},
		{"cu_seqlens: several sequences", func(r *productRig) { r.dense.CuSeqlens = r.paged.CuSeqlens }, "cu_seqlens: shape was [4], must be [batch+1 2]"},
		{"first_token: of dense rows", func(r *productRig) { r.dense.FirstToken = r.tensor("first", S32, 1) },
			"first_token: was given beside latents, must be of a cache: dense rows begin with the first"},
	}, func(r *productRig) error { return r.up.Run(r.stream, r.dense) })
	if err := newProductRig(t).up.Run(nil, UpProjectArgs{}); err == nil || !strings.Contains(err.Error(), "up-projection: stream: was nil, must be") {
		t.Error(err)
	}
}

func TestAbsorbQueryMisuse(t *testing.T) {
	run := func(r *productRig) error { return r.query.Run(r.stream, r.q) }
	checkMistakes(t, "absorbed query: ", []mistake{
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
	}, run)

	split := func(list []mistake) []mistake {
		for i := range list {
			change := list[i].change
			list[i].change = func(r *productRig) { r.splitQuery(); change(r) }
		}
		return list
	}
	checkMistakes(t, "absorbed query: ", split([]mistake{
		{"q_nope: missing", func(r *productRig) { r.q.QNope = Tensor{} }, "q_nope: was not given, must be a bf16 tensor [tokens, heads 4, nope 128]"},
		{"q_rope: missing", func(r *productRig) { r.q.QRope = Tensor{} }, "q_rope: was not given, must be given where the result has rope parts"},
		{"out_latent: missing", func(r *productRig) { r.q.OutLatent = Tensor{} }, "out_latent: was not given, must be a bf16 tensor [tokens 300, heads 4, latent 512]"},
		{"q_rope: tokens", func(r *productRig) { r.q.QRope.Shape = []int64{299, 4, 64} }, "q_rope: shape was [299 4 64], must be [tokens 300, heads 4, rope 64]"},
		{"q_rope: stride", func(r *productRig) { r.q.QRope.Strides = []int64{260, 64, 1} }, "q_rope: tokens stride was 260 elements (520 bytes), must be a multiple of 16 bytes"},
		{"out_rope: stride", func(r *productRig) { r.q.OutRope.Strides = []int64{260, 64, 1} }, "out_rope: tokens stride was 260 elements (520 bytes), must be a multiple of 16 bytes"},
	}), run)
	if err := newProductRig(t).query.Run(nil, AbsorbQueryArgs{}); err == nil || !strings.Contains(err.Error(), "absorbed query: stream: was nil, must be") {
		t.Error(err)
	}
}

func TestAbsorbOutputMisuse(t *testing.T) {
	checkMistakes(t, "absorbed output: ", []mistake{
		{"latent: missing", func(r *productRig) { r.o.Latent = Tensor{} }, "latent: was not given, must be a bf16 tensor [tokens, heads 4, latent 512]"},
		{"weights: missing", func(r *productRig) { r.o.Weights = Tensor{} }, "weights: was not given, must be a bf16 tensor [heads 4, value 128, latent 512]"},
		{"out: missing", func(r *productRig) { r.o.Out = Tensor{} }, "out: was not given, must be a bf16 tensor [tokens 300, heads 4, value 128]"},
		{"out: tokens", func(r *productRig) { r.o.Out.Shape = []int64{299, 4, 128} }, "out: shape was [299 4 128], must be [tokens 300, heads 4, value 128]"},
		{"latent: too many", func(r *productRig) {
			r.driver.blocks = []Location{{Local: true, Base: 0, Size: math.MaxInt64}}
			r.o.Latent.Shape = []int64{math.MaxInt32, 4, 512}
		}, "latent: it had 2147483647 rows, must be at most 2147482623"},
	}, func(r *productRig) error { return r.output.Run(r.stream, r.o) })
	if err := newProductRig(t).output.Run(nil, AbsorbOutputArgs{}); err == nil || !strings.Contains(err.Error(), "absorbed output: stream: was nil, must be") {
		t.Error(err)
	}
}
