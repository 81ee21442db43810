package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// teamsDecode is swapDecode with two warpgroups, the teams, that take a row
// block's tiles in turn, where one would not keep up with them:
//
//	team 0:  S₀ = K₀·Qᵀ  P₀  O⁰ += V₀ᵀ·P₀ᵀ  S₂ = K₂·Qᵀ  P₂  O⁰ += V₂ᵀ·P₂ᵀ
//	team 1:         S₁ = K₁·Qᵀ  P₁  O¹ += V₁ᵀ·P₁ᵀ  S₃ = K₃·Qᵀ  P₃  …
//
// While one takes a softmax the other's multiplies run. Each has references,
// sums and an output of its own over all latent columns, as if the other's tiles
// were another CTA's, so that they have nothing to wait for from each other
// before an item is over. Then they meet, put both together and own half of the
// latent columns each.
func teamsDecode(s Spec) (*gen.Output, error) {
	k := gen.NewKernel("absorb_decode", s, s.options())
	c := newDecodeCTA(k, s)
	scale := scoreScale(k)
	ring := k.Pipeline("kv", s.kvSlots(), s.kvTile(), s.kvParts()...)
	side := k.Warpgroup() // the thread's team
	shared := shareRowsOnN(k, s, side)
	references := k.SharedArray("references", isa.F32, mostTeams*s.BlockH)
	c.begin()
	both := k.NamedBarrier(s.teamThreads())
	k.PinShared() // or ptxas makes descriptors anew, in vector registers, for every multiply

	// Both teams run the same instructions, which come once and not twice.
	attend := func() {
		team := k.NamedBarriers(mostTeams, gen.WarpgroupThreads, side)
		walk := turns{k: k, side: side, tiles: ring.Consumer(), speaker: k.Lane().Eq(0)}
		rows := newRowsOnN(k, s, scale, side, team, shared)
		c.attendItems(rows, both, func(it item, length gen.Value) {
			walk.each(it, func(tile gen.Slot, t gen.Value) {
				rows.attend(it, tile, t, length, c.firstRow, walk.speaker)
			})
		}, func() softmaxState { return rows.unite(references, both) })
	}

	load := gen.Role{Name: "load", Warps: 1, Body: func() { c.loadPages(ring) }}
	attending := 0 // registers per thread: as launched
	if s.BlockH > launchedBlockH {
		attending = 232
		load = gen.Role{Name: "load", Warps: gen.Warpgroups(1), Registers: 40, Body: func() {
			k.If(k.Warp().Eq(gen.Warpgroups(mostTeams)), func() { c.loadPages(ring) })
		}}
	}
	k.Roles(
		gen.Role{Name: "attend", Warps: gen.Warpgroups(mostTeams), Registers: attending, Body: attend},
		load,
	)
	k.WaitForPreviousGrid() // also without work: who waits for this kernel waits for those before
	return k.Build()
}

// launchedBlockH is the widest row block whose output fits the registers that two
// warpgroups and a warp are launched with. For more, registers move to the teams,
// which whole warpgroups give and take.
const launchedBlockH = 24

// turns is a team's way through the ring, of whose tiles it takes every other.
type turns struct {
	k       *gen.Kernel
	side    gen.Value // the team: 0 begins with an item's first tile
	tiles   *gen.Consumer
	speaker gen.Value // releases parts for its warp
}

// each runs body for the team's tiles of an item. It also waits for the other's
// and gives them back: a slot's round is known by its parity only, so no warp may
// miss one, and no slot may be filled again before each has seen it full.
func (w turns) each(it item, body func(tile gen.Slot, t gen.Value)) {
	k := w.k
	other := func() {
		tile := w.tiles.Next()
		tile.Await()
		k.SyncWarp() // all lanes have seen it before one speaks for them
		tile.ReleaseAll(w.speaker)
	}
	k.If(w.side.Ne(0).And(it.begin.Lt(it.end)), other)
	k.For("tile", it.begin.Add(w.side), it.end, 2, func(t gen.Value) {
		body(w.tiles.Next(), t)
		k.If(t.Add(1).Lt(it.end), other)
	})
}

// unite puts the results of two teams that had different tiles together, and
// leaves each half of the sum's latent columns. Both meet in it.
func (r *rowsOnN) unite(references gen.Region, both gen.NamedBarrier) softmaxState {
	factor, state := r.softmax.unite(r.side, references, both)
	for _, o := range r.out {
		for i, e := range o.R {
			e.Scale(factor[columnOf(i)].Value)
		}
	}
	half := len(r.out) / mostTeams
	exchange := func(team int) func() {
		return func() {
			give, keep := quads(r.out[half*(1-team):half*(2-team)]), quads(r.out[half*team:half*(1+team)])
			x := newTeamExchange(r.queries)
			for n := 0; n < len(give); n += x.quads {
				end := min(n+x.quads, len(give))
				x.give(r.k, (team+n/x.quads)%2, give[n:end])
				both.Sync()
				x.add(r.k, (team+n/x.quads+1)%2, keep[n:end])
			}
			if team == 1 { // each team's half is in the same registers
				for i, o := range r.output() {
					for e, v := range o.R {
						v.Set(r.out[half+i].R[e])
					}
				}
			}
		}
	}
	r.k.IfElse(r.side.Eq(0), exchange(0), exchange(1))
	both.Sync() // the output is staged in the same place
	return state
}

// teamExchange is where the threads of a team leave what their counterparts in the
// other add to their own: 16 bytes a thread, side by side, for each four elements
// of an accumulator. It lies where queries do that have been multiplied. There are
// two places, one for each team's; next time they change places, so that a
// thread leaves something where it has itself taken what was there before.
type teamExchange struct {
	words gen.Region
	quads int // that a place holds
}

// quadWords is what a team's quad takes.
const quadWords = 4 * gen.WarpgroupThreads

// exchangedQuads returns how many quads of either team lie in the queries' place.
func exchangedQuads(t gen.Tile) int { return t.Bytes() / (mostTeams * quadWords * 4) }

func newTeamExchange(queries gen.SharedTile) teamExchange {
	return teamExchange{queries.Array(isa.F32), exchangedQuads(queries.Tile)}
}

// at is the thread's part of a place.
func (x teamExchange) at(k *gen.Kernel, place int) gen.Region {
	return x.words.At(place * x.quads * quadWords).At(k.Thread().And(gen.WarpgroupThreads - 1).Mul(4))
}

func (x teamExchange) give(k *gen.Kernel, place int, quads []quad) {
	at := x.at(k, place)
	for n, q := range quads {
		e := q.acc.R[q.first:]
		at.StoreVector(n*quadWords, e[0].Value, e[1].Value, e[2].Value, e[3].Value)
	}
}

func (x teamExchange) add(k *gen.Kernel, place int, quads []quad) {
	at := x.at(k, place)
	for n, q := range quads {
		for e, v := range at.LoadVector(n*quadWords, 4) {
			q.acc.R[q.first+e].Increase(v)
		}
	}
}
