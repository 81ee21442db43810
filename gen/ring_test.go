package gen_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/hopper"
	"github.com/mlagen/mlagen/ptx/isa"
)

// The rings of these tests hand on pages of 8 rows by 64 columns, 256 words.
const (
	pageWords = 8 * 64 / 2
	ringPool  = 5 // pages
)

// pageTile is a tile of so many pages, one below the other.
func pageTile(pages int) gen.Tile {
	return gen.Tile{DType: gen.BF16, Rows: 8 * pages, Cols: 64, Swizzle: hopper.Swizzle128}
}

// wordOf is word i of a page.
func wordOf(page uint32, i int) uint32 { return page<<16 | uint32(i) + 1 }

// pagePool declares a tensor of pages; bind it after the kernel is built.
func pagePool(r *rig, name string) gen.TensorMap {
	return r.k.Tensor(name, gen.BF16, []string{"column", "row", "page"}, []int{64, 8, 1}, hopper.Swizzle128, 128)
}

func bindPages(r *rig, out *gen.Output, pools ...string) {
	r.t.Helper()
	for i := range pools {
		base := uint32(0x100 * i) // pools differ
		r.bind(out.Manifest.TensorMaps[i], each(ringPool*pageWords, func(j int) uint32 {
			return wordOf(base+uint32(j/pageWords), j%pageWords)
		}), []uint64{64, 8, ringPool}, []uint64{128, 1024})
	}
}

// keep copies a tile to the output by a warp, as words of row after row.
func keep(r *rig, tile gen.SharedTile, to gen.Value) {
	k := r.k
	k.For("chunk", k.Lane(), tile.Rows*8, 32, func(i gen.Value) {
		words := tile.Chunk(i.Shr(3), i.And(7)).LoadVector(0, 4)
		for j, w := range words {
			r.out.At(to.Add(i.Mul(4)).Add(j)).Store(0, w.As(isa.U32))
		}
	})
}

// release gives a slot back for the whole warp.
func release(k *gen.Kernel, slot gen.Place) {
	k.SyncWarp()
	slot.Release(k.Lane().Eq(0))
}

// TestRing: two warps fill a slot's tiles, one of them with two boxes and notes;
// every reading warp gets every slot once and in order, whoever is late.
func TestRing(t *testing.T) {
	pages := []uint32{3, 0, 4, 1, 1, 2, 0}
	const readers = 3
	for slots := 1; slots <= 4; slots++ {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%d slots, seed %d", slots, seed), func(t *testing.T) {
				r := newRig(t, 0)
				r.machine.SetSeed(seed)
				k := r.k
				a, b := pagePool(r, "a"), pagePool(r, "b")
				list := r.array("pages", isa.S32, pages...)
				ring := k.Ring("ring", slots, 2, readers, 2, pageTile(1), pageTile(3))
				k.AlignmentCheck()
				k.InitBarriers()
				fill := func(body func(slot gen.Place, policy, i, page gen.Value)) func() {
					return func() {
						k.OneLane(func() {
							filler, policy := ring.Filler(), k.EvictFirst()
							k.For("page", 0, len(pages), 1, func(i gen.Value) { body(filler.Next(), policy, i, list.At(i).Load(0)) })
						})
					}
				}
				const words = 3 * pageWords // of a slot that are kept
				k.Roles(
					gen.Role{Name: "read", Warps: readers, Body: func() {
						slots := ring.Reader()
						k.For("page", 0, len(pages), 1, func(i gen.Value) {
							slot := slots.Next()
							notes := slot.Notes()
							at := k.Warp().Broadcast(0).Mul(len(pages)).Add(i).Mul(words + 2)
							keep(r, slot.Tile(0), at)
							keep(r, slot.Tile(1).FromRow(k.Int(8)).Reuse(pageTile(2)), at.Add(pageWords))
							k.If(k.Lane().Eq(0), func() {
								for j, n := range notes {
									r.out.At(at.Add(words+j)).Store(0, n.As(isa.U32))
								}
							})
							release(k, slot)
						})
					}},
					gen.Role{Name: "a", Warps: 1, Body: fill(func(slot gen.Place, policy, i, page gen.Value) {
						slot.SetNotes(page.Add(70), i)
						slot.Fill(policy, gen.Box{Tensor: a, Coords: []gen.Value{k.Int(0), k.Int(0), page}, Tile: 0})
					})},
					gen.Role{Name: "b", Warps: 1, Body: fill(func(slot gen.Place, policy, i, page gen.Value) {
						coords := []gen.Value{k.Int(0), k.Int(0), page}
						slot.Fill(policy, gen.Box{Tensor: b, Coords: coords, Tile: 1, Row: 8}, gen.Box{Tensor: a, Coords: coords, Tile: 1, Row: 8, Further: k.Int(8)})
					})},
				)
				out := r.build()
				bindPages(r, out, "a", "b")
				want := each(readers*len(pages)*(words+2), func(i int) uint32 {
					item, at := i/(words+2)%len(pages), i%(words+2)
					switch page := pages[item]; {
					case at == words:
						return page + 70
					case at == words+1:
						return uint32(item)
					case at >= pageWords && at < 2*pageWords:
						return wordOf(0x100+page, at%pageWords)
					default:
						return wordOf(page, at%pageWords)
					}
				})
				if diff := cmp.Diff(want, r.execute(out, len(want))); diff != "" {
					t.Errorf("(-want +got):\n%.2000s", diff)
				}
			})
		}
	}
}

