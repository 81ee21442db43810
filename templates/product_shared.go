package templates

import "github.com/mlagen/mlagen/gen"

// run is a tile of rows and the heads, from one to before another, by which a
// CTA multiplies it. Row 0 of the tile is row of the output; of its rows those
// in bounds exist.
type run struct{ row, bounds, from, to gen.Value }

// runWords is the words of a run as a message. A run from noHead on ends the
// work.
const (
	runWords = 4
	noHead   = -1
)

// sharedWork is what a product whose rows all heads share must say of them.
type sharedWork struct {
	// prepare runs first, in all warps.
	prepare func()
	// rowTiles returns how many tiles the rows are.
	rowTiles func() gen.Value
	// tile returns a tile's first row and its bounds, and what brings a depth
	// block of it into a slot. Run by a whole warp; load by one thread. A tile
	// past the last has no rows.
	tile func(i gen.Value) (row, bounds gen.Value, load func(slot gen.Place, policy, depth gen.Value))
	// extra runs in a warp beside, for what is copied and not multiplied.
	extra func()
}

// shared builds the body of a product whose rows are the same for all heads:
// they stay in shared memory while the weights of head after head stream past
// them. The tiles of a head go in turn to two warpgroups, each with all of the
// rows, so that one writes its result while the other multiplies. The CTAs of a
// cluster have different rows and the same weights, of which each brings a share
// to all.
func (p *product) shared(work sharedWork) {
	k, s := p.k, p.s
	k.Cluster(s.Cluster)
	out := s.resultTile(s.resultPlaces(p.g))
	p.results = k.Tensor("results", s.dtype(), []string{"column", "row", "head"}, []int{out.Cols, sliceRows, 1}, out.Swizzle, resultPromotion)
	stage := k.SharedTile("stage", out)
	rings := k.Rings(
		gen.RingShape{Name: "rows", Slots: p.depthBlocks(), Fillers: 1, Readers: 4 * wideTeam, Tiles: []gen.Tile{s.rowsTile()}},
		gen.RingShape{Name: "weights", Slots: s.Stages, Fillers: 1, Readers: 4, Tiles: []gen.Tile{s.weightsTile(p.g)}})
	rows := rings[0]
	p.ring = rings[1]
	p.ring.Share(s.Cluster)
	turns := k.Turns("turns", wideTeam, 4)
	runs := k.Mailbox("runs", 2, runWords, 4*wideTeam)
	k.AlignmentCheck()
	k.InitBarriers()
	if s.Cluster > 1 {
		k.SyncCluster()
	}
	k.AllowNextGrid()
	work.prepare()

	load := func() {
		warp := k.Warp().And(3)
		k.If(warp.Eq(0), func() {
			slots, messages := rows.Filler(), runs.Sender()
			k.WaitForPreviousGrid()
			p.eachRun(work, func(group, from, to gen.Value) {
				tile := group.Mul(s.Cluster)
				if s.Cluster > 1 {
					tile = tile.Add(k.ClusterRank())
				}
				row, bounds, load := work.tile(tile)
				k.OneLane(func() {
					messages.Send(row, bounds, from, to)
					policy := k.EvictNormal()
					k.For("depth", 0, p.g.depth, depthBlock, func(depth gen.Value) { load(slots.Next(), policy, depth) })
				})
			})
			k.OneLane(func() {
				zero := k.Int(0)
				messages.Send(zero, zero, k.Int(noHead), zero)
			})
		})
		k.If(warp.Eq(1), func() {
			slots := p.ring.Filler()
			p.eachRun(work, func(_, from, to gen.Value) {
				k.OneLane(func() {
					policy := k.EvictNormal()
					k.For("head", from, to, 1, func(head gen.Value) {
						k.For("column", 0, p.g.columns, s.BlockN, func(column gen.Value) { p.loadShare(slots, policy, head, column) })
					})
				})
			})
		})
		k.If(warp.Eq(2), work.extra)
	}
	multiply := func() {
		k.WaitForPreviousGrid() // before results are written
		p.multiplyShared(rows, runs, turns, stage)
	}
	k.Roles(
		gen.Role{Name: "multiply", Warps: gen.Warpgroups(wideTeam), Registers: 232, Body: multiply},
		gen.Role{Name: "load", Warps: gen.Warpgroups(1), Registers: 40, Body: load},
	)
	k.WaitForPreviousGrid() // also without work: who waits for this kernel waits for those before
	if s.Cluster > 1 {
		k.SyncCluster() // nobody copies to a CTA that has ended, or arrives there
	}
}

// eachRun runs body for the runs of this cluster, whose CTAs take a group of
// neighbouring row tiles: whole groups with all heads, as long as there is one
// for each cluster, and of what is left an equal share of the heads. The
// clusters go through the heads at one pace, so that the weights come from the
// L2.
func (p *product) eachRun(work sharedWork, body func(group, from, to gen.Value)) {
	k, s := p.k, p.s
	heads := k.Int(s.Heads)
	cluster, clusters := k.Block().Div(s.Cluster), k.Blocks().Div(s.Cluster)
	groups := work.rowTiles().Add(s.Cluster - 1).Div(s.Cluster)
	rounds := groups.Div(clusters)
	left := groups.Sub(rounds.Mul(clusters)).Mul(s.Heads) // heads of groups
	begin := cluster.Mul(left).Div(clusters)
	whole := rounds.Mul(s.Heads)
	total := whole.Add(cluster.Add(1).Mul(left).Div(clusters)).Sub(begin)
	at := k.Var(k.Int(0))
	k.While("run", func() gen.Value { return at.Lt(total) }, func() {
		inWhole := at.Lt(whole)
		item := k.Select(inWhole, at.Value, at.Sub(whole).Add(begin))
		group := item.Div(s.Heads)
		from := item.Sub(group.Mul(s.Heads))
		n := heads.Sub(from).Min(total.Sub(at.Value))
		group = k.Select(inWhole, group.Mul(clusters).Add(cluster), rounds.Mul(clusters).Add(group))
		body(group, from, from.Add(n))
		at.Increase(n)
	})
}

