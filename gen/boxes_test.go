package gen_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/emu/num"
	"github.com/mlagen/mlagen/ptx/hopper"
	"github.com/mlagen/mlagen/ptx/isa"
)

// halves are words of two 16-bit elements, element i of a tensor being i + base.
func halves(elements int, base uint32) []uint32 {
	return each(elements/2, func(i int) uint32 { return base + uint32(2*i) | (base+uint32(2*i+1))<<16 })
}

// TestLoadBoxes: the columns of a tile come from two tensors of other ranks and
// strides, one of them from its middle on, for several rounds of the ring.
func TestLoadBoxes(t *testing.T) {
	const (
		rowsOfTile, heads, tokens = 16, 3, 40
		wide, narrow              = 256, 64 // columns of the tensors
		tiles                     = 5
		width                     = 192 // of the tile: 128 of the one, 64 of the other
	)
	for _, slots := range []int{1, 2} {
		for _, hint := range []bool{false, true} {
			for seed := range uint64(3) {
				t.Run(fmt.Sprintf("%d slots, hint %v, seed %d", slots, hint, seed), func(t *testing.T) {
					r := newRig(t, 0)
					r.machine.SetSeed(seed)
					k := r.k
					a := k.Tensor("a", gen.BF16, []string{"column", "head", "token"}, []int{64, 1, rowsOfTile}, hopper.Swizzle128, 128)
					b := k.Tensor("b", gen.BF16, []string{"column", "token"}, []int{64, rowsOfTile}, hopper.Swizzle128, 128)
					ring := k.Pipeline("ring", slots, gen.Tile{DType: gen.BF16, Rows: rowsOfTile, Cols: width, Swizzle: hopper.Swizzle128},
						gen.Part{Count: width / 64, Arrivals: 1})
					k.AlignmentCheck()
					k.InitBarriers()
					place := func(i gen.Value) (head, token gen.Value) { return i.Rem(heads), i.Mul(5) }
					k.Roles(
						gen.Role{Name: "read", Warps: 1, Body: func() {
							c := ring.Consumer()
							k.For("tile", 0, tiles, 1, func(i gen.Value) {
								tile := c.Next()
								tile.Await()
								k.For("chunk", k.Lane(), rowsOfTile*width/8, 32, func(at gen.Value) {
									words := tile.Chunk(at.Div(width/8), at.Rem(width/8)).LoadVector(0, 4)
									for j := range words {
										words[j] = words[j].As(isa.U32)
									}
									r.out.At(i.Mul(rowsOfTile*width/2).Add(at.Mul(4))).StoreVector(0, words...)
								})
								k.SyncWarp()
								tile.Release(k.Lane().Eq(0), 0)
							})
						}},
						gen.Role{Name: "load", Warps: 1, Body: func() {
							k.OneLane(func() {
								policy := gen.Value{}
								if hint {
									policy = k.EvictFirst()
								}
								p := ring.Producer()
								k.For("tile", 0, tiles, 1, func(i gen.Value) {
									head, token := place(i)
									p.LoadBoxes(policy,
										gen.Boxes{From: a, Count: 2, Column: 64, Coords: []gen.Value{head, token}},
										gen.Boxes{From: b, Count: 1, Coords: []gen.Value{token}})
								})
							})
						}},
					)
					out := r.build()
					r.bind(out.Manifest.TensorMaps[0], halves(tokens*heads*wide, 7), []uint64{wide, heads, tokens}, []uint64{2 * wide, 2 * wide * heads})
					r.bind(out.Manifest.TensorMaps[1], halves(tokens*narrow, 3), []uint64{narrow, tokens}, []uint64{2 * narrow})
					if hinted := count(out, "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"); hinted != map[bool]int{true: 2}[hint] {
						t.Errorf("%d copies have a cache hint", hinted)
					}
					element := func(tile, row, column int) uint32 {
						token := tile*5 + row
						if column < 128 {
							return uint32(7+(token*heads+tile%heads)*wide+64+column) & 0xffff
						}
						return uint32(3+token*narrow+column-128) & 0xffff
					}
					want := each(tiles*rowsOfTile*width/2, func(i int) uint32 {
						tile, row, column := i/(rowsOfTile*width/2), i/(width/2)%rowsOfTile, i%(width/2)*2
						return element(tile, row, column) | element(tile, row, column+1)<<16
					})
					if diff := cmp.Diff(want, r.execute(out, len(want))); diff != "" {
						t.Errorf("(-want +got):\n%.2000s", diff)
					}
				})
			}
		}
	}
}

