package templates

import (
	"fmt"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// extendHost is how new tokens on a cached prefix are attended, chunk by chunk:
// for chunk i up_project expands what extend_schedule listed, and extend_attend
// goes on where it stopped.
func extendHost(s Spec) hostRules {
	h := prefillHost(s)
	h.operation = "extend"
	h.steps = []manifest.Step{
		{Kernel: "extend_schedule", Once: manifest.OncePerStep}, {Kernel: "up_project", Once: manifest.OncePerChunk}, {Kernel: "extend_attend", Once: manifest.OncePerChunk},
	}
	h.constants = append(h.constants, manifest.Constant{Name: "block_n", Value: int64(s.BlockN)}, manifest.Constant{Name: "state_bytes_per_block",
		Value: int64(s.Heads * s.groups() * 128 * s.carriedVectors() * vectorWords * 4)})
	var arguments []manifest.Argument
	for _, a := range h.arguments {
		switch a.Name {
		case "cu_k":
			arguments = append(arguments, denseArgument("kv_len", "s32",
				"cached tokens of each sequence, the query tokens included; a negative one leaves the sequence out", "sequence sequences"))
			continue
		case "sequences":
			a.Max = fmt.Sprint(tableChunks * chunkSequences)
		case "key_tokens": // a chunk's
			a = integerArgument("chunk_tokens", "block_n", fmt.Sprint(maxProductRows), "tokens expanded at a time, a multiple of block_n")
			arguments = append(arguments, a,
				integerArgument("chunks", "1", "65536", "chunks of so many tokens; all sequences with a key, each filled up to whole tiles of block_n tokens, must fit them end to end"),
				integerArgument("chunk", "0", "chunks - 1", "which of them"),
				integerArgument("most_queries", "0", "query_tokens", "the most query tokens of a sequence"))
			continue
		case "kv_up", "k_rope":
			a.Doc += ", of this chunk"
			a.Shape = append([]manifest.Dimension{{Name: "token", Size: "chunk_tokens"}}, a.Shape[1:]...)
		case "schedule":
			a.Doc = "the work, as extend_schedule lists it. The ranges of chunk i for up_project lie at i * chunk_bytes: cu_seqlens at + cu_k_at, first_token at + first_token_at; " +
				"extend_attend counts in it, so that two runs with one schedule must not overlap"
		}
		arguments = append(arguments, a)
	}
	state := func(name, doc string) manifest.Argument {
		return manifest.Argument{Name: name, Kind: manifest.BufferArgument, Doc: doc, Align: rowAlign, Bytes: "state_bytes"}
	}
	h.arguments = append(arguments,
		state("state_from", "states that the chunk before left as state_to; with one chunk it is not read"),
		state("state_to", "states for the next chunk, in memory of its own; chunks take turns with two"))
	h.quantities = []manifest.Quantity{h.quantities[0], {Name: "most_states", Value: "ceildiv(most_queries, block_m)"},
		{Name: "state_bytes", Value: "if(chunks - 1, most_states * state_bytes_per_block, 0)"}}
	h.sections("chunk", [2]string{"work_head", "32"}, [2]string{"cu_k", "4 * (sequences + 1)"}, [2]string{"first_token", "4 * sequences"},
		[2]string{"work_before", "8 * (sequences + 2)"}, [2]string{"work_blocks", "32 * most_blocks"})
	h.quantities = append(h.quantities, manifest.Quantity{Name: "schedule_bytes", Value: "chunk_bytes * chunks"})
	h.grids = map[string][3]string{"extend_schedule": {"chunks", "1", "1"}, "extend_attend": h.grids["expand_prefill"]}
	for param, fill := range map[string]manifest.Fill{
		"chunks": {Address: "schedule"}, "cu_k": {Value: "cu_k_at"}, "first_token": {Value: "first_token_at"}, "work_before": {Value: "work_before_at"},
		"chunk": {Value: "chunk_tokens"}, "work_head": {Address: "schedule", Offset: "chunk * chunk_bytes"},
	} {
		h.fills[param] = fill
	}
	addressFills(h.fills, "kv_len", "state_from", "state_to")
	valueFills(h.fills, "chunk_bytes", "most_states")
	for name, sources := range h.sources {
		for i := range sources {
			for j, size := range sources[i].Sizes {
				if size == "key_tokens" {
					sources[i].Sizes[j] = "chunk_tokens"
				}
			}
		}
		h.sources[name] = sources[:1] // a chunk has rows
	}
	return h
}

func extendScheduleHost(s Spec) hostRules {
	h := extendHost(s)
	h.fills["work_blocks"] = manifest.Fill{Value: "work_blocks_at"}
	return h
}

func extendAttendHost(s Spec) hostRules {
	h := extendHost(s)
	h.fills["work_blocks"] = manifest.Fill{Address: "schedule", Offset: "chunk * chunk_bytes + work_blocks_at"}
	return h
}