// loadShare brings this CTA's share of a tile's weights to the whole cluster.
func (p *product) loadShare(slots *gen.Filler, policy, head, column gen.Value) {
	k, s := p.k, p.s
	box := gen.Box{Tensor: p.weights, Tile: 0}
	if s.Cluster > 1 {
		box.Further = k.ClusterRank().Mul(s.BlockN / s.Cluster)
		column = column.Add(box.Further)
	}
	k.For("depth", 0, p.g.depth, depthBlock, func(depth gen.Value) {
		box.Coords = []gen.Value{depth, column, head}
		slots.Next().FillAll(policy, box)
	})
}

// multiplyShared multiplies this warpgroup's tiles of the runs as they come.
func (p *product) multiplyShared(rows *gen.Ring, runs *gen.Mailbox, turns *gen.Turns, stage gen.SharedTile) {
	k, s := p.k, p.s
	accs := make([]gen.Accumulator, s.BlockM/gen.AccumulatorRows)
	for i := range accs {
		accs[i] = k.Accumulator(s.BlockN)
	}
	blocks := p.depthBlocks()
	team := k.Warp().Broadcast(0).Shr(2)
	resident, slots, messages := rows.Reader(), p.ring.Reader(), runs.Receiver()
	turn := turns.Of(team)
	rowSpeaker, speaker := k.Lane().Eq(0), k.Lane().Lt(s.Cluster)
	k.If(team.Ne(0), func() { slots.Skip(blocks) })
	perTeam := p.g.columns / s.BlockN / wideTeam
	k.Loop("run", func(leaveIf func(gen.Value)) {
		m := messages.Receive()
		now := run{m[0], m[1], m[2], m[3]}
		leaveIf(now.from.Eq(noHead))
		k.For("head", now.from, now.to, 1, func(head gen.Value) {
			for tile := range perTeam {
				again := head.Add(1).Lt(now.to)
				if tile < perTeam-1 {
					again = head.Lt(now.to)
				}
				done := rowSpeaker.And(again.Not())
				var before []gen.Place
				giveBack := func() {
					before[0].Release(done)
					before[1].Release(speaker)
				}
				turn.Await()
				for block := range blocks {
					row, slot := resident.Next(), slots.Next()
					k.MultiplyAll(accs, row.Tile(0).KMajor(), slot.Tile(0).KMajor(), block > 0)
					k.CommitMultiply()
					if block == blocks-1 {
						turn.Pass()
					}
					if block > 0 {
						k.WaitMultiply(1)
						giveBack()
					}
					before = []gen.Place{row, slot}
				}
				k.WaitMultiply(0)
				giveBack()
				resident.Rewind(again)
				slots.Skip(blocks) // the other warpgroup's
				column := team.Add(tile * wideTeam).Mul(s.BlockN)
				p.writeShared(wideTile{head, column, now.row, now.bounds}, accs, team, stage)
			}
		})
	})
	k.OneLane(func() { k.WaitBulk(0) })
}

// writeShared brings a warp's rows of a finished tile on their way, a piece of
// 16 rows and one column block at a time. A warp has places for a few pieces,
// which it takes in turn.
func (p *product) writeShared(t wideTile, accs []gen.Accumulator, team gen.Value, stage gen.SharedTile) {
	k, s := p.k, p.s
	places := stage.Rows / (4 * wideTeam * sliceRows)
	warp := k.Warp().Broadcast(0)
	inTile := warp.And(3).Mul(sliceRows)
	piece := 0
	for i, acc := range accs {
		row := inTile.Add(i * gen.AccumulatorRows)
		whole := row.Ge(t.first()).And(row.Add(sliceRows).Le(t.end()))
		for from := 0; from < s.BlockN; from += stage.Cols {
			place := warp.Mul(places).Add(piece % places).Mul(sliceRows)
			piece++
			k.OneLane(func() { k.WaitBulkRead(places - 1) })
			k.SyncWarp()
			for c := from; c < from+stage.Cols; c += 16 {
				var packed []gen.Value
				for e := c / 2; e < c/2+8; e += 2 {
					packed = append(packed, k.Pack(s.dtype(), acc.R[e].Value, acc.R[e+1].Value))
				}
				stage.StoreSlice(packed, place, c-from)
			}
			k.FenceAsync()
			k.SyncWarp()
			k.IfElse(whole, func() {
				k.OneLane(func() { stage.BulkStore(0, place, p.results, t.column.Add(from), t.row.Add(row), t.head) })
			}, func() { p.writePiece(t, row, stage, place, from) })
			k.OneLane(func() { k.CommitBulk() })
		}
	}
}

// writePiece writes those rows of a staged piece that exist.
func (p *product) writePiece(t wideTile, row gen.Value, stage gen.SharedTile, place gen.Value, from int) {
	k := p.k
	chunks := stage.Cols / chunkElems
	begin, end := row.Max(t.first()), t.end().Min(row.Add(sliceRows))
	k.For("chunk", k.Lane(), end.Sub(begin).Mul(chunks), 32, func(i gen.Value) {
		at, chunk := begin.Add(i.Div(chunks)), i.Rem(chunks)
		to := p.out.at(t.row.Add(at), t.head).At(t.column.Add(from).Shr(1)).At(chunk.Mul(4))
		to.StoreVector(0, stage.Chunk(place.Add(at).Sub(row), chunk).LoadVector(0, 4)...)
	})
	k.SyncWarp()
}