// TestFromRow: a tile from a row on lies where the whole tile's rows do, in
// shared memory and in a ring's second slot, and is multiplied as such: each of
// two warpgroups multiplies 64 rows of its own.
func TestFromRow(t *testing.T) {
	shape := gen.Tile{DType: gen.BF16, Rows: 64, Cols: 128, Swizzle: hopper.Swizzle128}
	whole := chunkAddresses(t, func(k *gen.Kernel) gen.SharedTile { return k.SharedTile("t", shape) })
	for _, row := range []int{0, 8, 24} {
		from := chunkAddresses(t, func(k *gen.Kernel) gen.SharedTile {
			return k.SharedTile("t", shape).FromRow(k.Block().Add(row))
		})
		for i := range (64 - row) * 16 {
			if from[i] != whole[row*16+i] {
				t.Fatalf("from row %d on, chunk %d lies at %d, want %d", row, i, from[i], whole[row*16+i])
			}
		}
	}

	const n, depth = 16, 64
	r := newRig(t, 256)
	k := r.k
	floats := k.Pointer("floats", isa.F32)
	rnd := rand.New(rand.NewPCG(1, 1))
	values := func(count int) (x []float32, words []uint32) {
		for range count {
			x = append(x, float32(rnd.IntN(9)-4))
		}
		return x, each(count/2, func(i int) uint32 { return num.PackBF16(x[2*i+1], x[2*i]) })
	}
	a, aWords := values(128 * depth)
	b, bWords := values(n * depth)
	aIn, bIn := r.array("a", isa.B32, aWords...), r.array("b", isa.B32, bWords...)
	aTile := k.SharedTile("a", gen.Tile{DType: gen.BF16, Rows: 128, Cols: depth, Swizzle: hopper.Swizzle128})
	bTile := k.SharedTile("b", gen.Tile{DType: gen.BF16, Rows: n, Cols: depth, Swizzle: hopper.Swizzle128})
	fill := func(tile gen.SharedTile, from gen.Pointer) {
		k.For("chunk", k.Thread(), tile.Rows*depth/8, 256, func(i gen.Value) {
			tile.Chunk(i.Div(depth/8), i.Rem(depth/8)).StoreVector(0, from.At(i.Mul(4)).LoadVector(0, 4)...)
		})
	}
	fill(aTile, aIn)
	fill(bTile, bIn)
	k.FenceAsync()
	k.SyncCTA()
	first := k.Warp().Broadcast(0).Shr(2).Mul(64)
	acc := k.Accumulator(n)
	k.Multiply(acc, aTile.FromRow(first).KMajor(), bTile.KMajor(), 0, false)
	k.CommitMultiply()
	k.WaitMultiply(0)
	for e, v := range acc.R {
		row := first.Add(k.FragmentRow()).Add(acc.RowStep(e))
		floats.At(row.Mul(n).Add(k.FragmentColumn()).Add(acc.ColumnStep(e))).Store(0, v.Value)
	}
	want := each(128*n, func(i int) uint32 {
		sum := float32(0)
		for d := range depth {
			sum += a[i/n*depth+d] * b[i%n*depth+d]
		}
		return math.Float32bits(sum)
	})
	if diff := cmp.Diff(want, r.run(len(want))); diff != "" {
		t.Errorf("(-want +got):\n%.2000s", diff)
	}
}

// TestTileByIndex: readers that count tiles find each in its place, for several
// rounds of rings of any size; several readers may have tiles of their own.
func TestTileByIndex(t *testing.T) {
	const rowsOfTile, tiles = 8, 12
	for _, c := range []struct{ slots, readers int }{{1, 1}, {2, 1}, {3, 1}, {4, 1}, {2, 2}, {4, 2}, {3, 3}, {6, 3}} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%d slots, %d readers, seed %d", c.slots, c.readers, seed), func(t *testing.T) {
				r := newRig(t, 0)
				r.machine.SetSeed(seed)
				k := r.k
				a := k.Tensor("a", gen.BF16, []string{"column", "token"}, []int{64, rowsOfTile}, hopper.Swizzle128, 128)
				ring := k.Pipeline("ring", c.slots, gen.Tile{DType: gen.BF16, Rows: rowsOfTile, Cols: 64, Swizzle: hopper.Swizzle128}, gen.Part{Count: 1, Arrivals: 1})
				k.AlignmentCheck()
				k.InitBarriers()
				const words = rowsOfTile * 64 / 2
				k.Roles(
					gen.Role{Name: "read", Warps: c.readers, Body: func() {
						k.For("tile", k.Warp(), tiles, c.readers, func(i gen.Value) {
							tile := ring.Tile(i)
							tile.Await()
							k.For("chunk", k.Lane(), words/4, 32, func(at gen.Value) {
								v := tile.Chunk(at.Div(8), at.Rem(8)).LoadVector(0, 4)
								for j := range v {
									v[j] = v[j].As(isa.U32)
								}
								r.out.At(i.Mul(words).Add(at.Mul(4))).StoreVector(0, v...)
							})
							k.SyncWarp()
							tile.Release(k.Lane().Eq(0), 0)
						})
					}},
					gen.Role{Name: "load", Warps: 1, Body: func() {
						k.OneLane(func() {
							p := ring.Producer()
							k.For("tile", 0, tiles, 1, func(i gen.Value) {
								p.LoadBoxes(gen.Value{}, gen.Boxes{From: a, Count: 1, Coords: []gen.Value{i.Mul(rowsOfTile)}})
							})
						})
					}},
				)
				out := r.build()
				want := halves(tiles*rowsOfTile*64, 9)
				r.bind(out.Manifest.TensorMaps[0], want, []uint64{64, tiles * rowsOfTile}, []uint64{128})
				if diff := cmp.Diff(want, r.execute(out, len(want))); diff != "" {
					t.Errorf("(-want +got):\n%.2000s", diff)
				}
			})
		}
	}
}
