package ptx

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/mlagen/mlagen/ptx/isa"
)

// Print writes m as PTX text. The same module gives the same bytes, and Parse
// reads them back to the same module. The error is the writer's, or says what
// of the module has no spelling.
func Print(w io.Writer, m *Module) error {
	p := &printer{}
	p.module(m)
	if p.err != nil {
		return p.err
	}
	_, err := w.Write(p.b)
	return err
}

// String returns m as Print writes it; what has no spelling reads "<…>".
func (m *Module) String() string {
	p := &printer{}
	p.module(m)
	return string(p.b)
}

// String returns the instruction as Print writes it, without indentation and
// comment.
func (i *Instr) String() string {
	p := &printer{}
	p.instr(i)
	return string(p.b)
}

// Lines returns the line, from 1, that Print gives to each kernel (*Kernel)
// and statement (Stmt) of m.
func Lines(m *Module) map[any]int {
	p := &printer{lines: map[any]int{}}
	p.module(m)
	return p.lines
}

type printer struct {
	b   []byte
	err error

	lines   map[any]int // where statements start, when asked for
	line    int         // lines complete before counted
	counted int
}

// mark records that x starts here.
func (p *printer) mark(x any) {
	if p.lines == nil {
		return
	}
	p.line += bytes.Count(p.b[p.counted:], []byte("\n"))
	p.counted = len(p.b)
	p.lines[x] = p.line + 1
}

func (p *printer) s(parts ...string) {
	for _, x := range parts {
		p.b = append(p.b, x...)
	}
}

func (p *printer) n(v int64) { p.b = strconv.AppendInt(p.b, v, 10) }

func (p *printer) fail(what any) {
	if p.err == nil {
		p.err = fmt.Errorf("ptx: %T has no spelling here", what)
	}
	p.s("<", fmt.Sprintf("%T", what), ">")
}

func (p *printer) comment(indent, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimRight(line, " \t\r")
		p.s(indent, "//")
		if line != "" {
			p.s(" ", line)
		}
		p.s("\n")
	}
}

func (p *printer) module(m *Module) {
	for _, c := range m.Header {
		p.comment("", c)
	}
	p.s(".version ", m.Version.String(), "\n.target ", m.Target, "\n.address_size 64\n")
	for i, f := range m.Files {
		p.s(".file ")
		p.n(int64(i + 1))
		p.s(" ", quote(f), "\n")
	}
	if len(m.Vars) > 0 {
		p.s("\n")
	}
	for _, v := range m.Vars {
		p.variable(v)
	}
	for _, k := range m.Kernels {
		p.s("\n")
		p.kernel(k)
	}
}

func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

func (p *printer) variable(v *Var) {
	if v.Extern {
		p.s(".extern ")
	}
	p.s(".", v.Space.String(), " ")
	if v.Align > 0 {
		p.s(".align ")
		p.n(int64(v.Align))
		p.s(" ")
	}
	p.s(".", v.Type.String(), " ", v.Name)
	switch {
	case v.Count > 0:
		p.s("[")
		p.n(int64(v.Count))
		p.s("]")
	case v.Extern:
		p.s("[]")
	}
	p.s(";\n")
}

