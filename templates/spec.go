// Package templates holds the Multi-head Latent Attention kernels, written in
// the language of package gen. A template reads as its algorithm; layouts,
// descriptors, phases and byte counts belong to gen.
package templates

import (
	"fmt"
	"slices"

	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/hopper"
)

// Spec says which kernel to generate. Zero fields take their defaults (see
// WithDefaults); what cannot be built is refused with a SpecError.
type Spec struct {
	Heads   int    `json:"heads,omitempty"`   // query heads per token
	SQ      int    `json:"s_q,omitempty"`     // decode: query tokens per request
	BlockH  int    `json:"block_h,omitempty"` // decode: packed query rows (token × head) per CTA: 8, 16, 24, 32, 40 or 64
	BlockM  int    `json:"block_m,omitempty"` // expand: query tokens, or rows of a product, per CTA
	BlockN  int    `json:"block_n,omitempty"` // KV tokens, or columns of a product, per tile; 64 for decode
	Latent  int    `json:"latent,omitempty"`  // width of the latent, which is also the value: 128, 256 or 512
	Rope    int    `json:"rope,omitempty"`    // width of the rope key: 64 or 128
	Nope    int    `json:"nope,omitempty"`    // expand: width of a head's key without the rope key
	Value   int    `json:"value,omitempty"`   // expand: width of a head's value
	Page    int    `json:"page,omitempty"`    // tokens per page of the cache: 64
	Stages  int    `json:"stages,omitempty"`  // tiles in flight: 2 or more, as shared memory allows
	Cluster int    `json:"cluster,omitempty"` // CTAs per cluster; decode: row blocks that begin together
	DType   string `json:"dtype"`             // "bf16" or "fp16"
	Partial string `json:"partial,omitempty"` // merging states: type of their outputs, "f32" or as dtype
	Rotate  string `json:"rotate,omitempty"`  // appending: the rope key is rotated on the way, "interleaved" or "half"

	// What tuning may change in decode; zero as a rule.
	Evict     string `json:"evict,omitempty"`      // pages that are attended to, in the L2: evicted first (""), or "normal"
	PieceCost int    `json:"piece_cost,omitempty"` // schedule: what a piece costs beside its tiles, in tiles; 0 = as estimated
	Teams     int    `json:"teams,omitempty"`      // decode, rows on wgmma's N: warpgroups that take a row block's tiles in turn, 1 or 2

	// LineInfo makes the PTX lead back to the template's lines (.loc).
	LineInfo bool `json:"-"`
}

// SpecError is a spec that cannot be built: which field, why, and the nearest
// value that can.
type SpecError struct {
	Field   string // as the command line names it: "block-h"
	Value   any
	Reason  string
	Nearest any
}

// Error implements error.
func (e *SpecError) Error() string {
	return fmt.Sprintf("%s %v cannot be built: %s; the nearest that can is %v", e.Field, e.Value, e.Reason, e.Nearest)
}

// Rows returns the packed query rows per request: one for each token and head.
func (s Spec) Rows() int { return s.Heads * s.SQ }

// RowBlocks returns the CTAs that share a request's rows.
func (s Spec) RowBlocks() int { return ceilQuotient(s.Rows(), s.BlockH) }

// PaddedRows returns the rows of all row blocks, the unused ones included: the
// height of a partial result.
func (s Spec) PaddedRows() int { return s.RowBlocks() * s.BlockH }

// Width returns the width of a query row and of a cache row: latent and rope.
func (s Spec) Width() int { return s.Latent + s.Rope }

// dtype returns the storage type of queries, cache and output.
func (s Spec) dtype() gen.DType {
	d, _ := gen.ParseDType(s.DType)
	return d
}

// options returns the generator's options for the spec.
func (s Spec) options() gen.Option { return gen.LineInfo(s.LineInfo) }

// WithDefaults fills the zero fields: DeepSeek's 512 + 64 split, 16 heads, one
// query token, pages and tiles of 64 tokens, bf16, the smallest row block that
// holds all rows where one of up to 40 does and 64 beyond, and two stages.
func (s Spec) WithDefaults() Spec {
	set := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	set(&s.Heads, 16)
	set(&s.SQ, 1)
	set(&s.Latent, 512)
	set(&s.Rope, 64)
	set(&s.Page, pageTokens)
	set(&s.BlockN, pageTokens)
	set(&s.Stages, 2)
	if s.DType == "" {
		s.DType = gen.BF16.Name
	}
	if s.BlockH == 0 && s.Heads > 0 && s.SQ > 0 {
		s.BlockH = s.balancedBlock()
	}
	set(&s.Cluster, s.sideBySide())
	if two := s.BlockH == swapBlockH && s.Latent >= teamsLatent; two && s.Teams == 0 {
		s.Teams = mostTeams // 4 to 9 % where a part has several tiles, and chosen only there
	} else if !two && s.Teams == 1 {
		s.Teams = 0 // what a spec says that says nothing
	}
	return s
}

