package templates

import (
	"fmt"

	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/hopper"
)

// The kernels that multiply rows by the weights of heads: up-project, absorb-q
// and absorb-o. A spec's BlockM is the rows, that is tokens, of an output tile,
// BlockN its columns, of one head. With 128 rows and more, two warpgroups have
// the rows on wgmma's M and run through many tiles; with fewer, one warpgroup
// has them on wgmma's N and the weights on its M, one tile per CTA. Up-project's
// rows are the same for all heads: its warpgroups have a tile each.
var (
	upProjectFamily   = family{upProjectDefaults, validateUpProject}
	absorbQueryFamily = family{absorbQueryDefaults, validateAbsorbQuery}
	absorbOutFamily   = family{absorbOutDefaults, validateAbsorbOut}
)

// wideRows is the least BlockM of a wide product: 64 rows per warpgroup.
const wideRows = 128

// wide reports whether a product's rows lie on wgmma's M.
func (s Spec) wide() bool { return s.BlockM >= wideRows }

// depthBlock is the elements of the contraction that a slot of the ring holds:
// one column block of the operands whose rows are contiguous in it.
const depthBlock = 64

// productDefaults fills what the three have in common.
func productDefaults(s Spec) Spec {
	set := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	set(&s.Heads, 16)
	set(&s.Latent, 512)
	set(&s.Nope, 128)
	set(&s.Value, 128)
	if s.DType == "" {
		s.DType = gen.BF16.Name
	}
	return s
}

func upProjectDefaults(s Spec) Spec {
	s = productDefaults(s)
	if s.Rope == 0 {
		s.Rope = 64
	}
	if s.Page == 0 {
		s.Page = pageTokens
	}
	if s.BlockM == 0 {
		s.BlockM = wideRows
	}
	if s.BlockN == 0 {
		s.BlockN = s.sharedColumns(s.Nope + s.Value)
	}
	if s.Cluster == 0 {
		s.Cluster = sharedCluster
	}
	return s.withStages(s.upProjection())
}

// sharedColumns returns the widest tile of so many columns of a head that two
// warpgroups can take in turn.
func (s Spec) sharedColumns(columns int) int {
	n := maxSharedColumns
	for n > sharedColumnStep && columns%(wideTeam*n) != 0 {
		n -= sharedColumnStep
	}
	return n
}

// Tiles of a shared product: 64 rows and the most columns of an accumulator are
// 160 registers of a thread, and results leave in boxes of 32 columns or 64.
const (
	maxSharedColumns = 160
	sharedColumnStep = 32
	sharedCluster    = 2
)

func absorbQueryDefaults(s Spec) Spec {
	s = productDefaults(s)
	if s.Cluster == 0 {
		s.Cluster = 1
	}
	if s.Rope == 0 {
		s.Rope = 64
	}
	if s.BlockM == 0 {
		s.BlockM = wideRows
	}
	if s.BlockN == 0 {
		most := 256
		if !s.wide() {
			most = s.narrowColumns(s.queryAbsorption(), most)
		}
		s.BlockN = s.equalColumns(s.queryAbsorption(), most)
	}
	return s.withStages(s.queryAbsorption())
}

func absorbOutDefaults(s Spec) Spec {
	s = productDefaults(s)
	if s.Cluster == 0 {
		s.Cluster = 1
	}
	if s.BlockM == 0 {
		s.BlockM = 2 * wideRows
	}
	if s.BlockN == 0 {
		s.BlockN = depthBlock
		if s.wide() {
			s.BlockN = s.equalColumns(s.outputAbsorption(), s.Value)
		}
	}
	return s.withStages(s.outputAbsorption())
}

// narrowColumns returns the most columns, up to so many, of a narrow product's
// tile with which a launch still has three CTAs for every two SMs.
func (s Spec) narrowColumns(g geometry, most int) int {
	for most > depthBlock && 2*s.Heads*g.columns/most < 3*costSMs {
		most /= 2
	}
	return most
}

