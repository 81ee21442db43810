package templates

import (
	"fmt"
	"slices"

	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/hopper"
)

var prefillFamily = family{Spec.withPrefillDefaults, Spec.validatePrefill}

// withPrefillDefaults fills the zero fields of expand-prefill's spec:
// DeepSeek's 128 + 64 keys and 128 values, 128 heads, bf16, tiles of 128 × 128,
// or of 96 tokens for three warpgroups, and two stages.
func (s Spec) withPrefillDefaults() Spec {
	set := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	set(&s.Heads, 128)
	set(&s.Nope, 128)
	set(&s.Rope, 64)
	set(&s.Value, 128)
	set(&s.BlockM, 128)
	set(&s.BlockN, slices.Max(s.prefillBlockN()))
	set(&s.Stages, 2)
	if s.DType == "" {
		s.DType = gen.BF16.Name
	}
	return s
}

var (
	prefillBlockM = []int{2 * gen.AccumulatorRows, 3 * gen.AccumulatorRows}
	prefillWidths = []int{64, 128}
)

// prefillBlockN are the key tokens that a tile may have: three warpgroups leave
// each fewer registers than two.
func (s Spec) prefillBlockN() []int {
	if s.groups() > 2 {
		return []int{64, 80, 96}
	}
	return []int{64, 80, 96, 112, 128}
}

// prefillRegisters are the registers of a thread that attends, and of one that
// loads.
func (s Spec) prefillRegisters() (attend, load int) {
	if s.groups() > 2 {
		return 160, 32
	}
	return 232, 40
}

// validatePrefill reports the first field that cannot be built.
func (s Spec) validatePrefill() error {
	refuse := func(field string, value, nearest any, reason string, args ...any) error {
		return &SpecError{field, value, fmt.Sprintf(reason, args...), nearest}
	}
	switch {
	case s.Heads < 1:
		return refuse("heads", s.Heads, 1, "a token has at least one head")
	case s.Heads > maxRows:
		return refuse("heads", s.Heads, maxRows, "more than 2¹⁴ heads per token")
	case !slices.Contains(prefillBlockM, s.BlockM):
		return refuse("block-m", s.BlockM, closest(s.BlockM, prefillBlockM), "two or three warpgroups attend 64 query tokens each")
	case !slices.Contains(s.prefillBlockN(), s.BlockN):
		return refuse("block-n", s.BlockN, closest(s.BlockN, s.prefillBlockN()), "a tile's scores and output must fit a warpgroup's registers, and its keys come in rows of 16")
	case !slices.Contains(prefillWidths, s.Nope):
		return refuse("nope", s.Nope, closest(s.Nope, prefillWidths), "keys are copied in boxes of 64 columns")
	case s.Rope != 64:
		return refuse("rope", s.Rope, 64, "keys are copied in boxes of 64 columns")
	case !slices.Contains(prefillWidths, s.Value):
		return refuse("value", s.Value, closest(s.Value, prefillWidths), "the output must fit a warpgroup's registers in blocks of 64 columns")
	case s.Stages < 2:
		return refuse("stages", s.Stages, 2, "two tiles are in use at a time")
	}
	if _, err := gen.ParseDType(s.DType); err != nil {
		return refuse("dtype", s.DType, gen.BF16.Name, "kernels store bf16 or fp16")
	}
	if most := s.prefillStages(); s.Stages > most {
		return refuse("stages", s.Stages, most, "%d bytes of shared memory hold at most %d tiles of %d bytes beside the queries",
			hopper.SharedLimit, most, s.keyTile().Bytes()+s.valueTile().Bytes())
	}
	return nil
}

// groups returns the warpgroups that attend.
func (s Spec) groups() int { return s.BlockM / gen.AccumulatorRows }

// roomForScores reports whether registers hold a tile's scores beside its
// weights and those of the tile before.
func (s Spec) roomForScores() bool { return s.groups() <= 2 }

// looksAhead reports whether registers hold a tile's scores beside the weights of
// the tile before, while both are in the tensor cores' hands.
func (s Spec) looksAhead() bool { return s.groups() <= 2 || s.BlockN <= 80 }

// tile is a tile of the spec's type, in the layout that wgmma reads.
func (s Spec) tile(rows, columns int) gen.Tile {
	return gen.Tile{DType: s.dtype(), Rows: rows, Cols: columns, Swizzle: hopper.Swizzle128}
}

// prefillQueryTile is a warpgroup's queries of one head.
func (s Spec) prefillQueryTile() gen.Tile { return s.tile(gen.AccumulatorRows, s.Nope+s.Rope) }

// keyTile is the keys of a tile, a head's own columns and then the rope key.
func (s Spec) keyTile() gen.Tile { return s.tile(s.BlockN, s.Nope+s.Rope) }

// valueTile is the values of a tile.
func (s Spec) valueTile() gen.Tile { return s.tile(s.BlockN, s.Value) }

// prefillStageTile is where a warpgroup's output is turned into whole rows.
func (s Spec) prefillStageTile() gen.Tile { return s.tile(gen.AccumulatorRows, prefillStageColumns) }

const prefillStageColumns = 64

func (s Spec) prefillStages() int {
	room := hopper.SharedLimit - s.groups()*(s.prefillQueryTile().Bytes()+s.prefillStageTile().Bytes()) - smallShared
	return room / (s.keyTile().Bytes() + s.valueTile().Bytes())
}
