package templates

import "math"

// blockCost is what a CTA with a row block of so many rows takes, in
// microseconds: before its first tile and after its last, and for a tile that
// is there when it is wanted.
type blockCost struct {
	rows        int
	start, tile float64
	pair        float64 // a tile where two row blocks begin together
}

// The costs were fitted to decode steps of 158 shapes on two H200s (mlagen bench
// -variant all, 2026-11-30; golden/perf/decode.md). In those tables they tell the
// times to 4 % on average where a row block is not far from the best, and the row
// block they choose is 0.16 % slower than the best, 8 % at worst. Blocks of 40 rows
// have two teams.
var blockCosts = []blockCost{
	{8, 3.237, 0.916, 1.127}, {16, 3.587, 1.017, 1.007}, {24, 4.612, 1.188, 1.077},
	{32, 4.957, 1.312, 1.194}, {40, 7.256, 1.258, 1.197}, {64, 5.670, 1.507, 1.438},
}

const (
	// pageMicroseconds is how often a page of its own reaches each of costSMs
	// SMs that read side by side: the memory's pace.
	pageMicroseconds = 2.096
	costSMs          = 132

	pairTiles   = 2.175   // what merging a request of two pieces costs, in tiles
	itemTiles   = 2.586   // what a further request of the same CTA costs, in tiles
	mergeRate   = 2.737e6 // bytes of partial results that a microsecond merges
	mergeStart  = 0.026   // microseconds more, of any merge
	sharedMerge = 0.005   // and of one that is shared by warps
)

// ChooseBlockH returns the row block that attends so many packed rows fastest,
// for batch requests of so many tokens each on a device of so many SMs. Narrow
// blocks start and merge sooner, wide ones multiply more per tile they read.
func ChooseBlockH(rows, batch, tokens, sms int) int {
	best, least := seesawBlockH, math.Inf(1)
	for _, c := range blockCosts {
		if !c.suits(rows) {
			continue
		}
		if t := c.step(rows, batch, tokens, sms); t < least {
			best, least = c.rows, t
		}
	}
	return best
}

// BlockHs returns the row blocks among which ChooseBlockH chooses for so many
// packed rows: what an engine loads that will choose by load.
func BlockHs(rows int) (blocks []int) {
	for _, c := range blockCosts {
		if c.suits(rows) {
			blocks = append(blocks, c.rows)
		}
	}
	return blocks
}

// suits reports whether the block is not mostly padding.
func (c blockCost) suits(rows int) bool { return c.rows <= seesawBlockH/2 || rows > c.rows/2 }

// ChooseSplits returns into how many even pieces every request is cut best by
// blockH rows, where batch requests of so many tokens each are the most that
// will come: as many as fill the device once, one where the requests do.
func ChooseSplits(rows, blockH, batch, tokens, sms int) int {
	spec := Spec{BlockH: blockH}
	parts := max(1, sms/ceilQuotient(rows, blockH))
	pieces := parts / max(1, batch)
	return max(1, min(pieces, ceilQuotient(tokens, pageTokens)/spec.minAligned()))
}

// EstimateDecode returns about how many microseconds decode of batch requests of
// so many tokens takes with a row block, balanced or cut into so many forced
// pieces each. Between row blocks it interpolates nothing: one that was not fitted
// counts as the next wider.
func EstimateDecode(rows, blockH, batch, tokens, splits, sms int) float64 {
	c := blockCosts[len(blockCosts)-1]
	for _, known := range blockCosts {
		if known.rows >= blockH {
			c = known
			break
		}
	}
	c.rows = blockH
	if splits == 0 {
		return c.step(rows, batch, tokens, sms)
	}
	return c.forced(rows, batch, tokens, splits, sms)
}

// beside returns the block's costs among the row blocks of so many rows.
func (c blockCost) beside(rows int) blockCost {
	if (Spec{Heads: rows, SQ: 1, BlockH: c.rows}).sideBySide() > 1 {
		c.tile = c.pair
	}
	return c
}

// forced estimates a decode step of requests cut into so many even pieces.
func (c blockCost) forced(rows, batch, tokens, splits, sms int) float64 {
	c = c.beside(rows)
	blocks := ceilQuotient(rows, c.rows)
	parts := max(1, sms/blocks)
	tiles, requests := ceilQuotient(tokens, pageTokens), max(1, batch)
	pieces := max(1, min(splits, tiles))
	items := ceilQuotient(requests*pieces, parts)
	return c.time(float64(items)*float64(tiles)/float64(pieces), float64(items), min(parts, requests*pieces), c.merge(requests, pieces, blocks))
}

// merge estimates what merging requests of so many pieces each costs.
func (c blockCost) merge(requests, pieces, blocks int) (microseconds float64) {
	switch {
	case pieces == pairPieces:
		return pairTiles * c.tile
	case pieces > pairPieces:
		microseconds = mergeStart + float64(requests*pieces*blocks*c.rows*partialRow)/mergeRate
		if pieces > warpSlots {
			microseconds += sharedMerge
		}
	}
	return microseconds
}

// time puts a step together from a part's tiles and requests, the pieces that are
// read side by side and the merge.
func (c blockCost) time(length, items float64, reading int, merge float64) float64 {
	memory := pageMicroseconds * float64(reading) / costSMs
	tile := math.Pow(math.Pow(c.tile, 4)+math.Pow(memory, 4), 0.25) // a soft maximum
	return c.start + length*tile + (items-1)*itemTiles*c.tile + merge
}

// step estimates a decode step in microseconds, from the same piece lengths that
// the schedule would take for requests of one length.
func (c blockCost) step(rows, batch, tokens, sms int) float64 {
	c = c.beside(rows)
	blocks := ceilQuotient(rows, c.rows)
	parts := max(1, sms/blocks)
	tiles, requests := ceilQuotient(tokens, pageTokens), max(1, batch)
	spec := Spec{BlockH: c.rows}

	length, items, reading := 0.0, 1.0, parts // a part's tiles and requests; pieces that are read side by side
	merge := 0.0
	if requests <= parts {
		piece := max(spec.minAligned(), ceilQuotient(requests*tiles, parts))
		for requests*ceilQuotient(tiles, piece) > parts {
			piece++
		}
		pieces := ceilQuotient(tiles, piece)
		length, reading = float64(ceilQuotient(tiles, max(1, pieces))), requests*pieces
		merge = c.merge(requests, pieces, blocks)
	} else {
		whole := ceilQuotient(requests, parts)
		even := float64(requests*tiles) / float64(parts)
		extra := float64(spec.pieceCost())
		if float64(whole)*(float64(tiles)+extra) <= even+extra*float64(requests)/float64(parts)+2*extra {
			length, items = float64(whole*tiles), float64(whole)
		} else {
			length, items = even, float64(requests)/float64(parts)+1
			merge = pairTiles * c.tile
		}
	}
	return c.time(length, items, min(reading, parts), merge)
}

// partialRow is the size of a row of a partial result in bytes.
const partialRow = 512 * 2

// ceilQuotient returns ⌈a/b⌉.
func ceilQuotient(a, b int) int { return (a + b - 1) / b }
