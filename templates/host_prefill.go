package templates

import (
	"github.com/mlagen/mlagen/ptx/manifest"
)

// prefillHost is how prefill is launched. Launches depend on the number of
// sequences and on the rows of q and kv_up alone.
func prefillHost(s Spec) hostRules {
	rows := func(name, doc string, output bool, shape ...string) manifest.Argument {
		a := rowsArgument(name, s.DType, doc, shape...)
		a.Output = output
		return a
	}
	// q_nope in place of a tensor without rows: scores of such keys are masked,
	// but boxes of them are copied.
	empty := func(sizes, strides []string) manifest.Source {
		return manifest.Source{Address: "q_nope", Sizes: sizes, Strides: strides}
	}
	headRows := func(address, offset, width, tokens string) manifest.Source {
		return manifest.Source{Address: address, Offset: offset, Sizes: []string{width, "heads", tokens},
			Strides: []string{address + ".stride.head", address + ".stride.token"}}
	}
	noKeys := empty([]string{"rope", "heads", "query_tokens"}, []string{"q_nope.stride.head", "q_nope.stride.token"})
	h := hostRules{
		operation: "prefill",
		steps: []manifest.Step{
			{Kernel: "expand_schedule", Once: manifest.OncePerStep},
			{Kernel: "expand_prefill", Once: manifest.OncePerLayer},
		},
		constants: constants(map[string]int{
			"heads": s.Heads, "nope": s.Nope, "rope": s.Rope, "value": s.Value, "expanded": s.Nope + s.Value, "block_m": s.BlockM,
			"element_bytes": s.dtype().Bytes(),
		}),
		arguments: []manifest.Argument{
			integerArgument("sequences", "0", "1073741823", "sequences, which lie end to end"),
			// Blocks of query tokens with heads are numbered in 30 bits.
			integerArgument("query_tokens", "0", "min(1073741823, (1073741823 / heads - 1 - sequences) * block_m - 1)",
				"rows of q; those past the last sequence get out 0 and lse −∞"),
			integerArgument("key_tokens", "0", "1073741823", "rows of kv_up"),
			integerArgument("causal", "0", "1", "1: query j of n sees the first keys−n+1+j keys of its sequence; 0: all of them"),
			denseArgument("cu_q", "s32", "where each sequence's query tokens begin, from 0, and the end", "sequence sequences + 1"),
			denseArgument("cu_k", "s32", "where each sequence's key tokens begin, from 0, and the end", "sequence sequences + 1"),
			rows("q_nope", "the queries' parts without rope: a view of the first columns where one tensor holds both parts", false,
				"token query_tokens", "head heads", "column nope"),
			rows("q_rope", "the queries' rope parts", false, "token query_tokens", "head heads", "column rope"),
			rows("kv_up", "keys without rope and, behind them, values, as the up-projection writes them", false,
				"token key_tokens", "head heads", "column expanded"),
			rows("k_rope", "rope keys, which all heads share", false, "token key_tokens", "column rope"),
			bufferArgument("schedule", "the work, as expand_schedule lists it; expand_prefill counts in it, so that two runs with one schedule must not overlap"),
			rows("out", "attended values; a row without a key is 0", true, "token query_tokens", "head heads", "column value"),
			outputArgument(denseArgument("lse", "f32", "log-sum-exp of the scaled logits; −∞ for a row without a key", "token query_tokens", "head heads")),
			scaleArgument, lseFactorArgument,
		},
		// Every sequence may end in a block that is not full, and so may the tokens after the last.
		quantities: []manifest.Quantity{{Name: "most_blocks", Value: "query_tokens / block_m + sequences + 1"}},
		when:       "query_tokens",
		grids: map[string][3]string{
			"expand_schedule": {"1", "1", "1"},
			"expand_prefill":  {"min(sms, most_blocks * heads)", "1", "1"},
		},
		fills: map[string]manifest.Fill{
			"work_head":   {Address: "schedule", Offset: "work_head_at"},
			"work_blocks": {Address: "schedule", Offset: "work_blocks_at"},
			"work_before": {Address: "schedule", Offset: "work_before_at"},
			"scale_log2":  scaleFill,
			"lse_factor":  {Real: "lse_factor"},
		},
		sources: map[string][]manifest.Source{
			"q_nope": {headRows("q_nope", "", "nope", "query_tokens")},
			"q_rope": {headRows("q_rope", "", "rope", "query_tokens")},
			"k_nope": {headRows("kv_up", "", "nope", "key_tokens"), noKeys},
			"v":      {headRows("kv_up", "nope * element_bytes", "value", "key_tokens"), noKeys},
			"k_rope": {
				{Address: "k_rope", Sizes: []string{"rope", "key_tokens"}, Strides: []string{"k_rope.stride.token"}},
				empty([]string{"rope", "query_tokens"}, []string{"q_nope.stride.token"}),
			},
		},
	}
	addressFills(h.fills, "cu_q", "cu_k", "out", "lse")
	valueFills(h.fills, "sequences", "query_tokens", "key_tokens", "causal", "most_blocks")
	strideFills(h.fills, "out", "token", "head")
	h.sections("schedule", [2]string{"work_head", "32"}, [2]string{"work_blocks", "32 * most_blocks"}, [2]string{"work_before", "4 * (sequences + 2)"})
	return h
}
