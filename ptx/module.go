// Package ptx represents Hopper PTX as data: modules, kernels, instructions
// and operands. Print writes a module as text and Parse reads the same subset
// back; which instructions exist is said once, in ptx/isa.
package ptx

import (
	"strings"

	"github.com/mlagen/mlagen/ptx/isa"
)

// Module is one PTX translation unit.
type Module struct {
	Header  []string // comment lines before .version, without the slashes
	Version isa.Version
	Target  string    // "sm_90a"
	Files   []string  // .file entries, numbered from 1; empty without line information
	Vars    []*Var    // module-scope variables, such as extern dynamic shared memory
	Kernels []*Kernel // .entry functions
}

// Space is a PTX state space.
type Space uint8

// State spaces.
const (
	NoSpace Space = iota
	Global
	Shared
	Param
	Const
	Local
)

// String returns the space's name without the dot.
func (s Space) String() string {
	return [...]string{"", "global", "shared", "param", "const", "local"}[s]
}

// Var is a variable declaration outside registers: `.shared .align 1024 .b8 smem[2048];`
// or, when Extern, `.extern .shared .align 1024 .b8 smem[];`.
type Var struct {
	Name   string
	Space  Space
	Type   isa.Type
	Align  int
	Count  int // elements; 0 for an unsized extern array
	Extern bool
}

// Parameter is a kernel parameter. A tensor map passed by value is
// .align 128 .b8 name[128].
type Parameter struct {
	Name  string
	Type  isa.Type
	Align int // 0 = natural
	Count int // 0 = scalar, otherwise the number of array elements
}

// Size returns the parameter's size in bytes.
func (p *Parameter) Size() int {
	if p.Count > 0 {
		return p.Count * p.Type.Bytes()
	}
	return p.Type.Bytes()
}

// Alignment returns the parameter's alignment in bytes.
func (p *Parameter) Alignment() int {
	if p.Align > 0 {
		return p.Align
	}
	return p.Type.Bytes()
}

// Kernel is an .entry function.
type Kernel struct {
	Name   string
	Params []*Parameter

	// Performance and cluster directives; zero values are not printed.
	ReqNTID         [3]int // .reqntid
	MaxNTID         [3]int // .maxntid
	MinCTAPerSM     int    // .minnctapersm
	MaxNReg         int    // .maxnreg
	ReqNCTAPerClust [3]int // .reqnctapercluster
	ExplicitCluster bool   // .explicitcluster

	Regs []*Reg // in declaration order
	Vars []*Var // .shared and .local variables of this kernel
	Body []Stmt
}

// Stmt is a statement of a kernel body: *Instr, *LabelStmt, *Comment, *Loc or
// *Pragma.
type Stmt interface{ stmt() }

// LabelStmt defines a label.
type LabelStmt struct {
	Name Label
	Line int
}

// Comment is a line comment of its own.
type Comment struct{ Text string }

// Loc is a .loc directive: the following instructions come from this line of
// Module.Files[File-1].
type Loc struct{ File, Line, Col int }

// Pragma is a .pragma directive, which tells ptxas how to compile what follows:
// "nounroll" behind a loop's label.
type Pragma struct{ Text string }

// Guard predicates an instruction: @P or @!P. The zero Guard is always true.
type Guard struct {
	P      *Reg
	Negate bool
}

// Instr is one instruction.
type Instr struct {
	Guard   Guard
	Form    *isa.Form
	Mods    []string  // the value of each Form slot, "" where an optional one is absent
	Args    []Operand // as many as written, in the form's order
	Comment string    // trailing comment
	Line    int       // line in the text it was parsed from; 0 when built
	Col     int       // column of the opcode in that line, in bytes from 1
}

// Opcode returns the full dotted opcode as printed.
func (i *Instr) Opcode() string {
	var b strings.Builder
	b.WriteString(i.Form.Root)
	for _, m := range i.Mods {
		if m != "" {
			b.WriteByte('.')
			b.WriteString(m)
		}
	}
	return b.String()
}

// Mod returns the value of the named slot, "" when absent.
func (i *Instr) Mod(slot string) string {
	for k, s := range i.Form.Slots {
		if s.Name == slot {
			return i.Mods[k]
		}
	}
	return ""
}

// Type returns the type that the named slot holds.
func (i *Instr) Type(slot string) isa.Type {
	t, _ := isa.ParseType(i.Mod(slot))
	return t
}

func (*Instr) stmt()     {}
func (*LabelStmt) stmt() {}
func (*Comment) stmt()   {}
func (*Loc) stmt()       {}
func (*Pragma) stmt()    {}
