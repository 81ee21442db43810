package templates

import (
	"github.com/mlagen/mlagen/ptx/manifest"
)

// layerHost is how the kernels are launched that bring a mixture of requests
// into the order in which others take them.
func layerHost(s Spec) hostRules {
	h := hostRules{
		operation: "layer",
		steps:     []manifest.Step{{Kernel: "layer_groups", Once: manifest.OncePerStep}, {Kernel: "layer_rows", Once: manifest.OncePerLayer}},
		constants: constants(map[string]int{"warps": layerWarps}),
		arguments: []manifest.Argument{
			tableArgument("runs", groupRuns, "runs of groups of query tokens, as package runtime's layer makes them: number of the first group, first request, groups of a request, "+
				"first query token, tokens to the next request's, tokens of a group, new tokens behind the first group, place of the first token, and whether tables are copied, and groups left out",
				groupFields...),
			integerArgument("first", "0", "2147483647", "number of the runs' first group"),
			integerArgument("end", "first", "2147483647", "number of the group after their last"),
			denseArgument("kv_len", "s32", "tokens of each request in the cache, the new ones included", "request"),
			{Name: "block_table", Kind: manifest.TensorArgument, DType: "s32", Align: 4, Doc: "each request's page ids", Shape: dimensions([]string{"request", "page"})},
			outputArgument(denseArgument("lengths", "s32", "tokens that each group sees", "group")),
			outputArgument(denseArgument("rows", "s32", "query tokens in the order of groups, as layer_groups lists them", "token")),
			outputArgument(denseArgument("tables", "s32", "page ids of groups whose tables are copied", "group", "page")),
			integerArgument("tokens", "0", "2147483647", "tokens whose rows are copied"),
			integerArgument("heads", "1", "2147483647 / max(tokens, 1)", "heads"),
			integerArgument("columns", "8", "65536", "16-bit elements of a row, a multiple of 8"),
			integerArgument("scatter", "0", "1", "0: rows lists where rows come from; 1: where they go"),
			rowsArgument("from", "bf16", "rows to copy, of any 16-bit type", "token", "head heads", "column columns"),
			outputArgument(rowsArgument("to", "bf16", "where they are copied", "token", "head heads", "column columns")),
		},
		grids: map[string][3]string{
			"layer_groups": {"min(ceildiv(end - first, warps), 4 * sms)", "1", "1"},
			"layer_rows":   {"min(ceildiv(tokens * heads, warps), 16 * sms)", "1", "1"},
		},
		only: map[string]string{"layer_groups": "end - first", "layer_rows": "tokens"},
		fills: map[string]manifest.Fill{
			"runs": {Table: "runs"}, "run_count": {Value: "runs.rows"}, "block_table_stride": {Value: "block_table.stride.request / 4"},
			"width": {Value: "tables.size.page"}, "vectors": {Value: "columns / 8"},
		},
	}
	addressFills(h.fills, "kv_len", "block_table", "lengths", "rows", "tables", "from", "to")
	valueFills(h.fills, "first", "end", "tokens", "heads", "scatter")
	strideFills(h.fills, "from", "token", "head")
	strideFills(h.fills, "to", "token", "head")
	return h
}