func (p *printer) kernel(k *Kernel) {
	p.mark(k)
	p.s(".visible .entry ", k.Name, "(")
	for i, a := range k.Params {
		if i > 0 {
			p.s(",")
		}
		p.s("\n\t.param ")
		if a.Align > 0 {
			p.s(".align ")
			p.n(int64(a.Align))
			p.s(" ")
		}
		p.s(".", a.Type.String(), " ", a.Name)
		if a.Count > 0 {
			p.s("[")
			p.n(int64(a.Count))
			p.s("]")
		}
	}
	if len(k.Params) > 0 {
		p.s("\n")
	}
	p.s(")\n")
	if k.ExplicitCluster {
		p.s(".explicitcluster\n")
	}
	p.dims(".reqnctapercluster", k.ReqNCTAPerClust)
	p.dims(".reqntid", k.ReqNTID)
	p.dims(".maxntid", k.MaxNTID)
	if k.MinCTAPerSM > 0 {
		p.s(".minnctapersm ")
		p.n(int64(k.MinCTAPerSM))
		p.s("\n")
	}
	if k.MaxNReg > 0 {
		p.s(".maxnreg ")
		p.n(int64(k.MaxNReg))
		p.s("\n")
	}
	p.s("{\n")
	p.registers(k.Regs)
	for _, v := range k.Vars {
		p.s("\t")
		p.variable(v)
	}
	if len(k.Regs)+len(k.Vars) > 0 && len(k.Body) > 0 {
		p.s("\n")
	}
	for _, s := range k.Body {
		p.statement(s)
	}
	p.s("}\n")
}

func (p *printer) dims(directive string, d [3]int) {
	if d == [3]int{} {
		return
	}
	p.s(directive)
	for i, v := range d {
		if i > 0 {
			p.s(",")
		}
		p.s(" ")
		p.n(int64(v))
	}
	p.s("\n")
}

func (p *printer) statement(s Stmt) {
	p.mark(s)
	switch s := s.(type) {
	case *Instr:
		p.s("\t")
		p.instr(s)
		if c := strings.TrimRight(strings.ReplaceAll(s.Comment, "\n", " "), " \t\r"); c != "" {
			p.s(" // ", c)
		}
		p.s("\n")
	case *LabelStmt:
		p.s(string(s.Name), ":\n")
	case *Comment:
		p.comment("\t", s.Text)
	case *Loc:
		p.s("\t.loc ")
		p.n(int64(s.File))
		p.s(" ")
		p.n(int64(s.Line))
		p.s(" ")
		p.n(int64(s.Col))
		p.s("\n")
	case *Pragma:
		p.s("\t.pragma ", quote(s.Text), ";\n")
	default:
		p.fail(s)
		p.s("\n")
	}
}

func (p *printer) instr(i *Instr) {
	if g := i.Guard; g.P != nil {
		p.s("@")
		if g.Negate {
			p.s("!")
		}
		p.s(g.P.Name, " ")
	}
	p.s(i.Form.Root)
	for _, m := range i.Mods {
		if m != "" {
			p.s(".", m)
		}
	}
	ops := i.Operands()
	for k, a := range i.Args {
		switch {
		case k == 0:
			p.s(" ")
		case ops != nil && ops[k].Bar:
			p.s("|")
		default:
			p.s(", ")
		}
		p.operand(a)
	}
	p.s(";")
}

func (p *printer) operand(a Operand) {
	switch a := a.(type) {
	case *Reg:
		if a == nil {
			p.fail(a)
			return
		}
		p.s(a.Name)
	case Special:
		p.s(a.Name)
	case Imm:
		p.n(int64(a))
	case Float:
		if a.Type == isa.F64 {
			p.s(fmt.Sprintf("0d%016X", a.Bits))
		} else {
			p.s(fmt.Sprintf("0f%08X", uint32(a.Bits)))
		}
	case Addr:
		p.s("[")
		switch b := a.Base.(type) {
		case nil:
			p.n(a.Offset)
		default:
			p.operand(b)
			if a.Offset != 0 {
				p.s("+")
				p.n(a.Offset)
			}
		}
		p.s("]")
	case Vec:
		p.list(a)
	case Tensor:
		p.s("[")
		p.operand(a.Map)
		p.s(", ")
		p.list(a.Coords)
		p.s("]")
	case Not:
		p.s("!")
		p.operand(a.P)
	case Symbol:
		p.s(string(a))
	case Label:
		p.s(string(a))
	case Sink:
		p.s("_")
	default:
		p.fail(a)
	}
}

func (p *printer) list(v Vec) {
	p.s("{")
	for i, e := range v {
		if i > 0 {
			p.s(", ")
		}
		p.operand(e)
	}
	p.s("}")
}