// sideBySide returns the default cluster: two row blocks begin together and find each
// other's pages in the L2, which is worth 1 to 13 % with 16 rows and up to 3 % with
// 64; more than two need not fit the device evenly (golden/perf/decode.md).
func (s Spec) sideBySide() int {
	if s.BlockH > 0 && s.Heads > 0 && s.SQ > 0 && s.RowBlocks() == 2 {
		return 2
	}
	return 1
}

// The row blocks: up to 40 rows lie on wgmma's N, and one warpgroup has registers
// for their output, 512 × 40 f32, 160 in each thread. 64 rows lie on M, and two
// warpgroups share their output.
const (
	swapBlockH   = 40 // the most on wgmma's N
	seesawBlockH = 64 // on wgmma's M

	narrowBlockH = 16 // the most that count as few: pieces are short, and merging them is little
	besideBlockH = 32 // the most beside whose CTA one of the merge has room (beside 24 rows none has)
)

// balancedBlock returns the row block for the spec's rows: the smallest multiple
// of 8 that holds them where they can lie on wgmma's N, 64 beyond; where two tiles
// do not fit beside 64 rows, the smallest that holds them in as few blocks as can be.
func (s Spec) balancedBlock() int {
	s.BlockH = seesawBlockH
	known := slices.Contains(latentWidths, s.Latent) && slices.Contains(ropeWidths, s.Rope) && max(s.Heads, s.SQ) <= maxRows // others are refused
	if !known || s.Rows() > swapBlockH && s.maxStages() >= 2 {
		return seesawBlockH
	}
	blocks := ceilQuotient(s.Rows(), swapBlockH)
	return ceilQuotient(ceilQuotient(s.Rows(), blocks), 8) * 8
}

// rowsOnM reports whether the spec's rows lie on wgmma's M.
func (s Spec) rowsOnM() bool { return s.BlockH == seesawBlockH }

// latentBlocks returns the column blocks of a KV tile that are latent.
func (s Spec) latentBlocks() int { return s.Latent / s.kvTile().BlockCols() }

// warpgroups returns the warpgroups that multiply: each owns an equal run of the
// finished output's latent columns.
func (s Spec) warpgroups() int {
	if s.rowsOnM() {
		return 2
	}
	return s.teams()
}

// teams returns the groups of threads that have tiles to themselves: warpgroups,
// or of rows on wgmma's M all that multiply.
func (s Spec) teams() int {
	if s.rowsOnM() {
		return 1
	}
	return max(1, s.Teams)
}

// teamThreads returns the threads among which a row block's output is spread.
func (s Spec) teamThreads() int { return s.warpgroups() * gen.WarpgroupThreads }

// pageTokens is the page and tile size that the kernels are built for, pageShift its
// binary logarithm.
const (
	pageShift  = 6
	pageTokens = 1 << pageShift
)

// maxRows is the most query rows that a request may have.
const (
	maxRows = 1 << 14
	tooMany = "more than 2¹⁴ rows per request"
)

