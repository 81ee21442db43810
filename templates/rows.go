package templates

import "github.com/mlagen/mlagen/gen"

// rowsOn is one warpgroup's arithmetic on a row block: what depends on whether
// the query rows lie on wgmma's M (rowsOnM) or on its N (rowsOnN). The
// warpgroup owns a run of the output's latent columns. Where two warpgroups
// take turns with the tiles, each has one of its own, and weights and
// references pass between them; i is then the tile's place in their pair.
type rowsOn interface {
	// reset begins a new request; the output is not touched.
	reset()
	// multiplyKeys issues the products that are the scores of a tile.
	multiplyKeys(tile gen.SharedTile)
	// scored returns the finished scores in powers of two, −∞ where hidden.
	scored(mask visibility) []gen.Value
	// lead turns the scores of tile i into weights, which it also leaves for the
	// other warpgroup with their references, and says what the output must be
	// multiplied by before they are added to it.
	lead(i int, scores []gen.Value) (weights, rescale)
	// follow waits for the weights and references of tile i that the other
	// warpgroup leaves, and takes them.
	follow(i int) (weights, rescale)
	// taken says that the warpgroup has multiplied by what follow(i) gave.
	taken(i int)
	// multiplyValues issues output += weights·values.
	multiplyValues(w weights, values gen.SharedTile)
	// output returns the accumulators of the warpgroup's latent columns.
	output() []gen.Accumulator
	// finish puts the softmax's result together with the others that share the
	// rows; they meet in it.
	finish(all gen.NamedBarrier) softmaxState
	// layout says how the rows lie in the output's accumulators.
	layout() fragmentRows
	// stage writes packed output, from its quad-th four elements on, to the tile
	// that is copied to the result; batch is how many fours it takes at a time.
	stage(tile gen.SharedTile, packed []gen.Value, quad int)
	batch() int
}

// weights are a tile's softmax weights as the multiplication by values takes
// them: a fragment in registers, or a tile in shared memory.
type weights struct {
	fragment []gen.Value
	tile     gen.SharedTile
}
