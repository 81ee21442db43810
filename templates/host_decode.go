package templates

import (
	"fmt"
	"math"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// decodeHost is how a decode step is launched. Launches depend on batch,
// splits and the tables' width alone, so that a captured graph serves other lengths.
func decodeHost(s Spec) hostRules {
	h := hostRules{
		operation: "decode",
		steps: []manifest.Step{
			{Kernel: "decode_schedule", Once: manifest.OncePerStep},
			{Kernel: "absorb_decode", Once: manifest.OncePerLayer},
			{Kernel: "decode_combine", Once: manifest.OncePerLayer},
		},
		constants: constants(map[string]int{
			"heads": s.Heads, "s_q": s.SQ, "latent": s.Latent, "rope": s.Rope, "width": s.Width(), "page": s.Page,
			"rows": s.Rows(), "row_blocks": s.RowBlocks(), "cluster": s.Cluster, "padded_rows": s.PaddedRows(),
			"units": s.mergeUnits(), "shared_units": s.mergeUnits() * s.partialElems() / 4, "partial_bytes": s.partialBytes(), "state_bytes": stateBytes,
		}),
		arguments: []manifest.Argument{
			integerArgument("batch", "0", "2147483647 / rows", "requests"),
			integerArgument("splits", "0", "if(batch, 2147483647 / max(rows, 16) / max(batch, 1), 2147483647)",
				"0 balances the work over the device; n cuts every request into up to n even pieces by its own length alone, so that its result does not depend on its batch mates by a bit"),
			rowsArgument("q_latent", s.DType, "the queries' latent parts: a view of the first columns where one tensor holds both parts",
				"batch batch", "token s_q", "head heads", "column latent"),
			rowsArgument("q_rope", s.DType, "the queries' rope parts", "batch batch", "token s_q", "head heads", "column rope"),
			rowsArgument("kv", s.DType, "the paged cache: latents and, behind them, rope keys", "page", "token page", "column width"),
			{Name: "block_table", Kind: manifest.TensorArgument, DType: "s32", Align: 4,
				Doc:   "each request's page ids; entries past its last page are never read",
				Shape: dimensions([]string{"batch batch", "page"})},
			integerArgument("new_tokens", "0", "2147483647",
				"n promises that the cache was complete before decode_schedule, but for at most so many newest tokens of whichever request reads them (s_q as a rule): the first of the pages without them may then be read before the kernel ahead has ended; 0 promises nothing"),
			denseArgument("kv_len", "s32", "tokens of each request in the cache, the new ones included", "batch batch"),
			bufferArgument("schedule", "the work, as decode_schedule deals it out; absorb_decode counts in it, so that two runs with one schedule must not overlap"),
			bufferArgument("workspace", "partial results of requests that are cut into pieces"),
			outputArgument(rowsArgument("out", s.DType, "attended latents; a row without a key is 0", "batch batch", "token s_q", "head heads", "column latent")),
			outputArgument(denseArgument("lse", "f32", "log-sum-exp of the scaled logits; −∞ for a row without a key", "batch batch", "token s_q", "head heads")),
			scaleArgument, lseFactorArgument,
		},
		quantities: []manifest.Quantity{
			{Name: "parts", Value: "max(1, sms / row_blocks)"},
			{Name: "pieces", Value: "batch * max(1, splits)"},
			// A balanced part has two pieces of requests that others share, at most.
			{Name: "slots", Value: "if(splits, pieces, 2 * parts)"},
			{Name: "merged", Value: "if(splits, batch, min(batch, parts))"},
			// The merge's blocks: see runtime's Decode.
			{Name: "pieces_each", Value: "if(splits, splits, parts / max(1, batch))"},
			{Name: "merge_work", Value: fmt.Sprintf("if(max(pieces_each, %d) - %[1]d, merged * shared_units, if(max(pieces_each, %d) - %[2]d, ceildiv(merged * units, 2), ceildiv(merged * units, %d)))", halfSlots, warpSlots, combineWarps)},
		},
		when: "batch",
		// Requests of one or two forced pieces need no merge but decode's own.
		only: map[string]string{"decode_combine": "if(batch, if(splits, max(splits, 2) - 2, 1), 0)"},
		grids: map[string][3]string{
			"decode_schedule": {"1", "1", "1"},
			"absorb_decode":   {"parts * row_blocks", "1", "1"},
			"decode_combine":  {s.mergeGrid(), "1", "1"},
		},
		fills: map[string]manifest.Fill{
			"block_table_stride": {Value: "block_table.stride.batch / 4"},
			"new_tokens":         {Value: "if(new_tokens, new_tokens, 2147483647)"},
			"part_first":         {Address: "schedule", Offset: "part_first_at"},
			"items":              {Address: "schedule", Offset: "items_at"},
			"merges":             {Address: "schedule", Offset: "merges_at"},
			"arrivals":           {Address: "schedule", Offset: "arrivals_at"},
			"partial_out":        {Address: "workspace", Offset: "partial_out_at"},
			"partial_state":      {Address: "workspace", Offset: "partial_state_at"},
			"scale_log2":         scaleFill,
			"lse_factor":         {Real: "lse_factor"},
		},
		sources: map[string][]manifest.Source{
			"kv": {{Address: "kv", Sizes: []string{"width", "page", "kv.size.page"}, Strides: []string{"kv.stride.token", "kv.stride.page"}}},
		},
	}
	addressFills(h.fills, "q_latent", "q_rope", "block_table", "kv_len", "out", "lse")
	valueFills(h.fills, "batch", "parts", "splits")
	for _, t := range []string{"q_latent", "q_rope", "out"} {
		strideFills(h.fills, t, "batch", "token", "head")
	}
	h.sections("schedule", [2]string{"part_first", "4 * (parts + 1)"}, [2]string{"items", "16 * (pieces + parts)"},
		[2]string{"merges", "16 * (1 + merged)"}, [2]string{"arrivals", "4 * slots * row_blocks"})
	h.sections("workspace", [2]string{"partial_out", "partial_bytes * slots * padded_rows * latent"}, [2]string{"partial_state", "state_bytes * slots * padded_rows"})
	return h
}

// mergeGrid returns how many blocks the merge has. Runtime's Decode says why.
func (s Spec) mergeGrid() string {
	most, seldom := "4 * sms", "2 * sms"
	switch {
	case s.BlockH <= narrowBlockH:
		most, seldom = "if(max(merge_work, 2 * sms) - 2 * sms, 2 * sms, sms)", "sms"
	case s.BlockH <= besideBlockH:
		most, seldom = "3 * sms", "sms"
	case s.RowBlocks() > s.Cluster:
		seldom = "if(max(batch * block_table.size.page, parts) - parts, 3 * sms, 2 * sms)"
	}
	return fmt.Sprintf("if(max(pieces_each, %d) - %[1]d, min(%s, max(merge_work, ceildiv(sms, 2))), %s)", pairPieces, most, seldom)
}

// What scores are multiplied by, and what the LSE is: both kernels work with
// powers of two.
var (
	scaleArgument     = realArgument("scale", "of the logits: 1/sqrt(width of a key) times what the model adds; finite and greater than 0")
	lseFactorArgument = realArgument("lse_factor", "ln 2, 0.6931471805599453, for an LSE to base e; 1 for base 2")
	scaleFill         = manifest.Fill{Real: "scale", Factor: math.Log2E}
)
