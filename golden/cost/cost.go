// Package cost counts the work of the two equivalent ways to evaluate
// multi-head latent attention: expand (up-project the cache to per-head keys
// and values, then ordinary attention) and absorb (fold the up-projections
// into query and output and attend in latent space). A multiply-add is two
// FLOP; softmax is not counted.
package cost

// Model is the attention shape of one layer.
type Model struct {
	Heads  int // query heads
	Latent int // width of the cached latent
	Rope   int // width of the shared rotary key
	Nope   int // width of the per-head key without position
	Value  int // width of the per-head value
}

// V3 is DeepSeek-V3, without tensor parallelism.
var V3 = Model{Heads: 128, Latent: 512, Rope: 64, Nope: 128, Value: 128}

// ExpandPair is the FLOP per (query, key) pair of the expand path.
func (m Model) ExpandPair() float64 {
	return float64(2 * m.Heads * (m.Nope + m.Rope + m.Value))
}

// AbsorbPair is the FLOP per (query, key) pair of the absorb path: a dot
// product with the whole record and a sum of its latent part.
func (m Model) AbsorbPair() float64 {
	return float64(2 * m.Heads * (m.Latent + m.Rope + m.Latent))
}

// ExpandToken is the FLOP to up-project one key token for every head.
func (m Model) ExpandToken() float64 {
	return float64(2 * m.Latent * m.Heads * (m.Nope + m.Value))
}

// AbsorbToken is the FLOP to absorb one query token: the query into latent
// space, and the attended latent back to values.
func (m Model) AbsorbToken() float64 {
	return float64(2 * m.Latent * m.Heads * (m.Nope + m.Value))
}

// Pairs is the number of visible (query, key) pairs when queries new tokens
// end a sequence of keys tokens, causally; keys includes the new ones.
func Pairs(queries, keys int) float64 {
	q, k := float64(queries), float64(keys)
	return q*k - q*(q-1)/2
}

// Expand is the FLOP of the expand path for queries new tokens of keys in all.
func (m Model) Expand(queries, keys int) float64 {
	return float64(keys)*m.ExpandToken() + Pairs(queries, keys)*m.ExpandPair()
}

// Absorb is the FLOP of the absorb path for queries new tokens of keys in all.
func (m Model) Absorb(queries, keys int) float64 {
	return float64(queries)*m.AbsorbToken() + Pairs(queries, keys)*m.AbsorbPair()
}

// Crossover is the number of new tokens above which expanding a long cache
// costs fewer FLOP than absorbing.
func (m Model) Crossover() float64 {
	return m.ExpandToken() / (m.AbsorbPair() - m.ExpandPair())
}

// Intensity is the FLOP per byte of cache that one query token of absorb
// decode performs, for cache elements of elementBytes.
func (m Model) Intensity(elementBytes int) float64 {
	return m.AbsorbPair() / float64(m.RecordBytes(elementBytes))
}

// RecordBytes is the cache of one token in one layer.
func (m Model) RecordBytes(elementBytes int) int {
	return (m.Latent + m.Rope) * elementBytes
}

// DecodeFLOP is the attention work of absorb decode alone over pairs visible
// (query token, key) pairs, the count that throughput figures use.
func (m Model) DecodeFLOP(pairs float64) float64 { return pairs * m.AbsorbPair() }
