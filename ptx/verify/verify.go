// Package verify checks PTX against what the assembler, the driver or the
// machine would refuse, hang on or silently get wrong. A rule reports only
// what it can prove from the text (and the manifest, where there is one): a
// correct kernel has no diagnostics.
package verify

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/manifest"
)

// Diagnostic is one finding. Line and Col count from 1 in the module's text;
// for a module that was built, in the text that ptx.Print writes.
type Diagnostic struct {
	File      string
	Line, Col int
	Rule      string
	Text      string
}

// String returns file:line:col: rule: text.
func (d Diagnostic) String() string {
	return fmt.Sprintf("%s:%d:%d: %s: %s", d.File, d.Line, d.Col, d.Rule, d.Text)
}

// Module returns the findings on m, sorted by position; file only labels
// them. man describes one of m's kernels and may be nil; some rules need it.
func Module(file string, m *ptx.Module, man *manifest.Manifest) []Diagnostic {
	c := &checker{m: m}
	c.header()
	described := man == nil
	for _, k := range m.Kernels {
		kc := &kernelChecker{checker: c, k: k, g: newGraph(k)}
		if man != nil && man.Kernel == k.Name {
			kc.man, described = man, true
		}
		for _, rule := range rules {
			rule.check(kc)
		}
	}
	if !described {
		c.findings = append(c.findings, finding{rule: "manifest", text: fmt.Sprintf("the manifest is for kernel %q; the text has no such kernel", man.Kernel)})
	}
	return c.located(file)
}

// rules are the checks of one kernel, each in the file of its name.
var rules = []struct {
	name  string
	check func(*kernelChecker)
}{
	{"operands", (*kernelChecker).operands},
	{"labels", (*kernelChecker).labels},
	{"version", (*kernelChecker).versions},
	{"registers", (*kernelChecker).registers},
	{"aligned", (*kernelChecker).aligned},
	{"member-mask", (*kernelChecker).memberMasks},
	{"shared", (*kernelChecker).sharedMemory},
	{"register-pool", (*kernelChecker).registerPool},
	{"manifest", (*kernelChecker).manifest},
	{"tensor-map", (*kernelChecker).tensorMaps},
	{"expect-tx", (*kernelChecker).transactions},
	{"wgmma", (*kernelChecker).wgmma},
}

// finding is a diagnostic before its position is known.
type finding struct {
	at         ptx.Stmt // nil = the kernel, or the module
	kernel     *ptx.Kernel
	rule, text string
}

type checker struct {
	m        *ptx.Module
	findings []finding
}

type kernelChecker struct {
	*checker
	k   *ptx.Kernel
	g   *graph
	man *manifest.Manifest // nil when there is none of this kernel
}

// report adds a finding; at is nil for the kernel as a whole.
func (c *kernelChecker) report(at ptx.Stmt, rule, format string, args ...any) {
	c.findings = append(c.findings, finding{at, c.k, rule, fmt.Sprintf(format, args...)})
}

// located turns findings into diagnostics. Statements without a line of their
// own get the one that Print gives them.
func (c *checker) located(file string) []Diagnostic {
	if len(c.findings) == 0 {
		return nil
	}
	var lines map[any]int
	line := func(at any) int {
		if lines == nil {
			lines = ptx.Lines(c.m)
		}
		return lines[at]
	}
	var out []Diagnostic
	for _, f := range c.findings {
		d := Diagnostic{File: file, Line: 1, Col: 1, Rule: f.rule, Text: f.text}
		switch s := f.at.(type) {
		case *ptx.Instr:
			d.Line, d.Col = s.Line, s.Col
			if d.Line == 0 {
				d.Line, d.Col = line(s), 2
			}
		case *ptx.LabelStmt:
			d.Line = s.Line
			if d.Line == 0 {
				d.Line = line(s)
			}
		default:
			if f.kernel != nil {
				d.Line = line(f.kernel)
			}
		}
		out = append(out, d)
	}
	slices.SortStableFunc(out, func(a, b Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Text, b.Text))
	})
	return slices.Compact(out)
}
