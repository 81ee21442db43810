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
// else. One warpgroup, a team, does it all for the tiles that it takes.
type rowsOnN struct {
	k       *gen.Kernel
	s       Spec
	side    gen.Value // of the teams
	team    gen.NamedBarrier
	scores  gen.Accumulator
	out     []gen.Accumulator // 64 latent columns each
	softmax *columnSoftmax
	rowsOnNShared
}

// rowsOnNShared is what lies in shared memory.
type rowsOnNShared struct {
	queries gen.SharedTile
	weights gen.SharedTile // of this team
	scratch gen.Region     // the softmaxes'
}

// shareRowsOnN reserves it, for the team of the thread's side.
func shareRowsOnN(k *gen.Kernel, s Spec, side gen.Value) rowsOnNShared {
	sh := rowsOnNShared{queries: k.SharedTile("q", s.queryTile())}
	if s.teams() == 1 {
		sh.weights = k.SharedTile("p", s.weightTile())
	} else {
		sh.weights = k.SharedTiles("p", s.teams(), s.weightTile(), side)
	}
	sh.scratch = columnScratch(k, s)
	return sh
}

func newRowsOnN(k *gen.Kernel, s Spec, scale gen.Scalar, side gen.Value, team gen.NamedBarrier, sh rowsOnNShared) *rowsOnN {
	r := &rowsOnN{k: k, s: s, side: side, team: team, scores: k.Accumulator(s.BlockH), rowsOnNShared: sh}
	for range s.Latent / gen.AccumulatorRows {
		r.out = append(r.out, k.Accumulator(s.BlockH))
	}
	r.softmax = newColumnSoftmax(k, s, scale, team, sh.scratch)
	return r
}

// begin makes the team ready for another item.
func (r *rowsOnN) begin() {
	r.softmax.reset()
	for _, o := range r.out {
		o.Zero()
	}
}

// attend adds an item's tile, whose index is t, to the output, and gives its parts
// back, by a warp's speaker, as they have been multiplied.
func (r *rowsOnN) attend(it item, tile gen.Slot, t, length, firstRow, speaker gen.Value) {
	k, s := r.k, r.s
	r.multiplyKeys(tile.SharedTile)
	k.CommitMultiply()
	k.WaitMultiply(0)
	mask := visibility{s: s, length: length, firstToken: t.Mul(s.BlockN), firstRow: firstRow}
	scores := r.scored(mask)
	if s.teams() > 1 {
		r.softmax.raise(scores, r.out)
	} else {
		r.softmax.lead(scores).where(t.Gt(it.begin)).apply(k, r.out)
	}
	p := r.softmax.weights(scores)
	mask.clearUnused(k, tile.Columns(0, s.Latent))
	r.weights.StoreTransposed(p, 0)
	k.FenceAsync()
	r.team.Sync()
	for _, run := range s.latentRuns() {
		if run.first < run.end {
			r.multiplyValues(tile.SharedTile, run)
		}
		k.CommitMultiply()
	}
	for i := range s.kvParts() {
		k.WaitMultiply(len(s.kvParts()) - 1 - i)
		tile.Release(speaker, i)
	}
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

// output returns the accumulators of the latent columns that the team has in the
// end: all, or of two teams one half each.
func (r *rowsOnN) output() []gen.Accumulator { return r.out[:len(r.out)/r.s.teams()] }

func (r *rowsOnN) layout() fragmentRows { return columnLayout(r.k, r.s) }

// quadsPerBlock returns the fours of elements of an accumulator.
func (r *rowsOnN) quadsPerBlock() int { return len(r.out[0].R) / 4 }

func (r *rowsOnN) wayTo(out rowPlace, it item, firstRow gen.Value, team mergeTeam) outputWay {
	return columnsWay{r, out, it, firstRow, team, r.queries.Reuse(r.s.outputTile())}
}

// columnsWay is the way of an output that lies transposed: by a tile in the queries'
// place, from which the team copies rows.
type columnsWay struct {
	r        *rowsOnN
	out      rowPlace
	it       item
	firstRow gen.Value
	team     mergeTeam
	tile     gen.SharedTile
}

// batch is whole accumulators, since lanes exchange what lies across latent
// columns when it is stored, and as many as have quads in a vector of partial
// output.
func (w columnsWay) batch() int {
	s := w.r.s
	step := w.r.quadsPerBlock() * s.partialElems() / 4
	return step * max(1, s.quadsAtOnce()/step)
}

func (w columnsWay) put(packed []gen.Value, quad int) {
	r, per := w.r, w.r.quadsPerBlock()
	first := r.side.Mul(len(r.output()) * gen.AccumulatorRows) // the team's columns
	for i := 0; i < len(packed); i += 2 * per {
		w.tile.StoreTransposed(packed[i:i+2*per], first.Add((quad+i/2)/per*gen.AccumulatorRows))
	}
}

// end copies the rows, once the team has staged them.
func (w columnsWay) end() {
	k, s := w.r.k, w.r.s
	w.team.barrier.Sync()
	chunks := s.Latent / chunkElems
	inRow, row := w.team.thread.Rem(chunks), w.team.thread.Div(chunks)
	rows := w.out.of(w.it.request)
	if s.evenRows() {
		walk := rowWalk{k, w.tile.Tile, s.BlockH, w.team.threads / chunks, rows.head}
		walk.each(row, func(further int) gen.Region { return w.tile.Chunk(row.Add(further), inRow) }, rows.row(w.firstRow.Add(row)).At(inRow.Mul(4)),
			func(at gen.Pointer, in gen.Region) { at.StoreVector(0, in.LoadVector(0, 4)...) })
		return
	}
	end := k.Int(s.Rows()).Sub(w.firstRow).Min(s.BlockH)
	k.For("row", row, end, w.team.threads/chunks, func(at gen.Value) {
		rows.row(w.firstRow.Add(at)).At(inRow.Mul(4)).StoreVector(0, w.tile.Chunk(at, inRow).LoadVector(0, 4)...)
	})
}
