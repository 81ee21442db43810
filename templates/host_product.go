package templates

import (
	"fmt"
	"math"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// maxProductRows is the most rows of a product: row numbers, and a tile past
// the last, fit 31 bits.
const maxProductRows = math.MaxInt32 - 1024

// productHost is what the products with weights have in common: rows [token,
// head, column] of rowsName by the tensor maps that read and write them.
func productHost(s Spec, kernel, operation string) hostRules {
	return hostRules{
		operation: operation,
		steps:     []manifest.Step{{Kernel: kernel, Once: manifest.OncePerLayer}},
		constants: constants(map[string]int{
			"heads": s.Heads, "latent_width": s.Latent, "rope_width": s.Rope, "nope": s.Nope, "value": s.Value, "expanded": s.Nope + s.Value, "page": s.Page,
			"cache_width": s.Latent + s.Rope, "block_m": s.BlockM, "block_n": s.BlockN, "cluster": s.Cluster, "element_bytes": s.dtype().Bytes(),
		}),
		fills: map[string]manifest.Fill{},
	}
}

// headRowsSource describes rows [row, head, column].
func headRowsSource(tensor, columns, rows string) manifest.Source {
	return manifest.Source{Address: tensor, Sizes: []string{columns, rows, "heads"}, Strides: []string{tensor + ".stride.token", tensor + ".stride.head"}}
}

// weightsSource describes weights [head, row, latent].
func weightsSource(rows string) manifest.Source {
	return manifest.Source{Address: "weights", Sizes: []string{"latent_width", rows, "heads"}, Strides: []string{"weights.stride.row", "weights.stride.head"}}
}

// absorbHost is what both absorbed products have in common: rows of one width
// become rows of another, of which a tile of one head is a unit of work.
func absorbHost(s Spec, kernel, operation, rows, rowsWidth, weightRows, out, outWidth string) hostRules {
	h := productHost(s, kernel, operation)
	h.arguments = []manifest.Argument{
		integerArgument("tokens", "0", fmt.Sprint(maxProductRows), "tokens"),
		rowsArgument(rows, s.DType, "what is multiplied", "token tokens", "head heads", "column "+rowsWidth),
		rowsArgument("weights", s.DType, fmt.Sprintf("the %s rows of W_kv_b; they are read before the kernel before this one has ended, if that lets its dependents start early", weightRows),
			"head heads", "row "+weightRows, "column latent_width"),
		outputArgument(rowsArgument(out, s.DType, "the product", "token tokens", "head heads", "column "+outWidth)),
	}
	tiles := fmt.Sprintf("ceildiv(tokens, block_m) * heads * (%s / block_n)", outWidth)
	if s.wide() {
		tiles = fmt.Sprintf("min(%s, sms)", tiles)
	}
	h.when = "tokens"
	h.grids = map[string][3]string{kernel: {tiles, "1", "1"}}
	valueFills(h.fills, "tokens")
	h.fills["out"] = manifest.Fill{Address: out}
	h.fills["out_token"], h.fills["out_head"] = manifest.Fill{Value: out + ".stride.token"}, manifest.Fill{Value: out + ".stride.head"}
	h.sources = map[string][]manifest.Source{
		"rows": {headRowsSource(rows, rowsWidth, "tokens")}, "weights": {weightsSource(weightRows)}, "results": {headRowsSource(out, outWidth, "tokens")},
	}
	return h
}

func absorbQueryHost(s Spec) hostRules {
	h := absorbHost(s, "absorb_q", "absorb_query", "q_nope", "nope", "nope", "out_latent", "latent_width")
	h.arguments = append(h.arguments,
		optionalArgument(rowsArgument("q_rope", s.DType, "the queries' rope parts, which are copied; left out with out_rope", "token tokens", "head heads", "column rope_width")),
		optionalArgument(outputArgument(rowsArgument("out_rope", s.DType, "where rope parts are copied", "token tokens", "head heads", "column rope_width"))))
	h.fills["copy_rope"] = manifest.Fill{Value: "min(q_rope.given, out_rope.given)"}
	for param, tensor := range map[string]string{"q_rope": "q_rope", "rope_out": "out_rope"} {
		h.fills[param] = manifest.Fill{Address: tensor}
		h.fills[param+"_token"], h.fills[param+"_head"] = manifest.Fill{Value: tensor + ".stride.token"}, manifest.Fill{Value: tensor + ".stride.head"}
	}
	return h
}

func absorbOutputHost(s Spec) hostRules {
	return absorbHost(s, "absorb_o", "absorb_output", "latent", "latent_width", "value", "out", "value")
}

// upProjectHost is how pages of a cache are expanded. (Package runtime can also
// let the kernel read dense rows.)
func upProjectHost(s Spec) hostRules {
	h := productHost(s, "up_project", "up_project")
	h.arguments = []manifest.Argument{
		integerArgument("rows", "0", fmt.Sprint(maxProductRows), "rows of kv_up"),
		integerArgument("sequences", "0", fmt.Sprint(tableChunks*chunkSequences), "ranges of tokens"),
		rowsArgument("kv", s.DType, "the paged cache: latents and, behind them, rope keys", "page", "token page", "column cache_width"),
		{Name: "block_table", Kind: manifest.TensorArgument, DType: "s32", Align: 4,
			Doc:   "each sequence's page ids; entries of pages without a token of the range are never read",
			Shape: dimensions([]string{"sequence sequences", "page"})},
		denseArgument("cu_seqlens", "s32", "where each range lies in kv_up, from 0, and the end", "sequence sequences + 1"),
		optionalArgument(denseArgument("first_token", "s32", "with which token of its sequence each range begins; left out, all begin with 0", "sequence sequences")),
		rowsArgument("weights", s.DType, "W_kv_b, the rows of keys first; read before the kernel before this one has ended, if that lets its dependents start early",
			"head heads", "row expanded", "column latent_width"),
		outputArgument(rowsArgument("kv_up", s.DType, "keys without rope and, behind them, values; written up to the end in cu_seqlens", "token rows", "head heads", "column expanded")),
		optionalArgument(outputArgument(rowsArgument("k_rope", s.DType, "where the tokens' rope keys are copied", "token rows", "column rope_width"))),
	}
	// No range has more tiles than its rows fill, and one more at either end. A
	// cluster takes as many tiles as it has CTAs, with one head or more.
	h.quantities = []manifest.Quantity{{Name: "groups", Value: "ceildiv(rows / block_m + 2 * sequences, cluster)"}}
	h.when = "min(rows, sequences)"
	h.grids = map[string][3]string{"up_project": {"cluster * min(max(1, sms / cluster), groups * heads)", "1", "1"}}
	addressFills(h.fills, "block_table", "cu_seqlens", "first_token", "k_rope")
	valueFills(h.fills, "rows", "sequences")
	for param, fill := range map[string]manifest.Fill{
		"paged": {Value: "1"}, "given": {Value: "1 + 2 * first_token.given"}, "copy_rope": {Value: "k_rope.given"},
		"block_table_stride": {Value: "block_table.stride.sequence / 4"}, "k_rope_row": {Value: "k_rope.stride.token"},
		"rope": {Address: "kv", Offset: "latent_width * element_bytes"}, "rope_page": {Value: "kv.stride.page"}, "rope_token": {Value: "kv.stride.token"},
		"out": {Address: "kv_up"}, "out_token": {Value: "kv_up.stride.token"}, "out_head": {Value: "kv_up.stride.head"},
	} {
		h.fills[param] = fill
	}
	h.sources = map[string][]manifest.Source{
		"latents": {{Address: "kv", Sizes: []string{"latent_width", "page", "kv.size.page"}, Strides: []string{"kv.stride.token", "kv.stride.page"}}},
		"weights": {weightsSource("expanded")}, "results": {headRowsSource("kv_up", "expanded", "rows")},
	}
	return h
}
