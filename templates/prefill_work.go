package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Prefill's work is a list of blocks of query tokens, longest first; with a
// head each is an item. Heads are taken in sections whose keys and values fit
// the L2, and inside a section the items of a block come one after another:
//
//	item = (section · blocks + block) · heads of the section + head in it
//
// CTA b begins with item b; further items are dealt by a counter, as CTAs ask
// for them.

// The work's header, in words. The counter has a vector of its own, since the
// others are read while the previous launch may still deal items.
const (
	headBlocks  = 0 // blocks in the list
	headSection = 1 // heads of a section, but for the last
	headNext    = 4 // items dealt beyond every CTA's first
	headWords   = 2 // that do not change
)

// A block in the list, in words.
const (
	blockQuery = iota // its first query token
	blockRows         // its query tokens, at most BlockM
	blockKey          // the sequence's first key token
	blockKeys         // the sequence's keys
	blockSeen         // keys that the block's first query sees; the r-th sees r more, but no more than there are
	blockTiles        // tiles of keys that one of the queries sees
	blockFrom         // extend: the state that the block goes on from, −1 for none
	blockTo           // extend: the state that the block ends in, −1 for the result
	blockWords
	vectorWords = 4
)

// prefillWork reads the list and deals its items.
type prefillWork struct {
	k            *gen.Kernel
	s            Spec
	head, blocks gen.Pointer
}

func prefillWorkReader(k *gen.Kernel, s Spec) prefillWork {
	return prefillWork{k, s, k.Pointer("work_head", isa.S32), k.Pointer("work_blocks", isa.S32)}
}

// prefillItem is a block of query tokens of one head.
type prefillItem struct {
	head        gen.Value
	query, rows gen.Value
	key, keys   gen.Value
	seen, tiles gen.Value
	from, to    gen.Value
}

// each runs body for every item of the CTA, in one thread. next asks for the
// item after it, once, at a time when the answer may take as long as it likes.
// begin runs before anything that the previous grid may not have finished.
func (w prefillWork) each(begin func(), body func(it prefillItem, next func())) {
	k := w.k
	header := w.head.LoadVector(0, headWords)
	blocks, section := header[headBlocks], header[headSection]
	total := blocks.Mul(w.s.Heads)
	perSection := blocks.Mul(section)
	at := k.Var(k.Block())
	begin()
	k.While("item", func() gen.Value { return at.Lt(total) }, func() {
		which := at.Div(perSection)
		inSection := at.Sub(which.Mul(perSection))
		firstHead := which.Mul(section)
		heads := section.Min(k.Int(w.s.Heads).Sub(firstHead))
		block := inSection.Div(heads)
		entry := w.blocks.At(block.Mul(blockWords))
		words := append(entry.LoadVector(0, vectorWords), entry.LoadVector(vectorWords, vectorWords)...)
		it := prefillItem{
			head:  firstHead.Add(inSection.Sub(block.Mul(heads))),
			query: words[blockQuery], rows: words[blockRows], key: words[blockKey], keys: words[blockKeys],
			seen: words[blockSeen], tiles: words[blockTiles], from: words[blockFrom], to: words[blockTo],
		}
		body(it, func() {
			// As many items are asked for as there are. Who gets the last answer
			// makes the counter ready for the next launch.
			dealt := w.head.AtomicAdd(headNext, 1)
			at.Set(dealt.Add(k.Blocks()))
			k.If(dealt.Eq(total.Sub(1)), func() { w.head.AtomicAdd(headNext, k.Int(0).Sub(total)) })
		})
	})
}

// A message from the loading warp to the attending ones is an item without what
// only loading needs, and of a kernel that carries states where they are.
const (
	plainMail   = 6
	carriedMail = 8
)

// stop is the tiles of the message that ends the work.
const stop = -1

func (it prefillItem) mail(words int) []gen.Value {
	return []gen.Value{it.head, it.query, it.rows, it.keys, it.seen, it.tiles, it.from, it.to}[:words]
}

// mailed is the item in a message.
func mailed(words []gen.Value) prefillItem {
	it := prefillItem{head: words[0], query: words[1], rows: words[2], keys: words[3], seen: words[4], tiles: words[5]}
	if len(words) == carriedMail {
		it.from, it.to = words[6], words[7]
	}
	return it
}
