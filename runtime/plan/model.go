// Package plan decides how a request's attention is computed. Multi-head latent
// attention has two equivalent ways. Absorb folds the up-projections into the
// query and the output and attends in latent space: no cost per cached token
// but that of reading it, 3.4 times the work per (query, key) pair. Expand
// up-projects every cached token to keys and values of each head and attends to
// those. When the expanded prefix does not fit the workspace it is expanded in
// chunks, whose partial results are merged.
//
// The package is arithmetic on numbers: it knows no device and no kernel.
package plan

// Model is the attention shape of one layer, in elements of 16 bits.
type Model struct {
	Heads  int `json:"heads"`  // query heads on this device
	Latent int `json:"latent"` // width of the cached latent
	Rope   int `json:"rope"`   // width of the rope key that all heads share
	Nope   int `json:"nope"`   // width of a head's key without the rope key
	Value  int `json:"value"`  // width of a head's value
}

// DeepSeek returns the shape of DeepSeek-V3 with so many heads; the whole model
// has 128.
func DeepSeek(heads int) Model {
	return Model{Heads: heads, Latent: 512, Rope: 64, Nope: 128, Value: 128}
}

// elementBytes is the size of a tensor's element.
const elementBytes = 2

// A multiply-add is two FLOP; softmax is not counted.

// ExpandPair is the FLOP per (query, key) pair on expanded keys and values.
func (m Model) ExpandPair() float64 { return 2 * float64(m.Heads) * float64(m.Nope+m.Rope+m.Value) }

// AbsorbPair is the FLOP per pair in latent space.
func (m Model) AbsorbPair() float64 { return 2 * float64(m.Heads) * float64(2*m.Latent+m.Rope) }

// ExpandToken is the FLOP to expand one key token for all heads.
func (m Model) ExpandToken() float64 { return m.projection() }

// AbsorbToken is the FLOP to absorb one query token: its query into latent space,
// and what it attended to back to values.
func (m Model) AbsorbToken() float64 { return m.projection() }

func (m Model) projection() float64 {
	return 2 * float64(m.Heads) * float64(m.Latent) * float64(m.Nope+m.Value)
}

// Crossover is the number of new tokens above which expanding a long prefix
// takes fewer FLOP than absorbing.
func (m Model) Crossover() float64 { return m.ExpandToken() / (m.AbsorbPair() - m.ExpandPair()) }

// ExpandedBytes is the memory of one expanded token: k_nope and value of every
// head. The rope key stays where it is.
func (m Model) ExpandedBytes() int64 { return int64(m.Heads) * int64(m.Nope+m.Value) * elementBytes }

// expandedRow is the workspace of an expanded token: its rope key is copied beside
// what it was expanded to.
func (m Model) expandedRow() int64 { return m.ExpandedBytes() + int64(m.Rope)*elementBytes }

// StateBytes is the workspace for what so many new tokens carry from one chunk
// to the next: f32, for whole blocks of query tokens.
func (m Model) StateBytes(queries int) int64 {
	const sums = 8 // per row, beside the output
	blocks := (int64(queries) + prefillRows - 1) / prefillRows
	return blocks * prefillRows * int64(m.Heads) * int64(m.Value+sums) * 4
}

// RecordBytes is the memory of one cached token.
func (m Model) RecordBytes() int64 { return int64(m.Latent+m.Rope) * elementBytes }

// weightBytes is the memory of the up-projections of all heads.
func (m Model) weightBytes() float64 {
	return float64(m.Heads) * float64(m.Latent) * float64(m.Nope+m.Value) * elementBytes
}

// Request is one request's tokens.
type Request struct {
	New    int `json:"new"`    // query tokens, which are in the cache as well
	Prefix int `json:"prefix"` // cached tokens before them
}

// keys returns the tokens that the last query token sees.
func (r Request) keys() float64 { return float64(r.New) + float64(r.Prefix) }

// Pairs is the number of visible (query, key) pairs.
func (r Request) Pairs() float64 {
	q := float64(r.New)
	return q*r.keys() - q*(q-1)/2
}

// ExpandFLOP is the work of the expand path, in one piece or in chunks.
func (m Model) ExpandFLOP(r Request) float64 {
	return r.keys()*m.ExpandToken() + r.Pairs()*m.ExpandPair()
}

// AbsorbFLOP is the work of the absorb path.
func (m Model) AbsorbFLOP(r Request) float64 {
	return float64(r.New)*m.AbsorbToken() + r.Pairs()*m.AbsorbPair()
}
