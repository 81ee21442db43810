package gen_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/hopper"
	"github.com/mlagen/mlagen/ptx/isa"
)

// chunkAddresses returns, for every 16-byte chunk of the tile row by row, its
// distance from the start of shared memory, as the kernel computes it.
func chunkAddresses(t *testing.T, declare func(k *gen.Kernel) gen.SharedTile) []uint32 {
	t.Helper()
	r := newRig(t, 64)
	k := r.k
	tile := declare(k)
	perRow := tile.Cols / 8
	k.For("chunk", k.Thread(), tile.Rows*perRow, 64, func(i gen.Value) {
		r.out.At(i).Store(0, tile.Chunk(i.Div(perRow), i.Rem(perRow)).Address().As(isa.U32))
	})
	return r.run(tile.Rows * perRow)
}

// relative makes addresses relative to the first.
func relative(list []uint32) []int {
	out := make([]int, len(list))
	for i, a := range list {
		out[i] = int(a - list[0])
	}
	return out
}

// TestTileOffsets: the chunk of an element lies where the copy engine puts it
// (hopper.Tile.Offset), for every swizzle.
func TestTileOffsets(t *testing.T) {
	for _, swizzle := range []hopper.Swizzle{hopper.Swizzle32, hopper.Swizzle64, hopper.Swizzle128} {
		for _, shape := range [][2]int{{8, 64}, {64, 192}, {24, 576}} {
			t.Run(fmt.Sprintf("%s %dx%d", swizzle, shape[0], shape[1]), func(t *testing.T) {
				shape := gen.Tile{DType: gen.BF16, Rows: shape[0], Cols: shape[1], Swizzle: swizzle}
				got := relative(chunkAddresses(t, func(k *gen.Kernel) gen.SharedTile { return k.SharedTile("t", shape) }))
				layout := hopper.Tile{Rows: shape.Rows, Columns: shape.Cols, ElemBytes: 2, Swizzle: swizzle}
				var want []int
				for row := range shape.Rows {
					for chunk := range shape.Cols / 8 {
						want = append(want, layout.Offset(row, 8*chunk))
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got):\n%.2000s", diff)
				}
				if shape.Bytes() != layout.Bytes() || shape.Blocks()*shape.BlockBytes() != shape.Bytes() || shape.Blocks()*shape.BlockCols() != shape.Cols {
					t.Errorf("%d bytes in %d blocks of %d, %d columns each", shape.Bytes(), shape.Blocks(), shape.BlockBytes(), shape.BlockCols())
				}
			})
		}
	}
}

// TestTileOffsetsInNumbers pins a 64×576 tile of DeepSeek's cache: nine blocks
// of 64 columns and 8 KB, chunks of a row xored with its last three bits.
func TestTileOffsetsInNumbers(t *testing.T) {
	kv := gen.Tile{DType: gen.BF16, Rows: 64, Cols: 576, Swizzle: hopper.Swizzle128}
	all := relative(chunkAddresses(t, func(k *gen.Kernel) gen.SharedTile { return k.SharedTile("kv", kv) }))
	for _, c := range []struct{ row, column, want int }{
		{0, 0, 0}, {0, 8, 16}, {0, 64, 8192}, {1, 0, 128 + 16}, {1, 8, 128}, {7, 0, 7*128 + 7*16}, {8, 0, 1024},
		{63, 512, 8*8192 + 63*128 + 7*16}, {63, 568, 8*8192 + 63*128},
	} {
		if got := all[c.row*72+c.column/8]; got != c.want {
			t.Errorf("(%d, %d) at %d, want %d", c.row, c.column, got, c.want)
		}
	}
	if kv.Bytes() != 73728 {
		t.Errorf("%d bytes", kv.Bytes())
	}
}

