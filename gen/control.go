package gen

import (
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// guard makes an instruction guard of a predicate value.
func guard(p Value, negate bool) ptx.Guard {
	return ptx.Guard{P: p.register(), Negate: negate}
}

// If runs then where p holds.
func (k *Kernel) If(p Value, then func()) { k.IfElse(p, then, nil) }

// IfElse runs then where p holds and otherwise where it does not.
func (k *Kernel) IfElse(p Value, then, otherwise func()) {
	end := k.label("end")
	no := end
	if otherwise != nil {
		no = k.label("else")
	}
	k.emitIf(guard(p, true), "bra", no)
	then()
	if otherwise != nil {
		k.emit("bra", end)
		k.place(no)
		otherwise()
	}
	k.place(end)
}

// For runs body for i = begin, begin+step, … while i < end. All bounds are
// s32 values or ints; step is positive.
func (k *Kernel) For(name string, begin, end any, step any, body func(i Value)) {
	k.loop(name, begin, end, step, false, body)
}

// ForRolled is For, and ptxas leaves it a loop: what hardly runs twice waits for
// its instructions, of which fewer come sooner.
func (k *Kernel) ForRolled(name string, begin, end any, step any, body func(i Value)) {
	k.loop(name, begin, end, step, true, body)
}

func (k *Kernel) loop(name string, begin, end any, step any, rolled bool, body func(i Value)) {
	i := k.Var(k.value(begin, isa.S32))
	i.naturalIf(k.value(begin, isa.S32), step)
	last := k.value(end, isa.S32)
	head, done := k.label(name), k.label(name+"_end")
	k.emitIf(guard(i.Ge(last), false), "bra", done)
	k.place(head)
	if rolled {
		k.entry.Body = append(k.entry.Body, &ptx.Pragma{Text: "nounroll"})
	}
	body(i.Value)
	i.Increase(step)
	k.emitIf(guard(i.Lt(last), false), "bra", head)
	k.place(done)
}

// While repeats body as long as condition's value holds.
func (k *Kernel) While(name string, condition func() Value, body func()) {
	head, done := k.label(name), k.label(name+"_end")
	k.place(head)
	k.emitIf(guard(condition(), true), "bra", done)
	body()
	k.emit("bra", head)
	k.place(done)
}

// Return ends the thread.
func (k *Kernel) Return() { k.emit("ret") }

// ReturnIf ends the threads in which p holds.
func (k *Kernel) ReturnIf(p Value) { k.emitIf(guard(p, false), "ret") }

// TrapIf stops the kernel with an error in threads where p holds.
func (k *Kernel) TrapIf(p Value) { k.emitIf(guard(p, false), "trap") }

// Loop repeats body for ever; body leaves through the function it is given,
// where that function's argument holds.
func (k *Kernel) Loop(name string, body func(leaveIf func(Value))) {
	head, done := k.label(name), k.label(name+"_end")
	k.place(head)
	body(func(p Value) { k.emitIf(guard(p, false), "bra", done) })
	k.emit("bra", head)
	k.place(done)
}
