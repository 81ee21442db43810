package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/hopper"
	"github.com/mlagen/mlagen/ptx/isa"
)

// rowsOnM has 64 query rows on wgmma's M: scores are Q·Kᵀ, the output P·V.
// Weights are operands in registers: a thread leaves its own in shared memory
// for the thread of the other warpgroup that needs the very same fragment, which
// is sooner there than a tile that the tensor cores could read, for that would
// have to pass a proxy fence.
type rowsOnM struct {
	k           *gen.Kernel
	side        gen.Value // 0 left, 1 right: the warpgroup, and the half of the output that it owns
	scores, out gen.Accumulator
	softmax     *rowSoftmax
	shared      rowsOnMShared
	ready       [2]gen.Waiter // for the weights of tile 0, 1 where the other warpgroup gives them
}

// rowsOnMShared is what the two warpgroups have in common.
type rowsOnMShared struct {
	queries   gen.SharedTile
	weights   exchange
	reference [2]gen.Region // of tile 0, 1
	sums      gen.Region
	ready     [2]*gen.Barrier // weights and references of tile 0, 1 are there, warp by warp
}

func shareRowsOnM(k *gen.Kernel, s Spec) rowsOnMShared {
	sh := rowsOnMShared{queries: k.SharedTile("q", s.queryTile()), weights: newExchange(k, s)}
	references := k.SharedArray("references", isa.F32, 2*referenceWords)
	sh.reference = [2]gen.Region{references, references.At(referenceWords)}
	sh.sums = k.SharedArray("sums", isa.F32, rowSumWords)
	for i := range sh.ready {
		sh.ready[i] = k.Barrier("weights ready", gen.Warpgroups(1), 1)
	}
	return sh
}

func newRowsOnM(k *gen.Kernel, s Spec, scale gen.Scalar, side gen.Value, sh rowsOnMShared) *rowsOnM {
	r := &rowsOnM{k: k, side: side, scores: k.Accumulator(s.BlockN), out: k.Accumulator(s.Latent / 2), shared: sh}
	r.softmax = newRowSoftmax(k, s, scale)
	for i, ready := range sh.ready {
		r.ready[i] = ready.Waiter()
	}
	return r
}

// multiplyKeys issues the products that are the scores of a tile.
func (r *rowsOnM) multiplyKeys(tile gen.SharedTile) {
	r.k.Multiply(r.scores, r.shared.queries.KMajor(), tile.KMajor(), 0, false)
}

// scored returns the finished scores in powers of two, −∞ where hidden.
func (r *rowsOnM) scored(mask visibility) []gen.Value {
	mask.hideColumns(r.k, r.scores)
	return r.softmax.scaled(r.scores)
}

// lead turns the scores of tile i of a pair into weights, which it also leaves
// for the other warpgroup with their references, and says what the output must
// be multiplied by before they are added to it.
func (r *rowsOnM) lead(i int, scores []gen.Value) (weights []gen.Value, change rescale) {
	change = r.softmax.lead(scores, r.shared.reference[i])
	weights = r.softmax.weights(scores)
	r.shared.weights.give(r.k, weights)
	r.shared.ready[i].Arrive(r.warp())
	return weights, change
}

// follow waits for the weights and references of tile i that the other
// warpgroup leaves, and takes them. A thread holds what it took in registers and
// gives in the same place only after that.
func (r *rowsOnM) follow(i int) (weights []gen.Value, change rescale) {
	r.ready[i].Wait(r.warp())
	weights = r.shared.weights.take(r.k)
	return weights, r.softmax.follow(r.shared.reference[i])
}

// warp is the warp's number in its warpgroup.
func (r *rowsOnM) warp() gen.Value { return r.k.Warp().And(gen.Warpgroups(1) - 1) }

// multiplyValues issues output += weights·values.
func (r *rowsOnM) multiplyValues(weights []gen.Value, values gen.SharedTile) {
	r.k.MultiplyFragment(r.out, weights, values.Transposed())
}

func (r *rowsOnM) output() []gen.Accumulator { return []gen.Accumulator{r.out} }

// finish puts both warpgroups' sums together; both meet in it.
func (r *rowsOnM) finish(both gen.NamedBarrier) softmaxState {
	return r.softmax.finish(r.shared.sums, r.side, both)
}

