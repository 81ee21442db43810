package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// expandPrefill is multi-head attention over expanded keys and values: a key
// is its head's k_nope and then the rope key that all heads share, which lie in
// two tensors and meet in shared memory. Sequences of any lengths lie end to
// end.
//
// A persistent CTA attends BlockM query tokens of a head at a time, 64 in each
// warpgroup:
//
//	S = Q·Kᵀ      64 × BlockN, over nope + rope columns
//	O += P·V      64 × value, over BlockN tokens, P from registers
//
// A warpgroup issues a tile's scores before it multiplies the tile before's
// weights and values, and weighs the scores while that product runs: the tensor
// cores see both warpgroups' products one behind the other.
func expandPrefill(s Spec) (*gen.Output, error) {
	k := gen.NewKernel("expand_prefill", s, s.options())
	return newPrefillCTA(k, s).build()
}

// build makes the kernel's body.
func (c *prefillCTA) build() (*gen.Output, error) {
	k, s := c.k, c.s
	c.begin()

	k.Roles(
		gen.Role{Name: "attend", Warps: gen.Warpgroups(s.groups()), Registers: 232, Body: c.attend},
		gen.Role{Name: "load", Warps: gen.Warpgroups(1), Registers: 40, Body: func() {
			k.If(k.Warp().Eq(gen.Warpgroups(s.groups())), func() { k.OneLane(c.load) })
		}},
	)
	k.WaitForPreviousGrid() // also without work: who waits for this kernel waits for those before
	return k.Build()
}

// prefillCTA is the kernel's inputs and outputs and its shared memory.
type prefillCTA struct {
	k *gen.Kernel
	s Spec

	qNope, qRope    gen.TensorMap
	kNope, kRope, v gen.TensorMap
	scale           gen.Scalar
	queryTokens     gen.Scalar // rows of q, and of the outputs
	work            prefillWork
	result          prefillResult
	carried         *carriedState // nil where all keys are in one launch

	queries, keys, values *gen.Pipeline
	mail                  *gen.Mailbox
	attending             gen.NamedBarrier
}

// rowsTensor declares a tensor map of rows [token][head][column], of which a
// box is a column block of a tile.
func rowsTensor(k *gen.Kernel, name string, tile gen.Tile) gen.TensorMap {
	box := tile.Box()
	return k.Tensor(name, tile.DType, []string{"column", "head", "token"}, []int{box[0], 1, box[1]}, tile.Swizzle, kvPromotion)
}

func newPrefillCTA(k *gen.Kernel, s Spec) *prefillCTA {
	c := &prefillCTA{k: k, s: s}
	c.declare()
	return c
}

// declare declares parameters and shared memory.
func (c *prefillCTA) declare() {
	k, s := c.k, c.s
	c.qNope, c.qRope = rowsTensor(k, "q_nope", s.prefillQueryTile()), rowsTensor(k, "q_rope", s.prefillQueryTile())
	c.kNope, c.v = rowsTensor(k, "k_nope", s.keyTile()), rowsTensor(k, "v", s.valueTile())
	rope := s.keyTile()
	c.kRope = k.Tensor("k_rope", rope.DType, []string{"column", "token"}, rope.Box(), rope.Swizzle, kvPromotion)
	c.scale = k.Scalar("scale_log2", isa.F32)
	c.queryTokens = k.Scalar("query_tokens", isa.U32)
	c.work = prefillWorkReader(k, s)
	c.result = prefillResultWriter(k, s)

	readers := 4 * s.groups() // warps
	whole := func(t gen.Tile) gen.Part { return gen.Part{Count: t.Blocks(), Arrivals: readers} }
	c.result.stage = k.SharedTile("out", s.tile(s.BlockM, prefillStageColumns))
	c.queries = k.Pipeline("q", 1, s.prefillQueryTile(), whole(s.prefillQueryTile()))
	c.keys = k.Pipeline("k", s.Stages, s.keyTile(), whole(s.keyTile()))
	c.values = k.Pipeline("v", s.Stages, s.valueTile(), whole(s.valueTile()))
	c.mail = k.Mailbox("item", 2, c.mailWords(), readers)
	c.attending = k.NamedBarrier(s.groups() * gen.WarpgroupThreads)
}

// begin starts the kernel's body, once shared memory is laid out.
func (c *prefillCTA) begin() {
	c.k.AlignmentCheck()
	c.k.InitBarriers()
	c.k.AllowNextGrid()
}

// load keeps the rings filled, in the order in which the tiles are wanted: a
// tile's values after the next tile's keys. The next item is asked for while
// the first tiles are on their way. Run by one thread.
func (c *prefillCTA) load() {
	k, s := c.k, c.s
	queries, keys, values := c.queries.Producer(), c.keys.Producer(), c.values.Producer()
	mail := c.mail.Sender()
	once, again := k.EvictFirst(), gen.Value{}
	c.work.each(k.WaitForPreviousGrid, func(it prefillItem, next func()) {
		// No outputs are written that are not there, whatever the list says.
		it.rows = it.rows.Min(c.queryTokens.Read().As(isa.S32).Sub(it.query))
		mail.Send(it.mail(c.mailWords())...)
		token := func(t gen.Value) gen.Value { return it.key.Add(t.Mul(s.BlockN)) }
		loadKeys := func(t gen.Value) {
			keys.LoadBoxes(again,
				gen.Boxes{From: c.kNope, Count: s.Nope / 64, Coords: []gen.Value{it.head, token(t)}},
				gen.Boxes{From: c.kRope, Count: s.Rope / 64, Coords: []gen.Value{token(t)}})
		}
		loadValues := func(t gen.Value) {
			values.LoadBoxes(again, gen.Boxes{From: c.v, Count: s.Value / 64, Coords: []gen.Value{it.head, token(t)}})
		}
		some := it.tiles.Gt(0)
		k.If(some, func() {
			loadKeys(k.Int(0))
			at := []gen.Value{it.head, it.query}
			queries.LoadBoxes(once,
				gen.Boxes{From: c.qNope, Count: s.Nope / 64, Coords: at},
				gen.Boxes{From: c.qRope, Count: s.Rope / 64, Coords: at})
		})
		next()
		k.For("tile", 1, it.tiles, 1, func(t gen.Value) {
			loadKeys(t)
			loadValues(t.Sub(1))
		})
		k.If(some, func() { loadValues(it.tiles.Sub(1)) })
	})
	var words []gen.Value
	for range c.mailWords() {
		words = append(words, k.Int(stop))
	}
	mail.Send(words...)
}

