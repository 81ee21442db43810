package templates

import "fmt"

// TileWork is what a CTA does for one tile: the unit in which its operands come
// from memory.
type TileWork struct {
	Tile     string        `json:"tile"` // "64 cached tokens for 16 query rows"
	Products []TileProduct `json:"products"`
	Cycles   int           `json:"tensor_cycles"` // that the SM's tensor cores need at least
	FLOP     int           `json:"flop"`          // that they do, padding included
	Useful   float64       `json:"useful"`        // the share of it that is no padding
	Bytes    int           `json:"bytes"`         // of the operands that the tile brings
	// Readers is how many CTAs want the same bytes at about the same time, so that
	// all but one of them find them in the L2; 0 says that reuse depends on more
	// than the spec.
	Readers int `json:"readers"`
}

// TileProduct is a product of a tile: so many wgmma of one shape.
type TileProduct struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
	N     int    `json:"n"` // of m64nNk16
}

// cycles of a wgmma m64nNk16: 4096 FLOP a cycle, but no fewer than it takes to
// read 64 × 16 elements from shared memory at 128 bytes a cycle.
func (p TileProduct) cycles() int { return p.Count * max(p.N/2, 16) }

func (p TileProduct) flop() int { return p.Count * 2 * 64 * p.N * 16 }

// Work returns what a tile of the kernel called name takes, false for a kernel
// that multiplies nothing. The spec has its defaults.
func Work(name string, s Spec) (TileWork, bool) {
	var w TileWork
	switch name {
	case "absorb-decode":
		w = s.decodeWork()
	case "expand-prefill", "extend-attend":
		w = TileWork{
			Tile: fmt.Sprintf("%d keys of a head for %d query tokens", s.BlockN, s.BlockM),
			Products: []TileProduct{
				{"scores", s.groups() * (s.Nope + s.Rope) / 16, s.BlockN},
				{"output", s.groups() * s.BlockN / 16, s.Value},
			},
			Useful: 1, Bytes: s.keyTile().Bytes() + s.valueTile().Bytes(),
		}
	case "up-project":
		w = s.productWork(s.upProjection())
	case "absorb-q":
		w = s.productWork(s.queryAbsorption())
	case "absorb-o":
		w = s.productWork(s.outputAbsorption())
	default:
		return w, false
	}
	for _, p := range w.Products {
		w.Cycles += p.cycles()
		w.FLOP += p.flop()
	}
	return w, true
}

func (s Spec) decodeWork() TileWork {
	w := TileWork{
		Tile:   fmt.Sprintf("%d cached tokens for %d query rows", s.BlockN, s.BlockH),
		Useful: float64(s.Rows()) / float64(s.PaddedRows()), Bytes: s.kvTile().Bytes(), Readers: s.RowBlocks(),
	}
	if s.rowsOnM() {
		half := s.Latent / s.warpgroups()
		w.Products = []TileProduct{{"scores", s.Width() / 16, s.BlockN}, {"output", s.warpgroups() * s.BlockN / 16, half}}
	} else {
		w.Products = []TileProduct{{"scores", s.BlockN / 64 * s.Width() / 16, s.BlockH}, {"output", s.Latent / 64 * s.BlockN / 16, s.BlockH}}
	}
	return w
}

func (s Spec) productWork(g geometry) TileWork {
	w := TileWork{Tile: fmt.Sprintf("%d rows × %d columns of a head", s.BlockM, s.BlockN), Useful: 1}
	elements := s.BlockN * g.depth
	if s.wide() {
		w.Products = []TileProduct{{"product", s.BlockM / 64 * g.depth / 16, s.BlockN}}
	} else {
		w.Products = []TileProduct{{"product", s.BlockN / 64 * g.depth / 16, s.BlockM}}
	}
	if !g.shared { // with shared rows they stay, and weights stream
		elements += s.BlockM * g.depth
	}
	w.Bytes = elements * s.dtype().Bytes()
	return w
}
