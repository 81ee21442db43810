// Package isa holds the one table of PTX instruction forms that the printer,
// the parser, the verifier and the emulator all read.
//
// A row is written in the PTX manual's own grammar. Adding an instruction
// means adding a row here and its semantics in ptx/emu, nothing else.
package isa

import "fmt"

// Version is a PTX ISA version such as {8, 0}.
type Version struct{ Major, Minor int }

// String returns the version as the .version directive spells it.
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// Less reports whether v is older than w.
func (v Version) Less(w Version) bool {
	return v.Major < w.Major || v.Major == w.Major && v.Minor < w.Minor
}

// Target is the smallest architecture that runs a form.
type Target uint8

// Targets from the most to the least general. SM90a forms are not forward compatible.
const (
	SM70 Target = iota
	SM75
	SM80
	SM90
	SM90a
)

// String returns the .target spelling.
func (t Target) String() string {
	return [...]string{"sm_70", "sm_75", "sm_80", "sm_90", "sm_90a"}[t]
}

// Scope says which threads must execute an instruction together.
type Scope uint8

// Scopes. PerThread instructions have no convergence requirement.
const (
	PerThread Scope = iota
	PerWarp
	PerWarpgroup
	PerCTA
	PerCluster
)

// String names the scope.
func (s Scope) String() string {
	return [...]string{"thread", "warp", "warpgroup", "cta", "cluster"}[s]
}

// Async says how the completion of an asynchronous instruction is observed.
type Async uint8

// Completion mechanisms.
const (
	Synchronous Async = iota
	BulkGroup         // cp.async.bulk.commit_group / wait_group
	MbarrierTx        // complete_tx on an mbarrier
	WgmmaGroup        // wgmma.commit_group / wait_group
)

// Proxy says through which proxy an instruction touches memory
// (PTX manual, "Proxies").
type Proxy uint8

// Proxies.
const (
	NoProxy Proxy = iota
	GenericProxy
	AsyncProxy
)

// Access says what an instruction does with an operand.
type Access uint8

// Accesses. A register read and then written, such as a wgmma accumulator, is ReadWrite.
const (
	Read Access = 1 << iota
	Write
	ReadWrite = Read | Write
)

// Kind is a set of operand shapes.
type Kind uint16

// Operand shapes; an operand of the table accepts a set of them.
const (
	Reg     Kind = 1 << iota // a register or special register
	Imm                      // an integer or floating-point constant
	Addr                     // [base+offset]
	Vector                   // {a, b, …}
	Tensor                   // [map, {c0, c1, …}]
	Label                    // a branch target
	Symbol                   // the name of a variable or parameter
	Sink                     // _
	NotPred                  // !p
	Special                  // %tid.x and its like
)

// Operand describes one operand of a form.
type Operand struct {
	Name   string // as in the manual: "d", "a", "a-desc", "mbar"
	Access Access // for Addr operands: what happens to the register(s) in it is always Read; Access then speaks of the memory
	Kinds  Kind
	// Type is the value's type where the form fixes it; otherwise TypeSlot
	// names the modifier slot that holds it ("type", "dtype").
	Type     Type
	TypeSlot string
	// Count is the number of vector elements: 0 for a scalar, -1 for "as the
	// modifiers say" (the .vec slot, the shape of a wgmma, .xN of stmatrix).
	Count    int
	Optional bool
	With     string // name of the optional slot that this operand comes and goes with; "" when none
	Bar      bool   // written after the previous operand with a bar: d|p
	Wider    bool   // a register may be wider than the type (ld, st, cvt)
}

// Slot is one dotted position after the root of an opcode.
type Slot struct {
	Name     string   // "type", "sem", or the literal itself
	Values   []string // the spellings allowed, without the first dot ("shared::cta", "L2::cache_hint")
	Optional bool
}

// Form is one row of the table.
type Form struct {
	Root     string // "wgmma.mma_async": the part of the opcode before the first slot
	Grammar  string // the row as written, in the manual's grammar
	Slots    []Slot
	Operands []Operand
	PTX      Version
	Target   Target
	Scope    Scope
	Async    Async
	Proxy    Proxy
	Link     string // anchor in the PTX manual
	Summary  string // one line
}
