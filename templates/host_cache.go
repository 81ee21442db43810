package templates

import (
	"fmt"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// appendHost is how tokens are appended to the paged cache.
func appendHost(s Spec) hostRules {
	const (
		mostTokens     = 1 << 22 // chunks of records are counted in 31 bits
		bytesPerThread = 32
	)
	h := hostRules{
		operation: "append",
		steps:     []manifest.Step{{Kernel: "append_kv", Once: manifest.OncePerLayer}},
		constants: constants(map[string]int{
			"latent_width": s.Latent, "rope_width": s.Rope, "width": s.Width(), "page": s.Page,
			"record_bytes": s.Width() * s.dtype().Bytes(), "block_bytes": appendThreads * bytesPerThread,
		}),
		arguments: []manifest.Argument{
			integerArgument("tokens", "0", fmt.Sprint(mostTokens), "tokens to append"),
			rowsArgument("latent", s.DType, "the tokens' latents", "token tokens", "column latent_width"),
			rowsArgument("rope_key", s.DType, "the tokens' rope keys; it may be a view of the same tensor", "token tokens", "column rope_width"),
			outputArgument(rowsArgument("kv", s.DType, "the paged cache: latents and, behind them, rope keys", "page", "token page", "column width")),
			denseArgument("slots", "s64", "where each token goes: page id times page size, and the place in the page; a negative one is skipped, one past the cache stops the kernel",
				"token tokens"),
			denseArgument("positions", "s32", "each token's position, a row of the tables", "token tokens"),
			rowsArgument("cos", "f32", "column i of row p is the cosine of pair i's angle at position p", "position", "pair rope_width / 2"),
			rowsArgument("sin", "f32", "the sines likewise", "position", "pair rope_width / 2"),
		},
		when:  "tokens",
		grids: map[string][3]string{"append_kv": {"min(ceildiv(tokens * record_bytes, block_bytes), 16 * sms)", "1", "1"}},
		fills: map[string]manifest.Fill{
			"latent_row": {Value: "latent.stride.token"}, "rope": {Address: "rope_key"}, "rope_row": {Value: "rope_key.stride.token"},
			"kv_page": {Value: "kv.stride.page"}, "kv_row": {Value: "kv.stride.token"}, "slot_count": {Value: "kv.size.page * page"},
			"position_count": {Value: "cos.size.position"}, "cos_row": {Value: "cos.stride.position"}, "sin_row": {Value: "sin.stride.position"},
		},
	}
	addressFills(h.fills, "latent", "kv", "slots", "positions", "cos", "sin")
	valueFills(h.fills, "tokens")
	return h
}

// streamHost is how the stream of pages is measured.
func streamHost(s Spec) hostRules {
	h := hostRules{
		operation: "stream",
		steps:     []manifest.Step{{Kernel: "stream", Once: manifest.OncePerStep}},
		constants: constants(map[string]int{"width": s.Width(), "page": s.Page}),
		arguments: []manifest.Argument{
			integerArgument("count", "0", "2147483647", "pages to read"),
			rowsArgument("kv", s.DType, "the paged cache", "page", "token page", "column width"),
			denseArgument("pages", "s32", "page ids, in the order in which they are read", "page count"),
			outputArgument(denseArgument("sink", "s32", "a word of every CTA, which means nothing", "cta sms")),
		},
		when:  "count",
		grids: map[string][3]string{"stream": {"sms", "1", "1"}},
		fills: map[string]manifest.Fill{},
		sources: map[string][]manifest.Source{
			"kv": {{Address: "kv", Sizes: []string{"width", "page", "kv.size.page"}, Strides: []string{"kv.stride.token", "kv.stride.page"}}},
		},
	}
	addressFills(h.fills, "pages", "sink")
	valueFills(h.fills, "count")
	return h
}
