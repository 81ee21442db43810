package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Tiles of a ring's slot.
const (
	rowsPart    = 0
	weightsPart = 1
)

// product is a kernel that multiplies rows (tokens) by the weights of heads:
//
//	out[row, head, column] = Σ_depth rows[row, head, depth] · weights[head, column, depth]
//
// Two warps keep a ring of blocks of the contraction filled, one with rows and
// one with weights; the weights' does not wait for the grid before, which
// never writes them.
type product struct {
	k       *gen.Kernel
	s       Spec
	g       geometry
	weights gen.TensorMap // [head][row][column], see geometry.transposed
	out     strided
	results gen.TensorMap // the same as out, for the copy engine; of wide products
	ring    *gen.Ring
}

// strided addresses a tensor [token, head, …] by byte strides.
type strided struct {
	base        gen.Pointer
	token, head gen.Scalar
}

// stridedTensor declares NAME, NAME_token and NAME_head, strides in bytes.
func stridedTensor(k *gen.Kernel, name string) strided {
	return strided{k.Pointer(name, isa.B32), k.Scalar(name+"_token", isa.S64), k.Scalar(name+"_head", isa.S64)}
}

// at returns the start of a token's row of a head.
func (t strided) at(token, head gen.Value) gen.Pointer {
	return t.base.Bytes(token.Extend().Mul(t.token.Read())).Bytes(head.Extend().Mul(t.head.Read()))
}

// newProduct declares the weights and the output. Weights are boxes of 64
// columns and as many rows as a slot holds.
func newProduct(k *gen.Kernel, s Spec, g geometry) *product {
	tile := s.weightsTile(g)
	box := tile.Box()
	if g.shared { // a CTA's share
		box[1] /= s.Cluster
	}
	return &product{
		k: k, s: s, g: g,
		weights: k.Tensor("weights", tile.DType, []string{"column", "row", "head"}, append(box, 1), tile.Swizzle, weightPromotion),
		out:     stridedTensor(k, "out"),
	}
}

// weightPromotion is the L2 promotion of the weights' tensor map in bytes.
const weightPromotion = 128

// depthBlocks is the slots that a tile takes.
func (p *product) depthBlocks() int { return p.g.depth / depthBlock }

// loadWeights fills the weights' share of a tile's slots.
func (p *product) loadWeights(slots *gen.Filler, policy, head, column gen.Value) {
	k := p.k
	k.For("depth", 0, p.g.depth, depthBlock, func(depth gen.Value) {
		slot := slots.Next()
		if !p.g.transposed {
			slot.Fill(policy, gen.Box{Tensor: p.weights, Coords: []gen.Value{depth, column, head}, Tile: weightsPart})
			return
		}
		var boxes []gen.Box
		for c := 0; c < p.s.BlockN; c += depthBlock {
			boxes = append(boxes, gen.Box{Tensor: p.weights, Coords: []gen.Value{column.Add(c), depth, head}, Tile: weightsPart, Col: c})
		}
		slot.Fill(policy, boxes...)
	})
}

// weightsOf returns a slot's weights as an operand, one row per output column.
func (p *product) weightsOf(slot gen.Place) gen.View {
	if p.g.transposed {
		return slot.Tile(weightsPart).Transposed()
	}
	return slot.Tile(weightsPart).KMajor()
}

// copyChunks copies rows of so many elements, a multiple of 8, by a warp.
func copyChunks(k *gen.Kernel, rows gen.Value, elements int, from, to func(row gen.Value) gen.Pointer) {
	chunks := elements / chunkElems
	k.For("chunk", k.Lane(), rows.Mul(chunks), 32, func(i gen.Value) {
		row, chunk := i.Div(chunks), i.Rem(chunks).Mul(4)
		to(row).At(chunk).StoreVector(0, from(row).At(chunk).LoadVector(0, 4)...)
	})
}