// Validate reports the first field that cannot be built.
func (s Spec) Validate() error {
	refuse := func(field string, value, nearest any, reason string, args ...any) error {
		return &SpecError{field, value, fmt.Sprintf(reason, args...), nearest}
	}
	switch {
	case s.Heads < 1:
		return refuse("heads", s.Heads, 1, "a query has at least one head")
	case s.SQ < 1:
		return refuse("sq", s.SQ, 1, "a request has at least one query token")
	case s.Heads > maxRows: // before the product, which might overflow
		return refuse("heads", s.Heads, maxRows/min(s.SQ, maxRows), tooMany)
	case s.SQ > maxRows:
		return refuse("sq", s.SQ, maxRows/s.Heads, tooMany)
	case s.Rows() > maxRows:
		return refuse("heads × sq", s.Rows(), maxRows, tooMany)
	case s.BlockH != seesawBlockH && (s.BlockH%8 != 0 || s.BlockH < 8 || s.BlockH > swapBlockH):
		near := nearest(s.BlockH, 8, 8, swapBlockH)
		if s.BlockH > (swapBlockH+seesawBlockH)/2 {
			near = seesawBlockH
		}
		return refuse("block-h", s.BlockH, near,
			"row blocks are multiples of 8 (wgmma's N) up to %d (the output must fit the registers), or %d (wgmma's M)", swapBlockH, seesawBlockH)
	case s.Page != pageTokens:
		return refuse("page", s.Page, pageTokens, "the cache has pages of 64 tokens")
	case s.BlockN != s.Page:
		return refuse("block-n", s.BlockN, pageTokens, "one warpgroup multiplies 64 tokens (wgmma's M), one page")
	case !slices.Contains(latentWidths, s.Latent):
		return refuse("latent", s.Latent, closest(s.Latent, latentWidths), "its halves are copied in boxes of 64 columns, and 128 threads share a row's 16-byte chunks evenly")
	case !slices.Contains(ropeWidths, s.Rope):
		return refuse("rope", s.Rope, closest(s.Rope, ropeWidths), "a row of 16-byte chunks must divide evenly among 128 threads")
	case s.Stages < 2:
		return refuse("stages", s.Stages, 2, "two tiles are in use at a time")
	case s.Evict != "" && s.Evict != evictNormal:
		return refuse("evict", s.Evict, evictNormal, "pages are evicted first, or as others are")
	case s.PieceCost < 0 || s.PieceCost > maxPieceCost:
		return refuse("piece-cost", s.PieceCost, min(max(s.PieceCost, 0), maxPieceCost), "the line of all requests must stay within 31 bits")
	case s.Cluster != 1 && s.Cluster != 2:
		return refuse("cluster", s.Cluster, 1, "row blocks run alone or in pairs")
	case s.RowBlocks()%s.Cluster != 0:
		return refuse("cluster", s.Cluster, 1, "%d row blocks are no whole pairs", s.RowBlocks())
	case s.Teams < 0 || s.Teams > mostTeams:
		return refuse("teams", s.Teams, min(max(s.Teams, 0), mostTeams), "one warpgroup takes a row block's tiles, or two take them in turn")
	case s.Teams == mostTeams && s.rowsOnM():
		return refuse("teams", s.Teams, 1, "the two warpgroups of a block of %d rows work on the same tiles", seesawBlockH)
	case s.Teams == mostTeams && s.Latent < teamsLatent:
		return refuse("teams", s.Teams, 1, "partial results have vectors of two accumulators, of which half of %d columns has one", s.Latent)
	}
	if _, err := gen.ParseDType(s.DType); err != nil {
		return refuse("dtype", s.DType, gen.BF16.Name, "kernels store bf16 or fp16")
	}
	most := s.maxStages()
	if most < 2 && s.BlockH == seesawBlockH {
		return refuse("block-h", s.BlockH, swapBlockH, "%d bytes of shared memory do not hold two tiles of %d bytes beside so many rows", hopper.SharedLimit, s.kvTile().Bytes())
	}
	if s.Stages > most {
		return refuse("stages", s.Stages, most, "%d bytes of shared memory hold at most %d tiles of %d bytes beside the queries",
			hopper.SharedLimit, most, s.kvTile().Bytes())
	}
	return nil
}

// mostTeams is the most that a Spec.Teams may be, teamsLatent the least width of
// the latent for it: vectors of partial results take two accumulators of each.
const (
	mostTeams   = 2
	teamsLatent = mostTeams * 2 * gen.AccumulatorRows
)

// evictNormal is a Spec.Evict.
const evictNormal = "normal"

// nearest returns the multiple of step in [low, high] that is closest to v.
func nearest(v, step, low, high int) int {
	return min(max((v+step/2)/step*step, low), high)
}

// widths of latent and rope: boxes of 64 columns that powers of two threads
// share; the latent has two halves of them.
var (
	latentWidths = []int{128, 256, 512}
	ropeWidths   = []int{64, 128}
)

// closest returns the choice that is nearest to v.
func closest(v int, choices []int) int {
	best := choices[0]
	for _, c := range choices {
		if max(c-v, v-c) < max(best-v, v-best) {
			best = c
		}
	}
	return best
}

// kvTile is one page of the cache in shared memory.
func (s Spec) kvTile() gen.Tile {
	return gen.Tile{DType: s.dtype(), Rows: s.BlockN, Cols: s.Width(), Swizzle: hopper.Swizzle128}
}

// queryTile is a row block of queries.
func (s Spec) queryTile() gen.Tile {
	return gen.Tile{DType: s.dtype(), Rows: s.BlockH, Cols: s.Width(), Swizzle: hopper.Swizzle128}
}

// weightTile holds the softmax weights Pᵀ of one KV tile, a row per query row.
// Weights that pass from registers to registers take as much memory on the way.
func (s Spec) weightTile() gen.Tile {
	return gen.Tile{DType: s.dtype(), Rows: s.BlockH, Cols: s.BlockN, Swizzle: hopper.Swizzle128}
}

// outputTile stages a row block of finished output.
func (s Spec) outputTile() gen.Tile {
	return gen.Tile{DType: s.dtype(), Rows: s.BlockH, Cols: s.Latent, Swizzle: hopper.Swizzle128}
}

// smallShared bounds what barriers and reductions need beside the tiles.
const smallShared = 2048

// ringBytes returns the shared memory that KV tiles can have.
func (s Spec) ringBytes() int {
	return hopper.SharedLimit - s.queryTile().Bytes() - s.teams()*s.weightTile().Bytes() - smallShared
}

func (s Spec) maxStages() int { return s.ringBytes() / s.kvTile().Bytes() }
