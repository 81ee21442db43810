package templates

import (
	"github.com/mlagen/mlagen/gen"
)

// rowsOnN has a row block on wgmma's N and tokens or latent columns on its M
// ("swap-AB"), so that a few rows are no padding:
//
//	Sᵀ = K·Qᵀ          64 tokens × BlockH rows, over latent and rope
//	Oᵀ += Vᵀ·Pᵀ        64 latent columns × BlockH rows per accumulator, over 64 tokens
//
// Weights are an operand in shared memory, for wgmma takes its B from nowhere
// else. One warpgroup, the team, does it all.
type rowsOnN struct {
	k       *gen.Kernel
	scores  gen.Accumulator
	out     []gen.Accumulator // 64 latent columns each
	softmax *columnSoftmax
	rowsOnNShared
}

// rowsOnNShared is what lies in shared memory.
type rowsOnNShared struct {
	queries, weights gen.SharedTile
	scratch          gen.Region // the softmax's
}

func shareRowsOnN(k *gen.Kernel, s Spec) rowsOnNShared {
	return rowsOnNShared{
		queries: k.SharedTile("q", s.queryTile()),
		weights: k.SharedTile("p", s.weightTile()),
		scratch: columnScratch(k, s),
	}
}

func newRowsOnN(k *gen.Kernel, s Spec, scale gen.Scalar, team gen.NamedBarrier, sh rowsOnNShared) *rowsOnN {
	r := &rowsOnN{k: k, scores: k.Accumulator(s.BlockH), rowsOnNShared: sh}
	for range s.Latent / gen.AccumulatorRows {
		r.out = append(r.out, k.Accumulator(s.BlockH))
	}
	r.softmax = newColumnSoftmax(k, s, scale, team, sh.scratch)
	return r
}

// multiplyKeys issues the products that are the scores of a tile.
func (r *rowsOnN) multiplyKeys(tile gen.SharedTile) {
	r.k.Multiply(r.scores, tile.KMajor(), r.queries.KMajor(), 0, false)
}

// scored returns the finished scores in powers of two, −∞ where hidden.
func (r *rowsOnN) scored(mask visibility) []gen.Value {
	mask.hide(r.k, r.scores)
	return r.softmax.scaled(r.scores)
}

// multiplyValues issues what a run of the tile's latent columns adds to the
// output.
func (r *rowsOnN) multiplyValues(tile gen.SharedTile, run latentRun) {
	const width = gen.AccumulatorRows // latent columns of an accumulator, one box of the tile
	values := tile.Columns(width*run.first, width*(run.end-run.first))
	r.k.MultiplyRows(r.out[run.first:run.end], values.Transposed(), r.weights.KMajor())
}

func (r *rowsOnN) output() []gen.Accumulator { return r.out }

func (r *rowsOnN) layout() fragmentRows { return columnLayout(r.k, r.softmax.s) }

// quadsPerBlock returns the fours of elements of an accumulator.
func (r *rowsOnN) quadsPerBlock() int { return len(r.out[0].R) / 4 }

// batch is whole accumulators, since lanes exchange what lies across latent
// columns when it is stored, and as many as have quads in a vector of partial
// output.
func (r *rowsOnN) batch() int {
	s := r.softmax.s
	step := r.quadsPerBlock() * s.partialElems() / 4
	return step * max(1, s.quadsAtOnce()/step)
}

func (r *rowsOnN) stage(tile gen.SharedTile, packed []gen.Value, quad int) {
	per := r.quadsPerBlock()
	for i := 0; i < len(packed); i += 2 * per {
		tile.StoreTransposed(packed[i:i+2*per], (quad+i/2)/per*gen.AccumulatorRows)
	}
}
