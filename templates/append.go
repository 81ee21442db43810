package templates

import (
	"math/bits"
	"slices"

	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// The ways to rotate a rope key by its position: pairs of neighbouring columns
// (2i, 2i+1), or columns of its two halves (i, i + width/2).
const (
	rotateInterleaved = "interleaved"
	rotateHalf        = "half"
)

const (
	appendThreads = 256
	// chunksAtOnce is how many 16-byte chunks a thread has under way.
	chunksAtOnce = 2
)

// appendDefaults fills what appending uses, and drops the rest.
func appendDefaults(s Spec) Spec {
	d := Spec{DType: s.DType, Latent: s.Latent, Rope: s.Rope, Page: s.Page}.WithDefaults()
	return Spec{Latent: d.Latent, Rope: d.Rope, Page: d.Page, DType: d.DType, Rotate: s.Rotate, LineInfo: s.LineInfo}
}

func validateAppend(s Spec) error {
	switch {
	case s.Page != pageTokens:
		return &SpecError{"page", s.Page, "the cache has pages of 64 tokens", pageTokens}
	case !slices.Contains(latentWidths, s.Latent):
		return &SpecError{"latent", s.Latent, "these are the widths that decode reads", closest(s.Latent, latentWidths)}
	case !slices.Contains(ropeWidths, s.Rope):
		return &SpecError{"rope", s.Rope, "these are the widths that decode reads", closest(s.Rope, ropeWidths)}
	case s.Rotate != "" && s.Rotate != rotateInterleaved && s.Rotate != rotateHalf:
		return &SpecError{"rotate", s.Rotate, "rope keys are rotated interleaved, half, or not at all", rotateInterleaved}
	}
	if _, err := gen.ParseDType(s.DType); err != nil {
		return &SpecError{"dtype", s.DType, "kernels store bf16 or fp16", gen.BF16.Name}
	}
	return nil
}

// cacheAppender writes new tokens' records, latent and rope key, into the
// paged cache. Token t goes to slot slots[t], which is page · 64 + offset; a
// negative slot says that the token is not to be stored. A thread copies one
// 16-byte chunk of a record at a time; a chunk of the rope key is rotated on its
// way where the spec asks for it. A slot past the cache, or a position past the
// tables, stops the kernel with an error: nothing is written outside the cache,
// and no token is lost in silence.
type cacheAppender struct {
	k            *gen.Kernel
	s            Spec
	latent, rope tokenRows
	kv           gen.Pointer
	kvPage       gen.Scalar // strides in bytes
	kvRow        gen.Scalar
	slots        gen.Pointer
	slotCount    gen.Scalar // of the cache

	positions     gen.Pointer // rotation only
	positionCount gen.Scalar  // of the tables
	cos, sin      tokenRows
}

// tokenRows addresses rows by a stride in bytes.
type tokenRows struct {
	base   gen.Pointer
	stride gen.Scalar
}

// rows declares a tensor of rows: NAME, and NAME_row, its stride in bytes.
func rows(k *gen.Kernel, name string, elem isa.Type) tokenRows {
	return tokenRows{k.Pointer(name, elem), k.Scalar(name+"_row", isa.S64)}
}

func (r tokenRows) row(index gen.Value) gen.Pointer {
	return r.base.Bytes(index.Extend().Mul(r.stride.Read()))
}

func appendKV(s Spec) (*gen.Output, error) {
	k := gen.NewKernel("append_kv", s, s.options())
	k.Threads(appendThreads)
	a := cacheAppender{k: k, s: s, latent: rows(k, "latent", isa.B32), rope: rows(k, "rope", isa.B32)}
	a.kv, a.kvPage, a.kvRow = k.Pointer("kv", isa.B32), k.Scalar("kv_page", isa.S64), k.Scalar("kv_row", isa.S64)
	a.slots, a.slotCount = k.Pointer("slots", isa.S64), k.Scalar("slot_count", isa.S64)
	tokens := k.Scalar("tokens", isa.S32)
	if s.Rotate != "" {
		a.positions, a.positionCount = k.Pointer("positions", isa.S32), k.Scalar("position_count", isa.S32)
		a.cos, a.sin = rows(k, "cos", isa.F32), rows(k, "sin", isa.F32)
	}
	k.AllowNextGrid()
	latentChunks, ropeChunks := s.Latent/chunkElems, s.Rope/chunkElems
	thread := k.Block().Mul(appendThreads).Add(k.Thread())
	threads := k.Blocks().Mul(appendThreads)
	k.WaitForPreviousGrid()
	// Both loops run over token × chunk; neighbouring threads have neighbouring
	// chunks, and the rope keys' begin where the latents' threads are done first.
	a.each("latent", tokens, thread, threads, latentChunks, func(token, chunk gen.Value) func() {
		words := a.latent.row(token).At(chunk.Mul(4)).LoadVector(0, 4)
		return a.put(token, chunk, func(gen.Value) []gen.Value { return words })
	})
	a.each("rope", tokens, threads.Sub(1).Sub(thread), threads, ropeChunks, func(token, chunk gen.Value) func() {
		key := a.rope.row(token)
		words := key.At(chunk.Mul(4)).LoadVector(0, 4)
		rotated := func(gen.Value) []gen.Value { return words }
		switch s.Rotate {
		case rotateInterleaved:
			rotated = func(position gen.Value) []gen.Value { return a.rotatePairs(words, chunk, position) }
		case rotateHalf:
			partner := key.At(chunk.Xor(ropeChunks/2).Mul(4)).LoadVector(0, 4)
			rotated = func(position gen.Value) []gen.Value { return a.rotateHalves(words, partner, chunk, position) }
		}
		return a.put(token, chunk.Add(latentChunks), rotated)
	})
	return k.Build()
}

// each runs body for every token and chunk of it; body loads, and what it
// returns stores. So many are under way at once.
func (a *cacheAppender) each(name string, tokens gen.Scalar, first, threads gen.Value, chunks int, body func(token, chunk gen.Value) func()) {
	k := a.k
	items := tokens.Read().Mul(chunks)
	k.For(name, first, items, threads.Mul(chunksAtOnce), func(item gen.Value) {
		var stores []func()
		for i := range chunksAtOnce {
			// Past the end the last chunk is read again, and not stored.
			at := item.Add(threads.Mul(i))
			there := at.Lt(items)
			at = at.Min(items.Sub(1))
			store := body(at.Div(chunks), at.Rem(chunks))
			stores = append(stores, func() { k.If(there, store) })
		}
		for _, store := range stores {
			store()
		}
	})
}

// put begins to store a chunk of a token's record, reading where it goes, and
// returns what does it with the chunk's words for the token's position.
func (a *cacheAppender) put(token, chunk gen.Value, words func(position gen.Value) []gen.Value) func() {
	k, s := a.k, a.s
	slot := a.slots.At(token).Load(0)
	var position gen.Value
	if s.Rotate != "" {
		position = a.positions.At(token).Load(0)
	}
	return func() {
		k.If(slot.Ge(0), func() {
			k.TrapIf(slot.Ge(a.slotCount.Read()))
			page, offset := slot.Shr(bits.TrailingZeros(uint(s.Page))), slot.And(s.Page-1)
			to := a.kv.Bytes(page.Mul(a.kvPage.Read())).Bytes(offset.Mul(a.kvRow.Read()))
			to.At(chunk.Mul(4)).StoreVector(0, words(position)...)
		})
	}
}

// angles reads n cosines and sines of a position from the given column on.
func (a *cacheAppender) angles(position, column gen.Value, n int) (cos, sin []gen.Value) {
	k := a.k
	k.TrapIf(position.Lt(0).Or(position.Ge(a.positionCount.Read())))
	c, s := a.cos.row(position).At(column), a.sin.row(position).At(column)
	for i := 0; i < n; i += 4 {
		cos = append(cos, c.LoadVector(i, 4)...)
		sin = append(sin, s.LoadVector(i, 4)...)
	}
	return cos, sin
}

// rotatePairs rotates a chunk whose neighbouring columns are a pair: (x, y)
// becomes (x·cos − y·sin, y·cos + x·sin).
func (a *cacheAppender) rotatePairs(words []gen.Value, chunk, position gen.Value) []gen.Value {
	cos, sin := a.angles(position, chunk.Mul(chunkElems/2), chunkElems/2)
	var rotated []gen.Value
	for i, w := range words {
		x, y := a.k.Unpack(a.s.dtype(), w)
		rotated = append(rotated, a.k.Pack(a.s.dtype(), turn(x, y, cos[i], negative(sin[i])), turn(y, x, cos[i], sin[i])))
	}
	return rotated
}

// rotateHalves rotates a chunk whose columns are paired with those of partner,
// half the rope key away.
func (a *cacheAppender) rotateHalves(words, partner []gen.Value, chunk, position gen.Value) []gen.Value {
	k := a.k
	half := a.s.Rope / 2
	first := chunk.And(half/chunkElems - 1).Mul(chunkElems)
	cos, sin := a.angles(position, first, chunkElems)
	upper := chunk.Ge(half / chunkElems)
	var rotated []gen.Value
	for i, w := range words {
		var own, other, out [2]gen.Value
		own[0], own[1] = k.Unpack(a.s.dtype(), w)
		other[0], other[1] = k.Unpack(a.s.dtype(), partner[i])
		for j := range out {
			angle := sin[2*i+j]
			out[j] = turn(own[j], other[j], cos[2*i+j], k.Select(upper, angle, negative(angle)))
		}
		rotated = append(rotated, k.Pack(a.s.dtype(), out[0], out[1]))
	}
	return rotated
}

// turn returns x·cos + y·sin.
func turn(x, y, cos, sin gen.Value) gen.Value { return x.MulAdd(cos, y.Mul(sin)) }

func negative(x gen.Value) gen.Value { return x.Mul(-1.0) }