// attend is the work of the attending warpgroups.
func (c *prefillCTA) attend() {
	k, s := c.k, c.s
	queries, keys, values := c.queries.Consumer(), c.keys.Consumer(), c.values.Consumer()
	mail := c.mail.Receiver()
	group := k.Warp().Broadcast(0).Shr(2)
	speaker := k.Lane().Eq(0) // releases tiles for its warp
	scores, out := k.Accumulator(s.BlockN), k.Accumulator(s.Value)
	softmax := newPrefillSoftmax(k, s, c.scale)
	weights, next := softmax.weightRegisters(), softmax.weightRegisters()
	k.WaitForPreviousGrid()
	k.Loop("item", func(leaveIf func(gen.Value)) {
		it := mailed(mail.Receive())
		leaveIf(it.tiles.Lt(0))
		firstRow := group.Mul(gen.AccumulatorRows)
		mask := prefillMask{k: k, s: s, seen: it.seen.Add(firstRow), keys: it.keys}
		c.start(it, softmax, out)
		k.If(it.tiles.Gt(0), func() {
			q := queries.Next()
			q.Await()
			rows := q.FromRow(firstRow)
			last := it.tiles.Sub(1)
			// score issues the products of the next tile's scores.
			score := func() gen.Slot {
				tile := keys.Next()
				k.Multiply(scores, rows.KMajor(), tile.KMajor(), 0, false)
				k.CommitMultiply()
				return tile
			}
			// scored takes over the finished scores of tile t.
			scored := func(t gen.Value, tile gen.Slot) {
				tile.Release(speaker, 0)
				k.If(t.Eq(last), func() { q.Release(speaker, 0) })
				mask.hide(scores, t.Mul(s.BlockN))
			}
			accumulate := func(tile gen.Slot) {
				k.MultiplyFragment(out, values16(weights), tile.Columns(0, s.Value).Transposed())
				k.CommitMultiply()
			}

			first := score()
			k.WaitMultiply(0)
			scored(k.Int(0), first)
			c.weighFirst(softmax, scores, out, weights)
			k.For("tile", 1, it.tiles, 1, func(t gen.Value) {
				tile := score()
				before := values.Next()
				before.Await()
				accumulate(before)
				k.WaitMultiply(1)
				scored(t, tile)
				holds := softmax.weigh(scores, next)
				k.WaitMultiply(0)
				before.Release(speaker, 0)
				k.If(holds.Eq(0), func() { softmax.raise(scores, out, next) })
				for i, w := range weights {
					w.Set(next[i])
				}
			})
			tile := values.Next()
			tile.Await()
			c.clearUnused(tile, it.keys.Sub(last.Mul(s.BlockN)))
			accumulate(tile)
			k.WaitMultiply(0)
			tile.Release(speaker, 0)
		})
		c.finish(it, firstRow, softmax, out)
	})
}

func values16(vars []*gen.Var) []gen.Value {
	v := make([]gen.Value, len(vars))
	for i, x := range vars {
		v[i] = x.Value
	}
	return v
}

// clearUnused zeroes the rows of the last tile of values from row used on: they
// belong to the next sequence or to nobody. Their weights are 0, but 0 · NaN is
// NaN. Run by all attending warpgroups together.
func (c *prefillCTA) clearUnused(tile gen.Slot, used gen.Value) {
	k, s := c.k, c.s
	k.If(used.Lt(s.BlockN), func() {
		zero := k.Int(0)
		chunks := s.Value / chunkElems
		threads := s.groups() * gen.WarpgroupThreads
		inRow, row := k.Thread().Rem(chunks), k.Thread().Div(chunks)
		k.For("unused", used.Add(row), s.BlockN, threads/chunks, func(at gen.Value) {
			tile.Chunk(at, inRow).StoreVector(0, zero, zero, zero, zero)
		})
		k.FenceAsync()
		c.attending.Sync()
	})
}

// prefillMask says which keys a warpgroup's rows see: the r-th those below
// seen + r, and below keys.
type prefillMask struct {
	k    *gen.Kernel
	s    Spec
	seen gen.Value // by the warpgroup's first row
	keys gen.Value // of the sequence
}

// hide sets the scores of keys that a row does not see to −∞, in a tile that
// begins with key first. Only the last tiles hold such keys.
func (m prefillMask) hide(scores gen.Accumulator, first gen.Value) {
	k := m.k
	k.If(first.Add(m.s.BlockN).Gt(m.seen.Min(m.keys)), func() {
		var end [2]gen.Value // in the thread's columns
		for h := range end {
			end[h] = m.seen.Add(k.FragmentRow()).Add(8 * h).Min(m.keys).Sub(first).Sub(k.FragmentColumn())
		}
		for i, r := range scores.R {
			r.Choose(end[rowOf(i)].Gt(scores.ColumnStep(i)), k.NegInf())
		}
	})
}
