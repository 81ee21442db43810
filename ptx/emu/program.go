package emu

import (
	"fmt"
	"math"

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

// address returns what the name of a variable or parameter means as a value.
func (c *compiler) address(s ptx.Symbol) (uint64, error) {
	if off, ok := c.params[string(s)]; ok {
		return paramWindow + uint64(off), nil
	}
	v := c.vars[string(s)]
	switch {
	case v == nil:
		return 0, fmt.Errorf("unknown symbol %s", s)
	case v.dyn:
		return uint64(c.dynBase()), nil
	}
	return uint64(v.off), nil
}

// reg returns the slot of a general register.
func (c *compiler) reg(r *ptx.Reg) (int32, error) {
	s, ok := c.slots[r]
	if !ok {
		if r.Type == isa.Pred {
			return 0, fmt.Errorf("%s is a predicate", r.Name)
		}
		return 0, fmt.Errorf("register %s is not declared", r.Name)
	}
	return s, nil
}

// pred returns the slot of a predicate register.
func (c *compiler) pred(r *ptx.Reg) (int32, error) {
	s, ok := c.predSlots[r]
	if !ok {
		return 0, fmt.Errorf("predicate %s is not declared", r.Name)
	}
	return s, nil
}

// constant returns a slot that holds v in every lane.
func (c *compiler) constant(v uint64) int32 {
	if s, ok := c.fixed[v]; ok {
		return s
	}
	s := int32(len(c.regs))
	c.regs = append(c.regs, nil)
	c.fixed[v] = s
	c.consts = append(c.consts, fixedSlot{s, v})
	return s
}

// src returns the slot of a source operand of type t.
func (c *compiler) src(a ptx.Operand, t isa.Type) (int32, error) {
	switch a := a.(type) {
	case *ptx.Reg:
		s, err := c.reg(a)
		if err != nil {
			return 0, err
		}
		c.op.reads = append(c.op.reads, s)
		return s, nil
	case ptx.Imm:
		if t == isa.F32 {
			return c.constant(uint64(math.Float32bits(float32(a)))), nil
		}
		if t == isa.F64 {
			return c.constant(math.Float64bits(float64(a))), nil
		}
		return c.constant(truncate(uint64(a), t.Bits())), nil
	case ptx.Float:
		return c.constant(floatConst(a, t)), nil
	case ptx.Special:
		return c.specialSlot(a)
	case ptx.Symbol:
		v, err := c.address(a)
		if err != nil {
			return 0, err
		}
		return c.constant(v), nil
	}
	return 0, fmt.Errorf("operand %T cannot be read as %s", a, t)
}

// floatConst returns the bits of constant f in an operand of type t.
func floatConst(f ptx.Float, t isa.Type) uint64 {
	switch {
	case f.Type == isa.F64 && t == isa.F32:
		return uint64(math.Float32bits(float32(math.Float64frombits(f.Bits))))
	case f.Type == isa.F32 && t == isa.F64:
		return math.Float64bits(float64(math.Float32frombits(uint32(f.Bits))))
	}
	return f.Bits
}

// srcs returns the slots of several source operands of type t.
func (c *compiler) srcs(t isa.Type, args ...ptx.Operand) ([]int32, error) {
	out := make([]int32, len(args))
	for i, a := range args {
		s, err := c.src(a, t)
		if err != nil {
			return nil, err
		}
		out[i] = s
	}
	return out, nil
}

// dst returns the slot of a destination operand; the sink gets a slot that
// nothing reads.
func (c *compiler) dst(a ptx.Operand) (int32, error) {
	switch a := a.(type) {
	case *ptx.Reg:
		s, err := c.reg(a)
		if err != nil {
			return 0, err
		}
		c.op.writes = append(c.op.writes, s)
		return s, nil
	case ptx.Sink:
		return c.scratch(), nil
	}
	return 0, fmt.Errorf("operand %T cannot be written", a)
}

// scratch returns a slot for results that are dropped.
func (c *compiler) scratch() int32 {
	s := int32(len(c.regs))
	c.regs = append(c.regs, nil)
	return s
}

// dstBits returns the width of a destination register.
func dstBits(a ptx.Operand, otherwise int) int {
	if r, ok := a.(*ptx.Reg); ok {
		return r.Type.Bits()
	}
	return otherwise
}

// predDst returns the slot of a predicate destination, -1 for the sink.
func (c *compiler) predDst(a ptx.Operand) (int32, error) {
	switch a := a.(type) {
	case *ptx.Reg:
		s, err := c.pred(a)
		if err == nil {
			c.op.predWrites = append(c.op.predWrites, s)
		}
		return s, err
	case ptx.Sink:
		return -1, nil
	}
	return 0, fmt.Errorf("operand %T cannot be written as a predicate", a)
}

// predSrc returns a reader of a predicate operand: a register, its negation or
// a constant.
func (c *compiler) predSrc(a ptx.Operand) (func(w *warp) uint32, error) {
	switch a := a.(type) {
	case *ptx.Reg:
		s, err := c.pred(a)
		if err != nil {
			return nil, err
		}
		c.op.predReads = append(c.op.predReads, s)
		return func(w *warp) uint32 { return w.p[s] }, nil
	case ptx.Not:
		s, err := c.pred(a.P)
		if err != nil {
			return nil, err
		}
		c.op.predReads = append(c.op.predReads, s)
		return func(w *warp) uint32 { return ^w.p[s] }, nil
	case ptx.Imm:
		v := uint32(0)
		if a != 0 {
			v = ^v
		}
		return func(*warp) uint32 { return v }, nil
	}
	return nil, fmt.Errorf("operand %T cannot be read as a predicate", a)
}

func truncate(v uint64, bits int) uint64 {
	if bits >= 64 || bits == 0 {
		return v
	}
	return v & (1<<bits - 1)
}

func signExtend(v uint64, bits int) uint64 {
	return uint64(int64(v<<(64-bits)) >> (64 - bits))
}