// equalColumns returns the widest tile, of most columns at most, that divides a
// head's columns and whose accumulators fit.
func (s Spec) equalColumns(g geometry, most int) int {
	n := min(most, g.columns)
	if over := n - maxTileColumns; over > 0 {
		n -= (over + depthBlock - 1) / depthBlock * depthBlock
	}
	for n > depthBlock && (g.columns%n != 0 || s.accumulators(n) > maxAccumulators) {
		n -= depthBlock
	}
	return n
}

// withStages fills in the slots of the ring. A wide product has three, which
// leaves room for a whole tile of output, a shared one five, which leave room
// for one piece of each warp's: weights that come early are worth more than a
// second piece. A narrow one has all of the contraction, as far as narrowCTAs
// fit on an SM.
func (s Spec) withStages(g geometry) Spec {
	switch {
	case s.Stages != 0:
		return s
	case s.BlockM < 8 || s.BlockM > 2*wideRows || s.BlockN < sharedColumnStep || s.BlockN > maxTileColumns || g.depth < depthBlock:
		s.Stages = 2 // it is refused for these
		return s
	}
	if g.shared {
		s.Stages = min(5, s.mostStages(g, hopper.SharedLimit))
	} else if s.wide() {
		s.Stages = min(3, s.mostStages(g, hopper.SharedLimit))
	} else {
		s.Stages = min(g.depth/depthBlock, s.mostStages(g, hopper.SharedSM/s.narrowCTAs(g)-hopper.SharedReserve))
	}
	s.Stages = max(2, s.Stages)
	return s
}

// narrowCTAs is how many CTAs of a narrow product are on an SM at a time: as
// many as hold a launch with one tile of rows, and at least two. More would be
// the next launch's, which then ask for their weights beside this one's last.
func (s Spec) narrowCTAs(g geometry) int {
	return max(leastNarrowCTAs, (s.Heads*g.columns/s.BlockN+costSMs-1)/costSMs)
}

const leastNarrowCTAs = 2

// geometry is the shape of a head's product.
type geometry struct {
	depth, columns int  // of the contraction, and of the output
	transposed     bool // the weights' rows are the contraction, not the output's columns
	shared         bool // all heads have the same rows
}

func (s Spec) upProjection() geometry {
	return geometry{depth: s.Latent, columns: s.Nope + s.Value, shared: true}
}
func (s Spec) queryAbsorption() geometry {
	return geometry{depth: s.Nope, columns: s.Latent, transposed: true}
}
func (s Spec) outputAbsorption() geometry { return geometry{depth: s.Latent, columns: s.Value} }

// maxTileColumns is the most columns of a tile: a latent's.
const maxTileColumns = 512

// rowTile is the rows' part of a slot, weightTile the weights'.
func (s Spec) rowsTile() gen.Tile {
	return gen.Tile{DType: s.dtype(), Rows: s.BlockM, Cols: depthBlock, Swizzle: hopper.Swizzle128}
}

func (s Spec) weightsTile(g geometry) gen.Tile {
	t := gen.Tile{DType: s.dtype(), Rows: s.BlockN, Cols: depthBlock, Swizzle: hopper.Swizzle128}
	if g.transposed {
		t.Rows, t.Cols = depthBlock, s.BlockN
	}
	return t
}

// stageTile stages so many columns of a tile's output.
func (s Spec) stageTile(columns int) gen.Tile {
	return gen.Tile{DType: s.dtype(), Rows: s.BlockM, Cols: columns, Swizzle: hopper.Swizzle128}
}

// wideTeam is the warpgroups of a wide product that multiply; one more loads.
const (
	wideTeam  = 2
	wideWarps = 4 * (wideTeam + 1)
)

