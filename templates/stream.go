package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/hopper"
	"github.com/mlagen/mlagen/ptx/isa"
)

// stream reads the listed pages through the copy engine and does nothing with
// them: the bandwidth that decode is held against. CTA b reads pages b,
// b + grid, … of the list.
func stream(s Spec) (*gen.Output, error) {
	k := gen.NewKernel("stream", s, s.options())
	kv := kvTensor(k, s)
	pages := k.Pointer("pages", isa.S32)
	count := k.Scalar("count", isa.U32)
	sink := k.Pointer("sink", isa.S32)
	stages := hopper.SharedLimit / (s.kvTile().Bytes() + smallShared)
	ring := k.Pipeline("kv", stages, s.kvTile(), gen.Part{Count: s.kvTile().Blocks(), Arrivals: 1})
	k.AlignmentCheck()
	k.InitBarriers()
	k.WaitForPreviousGrid()
	k.AllowNextGrid()

	first, last := k.Block(), count.Read().As(isa.S32)
	load := func() {
		k.OneLane(func() {
			policy := k.EvictFirst()
			tiles := ring.Producer()
			k.For("page", first, last, k.Blocks(), func(i gen.Value) {
				tiles.Load(kv, policy, k.Int(0), pages.At(i).Load(0))
			})
		})
	}
	drain := func() {
		tiles := ring.Consumer()
		seen := k.Var(k.Int(0))
		k.For("page", first, last, k.Blocks(), func(i gen.Value) {
			tile := tiles.Next()
			tile.Await()
			word := tile.Chunk(k.Lane(), k.Int(0)).Load(0)
			seen.Set(seen.Xor(word.As(isa.S32)))
			k.SyncWarp()
			tile.Release(k.Lane().Eq(0), 0)
		})
		// The store keeps the reads alive.
		k.If(k.Lane().Eq(0), func() { sink.At(k.Block()).Store(0, seen) })
	}
	k.Roles(
		gen.Role{Name: "load", Warps: 1, Body: load},
		gen.Role{Name: "drain", Warps: 1, Body: drain},
	)
	return k.Build()
}
