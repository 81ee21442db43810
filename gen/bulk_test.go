package gen_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/hopper"
)

// stored builds a kernel that writes pieces of 8 rows through so many places of
// a staged tile of 2 column blocks, waiting as it is told.
func stored(r *rig, pieces, places, pending int) *gen.Output {
	k := r.k
	to := k.Tensor("to", gen.BF16, []string{"column", "row", "page"}, []int{64, 8, 1}, hopper.Swizzle128, 0)
	tile := gen.Tile{DType: gen.BF16, Rows: 8 * places, Cols: 128, Swizzle: hopper.Swizzle128}
	stage := k.SharedTile("stage", tile)
	k.AlignmentCheck()
	for piece := range pieces {
		place := k.Int(piece % places * 8)
		k.OneLane(func() { k.WaitBulkRead(pending) })
		k.SyncWarp()
		k.For("chunk", k.Lane(), 8*16, 32, func(i gen.Value) {
			row, chunk := i.Shr(4), i.And(15)
			first := row.Mul(64).Add(chunk.Mul(4)).Add(piece<<16 + 1)
			stage.Chunk(place.Add(row), chunk).StoreVector(0, first, first.Add(1), first.Add(2), first.Add(3))
		})
		k.FenceAsync()
		k.SyncWarp()
		k.OneLane(func() {
			for block := range 2 {
				stage.BulkStore(block, place, to, k.Int(64*block), k.Int(8*(piece%2)), k.Int(piece/2))
			}
			k.CommitBulk()
		})
	}
	k.OneLane(func() { k.WaitBulk(0) })
	out := r.build()
	r.bind(out.Manifest.TensorMaps[0], make([]uint32, (pieces+1)/2*16*64), []uint64{128, 16, uint64(pieces+1) / 2}, []uint64{256, 16 * 256})
	return out
}

// TestBulkStore: the copy engine writes a staged piece's column blocks to where
// they belong, and a place is free again when its group has been read.
func TestBulkStore(t *testing.T) {
	const pieces = 5
	for places := 1; places <= 3; places++ {
		for seed := range uint64(4) {
			r := newRig(t, 32)
			r.machine.SetSeed(seed)
			out := stored(r, pieces, places, places-1)
			r.execute(out, 1)
			want := each(6*8*64, func(i int) uint32 {
				if piece := i / (8 * 64); piece < pieces {
					return uint32(piece<<16 + i%(8*64) + 1)
				}
				return 0 // a piece that was not stored
			})
			if diff := cmp.Diff(want, r.bound("to", len(want))); diff != "" {
				t.Errorf("%d places, seed %d (-want +got):\n%.2000s", places, seed, diff)
			}
		}
	}
}

// TestBulkStoreTooEarly: a place that is written while the copy engine may
// still read it is a hazard.
func TestBulkStoreTooEarly(t *testing.T) {
	found := 0
	for seed := range uint64(8) {
		r := newRig(t, 32)
		r.machine.SetSeed(seed)
		if _, hazards := r.observe(stored(r, 5, 2, 2), 1); len(hazards) > 0 {
			found++
		}
	}
	if found == 0 {
		t.Error("under no schedule")
	}
}
