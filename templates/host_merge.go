package templates

import (
	"github.com/mlagen/mlagen/ptx/manifest"
)

// mergeHost is how states are merged: up to maxStates in a launch, more by
// further launches that accumulate.
func mergeHost(s Spec) hostRules {
	// A row's lanes hold stateVectors × chunkElems columns each.
	rowsPerBlock := mergeThreads / (s.Value / (stateVectors * chunkElems))
	h := hostRules{
		operation: "merge",
		steps:     []manifest.Step{{Kernel: "merge_states", Once: manifest.OncePerLayer}},
		constants: constants(map[string]int{"width": s.Value, "rows_per_block": rowsPerBlock}),
		arguments: []manifest.Argument{
			integerArgument("heads", "1", "1073741824", "heads"),
			integerArgument("tokens", "0", "1073741824 / heads", "tokens"),
			integerArgument("accumulate", "0", "1", "1: out and lse hold a state already, which comes first"),
			tableArgument("states", maxStates, "the states, each an output of type "+s.Partial+" [tokens, heads, width] with columns side by side, and an LSE, f32 [tokens, heads]: addresses, and strides in bytes",
				"out", "out_token", "out_head", "lse", "lse_token", "lse_head"),
			outputArgument(rowsArgument("out", s.DType, "the merged output", "token tokens", "head heads", "column width")),
			outputArgument(stridedLSE("lse", "its log-sum-exp; −∞ for a row without a key in any state, whose output is 0")),
			realArgument("to_log2", "log2 e, 1.4426950408889634, where LSEs are to base e; 1 for base 2"),
			realArgument("from_log2", "ln 2, 0.6931471805599453, where LSEs are to base e; 1 for base 2"),
		},
		when:  "tokens * states.rows",
		grids: map[string][3]string{"merge_states": {"min(ceildiv(tokens * heads, rows_per_block), 8 * sms)", "1", "1"}},
		fills: map[string]manifest.Fill{
			"states": {Table: "states"}, "count": {Value: "states.rows"}, "rows": {Value: "tokens * heads"},
			"to_log2": {Real: "to_log2"}, "from_log2": {Real: "from_log2"},
		},
	}
	addressFills(h.fills, "out", "lse")
	valueFills(h.fills, "heads", "accumulate")
	strideFills(h.fills, "out", "token", "head")
	strideFills(h.fills, "lse", "token", "head")
	return h
}

// stridedLSE is an LSE whose elements may lie apart: its innermost dimension is
// of one element.
func stridedLSE(name, doc string) manifest.Argument {
	return manifest.Argument{Name: name, Kind: manifest.TensorArgument, Doc: doc, DType: "f32", Align: 4, Shape: dimensions([]string{"token tokens", "head heads", "one 1"})}
}

func tableArgument(name string, rows int, doc string, fields ...string) manifest.Argument {
	return manifest.Argument{Name: name, Kind: manifest.TableArgument, Doc: doc, Rows: rows, Fields: fields}
}
