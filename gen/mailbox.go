package gen

import (
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Mailbox passes messages of a few s32 words from one thread to other warps of
// the CTA, in order: what a producer has found out about the next piece of
// work, and its consumers need to know. It has room for several messages, so
// that the sender can run ahead.
type Mailbox struct {
	k     *Kernel
	slots int
	words Region   // [slots][stride]
	size  int      // words of a message
	full  *Barrier // [slots], completed by the sender
	empty *Barrier // [slots], completed by the readers
}

// Mailbox reserves room for so many messages of so many words, each read by
// the given number of warps.
func (k *Kernel) Mailbox(name string, slots, words, readers int) *Mailbox {
	if slots < 1 || words < 1 || readers < 1 {
		k.errorf("mailbox %s has %d slots of %d words for %d warps: want at least one of each", name, slots, words, readers)
		slots, words, readers = 1, 1, 1
	}
	m := &Mailbox{k: k, slots: slots, size: words}
	m.words = k.SharedArray(name, isa.S32, slots*m.stride())
	m.full = k.Barrier(name+" full", slots, 1)
	m.empty = k.Barrier(name+" empty", slots, readers)
	return m
}

// stride is the words from a message to the next, whole 16-byte vectors.
func (m *Mailbox) stride() int { return (m.size + 3) / 4 * 4 }

// letters is a side's place in the mailbox.
type letters struct {
	m           *Mailbox
	slot, phase *Var
}

func (m *Mailbox) letters(phase int) letters {
	return letters{m, m.k.Var(m.k.Int(0)), m.k.Var(m.k.Int(phase))}
}

// advance moves on to the next slot.
func (l letters) advance() {
	k := l.m.k
	slot := l.slot.Add(1)
	over := slot.Ge(l.m.slots)
	l.slot.Set(k.Select(over, k.Int(0), slot))
	l.phase.Set(k.Select(over, l.phase.Xor(1), l.phase.Value))
}

// Sender is the sending thread's place.
type Sender struct{ letters }

// Sender starts with an empty mailbox.
func (m *Mailbox) Sender() *Sender { return &Sender{m.letters(1)} }

// Send waits for room and sends a message. Run by one thread.
func (s *Sender) Send(words ...Value) {
	m, k := s.m, s.m.k
	if len(words) != m.size {
		k.errorf("a message of %d words: want %d", len(words), m.size)
		return
	}
	k.await(m.empty.at.At(s.slot).addr(0), s.phase.Value)
	to := m.words.At(s.slot.Mul(m.stride()))
	for i := 0; i < len(words); i += 4 {
		v := words[i:min(i+4, len(words))]
		for len(v) < 4 {
			v = append(v[:len(v):len(v)], k.Int(0))
		}
		to.StoreVector(i, v...)
	}
	k.emit("mbarrier.arrive.shared.b64", ptx.Sink{}, m.full.at.At(s.slot).addr(0))
	s.advance()
}

// Receiver is a reading warp's place.
type Receiver struct{ letters }

// Receiver starts with the first message.
func (m *Mailbox) Receiver() *Receiver { return &Receiver{m.letters(0)} }

// Receive waits for the next message and returns its words. Run by whole warps.
func (r *Receiver) Receive() []Value {
	words := r.m.receive(r.slot.Value, r.phase.Value)
	r.advance()
	return words
}

// Receive waits for the message of the given index, counted from the first, and
// returns its words: for readers that count messages themselves. Every reading
// warp receives every message, in order. Run by whole warps.
func (m *Mailbox) Receive(index Value) []Value { return m.receive(m.k.round(index, m.slots)) }

// receive waits for the message in a slot, in a round of the given parity.
func (m *Mailbox) receive(slot, parity Value) []Value {
	k := m.k
	k.await(m.full.at.At(slot).addr(0), parity)
	from := m.words.At(slot.Mul(m.stride()))
	var words []Value
	for i := 0; i < m.size; i += 4 {
		words = append(words, from.LoadVector(i, 4)...)
	}
	k.SyncWarp() // all lanes have read it
	empty := m.empty.at.At(slot).addr(0)
	k.If(k.Lane().Eq(0), func() { k.emit("mbarrier.arrive.shared.b64", ptx.Sink{}, empty) })
	return words[:m.size]
}
