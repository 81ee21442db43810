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
// weights and values, and weighs the scores while that product runs; likewise
// the next item's first scores before it writes this one's result. The tensor
// cores see both warpgroups' products one behind the other.
func expandPrefill(s Spec) (*gen.Output, error) {
	k := gen.NewKernel("expand_prefill", s, s.options())
	return newPrefillCTA(k, s).build()
}

// build makes the kernel's body.
func (c *prefillCTA) build() (*gen.Output, error) {
	k, s := c.k, c.s
	c.begin()

	attend, load := s.prefillRegisters()
	k.Roles(
		gen.Role{Name: "attend", Warps: gen.Warpgroups(s.groups()), Registers: attend, Body: c.attend},
		gen.Role{Name: "load", Warps: gen.Warpgroups(1), Registers: load, Body: func() {
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

	readers := gen.Warpgroups(s.groups())
	whole := func(t gen.Tile, warps int) gen.Part { return gen.Part{Count: t.Blocks(), Arrivals: warps} }
	c.result.stage = k.SharedTile("out", s.tile(s.BlockM, prefillStageColumns))
	// Every warpgroup has queries of its own, so that it waits for no other's.
	c.queries = k.Pipeline("q", s.groups(), s.prefillQueryTile(), whole(s.prefillQueryTile(), gen.Warpgroups(1)))
	c.keys = k.Pipeline("k", s.Stages, s.keyTile(), whole(s.keyTile(), readers))
	c.values = k.Pipeline("v", s.Stages, s.valueTile(), whole(s.valueTile(), readers))
	c.mail = k.Mailbox("item", 2, c.mailWords(), readers)
	c.attending = k.NamedBarrier(s.groups() * gen.WarpgroupThreads)
}

// begin starts the kernel's body, once shared memory is laid out.
func (c *prefillCTA) begin() {
	c.k.AlignmentCheck()
	c.k.InitBarriers()
	c.k.PinShared()
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
		// Rows without a key get a tile of which they see nothing.
		it.keys, it.tiles = k.Select(it.tiles.Gt(0), it.keys, k.Int(0)), it.tiles.Max(1)
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
		loadKeys(k.Int(0))
		k.For("row", 0, s.BlockM, gen.AccumulatorRows, func(row gen.Value) {
			at := []gen.Value{it.head, it.query.Add(row)}
			queries.LoadBoxes(once,
				gen.Boxes{From: c.qNope, Count: s.Nope / 64, Coords: at},
				gen.Boxes{From: c.qRope, Count: s.Rope / 64, Coords: at})
		})
		next()
		k.For("tile", 1, it.tiles, 1, func(t gen.Value) {
			loadKeys(t)
			loadValues(t.Sub(1))
		})
		loadValues(it.tiles.Sub(1))
	})
	var words []gen.Value
	for range c.mailWords() {
		words = append(words, k.Int(stop))
	}
	mail.Send(words...)
}
