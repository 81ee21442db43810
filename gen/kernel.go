// Package gen is a small language for writing Hopper kernels in Go. A template
// describes tensors, shared tiles, pipelines and roles; gen turns the calls
// into PTX (package ptx) and into the manifest that launches it.
//
// Values are typed and know the kernel they belong to; arithmetic on them
// emits instructions at the current place of the kernel's body. Mistakes are
// collected with the template's file and line, and Build returns them all.
package gen

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
	"github.com/mlagen/mlagen/ptx/manifest"
)

// Kernel is a kernel under construction.
type Kernel struct {
	name   string
	spec   any
	entry  *ptx.Kernel
	man    *manifest.Manifest
	errs   []error
	regs   map[string]int // next number per register prefix
	labels int
	shared sharedLayout
	pinned Value // where shared memory begins, once it is kept in a register
	warps  int   // warps claimed by roles so far
	ctas   int   // that fit an SM at least, see FitCTAs
	barID  int   // next named barrier; 0 belongs to the whole CTA

	lineInfo bool
	files    []string
	lastLoc  ptx.Loc
	places   map[callers]place

	naturals map[*ptx.Reg]bool // registers of natural numbers
	inits    []*Barrier        // mbarriers to initialise at InitBarriers
}

// Option configures a kernel.
type Option func(*Kernel)

// LineInfo makes the kernel carry .file and .loc directives that lead from
// every instruction back to the template's line.
func LineInfo(on bool) Option { return func(k *Kernel) { k.lineInfo = on } }

// NewKernel starts a kernel called name. spec is recorded in the manifest.
func NewKernel(name string, spec any, options ...Option) *Kernel {
	k := &Kernel{
		name:     name,
		spec:     spec,
		entry:    &ptx.Kernel{Name: name},
		man:      &manifest.Manifest{Schema: manifest.Schema, Kernel: name, Spec: spec, Cluster: 1},
		regs:     map[string]int{},
		barID:    1,
		naturals: map[*ptx.Reg]bool{},
		places:   map[callers]place{},
	}
	for _, o := range options {
		o(k)
	}
	return k
}

// place is a position in a template.
type place struct {
	file string
	line int
}

// callers are the innermost callers of something, of which one is usually
// outside this package.
type callers [6]uintptr

// position returns the nearest caller outside this package. Calls from one
// place have the same callers, which are looked up once.
func (k *Kernel) position() place {
	var near callers
	n := runtime.Callers(3, near[:])
	if p, ok := k.places[near]; ok {
		return p
	}
	p, ok := outside(near[:n])
	if !ok {
		var all [64]uintptr
		p, _ = outside(all[:runtime.Callers(3, all[:])])
		return p
	}
	k.places[near] = p
	return p
}

// outside returns the first place outside this package, or the last if there is
// none.
func outside(pcs []uintptr) (p place, ok bool) {
	frames := runtime.CallersFrames(pcs)
	for {
		f, more := frames.Next()
		if !strings.Contains(f.Function, "mlagen/gen.") || strings.HasSuffix(f.File, "_test.go") {
			return place{shortFile(f.File), f.Line}, true
		}
		if !more {
			return place{shortFile(f.File), f.Line}, false
		}
	}
}

// shortFile keeps a file's last folder and name, so that output does not
// depend on where the module lies.
func shortFile(path string) string {
	return filepath.Base(filepath.Dir(path)) + "/" + filepath.Base(path)
}

// errorf records a mistake at the template's position.
func (k *Kernel) errorf(format string, args ...any) {
	p := k.position()
	k.errs = append(k.errs, fmt.Errorf("%s:%d: %s", p.file, p.line, fmt.Sprintf(format, args...)))
}

// Err returns all mistakes so far, joined.
func (k *Kernel) Err() error { return errors.Join(k.errs...) }

// emit appends one instruction.
func (k *Kernel) emit(opcode string, args ...ptx.Operand) *ptx.Instr {
	return k.emitIf(ptx.Guard{}, opcode, args...)
}

// emitIf appends one instruction under a guard.
func (k *Kernel) emitIf(g ptx.Guard, opcode string, args ...ptx.Operand) *ptx.Instr {
	in, err := ptx.NewInstr(opcode, args...)
	if err != nil {
		k.errorf("%s: %v", opcode, err)
		return nil
	}
	in.Guard = g
	k.mark()
	k.entry.Body = append(k.entry.Body, in)
	return in
}

// mark emits a .loc when the template's line has changed.
func (k *Kernel) mark() {
	if !k.lineInfo {
		return
	}
	p := k.position()
	n := 0
	for i, f := range k.files {
		if f == p.file {
			n = i + 1
		}
	}
	if n == 0 {
		k.files = append(k.files, p.file)
		n = len(k.files)
	}
	if loc := (ptx.Loc{File: n, Line: p.line}); loc != k.lastLoc {
		k.lastLoc = loc
		k.entry.Body = append(k.entry.Body, &ptx.Loc{File: loc.File, Line: loc.Line})
	}
}

// Comment writes a comment line into the PTX.
func (k *Kernel) Comment(format string, args ...any) {
	k.entry.Body = append(k.entry.Body, &ptx.Comment{Text: fmt.Sprintf(format, args...)})
}

// register prefixes by class: one file of registers per width and kind.
func prefix(t isa.Type) (string, isa.Type) {
	switch {
	case t == isa.Pred:
		return "%p", isa.Pred
	case t == isa.F32:
		return "%f", isa.F32
	case t == isa.F64:
		return "%fd", isa.F64
	case t.Bits() == 64:
		return "%rd", isa.B64
	case t.Bits() == 32:
		return "%r", isa.B32
	default:
		return "%h", isa.B16
	}
}

// reg declares a fresh register that can hold a t.
func (k *Kernel) reg(t isa.Type) *ptx.Reg {
	p, rt := prefix(t)
	r := &ptx.Reg{Name: fmt.Sprintf("%s%d", p, k.regs[p]), Type: rt}
	k.regs[p]++
	k.entry.Regs = append(k.entry.Regs, r)
	return r
}

// label makes a fresh label whose name hints at its purpose.
func (k *Kernel) label(hint string) ptx.Label {
	k.labels++
	return ptx.Label(fmt.Sprintf("L%d_%s", k.labels, hint))
}

func (k *Kernel) place(l ptx.Label) {
	k.entry.Body = append(k.entry.Body, &ptx.LabelStmt{Name: l})
}
