package gen

import (
	"github.com/mlagen/mlagen/ptx/isa"
)

// AtomicAdd adds x to element offset and returns what it was before; it orders
// nothing else.
func (p Pointer) AtomicAdd(offset int, x any) Value {
	v := p.k.value(x, p.elem)
	return p.k.apply(p.elem, "atom.relaxed.gpu.global.add.u32", p.addr(offset), v.op)
}

// Signal adds x to element offset, after everything that this thread has
// written or knows to be written.
func (p Pointer) Signal(offset int, x any) {
	v := p.k.value(x, p.elem)
	p.k.emit("red.release.gpu.global.add.u32", p.addr(offset), v.register())
}

// AwaitAtLeast spins until element offset, an s32, is at least x; what the
// signallers had written is visible after.
func (p Pointer) AwaitAtLeast(offset int, x any) {
	head := p.k.label("signal")
	a := p.addr(offset)
	p.k.place(head)
	v := p.k.apply(isa.S32, "ld.acquire.gpu.global.b32", a)
	p.k.emitIf(guard(v.Lt(x), false), "bra", head)
}