func (r *rowsOnM) layout() fragmentRows { return rowLayout(r.k) }

// wayTo implements outputRows. A lane takes chunks of rows that are as far apart as
// those of its fragments.
func (r *rowsOnM) wayTo(out rowPlace, it item, firstRow gen.Value, _ mergeTeam) outputWay {
	k, s := r.k, r.softmax.s
	w := slicesWay{rows: r, slice: r.shared.weights.slices, first: k.Warp().Mul(sliceRows)}
	in := w.first.Add(k.Lane().Shr(2))
	chunk := k.Lane().And(3)
	w.from[0] = w.slice.Chunk(in, chunk)
	w.from[1] = w.slice.Below(w.from[0], halfRows)
	rows := out.of(it.request)
	for i := range w.to {
		row := firstRow.Add(k.FragmentRow()).Add(halfRows * i)
		w.to[i] = rows.row(row).At(r.side.Mul(r.out.N / 2)).At(chunk.Mul(4))
		if s.Rows()%s.BlockH != 0 {
			w.there[i] = row.Lt(s.Rows())
		}
	}
	return w
}

// slicesWay is the way of an output whose rows lie in fragments: each warp turns its
// 16 rows round in a place of its own, some columns at a time, and waits for nobody.
type slicesWay struct {
	rows  *rowsOnM
	slice gen.SharedTile // the warp's 16 rows begin at first
	first gen.Value
	from  [2]gen.Region  // the lane's chunks there, halfRows apart
	to    [2]gen.Pointer // where the output has their rows, the warpgroup's columns
	there [2]gen.Value   // whether it has them; zero Value: it does
}

func (w slicesWay) batch() int { return w.rows.softmax.s.quadsAtOnce() }

func (w slicesWay) put(packed []gen.Value, quad int) {
	k := w.rows.k
	const quads = sliceCols / 8 // of a fragment, eight columns and so four words each
	for n := 0; n < len(packed); n += 2 * quads {
		if n > 0 { // or write has waited for all lanes
			k.SyncWarp() // all have read what was there before
		}
		w.slice.StoreSlice(packed[n:n+2*quads], w.first, 0)
		k.SyncWarp()
		for i, to := range w.to {
			chunk := w.from[i].LoadVector(0, 4)
			store := func() { to.StoreVector((quad+n/2)*4, chunk...) }
			if w.there[i].Type() == isa.Pred {
				k.If(w.there[i], store)
			} else {
				store()
			}
		}
	}
}

func (w slicesWay) end() {}

// sliceCols is how many columns of its rows a warp turns round at a time: what the
// weights' place has room for.
const sliceCols = 32

// exchange is where a thread of one warpgroup leaves the fragment of weights
// that its counterpart in the other needs: 16 bytes a thread, side by side,
// for each four registers. The two take turns in it, so one place serves both
// ways.
//
// At an item's end, when all weights have been taken, its bytes are slices.
type exchange struct {
	place     gen.Region
	registers int
	slices    gen.SharedTile // a slice of output for each warp
}

func newExchange(k *gen.Kernel, s Spec) exchange {
	slices := k.SharedTile("weights", gen.Tile{DType: s.dtype(), Rows: gen.Warpgroups(2) * sliceRows, Cols: sliceCols, Swizzle: hopper.Swizzle64})
	return exchange{slices.Array(isa.B32), s.BlockN / 4, slices}
}

// mine is the thread's place.
func (e exchange) mine(k *gen.Kernel) gen.Region {
	return e.place.At(k.Thread().And(gen.WarpgroupThreads - 1).Mul(4))
}

func (e exchange) give(k *gen.Kernel, weights []gen.Value) {
	at := e.mine(k)
	for i := 0; i < len(weights); i += 4 {
		at.StoreVector(i*gen.WarpgroupThreads, weights[i:i+4]...)
	}
}

func (e exchange) take(k *gen.Kernel) []gen.Value {
	at := e.mine(k)
	var weights []gen.Value
	for i := 0; i < e.registers; i += 4 {
		weights = append(weights, at.LoadVector(i*gen.WarpgroupThreads, 4)...)
	}
	return weights
}