// TestTileParts: a run of columns lies in its tile, a tile reused begins where
// the other did, and tiles begin on a swizzle pattern.
func TestTileParts(t *testing.T) {
	shape := gen.Tile{DType: gen.FP16, Rows: 16, Cols: 256, Swizzle: hopper.Swizzle128}
	var whole, part, reused []uint32
	whole = chunkAddresses(t, func(k *gen.Kernel) gen.SharedTile { return k.SharedTile("t", shape) })
	part = chunkAddresses(t, func(k *gen.Kernel) gen.SharedTile { return k.SharedTile("t", shape).Columns(128, 64) })
	reused = chunkAddresses(t, func(k *gen.Kernel) gen.SharedTile {
		return k.SharedTile("t", shape).Reuse(gen.Tile{DType: gen.BF16, Rows: 32, Cols: 64, Swizzle: hopper.Swizzle128})
	})
	for row := range 16 {
		for chunk := range 8 {
			if got, want := part[row*8+chunk], whole[row*32+16+chunk]; got != want {
				t.Errorf("row %d, chunk %d of columns 128…191 at %d, want %d", row, chunk, got, want)
			}
		}
	}
	if reused[0] != whole[0] || len(reused) != 32*8 {
		t.Errorf("reused at %d, %d chunks", reused[0], len(reused))
	}
	after := chunkAddresses(t, func(k *gen.Kernel) gen.SharedTile {
		k.SharedArray("odd", isa.B32, 3)
		return k.SharedTile("t", shape)
	})
	if d := after[0] - whole[0]; d != 1024 {
		t.Errorf("a tile after 12 bytes begins at %d, want 1024", d)
	}
}

// TestStores: fragments land in a tile transposed and as they are.
func TestStores(t *testing.T) {
	const n = 16 // columns of the fragment
	// A thread's pair of elements (e, e+1) is packed as row·256 + column in
	// either half.
	fragment := func(k *gen.Kernel, acc gen.Accumulator) []gen.Value {
		var packed []gen.Value
		for e := 0; e < n/2; e += 2 {
			at := func(e int) gen.Value {
				row := k.FragmentRow().Add(acc.RowStep(e))
				return row.Mul(256).Add(k.FragmentColumn()).Add(acc.ColumnStep(e))
			}
			packed = append(packed, at(e).Or(at(e+1).Shl(16)).As(isa.B32))
		}
		return packed
	}
	for _, c := range []struct {
		name    string
		shape   gen.Tile
		store   func(t gen.SharedTile, packed []gen.Value)
		element func(row, column int) uint32
	}{
		{"transposed", gen.Tile{DType: gen.BF16, Rows: n, Cols: 128, Swizzle: hopper.Swizzle128},
			func(t gen.SharedTile, p []gen.Value) { t.StoreTransposed(p, 64) },
			func(row, column int) uint32 { return uint32((column-64)*256 + row) }},
		{"rows", gen.Tile{DType: gen.BF16, Rows: 64, Cols: 128, Swizzle: hopper.Swizzle128},
			func(t gen.SharedTile, p []gen.Value) { t.StoreRows(p, 64) },
			func(row, column int) uint32 { return uint32(row*256 + column - 64) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 128)
			k := r.k
			tile := k.SharedTile("t", c.shape)
			c.store(tile, fragment(k, k.Accumulator(n)))
			k.SyncCTA()
			columns := 64 // from column 64 on; c.shape.Rows rows
			if c.name == "rows" {
				columns = n
			}
			perRow := columns / 8
			k.For("chunk", k.Thread(), c.shape.Rows*perRow, 128, func(i gen.Value) {
				v := tile.Chunk(i.Div(perRow), i.Rem(perRow).Add(8)).LoadVector(0, 4)
				for j := range v {
					v[j] = v[j].As(isa.U32)
				}
				r.out.At(i.Mul(4)).StoreVector(0, v...)
			})
			want := each(c.shape.Rows*columns/2, func(i int) uint32 {
				row, column := i/(columns/2), 64+i%(columns/2)*2
				return c.element(row, column)&0xffff | c.element(row, column+1)<<16
			})
			if diff := cmp.Diff(want, r.run(len(want))); diff != "" {
				t.Errorf("(-want +got):\n%.3000s", diff)
			}
		})
	}
}
