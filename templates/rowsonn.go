package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// rowsOnN has a row block on wgmma's N and tokens or latent columns on its M
// ("swap-AB"), so that a few rows are no padding:
//
//	Sᵀ = K·Qᵀ          64 tokens × BlockH rows, over latent and rope
//	Oᵀ += Vᵀ·Pᵀ        64 latent columns × BlockH rows per accumulator, over 64 tokens
//
// Weights are an operand in shared memory, for wgmma takes its B from nowhere
// else.
type rowsOnN struct {
	k       *gen.Kernel
	s       Spec
	first   int // latent column of the output
	team    gen.NamedBarrier
	scores  gen.Accumulator
	out     []gen.Accumulator // 64 latent columns each
	softmax *columnSoftmax
	shared  rowsOnNShared
	others  gen.Waiter // for the other warpgroup's weights
	free    gen.Waiter // for the place of tile 0's weights
}

// rowsOnNShared is what the warpgroups of a row block have in common.
type rowsOnNShared struct {
	queries   gen.SharedTile
	weights   []gen.SharedTile // a tile per warpgroup
	reference []gen.Region
	scratch   gen.Region
	ready     [2]*gen.Barrier // weights and references of tile 0, 1 are there
	free      *gen.Barrier    // tile 0's weights have been multiplied by
}

func shareRowsOnN(k *gen.Kernel, s Spec) rowsOnNShared {
	sh := rowsOnNShared{queries: k.SharedTile("q", s.queryTile())}
	for range s.Warpgroups {
		sh.weights = append(sh.weights, k.SharedTile("p", s.weightTile()))
	}
	sh.scratch = columnScratch(k, s)
	if s.Warpgroups > 1 {
		for range s.Warpgroups {
			sh.reference = append(sh.reference, k.SharedArray("references", isa.F32, s.BlockH))
		}
		for i := range sh.ready {
			sh.ready[i] = k.Barrier("weights ready", 1, gen.Warpgroups(1))
		}
		sh.free = k.Barrier("weights free", 1, gen.Warpgroups(1))
	}
	return sh
}

// newRowsOnN is the share of warpgroup which of the row block's.
func newRowsOnN(k *gen.Kernel, s Spec, scale gen.Scalar, which int, team gen.NamedBarrier, sh rowsOnNShared) *rowsOnN {
	width := s.Latent / s.Warpgroups
	r := &rowsOnN{k: k, s: s, first: which * width, team: team, scores: k.Accumulator(s.BlockH), shared: sh}
	for range width / gen.AccumulatorRows {
		r.out = append(r.out, k.Accumulator(s.BlockH))
	}
	r.softmax = newColumnSoftmax(k, s, scale, team, sh.scratch)
	if s.Warpgroups > 1 {
		r.others = sh.ready[1-which].Waiter()
		r.free = sh.free.Filler()
	}
	return r
}

func (r *rowsOnN) reset() { r.softmax.reset() }

func (r *rowsOnN) multiplyKeys(tile gen.SharedTile) {
	r.k.Multiply(r.scores, tile.KMajor(), r.shared.queries.KMajor(), 0, false)
}

func (r *rowsOnN) scored(mask visibility) []gen.Value {
	mask.hide(r.k, r.scores)
	return r.softmax.scaled(r.scores)
}

func (r *rowsOnN) lead(i int, scores []gen.Value) (weights, rescale) {
	change := r.softmax.lead(scores)
	p := r.softmax.weights(scores)
	if i == 0 {
		r.free.Wait(r.k.Int(0))
	}
	w := weights{tile: r.shared.weights[i]}
	w.tile.StoreTransposed(p, 0)
	r.softmax.tell(r.shared.reference[i])
	r.k.FenceAsync()
	r.shared.ready[i].Arrive(r.k.Int(0))
	r.team.Sync()
	return w, change
}

func (r *rowsOnN) follow(i int) (weights, rescale) {
	r.others.Wait(r.k.Int(0))
	return weights{tile: r.shared.weights[i]}, r.softmax.follow(r.shared.reference[i])
}

// taken gives tile 0's weights back to the left warpgroup. Those of tile 1 need
// no word: the right one writes them anew only after the left one's next.
func (r *rowsOnN) taken(i int) {
	if i == 0 {
		r.shared.free.Arrive(r.k.Int(0))
	}
}

func (r *rowsOnN) multiplyValues(w weights, values gen.SharedTile) {
	r.k.MultiplyRows(r.out, values.Transposed(), w.tile.KMajor())
}

func (r *rowsOnN) output() []gen.Accumulator { return r.out }

func (r *rowsOnN) finish(all gen.NamedBarrier) softmaxState { return r.softmax.finish(all) }

func (r *rowsOnN) layout() fragmentRows { return columnLayout(r.k) }

// quadsPerBlock returns the fours of elements of an accumulator.
func (r *rowsOnN) quadsPerBlock() int { return len(r.out[0].R) / 4 }

// batch is whole accumulators, since lanes exchange what lies across latent
// columns when it is stored.
func (r *rowsOnN) batch() int { return r.quadsPerBlock() * max(1, quadsInFlight/r.quadsPerBlock()) }

func (r *rowsOnN) stage(tile gen.SharedTile, packed []gen.Value, quad int) {
	per := r.quadsPerBlock()
	for i := 0; i < len(packed); i += 2 * per {
		tile.StoreTransposed(packed[i:i+2*per], r.first+(quad+i/2)/per*gen.AccumulatorRows)
	}
}
