package main

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// Shape of the cache, DeepSeek's: a row is a latent and a rope key.
const (
	latent    = 512
	rope      = 64
	row       = latent + rope
	element   = 2 // bytes of bf16
	rowBytes  = row * element
	outBytes  = latent * element // of a head's output
	page      = 64               // tokens
	pageBytes = page * rowBytes

	softmaxScale = 0.07216878 // 1/sqrt(128+64): of the head before absorption
)

// pagesOf returns the pages that so many tokens take.
func pagesOf(tokens int) int { return (tokens + page - 1) / page }

// digest stands for a token: everything that attention returned for it, to the
// bit, and all tokens before it.
type digest [sha256.Size]byte

// model stands for what surrounds attention in a language model. From a token it
// makes the next query, and the row that the cache gets for it. Every bit of an
// output matters to all that follows.
type model struct {
	seed  uint64
	noise []byte // bf16, normally distributed
}

// noiseElements is how many numbers there are to choose from. Rows begin at any
// of them.
const noiseElements = 1 << 20

func newModel(seed uint64) *model {
	m := &model{seed: seed, noise: make([]byte, 0, noiseElements*element)}
	random := rand.New(rand.NewPCG(seed, 2))
	for range noiseElements {
		bits := math.Float32bits(float32(random.NormFloat64()))
		m.noise = binary.LittleEndian.AppendUint16(m.noise, uint16(bits>>16))
	}
	return m
}

// draw fills dst with numbers that key decides.
func (m *model) draw(dst []byte, key uint64) {
	places := uint64(noiseElements - len(dst)/element + 1)
	copy(dst, m.noise[element*(mix(key)%places):])
}

// begin returns what stands for a request's prompt.
func (m *model) begin(id int) digest {
	return sha256.Sum256(binary.LittleEndian.AppendUint64([]byte("prompt"), m.key(id, -1)))
}

// key numbers the tokens of prompts.
func (m *model) key(id, position int) uint64 {
	return mix(m.seed ^ mix(uint64(id)<<32|uint64(uint32(position))))
}

// promptRow writes the cache's row of a prompt's token.
func (m *model) promptRow(dst []byte, id, position int) { m.draw(dst, m.key(id, position)) }

// input writes the query of all heads, and the cache's row, that come after a
// token.
func (m *model) input(query, record []byte, after *digest) {
	key := binary.LittleEndian.Uint64(after[:])
	for head := range len(query) / rowBytes {
		m.draw(query[head*rowBytes:][:rowBytes], key+uint64(head))
	}
	m.draw(record, binary.LittleEndian.Uint64(after[8:]))
}

// next returns the token that an output makes.
func (m *model) next(after *digest, out, lse []byte) (d digest) {
	h := sha256.New()
	h.Write(after[:])
	h.Write(out)
	h.Write(lse)
	h.Sum(d[:0])
	return d
}

// mix is SplitMix64's finisher: neighbouring numbers become unlike.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
