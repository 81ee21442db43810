package emu

import (
	"fmt"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// Program is a module decoded for execution. It holds no state of a run and
// may be launched from several goroutines.
type Program struct {
	Module  *ptx.Module
	kernels map[string]*kernel
}

// kernel is one .entry as a flat list of decoded instructions.
type kernel struct {
	def  *ptx.Kernel
	mod  *ptx.Module
	code []op

	triggers bool // it executes griddepcontrol.launch_dependents

	regs     []*ptx.Reg // slot -> register; nil for constants and specials
	nregs    int        // slots, constants and specials included
	preds    []*ptx.Reg
	consts   []fixedSlot
	specials []specialSlot

	params     map[string]int // offset in the parameter buffer
	paramBytes int
	vars       map[string]*variable
	static     int // bytes of static shared memory
	dynAlign   int // alignment of extern shared memory, 0 when there is none
	local      int // bytes of local memory per thread

	wgmma      bool
	atomics    bool // has instructions that depend on other CTAs' order
	maxThreads int
}

type fixedSlot struct {
	slot  int32
	value uint64
}

type specialSlot struct {
	slot int32
	name string
	fill func(w *warp, lane int) uint64
}

// variable is a .shared, .local or .const variable.
type variable struct {
	space ptx.Space
	off   int
	size  int
	dyn   bool // extern: behind the static ones
}

// exec performs an instruction on the lanes of m.
type exec func(w *warp, m uint32)

// control performs an instruction that may move the program counter, block or
// end the warp's turn. m holds the lanes whose guard is true, and is not 0.
type control func(w *warp, s *split, m uint32) verdict

type verdict uint8

const (
	next  verdict = iota // go on with the following instruction
	moved                // the program counter has been set
	stall                // try again when something has changed
	yield                // go on, but let others run first
	gone                 // the split has ended
)

// op is a decoded instruction.
type op struct {
	exec  exec
	ctl   control
	guard int32 // predicate slot, -1 = always
	neg   bool

	reads, writes         []int32 // register slots, without constants
	predReads, predWrites []int32
	wgmma                 *mmaSpec // of a wgmma.mma_async

	in     *ptx.Instr
	loc    *ptx.Loc
	index  int
	target int // of a branch
	reconv int // where lanes meet again after a branch here, -1 = never
}

// Compile decodes a module. An instruction form without semantics is an error
// that names it.
func Compile(m *ptx.Module) (*Program, error) {
	p := &Program{Module: m, kernels: map[string]*kernel{}}
	for _, k := range m.Kernels {
		c := &compiler{kernel: kernel{def: k, mod: m}}
		if err := c.compile(); err != nil {
			return nil, fmt.Errorf("emu: kernel %s: %w", k.Name, err)
		}
		p.kernels[k.Name] = &c.kernel
	}
	return p, nil
}

// compiler builds one kernel.
type compiler struct {
	kernel
	slots     map[*ptx.Reg]int32
	predSlots map[*ptx.Reg]int32
	fixed     map[uint64]int32
	special   map[string]int32
	labels    map[ptx.Label]int
	op        *op // being built
}

func (c *compiler) compile() error {
	c.slots, c.predSlots = map[*ptx.Reg]int32{}, map[*ptx.Reg]int32{}
	c.fixed, c.special = map[uint64]int32{}, map[string]int32{}
	if err := c.layout(); err != nil {
		return err
	}
	for _, r := range c.def.Regs {
		c.declare(r)
	}
	c.labels = map[ptx.Label]int{}
	n := 0
	for _, s := range c.def.Body {
		switch s := s.(type) {
		case *ptx.LabelStmt:
			c.labels[s.Name] = n
		case *ptx.Instr:
			n++
		}
	}
	c.code = make([]op, 0, n+1)
	var loc *ptx.Loc
	for _, s := range c.def.Body {
		switch s := s.(type) {
		case *ptx.Loc:
			loc = s
		case *ptx.Instr:
			if err := c.add(s, loc); err != nil {
				return fmt.Errorf("line %d: %s: %w", s.Line, s.Opcode(), err)
			}
		}
	}
	// Running off the end is a return.
	c.code = append(c.code, op{ctl: exitLanes, guard: -1, index: len(c.code), target: -1, reconv: -1,
		in: &ptx.Instr{Form: &isa.Form{Root: "ret"}}})
	c.nregs = len(c.regs)
	c.reconvergence()
	return nil
}

func (c *compiler) declare(r *ptx.Reg) {
	if r.Type == isa.Pred {
		if _, ok := c.predSlots[r]; !ok {
			c.predSlots[r] = int32(len(c.preds))
			c.preds = append(c.preds, r)
		}
		return
	}
	if _, ok := c.slots[r]; !ok {
		c.slots[r] = int32(len(c.regs))
		c.regs = append(c.regs, r)
	}
}

// add decodes one instruction.
func (c *compiler) add(in *ptx.Instr, loc *ptx.Loc) error {
	build := semantics[in.Form.Root]
	if build == nil {
		return fmt.Errorf("no semantics: the emulator does not support this instruction")
	}
	o := op{guard: -1, in: in, loc: loc, index: len(c.code), target: -1, reconv: -1}
	if in.Guard.P != nil {
		s, err := c.pred(in.Guard.P)
		if err != nil {
			return err
		}
		o.guard, o.neg = s, in.Guard.Negate
	}
	c.op = &o
	if o.guard >= 0 {
		o.predReads = append(o.predReads, o.guard)
	}
	if err := build(c, in); err != nil {
		return err
	}
	if o.exec == nil && o.ctl == nil {
		return fmt.Errorf("no semantics for this form of the instruction")
	}
	c.code = append(c.code, o)
	return nil
}

// semantics has the decoder of every instruction, by form root.
var semantics = map[string]func(*compiler, *ptx.Instr) error{}

// register adds decoders; each family's file calls it once.
func register(family map[string]func(*compiler, *ptx.Instr) error) bool {
	for root, f := range family {
		if semantics[root] != nil {
			panic("emu: two decoders of " + root)
		}
		semantics[root] = f
	}
	return true
}

// unsupported is the error of a modifier that a decoder does not know.
func unsupported(slot, value string) error {
	return fmt.Errorf("no semantics for .%s %q", slot, value)
}

// layout places parameters and variables.
func (c *compiler) layout() error {
	c.params, c.vars = map[string]int{}, map[string]*variable{}
	off := 0
	for _, p := range c.def.Params {
		a := max(p.Alignment(), 1)
		off = (off + a - 1) / a * a
		c.params[p.Name] = off
		off += p.Size()
	}
	c.paramBytes = off
	c.static = sharedBase
	for _, vars := range [][]*ptx.Var{c.mod.Vars, c.def.Vars} {
		for _, v := range vars {
			if err := c.place(v); err != nil {
				return err
			}
		}
	}
	c.maxThreads = 1024
	for _, d := range [][3]int{c.def.ReqNTID, c.def.MaxNTID} {
		if d[0] > 0 {
			c.maxThreads = min(c.maxThreads, max(d[0], 1)*max(d[1], 1)*max(d[2], 1))
		}
	}
	return nil
}

// sharedBase is the address of the first byte of a CTA's shared memory; the
// bytes below are the system's, so that a null address is out of bounds.
const sharedBase = 1024

func (c *compiler) place(v *ptx.Var) error {
	a := max(v.Align, v.Type.Bytes(), 1)
	size := max(v.Count, 1) * v.Type.Bytes()
	at := func(end *int) int {
		off := (*end + a - 1) / a * a
		*end = off + size
		return off
	}
	switch {
	case v.Space == ptx.Shared && v.Extern:
		c.dynAlign = max(c.dynAlign, a)
		c.vars[v.Name] = &variable{space: v.Space, dyn: true}
	case v.Space == ptx.Shared:
		c.vars[v.Name] = &variable{space: v.Space, off: at(&c.static), size: size}
	case v.Space == ptx.Local:
		c.vars[v.Name] = &variable{space: v.Space, off: at(&c.local), size: size}
	default:
		return fmt.Errorf("variable %s: no semantics for .%s variables", v.Name, v.Space)
	}
	return nil
}

// dynBase is the address of extern shared memory.
func (k *kernel) dynBase() int {
	a := max(k.dynAlign, 16)
	return (k.static + a - 1) / a * a
}
