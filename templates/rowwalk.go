package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// rowWalk goes down the rows of a row block, so many at once, in a tile in shared
// memory and in a tensor whose rows are evenly apart. It adds where finding each
// row would multiply: a row's chunk costs a few instructions.
type rowWalk struct {
	k      *gen.Kernel
	tile   gen.Tile
	rows   int       // of the block
	atOnce int       // that the threads have side by side
	stride gen.Value // from row to row of the tensor, in bytes
}

// evenRows reports whether all rows of every row block exist and are evenly apart.
func (s Spec) evenRows() bool {
	return s.Rows()%s.BlockH == 0 && (s.SQ == 1 || s.Heads%s.BlockH == 0)
}

// each runs body for a thread's chunks, in the tensor and in the tile. The thread
// begins in row first; chunk gives its chunk in the tile so many rows further, of
// those within one turn of the swizzling; at is where the first is in the tensor.
func (w rowWalk) each(first gen.Value, chunk func(row int) gen.Region, at gen.Pointer, body func(at gen.Pointer, in gen.Region)) {
	k := w.k
	step := max(w.atOnce, gen.SwizzleRows) // rows of a turn
	var in []gen.Region
	var from []gen.Pointer
	for row := 0; row < step; row += w.atOnce {
		in = append(in, chunk(row))
		from = append(from, at)
		at = at.Bytes(w.stride.Mul(w.atOnce))
	}
	far, words := k.Var(k.Const(isa.S64, 0)), k.Var(k.Int(0))
	k.ForRolled("rows", 0, w.rows, step, func(row gen.Value) {
		turn := func() {
			for i := range in {
				body(from[i].Bytes(far.Value), in[i].At(words))
			}
		}
		if w.rows%step == 0 {
			turn()
		} else {
			k.If(first.Add(row).Lt(w.rows), turn)
		}
		far.Increase(w.stride.Mul(step))
		words.Increase(step * w.tile.RowWords())
	})
}
