package templates

import (
	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// extendAttend is expandPrefill for keys that come in chunks, a launch for
// each: a block of query tokens that has keys in several goes on where the
// launch before stopped. What is carried is the running state of the softmax,
// unrounded, so the result is to the bit that of all keys in one launch.
func extendAttend(s Spec) (*gen.Output, error) {
	k := gen.NewKernel("extend_attend", s, s.options())
	c := &prefillCTA{k: k, s: s, carried: newCarriedState(k, s)}
	c.declare()
	return c.build()
}

// carriedState is where blocks leave their state for the next launch: per block
// and head the output's registers, and each thread's references and sums. A
// vector of a warp's threads lies side by side.
//
// Launches read one buffer and write another, since a block of a sequence that
// begins may be given the place of one that ends.
type carriedState struct {
	k        *gen.Kernel
	s        Spec
	from, to gen.Pointer
}

func newCarriedState(k *gen.Kernel, s Spec) *carriedState {
	return &carriedState{k, s, k.Pointer("state_from", isa.F32), k.Pointer("state_to", isa.F32)}
}

// carriedSums is the words of a thread's state beside its output: references
// and sums of two rows.
const carriedSums = 4

// carriedVectors is the vectors of a thread's state.
func (s Spec) carriedVectors() int { return (s.Value/2 + carriedSums) / vectorWords }

// at returns where the thread's first vector is.
func (c *carriedState) at(base gen.Pointer, place, head gen.Value) gen.Pointer {
	threads := c.s.groups() * gen.WarpgroupThreads
	words := threads * c.s.carriedVectors() * vectorWords
	item := place.Mul(c.s.Heads).Add(head)
	return base.Bytes(item.MulWide(4 * words)).At(c.k.Thread().Mul(vectorWords))
}

// step is the elements from a thread's vector to its next.
func (c *carriedState) step() int { return c.s.groups() * gen.WarpgroupThreads * vectorWords }

// registers lists what is carried.
func (c *carriedState) registers(softmax *prefillSoftmax, out gen.Accumulator) []*gen.Var {
	return append([]*gen.Var{softmax.top[0], softmax.top[1], softmax.sum[0], softmax.sum[1]}, out.R...)
}

// load takes the block's state up.
func (c *carriedState) load(it prefillItem, softmax *prefillSoftmax, out gen.Accumulator) {
	at, all := c.at(c.from, it.from, it.head), c.registers(softmax, out)
	for v := range c.s.carriedVectors() {
		for i, x := range at.LoadVector(v*c.step(), vectorWords) {
			all[v*vectorWords+i].Set(x)
		}
	}
	softmax.resume()
}

// save leaves the block's state to the next launch.
func (c *carriedState) save(it prefillItem, softmax *prefillSoftmax, out gen.Accumulator) {
	at, all := c.at(c.to, it.to, it.head), c.registers(softmax, out)
	for v := range c.s.carriedVectors() {
		var words []gen.Value
		for _, r := range all[v*vectorWords : (v+1)*vectorWords] {
			words = append(words, r.Value)
		}
		at.StoreVector(v*c.step(), words...)
	}
}

// mailWords is the size of a message about an item.
func (c *prefillCTA) mailWords() int {
	if c.carried != nil {
		return carriedMail
	}
	return plainMail
}

// start begins an item's rows.
func (a *prefillAttention) start(it prefillItem) {
	a.softmax.bound(it.rows.Sub(a.firstRow()))
	fresh := func() {
		a.softmax.reset()
		a.out.Zero()
	}
	if a.carried == nil {
		fresh()
		return
	}
	a.k.IfElse(it.from.Ge(0), func() { a.carried.load(it, a.softmax, a.out) }, fresh)
}

// weighFirst weighs an item's first tile: rows that have just begun have no
// reference, others may have one that holds.
func (a *prefillAttention) weighFirst() {
	if a.carried == nil {
		a.softmax.raise(a.scores, a.out, a.weights)
		return
	}
	a.weigh(func() {}) // no product is under way
}

// finish ends an item's rows, whose products are done.
func (a *prefillAttention) finish(it prefillItem) {
	write := func() { a.result.write(it, a.firstRow(), a.out, a.softmax.finish()) }
	if a.carried == nil {
		write()
		return
	}
	a.k.IfElse(it.to.Ge(0), func() { a.carried.save(it, a.softmax, a.out) }, write)
}