// TestRingFinish: a filler that has nothing to bring still counts, and its slot
// waits for the other's bytes.
func TestRingFinish(t *testing.T) {
	for seed := range uint64(4) {
		r := newRig(t, 0)
		r.machine.SetSeed(seed)
		k := r.k
		pool := pagePool(r, "a")
		ring := k.Ring("ring", 2, 2, 1, 0, pageTile(1))
		k.AlignmentCheck()
		k.InitBarriers()
		k.Roles(
			gen.Role{Name: "read", Warps: 1, Body: func() {
				slots := ring.Reader()
				k.For("page", 0, ringPool, 1, func(i gen.Value) {
					slot := slots.Next()
					keep(r, slot.Tile(0), i.Mul(pageWords))
					release(k, slot)
				})
			}},
			gen.Role{Name: "fill", Warps: 1, Body: func() {
				k.OneLane(func() {
					slots, policy := ring.Filler(), k.EvictNormal()
					k.For("page", 0, ringPool, 1, func(i gen.Value) {
						slots.Next().Fill(policy, gen.Box{Tensor: pool, Coords: []gen.Value{k.Int(0), k.Int(0), i}, Tile: 0})
					})
				})
			}},
			gen.Role{Name: "finish", Warps: 1, Body: func() {
				k.OneLane(func() {
					slots := ring.Filler()
					k.For("page", 0, ringPool, 1, func(gen.Value) { slots.Next().Finish() })
				})
			}},
		)
		out := r.build()
		bindPages(r, out, "a")
		want := each(ringPool*pageWords, func(i int) uint32 { return wordOf(uint32(i/pageWords), i%pageWords) })
		if diff := cmp.Diff(want, r.execute(out, len(want))); diff != "" {
			t.Errorf("seed %d (-want +got):\n%.2000s", seed, diff)
		}
	}
}

