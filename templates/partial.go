package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// partials is where pieces of requests leave their results in the workspace: of
// a row the output, normalised, its LSE in base 2, and the unit that the output
// is counted in. Rows of outputs lie as decode's threads held them, in 16-byte
// vectors, all threads side by side.
//
// What merging costs is the bytes that it moves, so outputs are f16 where the
// result is bf16: 11 bits are three more than the result keeps, enough where
// pieces cancel; 8 bits are not. The unit, a power of two, lends them bf16's
// range: the largest element of the row is 2¹⁴ to 2¹⁵ units. It is that of the
// elements which one warp has of the row (a share), so that nobody waits for
// other warps to tell theirs. Where the result is fp16, outputs are f32.
type partials struct {
	k      *gen.Kernel
	s      Spec
	out    gen.Pointer // [slot][row block][vector][thread] of 16 bytes
	states gen.Pointer // [slot][share][padded row] of stateWords f32
}

const (
	// stateWords is the size of a row's state: its LSE and the unit.
	stateWords = 2
	// stateBytes is the workspace that a row's states take at most, in bytes: of
	// two warpgroups whose warps all hold elements of it.
	stateBytes = 8 * stateWords * 4
	// partialWords is the size of a vector of partial output in 32-bit words.
	partialWords = 4
	// unitExponent is the binary exponent of a row's largest element in units.
	unitExponent = 14
)

func partialResults(k *gen.Kernel, s Spec) partials {
	elem := isa.B32
	if s.partialElems() == partialWords {
		elem = isa.F32
	}
	return partials{k, s, k.Pointer("partial_out", elem), k.Pointer("partial_state", isa.F32)}
}

// partialElems returns the elements of a vector of partial output: 8 of f16 or 4
// of f32.
func (s Spec) partialElems() int {
	if s.dtype() == gen.FP16 {
		return 4
	}
	return 8
}

// partialBytes returns the size of an element of partial output.
func (s Spec) partialBytes() int { return 4 * partialWords / s.partialElems() }

// shares returns over how many warps the elements of a row are spread.
func (s Spec) shares() int {
	if s.rowsOnM() {
		return s.warpgroups()
	}
	return s.warpgroups() * gen.Warpgroups(1)
}

// vectors returns where a slot keeps the vectors of the row block that begins
// with firstRow.
func (p partials) vectors(slot, firstRow gen.Value) gen.Pointer {
	words := p.s.Latent * p.s.partialBytes() / 4
	return p.out.Stride(slot, p.s.PaddedRows()*words).Stride(firstRow, words)
}

// slotWords returns how far the outputs of neighbouring slots are apart, in words.
func (p partials) slotWords() int { return p.s.PaddedRows() * p.s.Latent * p.s.partialBytes() / 4 }

// slotStates returns how far the states of neighbouring slots are apart, in words.
func (p partials) slotStates() int { return p.s.shares() * p.s.PaddedRows() * stateWords }

// rows returns where a slot keeps the states of a share, from a row on.
func (p partials) rows(slot, share, row gen.Value) gen.Pointer {
	return p.states.Stride(slot, p.slotStates()).At(share.Mul(p.s.PaddedRows()).Add(row).Mul(stateWords))
}

// pack returns a vector of the workspace. Elements are in units.
func (p partials) pack(x []gen.Value) []gen.Value {
	if p.s.partialElems() == partialWords {
		return x
	}
	var words []gen.Value
	for e := 0; e < len(x); e += 2 {
		words = append(words, p.k.Pack(gen.FP16, x[e], x[e+1]))
	}
	return words
}

// unpack returns the elements of a vector, in units.
func (p partials) unpack(words []gen.Value) []gen.Value {
	if p.s.partialElems() == partialWords {
		return words
	}
	var x []gen.Value
	for _, w := range words {
		lo, hi := p.k.Unpack(gen.FP16, w)
		x = append(x, lo, hi)
	}
	return x
}

// unit returns the unit of elements of which peak is the largest magnitude, and
// how many there are to 1. Powers of two are made and inverted by their exponents,
// which stay clear of zero's and infinity's: elements below 2⁻¹¹² lose bits. Beside
// an infinity the unit is 1, lest all else become 0.
func (p partials) unit(peak gen.Value) (unit, per gen.Value) {
	k := p.k
	const bias, mantissa = 127, 23
	exponent := peak.Bits().And(0xff << mantissa).Max((unitExponent + 1) << mantissa)
	exponent = k.Select(exponent.Eq(0xff<<mantissa), k.Int((bias+unitExponent)<<mantissa), exponent)
	unit = exponent.Sub(unitExponent << mantissa).Float32()
	per = k.Int((2*bias + unitExponent) << mantissa).Sub(exponent).Float32()
	return unit, per
}

// quad is four consecutive elements of an accumulator, from first on.
type quad struct {
	acc   gen.Accumulator
	first int
}

// quads lists the accumulators' elements in fours.
func quads(out []gen.Accumulator) []quad {
	var q []quad
	for _, o := range out {
		for i := 0; i < len(o.R); i += 4 {
			q = append(q, quad{o, i})
		}
	}
	return q
}

// quadsOf returns which quads vector n consists of: those of the same rows, which
// are so many apart.
func (p partials) quadsOf(n, apart int) []int {
	if p.s.partialElems() == partialWords {
		return []int{n}
	}
	first := n/apart*2*apart + n%apart
	return []int{first, first + apart}
}