// passColumns is how many columns of a wide product's tile are staged at once:
// all where they fit beside the ring, a half or a quarter of them otherwise.
func (s Spec) passColumns(g geometry) int {
	columns := s.BlockN
	for s.wide() && columns%(2*depthBlock) == 0 && s.ringAndStage(g, columns) > hopper.SharedLimit {
		columns /= 2
	}
	return columns
}

func (s Spec) ringAndStage(g geometry, columns int) int {
	if g.shared {
		return s.sharedBytes(g, 1)
	}
	slot := s.rowsTile().Bytes() + s.weightsTile(g).Bytes()
	if s.wide() {
		return s.Stages*slot + s.stageTile(columns).Bytes() + wideShared
	}
	return s.Stages*slot + s.stageTile(columns).Bytes() + narrowShared
}

// sharedBytes returns the shared memory of a shared product whose warps have so
// many places for their results.
func (s Spec) sharedBytes(g geometry, places int) int {
	return g.depth/depthBlock*s.rowsTile().Bytes() + s.Stages*s.weightsTile(g).Bytes() + s.resultTile(places).Bytes() + wideShared
}

// resultPlaces returns how many places each warp has.
func (s Spec) resultPlaces(g geometry) int {
	if s.sharedBytes(g, 2) <= hopper.SharedLimit {
		return 2
	}
	return 1
}

// resultTile stages a shared product's output: each warp's places, of 16 rows
// and one column block.
func (s Spec) resultTile(places int) gen.Tile {
	t := gen.Tile{DType: s.dtype(), Rows: places * 4 * wideTeam * sliceRows, Cols: depthBlock, Swizzle: hopper.Swizzle128}
	if s.BlockN%t.Cols != 0 {
		t.Cols, t.Swizzle = t.Cols/2, hopper.Swizzle64
	}
	return t
}

// These bound what barriers, notes, the table of sequences and alignment need.
const (
	wideShared   = 512 + 4*(tableChunks+1)
	narrowShared = 1024
)

// mostStages returns the most slots that fit into so many bytes.
func (s Spec) mostStages(g geometry, limit int) int {
	for s.Stages = 1; s.ringAndStage(g, s.passColumns(g)) <= limit; s.Stages++ {
	}
	return s.Stages - 1
}

func validateUpProject(s Spec) error {
	switch {
	case s.Page != pageTokens:
		return &SpecError{"page", s.Page, "the cache has pages of 64 tokens", pageTokens}
	case s.BlockM != wideRows:
		return &SpecError{"block-m", s.BlockM, "two warpgroups multiply 64 tokens (wgmma's M) each, two pages", wideRows}
	case s.Rope%8 != 0 || s.Rope < 8 || s.Rope > 256:
		return &SpecError{"rope", s.Rope, "rope keys are copied in chunks of 16 bytes", nearest(s.Rope, 8, 8, 256)}
	case s.Cluster != 1 && s.Cluster != 2 && s.Cluster != 4:
		return &SpecError{"cluster", s.Cluster, "1, 2 or 4 CTAs share weights", sharedCluster}
	}
	return validateProduct(s, s.upProjection())
}

func validateAbsorbQuery(s Spec) error {
	if s.Rope%8 != 0 || s.Rope < 8 || s.Rope > 256 {
		return &SpecError{"rope", s.Rope, "rope parts are copied in chunks of 16 bytes", nearest(s.Rope, 8, 8, 256)}
	}
	return validateProduct(s, s.queryAbsorption())
}

func validateAbsorbOut(s Spec) error { return validateProduct(s, s.outputAbsorption()) }

// Rows on wgmma's N: narrow products with so many rows are built.
const maxNarrowRows = 128