// TestTurns: teams read a ring's slots in turn, several each time, and nobody
// else does between: a count in shared memory that nothing but the turns guards
// shows the order.
func TestTurns(t *testing.T) {
	for _, c := range []struct{ teams, warps, slots, each, rounds int }{
		{2, 1, 1, 1, 3}, {2, 2, 3, 2, 3}, {2, 4, 5, 8, 2}, {2, 1, 4, 4, 3}, {3, 1, 5, 2, 3}, {3, 2, 2, 3, 2},
	} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%+v, seed %d", c, seed), func(t *testing.T) {
				r := newRig(t, 0)
				r.machine.SetSeed(seed)
				k := r.k
				pool := pagePool(r, "a")
				ring := k.Ring("ring", c.slots, 1, c.warps, 0, pageTile(1))
				turns := k.Turns("turns", c.teams, c.warps)
				count := k.SharedArray("count", isa.S32, 1)
				k.AlignmentCheck()
				k.InitBarriers()
				k.If(k.Thread().Eq(0), func() { count.Store(0, k.Int(0)) })
				k.SyncCTA()
				total := c.teams * c.rounds * c.each
				order := total * c.warps * pageWords // where the order of turns is left
				k.Roles(
					gen.Role{Name: "read", Warps: c.teams * c.warps, Body: func() {
						team := k.Warp().Broadcast(0).Div(c.warps)
						inTeam := k.Warp().Broadcast(0).Sub(team.Mul(c.warps))
						slots, turn := ring.Reader(), turns.Of(team)
						for before := 1; before < c.teams; before++ {
							k.If(team.Ge(before), func() { slots.Skip(c.each) })
						}
						k.For("round", 0, c.rounds, 1, func(round gen.Value) {
							turn.Await()
							for i := range c.each {
								slot := slots.Next()
								item := round.Mul(c.teams).Add(team).Mul(c.each).Add(i)
								keep(r, slot.Tile(0), item.Mul(c.warps).Add(inTeam).Mul(pageWords))
								release(k, slot)
							}
							k.If(inTeam.Eq(0).And(k.Lane().Eq(0)), func() {
								n := count.Load(0)
								r.out.At(n.Add(order)).Store(0, team.As(isa.U32))
								count.Store(0, n.Add(1))
							})
							turn.Pass()
							slots.Skip((c.teams - 1) * c.each)
						})
					}},
					gen.Role{Name: "fill", Warps: 1, Body: func() {
						k.OneLane(func() {
							slots, policy := ring.Filler(), k.EvictNormal()
							k.For("item", 0, total, 1, func(i gen.Value) {
								slots.Next().Fill(policy, gen.Box{Tensor: pool, Coords: []gen.Value{k.Int(0), k.Int(0), i.Rem(ringPool)}, Tile: 0})
							})
						})
					}},
				)
				out := r.build()
				bindPages(r, out, "a")
				want := each(order+c.teams*c.rounds, func(i int) uint32 {
					if i >= order {
						return uint32((i - order) % c.teams)
					}
					return wordOf(uint32(i/(c.warps*pageWords)%ringPool), i%pageWords)
				})
				if diff := cmp.Diff(want, r.execute(out, len(want))); diff != "" {
					t.Errorf("(-want +got):\n%.2000s", diff)
				}
			})
		}
	}
}

// TestRewind: what a ring holds is read again and again until it is given back,
// round after round.
func TestRewind(t *testing.T) {
	const rounds = 4
	times := []uint32{1, 3, 2, 1} // that each round's slots are read
	for slots := 1; slots <= 3; slots++ {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%d slots, seed %d", slots, seed), func(t *testing.T) {
				r := newRig(t, 0)
				r.machine.SetSeed(seed)
				k := r.k
				pool := pagePool(r, "a")
				often := r.array("times", isa.S32, times...)
				ring := k.Ring("ring", slots, 1, 1, 0, pageTile(1))
				k.AlignmentCheck()
				k.InitBarriers()
				k.Roles(
					gen.Role{Name: "read", Warps: 1, Body: func() {
						reader := ring.Reader()
						at := k.Var(k.Int(0))
						k.For("round", 0, rounds, 1, func(round gen.Value) {
							n := often.At(round).Load(0)
							k.For("time", 0, n, 1, func(time gen.Value) {
								again := time.Add(1).Lt(n)
								for range slots {
									slot := reader.Next()
									keep(r, slot.Tile(0), at.Value)
									at.Set(at.Add(pageWords))
									k.SyncWarp()
									slot.Release(k.Lane().Eq(0).And(again.Not()))
								}
								reader.Rewind(again)
							})
						})
					}},
					gen.Role{Name: "fill", Warps: 1, Body: func() {
						k.OneLane(func() {
							filler, policy := ring.Filler(), k.EvictNormal()
							k.For("item", 0, rounds*slots, 1, func(i gen.Value) {
								filler.Next().Fill(policy, gen.Box{Tensor: pool, Coords: []gen.Value{k.Int(0), k.Int(0), i.Rem(ringPool)}, Tile: 0})
							})
						})
					}},
				)
				out := r.build()
				bindPages(r, out, "a")
				var want []uint32
				for round, n := range times {
					for range n {
						for slot := range slots {
							page := uint32((round*slots + slot) % ringPool)
							want = append(want, each(pageWords, func(i int) uint32 { return wordOf(page, i) })...)
						}
					}
				}
				if diff := cmp.Diff(want, r.execute(out, len(want))); diff != "" {
					t.Errorf("(-want +got):\n%.2000s", diff)
				}
			})
		}
	}
}

