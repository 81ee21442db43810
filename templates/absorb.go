package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// absorbQuery brings queries into the latent space, head by head:
//
//	out[token, head, latent] = Σ_nope q[token, head, nope] · W_UK[head, nope, latent]
//
// and on request copies their rope parts beside.
func absorbQuery(s Spec) (*gen.Output, error) {
	k := gen.NewKernel("absorb_q", s, s.options())
	p := newProduct(k, s, s.queryAbsorption())
	rows := rowReader(k, s)
	rope := ropeCopier(k, s)
	rows.build(p, rope.copy)
	return k.Build()
}

// absorbOut brings attended latents out of the latent space, head by head:
//
//	out[token, head, value] = Σ_latent o[token, head, latent] · W_UV[head, value, latent]
func absorbOut(s Spec) (*gen.Output, error) {
	k := gen.NewKernel("absorb_o", s, s.options())
	p := newProduct(k, s, s.outputAbsorption())
	rows := rowReader(k, s)
	rows.build(p, nil)
	return k.Build()
}

// headRows reads the rows of heads: a tensor [token, head, depth].
type headRows struct {
	k      *gen.Kernel
	s      Spec
	rows   gen.TensorMap
	tokens gen.Scalar
}

func rowReader(k *gen.Kernel, s Spec) headRows {
	tile := s.rowsTile()
	return headRows{
		k: k, s: s,
		rows:   k.Tensor("rows", tile.DType, []string{"column", "token", "head"}, append(tile.Box(), 1), tile.Swizzle, kvPromotion),
		tokens: k.Scalar("tokens", isa.S32),
	}
}

// headTile is a tile's place: its first token, its head, its first column of
// the output.
type headTile struct{ token, head, column gen.Value }

// tile returns tile i of all: the tiles of a head follow each other, so that
// CTAs that run at a time share its weights and its rows.
func (r headRows) tile(p *product, i gen.Value) headTile {
	perRow := p.g.columns / r.s.BlockN
	perHead := r.rowTiles().Mul(perRow)
	head := i.Div(perHead)
	inHead := i.Sub(head.Mul(perHead))
	return headTile{
		token:  inHead.Div(perRow).Mul(r.s.BlockM),
		head:   head,
		column: inHead.Rem(perRow).Mul(r.s.BlockN),
	}
}

func (r headRows) rowTiles() gen.Value {
	return r.tokens.Read().Add(r.s.BlockM - 1).Div(r.s.BlockM)
}

func (r headRows) load(slot gen.Place, policy, depth gen.Value, t headTile) {
	slot.Fill(policy, gen.Box{Tensor: r.rows, Coords: []gen.Value{depth, t.token, t.head}, Tile: rowsPart})
}

// end returns how many of a tile's rows exist.
func (r headRows) end(t headTile) gen.Value { return r.tokens.Read().Sub(t.token).Min(r.s.BlockM) }

// build makes the kernel's body. extra, where there is one, runs in a warp of
// its own for the tiles that begin a row.
func (r headRows) build(p *product, extra func(t headTile, rows gen.Value)) {
	k, s := r.k, r.s
	if !s.wide() {
		p.narrow(r, extra)
		return
	}
	each := func(body func(headTile)) {
		total := r.rowTiles().Mul(p.g.columns / s.BlockN * s.Heads)
		k.For("item", k.Block(), total, k.Blocks(), func(i gen.Value) { body(r.tile(p, i)) })
	}
	work := wideWork{
		tiles: func(body func(wideTile, func(gen.Place, gen.Value, gen.Value))) {
			each(func(t headTile) {
				body(wideTile{t.head, t.column, t.token, boundsOf(k.Int(0), r.end(t))},
					func(slot gen.Place, policy, depth gen.Value) { r.load(slot, policy, depth, t) })
			})
		},
	}
	if extra != nil {
		work.extra = func() {
			k.WaitForPreviousGrid()
			each(func(t headTile) { k.If(t.column.Eq(0), func() { extra(t, r.end(t)) }) })
		}
	}
	p.wide(work)
}

// ropeCopy copies the rope parts of queries.
type ropeCopy struct {
	k        *gen.Kernel
	s        Spec
	wanted   gen.Scalar // 0: they are not copied
	from, to strided
}

func ropeCopier(k *gen.Kernel, s Spec) ropeCopy {
	return ropeCopy{k, s, k.Scalar("copy_rope", isa.U32), stridedTensor(k, "q_rope"), stridedTensor(k, "rope_out")}
}

// copy copies so many rows of a tile, by a warp.
func (c ropeCopy) copy(t headTile, rows gen.Value) {
	k := c.k
	k.If(c.wanted.Read().Ne(0), func() {
		copyChunks(k, rows, c.s.Rope,
			func(row gen.Value) gen.Pointer { return c.from.at(t.token.Add(row), t.head) },
			func(row gen.Value) gen.Pointer { return c.to.at(t.token.Add(row), t.head) })
	})
}