func validateProduct(s Spec, g geometry) error {
	refuse := func(field string, value, nearest any, reason string, args ...any) error {
		return &SpecError{field, value, fmt.Sprintf(reason, args...), nearest}
	}
	unit := func(field string, value, most int) error {
		if value%depthBlock != 0 || value < depthBlock || value > most {
			return refuse(field, value, nearest(value, depthBlock, depthBlock, most), "operands are copied in boxes of 64 columns")
		}
		return nil
	}
	if s.Heads < 1 || s.Heads > maxRows {
		return refuse("heads", s.Heads, nearest(s.Heads, 1, 1, maxRows), "weights have at least one head, and at most 2¹⁴")
	}
	for _, f := range []struct {
		name        string
		value, most int
	}{{"latent", s.Latent, maxTileColumns}, {"nope", s.Nope, 256}, {"value", s.Value, 256}} {
		if err := unit(f.name, f.value, f.most); err != nil {
			return err
		}
	}
	if s.BlockM%8 != 0 || s.BlockM < 8 || s.BlockM > 2*wideRows || s.wide() && s.BlockM%wideRows != 0 {
		near := nearest(s.BlockM, 8, 8, maxNarrowRows-8)
		if s.BlockM >= wideRows {
			near = nearest(s.BlockM, wideRows, wideRows, 2*wideRows)
		}
		return refuse("block-m", s.BlockM, near, "rows are a multiple of 8 below 128 (wgmma's N), or 128 or 256 (wgmma's M in two warpgroups)")
	}
	if columns := s.Nope + s.Value; g.shared && (s.BlockN%sharedColumnStep != 0 || s.BlockN < sharedColumnStep || s.BlockN > maxSharedColumns || columns%(wideTeam*s.BlockN) != 0) {
		return refuse("block-n", s.BlockN, s.sharedColumns(columns), "two warpgroups take turns with equal tiles of a head's %d columns, multiples of 32 up to %d", columns, maxSharedColumns)
	}
	if !g.shared && (s.BlockN%depthBlock != 0 || s.BlockN < depthBlock || g.columns%s.BlockN != 0) {
		near := g.columns
		for near > s.BlockN && near%(2*depthBlock) == 0 && g.columns%(near/2) == 0 {
			near /= 2
		}
		return refuse("block-n", s.BlockN, near, "tiles of a head's %d columns are equal and multiples of 64", g.columns)
	}
	// A thread's share of a 64-row accumulator is N/2 registers.
	if most := s.mostColumns(g); !g.shared && s.BlockN > most {
		return refuse("block-n", s.BlockN, most, "a tile of %d rows must fit the registers", s.BlockM)
	}
	if !g.shared && s.Cluster != 1 {
		return refuse("cluster", s.Cluster, 1, "products with rows for each head run without clusters")
	}
	if _, err := gen.ParseDType(s.DType); err != nil {
		return refuse("dtype", s.DType, gen.BF16.Name, "kernels store bf16 or fp16")
	}
	switch most := s.mostStages(g, hopper.SharedLimit); {
	case most < 2:
		return refuse("block-m", s.BlockM, s.BlockM/2/8*8, "%d bytes of shared memory do not hold two slots of the ring beside the output", hopper.SharedLimit)
	case s.Stages < 2:
		return refuse("stages", s.Stages, 2, "one slot is filled while another is multiplied")
	case s.Stages > most:
		return refuse("stages", s.Stages, most, "%d bytes of shared memory hold at most %d slots of the ring beside the output", hopper.SharedLimit, most)
	}
	return nil
}

// maxAccumulators is a thread's accumulator registers that leave enough for the
// rest.
const maxAccumulators = 128

// mostColumns returns the widest tile of a head's columns whose accumulators
// leave registers for the rest.
func (s Spec) mostColumns(g geometry) int {
	most := g.columns
	for most > depthBlock && (s.accumulators(most) > maxAccumulators || s.wide() && most > 256) {
		most -= depthBlock
		for g.columns%most != 0 {
			most -= depthBlock
		}
	}
	return most
}

// accumulators returns a thread's accumulator registers for tiles of so many
// columns.
func (s Spec) accumulators(columns int) int {
	if s.wide() {
		return s.BlockM / wideRows * columns / 2
	}
	return columns / gen.AccumulatorRows * s.BlockM / 2
}