// TestRingMistakes: each is an error that says what would be right.
func TestRingMistakes(t *testing.T) {
	tile := pageTile(2)
	fill := func(k *gen.Kernel, box []int, b gen.Box) {
		b.Tensor = k.Tensor("t", gen.BF16, []string{"a", "b"}, box, hopper.Swizzle128, 128)
		b.Coords = []gen.Value{k.Int(0), k.Int(0)}
		ring := k.Ring("ring", 2, 1, 1, 0, tile)
		k.InitBarriers()
		ring.Filler().Next().Fill(k.EvictFirst(), b)
	}
	for _, c := range []struct {
		want string
		make func(k *gen.Kernel)
	}{
		{"ring ring has 0 slots of 1 tiles: want at least one of either", func(k *gen.Kernel) { k.Ring("ring", 0, 1, 1, 0, tile) }},
		{"ring ring has 2 slots of 0 tiles: want at least one of either", func(k *gen.Kernel) { k.Ring("ring", 2, 1, 1, 0) }},
		{"tile ring: tile rows: was 12, must be a positive multiple of 8", func(k *gen.Kernel) {
			k.Ring("ring", 2, 1, 1, 0, gen.Tile{DType: gen.BF16, Rows: 12, Cols: 64, Swizzle: hopper.Swizzle128})
		}},
		{"1 notes: want 2", func(k *gen.Kernel) {
			ring := k.Ring("ring", 2, 1, 1, 2, tile)
			k.InitBarriers()
			ring.Filler().Next().SetNotes(k.Int(1))
		}},
		{"a box of [64 16] at row 8, column 0 does not lie in one column block of a tile of 16×64", func(k *gen.Kernel) { fill(k, []int{64, 16}, gen.Box{Row: 8}) }},
		{"a box of [64 8] at row 4, column 0 does not lie", func(k *gen.Kernel) { fill(k, []int{64, 8}, gen.Box{Row: 4}) }},
		{"a box of [32 8] at row 0, column 0 does not lie", func(k *gen.Kernel) { fill(k, []int{32, 8}, gen.Box{}) }},
		{"a box of [64 8] at row 0, column 64 does not lie", func(k *gen.Kernel) { fill(k, []int{64, 8}, gen.Box{Col: 64}) }},
		{"a ring is shared by 3 CTAs: want a power of two up to 16", func(k *gen.Kernel) { k.Ring("ring", 2, 1, 1, 0, tile).Share(3) }},
		{"a ring is shared by 0 CTAs: want a power of two up to 16", func(k *gen.Kernel) { k.Ring("ring", 2, 1, 1, 0, tile).Share(0) }},
		{"a ring is shared by 32 CTAs: want a power of two up to 16", func(k *gen.Kernel) { k.Ring("ring", 2, 1, 1, 0, tile).Share(32) }},
		{"a box of [64 12] is no run of rows of column block 0 of a tile of 16×64", func(k *gen.Kernel) {
			k.SharedTile("s", tile).BulkStore(0, k.Int(0), k.Tensor("t", gen.BF16, []string{"a", "b"}, []int{64, 12}, hopper.Swizzle128, 128), k.Int(0), k.Int(0))
		}},
		{"a box of [64 8] is no run of rows of column block 1 of a tile of 16×64", func(k *gen.Kernel) {
			k.SharedTile("s", tile).BulkStore(1, k.Int(0), k.Tensor("t", gen.BF16, []string{"a", "b"}, []int{64, 8}, hopper.Swizzle128, 128), k.Int(0), k.Int(0))
		}},
	} {
		k := gen.NewKernel("k", nil)
		k.Threads(32)
		c.make(k)
		if _, err := k.Build(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
