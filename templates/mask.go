package templates

import (
	"github.com/mlagen/mlagen/gen"
)

// visibility says which keys of a tile the rows of a row block see: query
// token j of a request sees the keys below length − s_q + 1 + j.
type visibility struct {
	s          Spec
	length     gen.Value // kv_len, new tokens included
	firstToken gen.Value // of the tile
	firstRow   gen.Value // of the row block
}

// hide sets the scores of keys that a row does not see to −∞. Only the last
// tiles of a request can hold such keys.
func (v visibility) hide(k *gen.Kernel, scores gen.Accumulator) {
	least := v.length.Sub(v.s.SQ - 1) // what query token 0 sees
	k.If(v.firstToken.Add(v.s.BlockN).Gt(least), func() {
		token := v.firstToken.Add(k.FragmentRow())
		row := v.firstRow.Add(k.FragmentColumn())
		for j := range len(scores.R) / 2 {
			limit := v.length
			if v.s.SQ > 1 {
				query := row.Add(columnStep(j)).Div(v.s.Heads)
				limit = least.Add(query).Min(v.length) // rows past the last one are padding
			}
			for i, e := range elements(j) {
				seen := token.Add(8 * i).Lt(limit)
				scores.R[e].Choose(seen, k.NegInf())
			}
		}
	})
}

// hideColumns does the same for fragments whose rows are query rows and whose
// columns are tokens.
func (v visibility) hideColumns(k *gen.Kernel, scores gen.Accumulator) {
	least := v.length.Sub(v.s.SQ - 1)
	k.If(v.firstToken.Add(v.s.BlockN).Gt(least), func() {
		token := v.firstToken.Add(k.FragmentColumn())
		limit := [2]gen.Value{v.length, v.length}
		if v.s.SQ > 1 {
			for h := range limit {
				query := v.firstRow.Add(k.FragmentRow()).Add(8 * h).Div(v.s.Heads)
				limit[h] = least.Add(query).Min(v.length) // rows past the last one are padding
			}
		}
		for i, r := range scores.R {
			seen := token.Add(scores.ColumnStep(i)).Lt(limit[rowOf(i)])
			r.Choose(seen, k.NegInf())
		}
	})
}

// clearUnused zeroes the tile's rows past the end of the request: their
// weights are 0, but 0 · NaN is NaN, and a page's unused slots may hold
// anything. Run by 128 threads, after every multiply that reads the rows as
// keys; the zeros still want FenceAsync and a barrier.
func (v visibility) clearUnused(k *gen.Kernel, latent gen.SharedTile) {
	k.If(v.partial(), func() {
		zero := k.Int(0)
		warp := k.Thread().Shr(5).And(3)
		k.ForRolled("unused", v.length.Sub(v.firstToken).Add(warp), v.s.BlockN, 4, func(row gen.Value) {
			for _, piece := range latent.Pieces() {
				k.ForRolled("chunk", k.Lane(), piece.Cols/chunkElems, 32, func(chunk gen.Value) {
					piece.Chunk(row, chunk).StoreVector(0, zero, zero, zero, zero)
				})
			}
		})
	})
}

// partial reports whether the tile reaches past the end of the request.
func (v visibility) partial() gen.Value {
	return v.length.Sub(v.firstToken).Lt(v.s.BlockN)
}
