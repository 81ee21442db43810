package gen_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx"
)

// shared builds a kernel in which the n CTAs of each cluster fill a ring
// together, each with a page of every slot, and each read all of it. Without
// parting the CTAs end without waiting for their peers.
func shared(r *rig, n, slots, items int, parting bool) *gen.Output {
	const readers = 2
	k := r.k
	pool := pagePool(r, "a")
	k.Cluster(n)
	ring := k.Ring("ring", slots, 1, readers, 0, pageTile(n))
	ring.Share(n)
	k.AlignmentCheck()
	k.InitBarriers()
	k.SyncCluster()
	k.Roles(
		gen.Role{Name: "read", Warps: readers, Body: func() {
			reader := ring.Reader()
			base := k.Block().Mul(readers).Add(k.Warp().Broadcast(0)).Mul(items)
			k.For("item", 0, items, 1, func(i gen.Value) {
				slot := reader.Next()
				keep(r, slot.Tile(0), base.Add(i).Mul(n*pageWords))
				k.SyncWarp()
				slot.Release(k.Lane().Lt(n))
			})
		}},
		gen.Role{Name: "fill", Warps: 1, Body: func() {
			k.OneLane(func() {
				filler, policy, rank := ring.Filler(), k.EvictNormal(), k.ClusterRank()
				cluster := k.Block().Div(n)
				k.For("item", 0, items, 1, func(i gen.Value) {
					page := i.Add(rank).Add(cluster).Rem(ringPool)
					filler.Next().FillAll(policy, gen.Box{Tensor: pool, Coords: []gen.Value{k.Int(0), k.Int(0), page}, Tile: 0, Further: rank.Mul(8)})
				})
			})
		}},
	)
	if parting {
		k.SyncCluster()
	}
	out := r.build()
	bindPages(r, out, "a")
	return out
}

// TestShare: every CTA of a cluster has all shares of every slot, whichever CTA
// or copy is late.
func TestShare(t *testing.T) {
	const items, clusters, readers = 6, 2, 2
	for _, n := range []int{1, 2, 4} {
		for _, slots := range []int{1, 2, 3} {
			for seed := range uint64(4) {
				t.Run(fmt.Sprintf("%d CTAs, %d slots, seed %d", n, slots, seed), func(t *testing.T) {
					r := newRig(t, 0)
					r.machine.SetSeed(seed)
					r.grid = clusters * n
					out := shared(r, n, slots, items, true)
					want := each(r.grid*readers*items*n*pageWords, func(i int) uint32 {
						page := i / pageWords
						share, item, cluster := page%n, page/n%items, page/n/items/readers/n
						return wordOf(uint32((item+share+cluster)%ringPool), i%pageWords)
					})
					if diff := cmp.Diff(want, r.execute(out, len(want))); diff != "" {
						t.Errorf("(-want +got):\n%.2000s", diff)
					}
				})
			}
		}
	}
}

// TestShareParting: a CTA that ends while peers still arrive at its barriers or
// copy to it is a hazard.
func TestShareParting(t *testing.T) {
	found := 0
	for seed := range uint64(8) {
		r := newRig(t, 0)
		r.machine.SetSeed(seed)
		r.grid = 2
		out := shared(r, 2, 2, 4, false)
		if _, hazards := r.observe(out, 2*2*4*2*pageWords); len(hazards) > 0 {
			found++
		}
	}
	if found == 0 {
		t.Error("under no schedule")
	}
}

// TestShareText: a shared ring's slot awaits the bytes of all CTAs, and the
// readers of all.
func TestShareText(t *testing.T) {
	r := newRig(t, 0)
	out := shared(r, 4, 2, 3, true)
	var announced, counts []int
	for _, s := range out.Module.Kernels[0].Body {
		if i, ok := s.(*ptx.Instr); ok {
			switch i.Form.Root {
			case "mbarrier.arrive.expect_tx":
				announced = append(announced, int(i.Arg("txCount").(ptx.Imm)))
			case "mbarrier.init":
				counts = append(counts, int(i.Arg("count").(ptx.Imm)))
			}
		}
	}
	if diff := cmp.Diff([]int{4 * 1024}, announced); diff != "" {
		t.Errorf("bytes announced:\n%s", diff)
	}
	if diff := cmp.Diff([]int{1, 1, 8, 8}, counts); diff != "" {
		t.Errorf("arrivals per barrier:\n%s", diff)
	}
	for op, want := range map[string]int{
		"cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster": 1, "mbarrier.arrive.shared::cluster": 1, "mapa": 1,
	} {
		if got := count(out, op); got != want {
			t.Errorf("%d × %s, want %d", got, op, want)
		}
	}
}
