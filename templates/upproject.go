package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// upProject expands latents to the keys and values of all heads:
//
//	out[row, head, nope | value] = W[head] · latent[row]
//
// Latents are gathered from a paged cache by block tables, a page's 64 tokens
// as a box, or come from dense rows, which are one page as long as they are
// many. Slots of a page that no token of the range occupies are multiplied
// like others, and not written. On request the tokens' rope keys are copied to
// dense rows beside.
func upProject(s Spec) (*gen.Output, error) {
	k := gen.NewKernel("up_project", s, s.options())
	p := newProduct(k, s, s.upProjection())
	kv := gatherer(k, s)
	todo := sequenceReader(k, s)

	p.shared(sharedWork{
		prepare:  func() { todo.countTiles(wideWarps) },
		rowTiles: todo.total,
		tile: func(i gen.Value) (row, bounds gen.Value, load func(gen.Place, gen.Value, gen.Value)) {
			exists := i.Lt(todo.total())
			t := todo.find(i.Min(todo.total().Sub(1)))
			t.end = k.Select(exists, t.end, k.Int(0)) // the last cluster's CTAs need not all have rows
			return t.row, boundsOf(t.first, t.end), kv.loader(t)
		},
		extra: func() {
			k.WaitForPreviousGrid()
			k.If(kv.copyRope.Read().Ne(0), func() {
				k.For("tile", k.Block(), todo.total(), k.Blocks(), func(i gen.Value) { kv.copyRopeKeys(todo.find(i)) })
			})
		},
	})
	return k.Build()
}

// gather reads rows of latents: from pages by a block table, or from dense rows.
type gather struct {
	k           *gen.Kernel
	s           Spec
	latents     gen.TensorMap
	paged       gen.Scalar // 0: dense rows
	table       gen.Pointer
	tableStride gen.Scalar // elements

	copyRope  gen.Scalar // 0: rope keys are not copied
	rope      gen.Pointer
	ropePage  gen.Scalar // bytes from a page's rope keys to the next's
	ropeToken gen.Scalar // and from a token's
	ropeOut   gen.Pointer
	ropeRow   gen.Scalar // bytes
}

func gatherer(k *gen.Kernel, s Spec) gather {
	tile := s.rowsTile()
	tile.Rows = s.Page
	return gather{
		k: k, s: s,
		latents:     k.Tensor("latents", tile.DType, []string{"column", "token", "page"}, append(tile.Box(), 1), tile.Swizzle, kvPromotion),
		paged:       k.Scalar("paged", isa.U32),
		table:       k.Pointer("block_table", isa.S32),
		tableStride: k.Scalar("block_table_stride", isa.S64),
		copyRope:    k.Scalar("copy_rope", isa.U32),
		rope:        k.Pointer("rope", isa.B32),
		ropePage:    k.Scalar("rope_page", isa.S64),
		ropeToken:   k.Scalar("rope_token", isa.S64),
		ropeOut:     k.Pointer("k_rope", isa.B32),
		ropeRow:     k.Scalar("k_rope_row", isa.S64),
	}
}

// halfPlace is where 64 tokens of a tile lie: page and token of the tensor
// map's.
type halfPlace struct{ token, page gen.Value }

// places returns where the tile's halves lie. A table's entry is read where a
// token of the range is on its page; other halves lie outside the page, where
// the copy engine finds zeros.
func (g gather) places(t rowTile) (places []halfPlace) {
	k, s := g.k, g.s
	paged := g.paged.Read().Ne(0)
	entries := g.table.At(t.sequence.Extend().Mul(g.tableStride.Read())).At(t.token.Shr(6))
	for i := range s.BlockM / s.Page {
		used := paged.And(t.end.Gt(i * s.Page))
		page := entries.LoadIf(used, i, k.Int(0))
		inPage := k.Select(used, k.Int(0), k.Int(s.Page))
		places = append(places, halfPlace{
			token: k.Select(paged, inPage, t.token.Add(i*s.Page)),
			page:  page,
		})
	}
	return places
}

// loader returns what brings a block of the tile's latents into a slot.
func (g gather) loader(t rowTile) func(slot gen.Place, policy, depth gen.Value) {
	places := g.places(t)
	return func(slot gen.Place, policy, depth gen.Value) {
		var boxes []gen.Box
		for i, at := range places {
			boxes = append(boxes, gen.Box{Tensor: g.latents, Coords: []gen.Value{depth, at.token, at.page}, Tile: rowsPart, Row: i * g.s.Page})
		}
		slot.Fill(policy, boxes...)
	}
}

// copyRopeKeys copies the rope keys of a tile's tokens, by a warp.
func (g gather) copyRopeKeys(t rowTile) {
	k, s := g.k, g.s
	for i, at := range g.places(t) {
		begin := t.first.Max(i * s.Page)
		end := t.end.Min((i + 1) * s.Page)
		page := g.rope.Bytes(at.page.Extend().Mul(g.ropePage.Read()))
		copyChunks(k, end.Sub(begin), s.Rope,
			func(row gen.Value) gen.Pointer {
				return page.Bytes(at.token.Add(begin).Add(row).Sub(i * s.Page).Extend().Mul(g.ropeToken.Read()))
			},
			func(row gen.Value) gen.Pointer {
				return g.ropeOut.Bytes(t.row.Add(begin).Add(row).Extend().Mul(g.ropeRow.Read()))
			})
	}
}
