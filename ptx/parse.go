package ptx

import (
	"slices"
	"strconv"
	"strings"

	"github.com/mlagen/mlagen/ptx/isa"
)

// Parse reads PTX text of the subset that Print writes and the table of
// ptx/isa describes; anything else is an *Error with file, line and column.
// Comments inside kernels and before .version are kept.
func Parse(file string, text []byte) (*Module, error) { return parse(file, text, false) }

// ParseHeads is Parse without the kernels' bodies, which may hold anything: whoever
// asks for names and parameters need not read a hundred kilobytes of instructions.
func ParseHeads(file string, text []byte) (*Module, error) { return parse(file, text, true) }

func parse(file string, text []byte, heads bool) (m *Module, err error) {
	p := &parser{
		heads:   heads,
		scanner: scanner{file: file, text: string(text), line: 1},
		m:       &Module{},
		opcodes: map[string][]isa.Match{},
	}
	p.scanner.comment = p.comment
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*Error)
			if !ok {
				panic(r)
			}
			m, err = nil, e
		}
	}()
	p.module()
	return p.m, nil
}

type parser struct {
	scanner
	m       *Module
	heads   bool // kernels' bodies are skipped
	started bool // .version is past; comments no longer belong to the header
	k       *Kernel
	regs    map[string]*Reg
	last    *Instr // takes a comment on its line
	ended   int    // line of last's semicolon
	opcodes map[string][]isa.Match
}

func (p *parser) comment(text string, line int) {
	switch {
	case !p.started:
		p.m.Header = append(p.m.Header, text)
	case p.k == nil: // between declarations, where Print puts none
	case p.last != nil && p.last.Comment == "" && p.ended == line:
		p.last.Comment = text
		p.last = nil
	default:
		p.last = nil
		p.k.Body = append(p.k.Body, &Comment{text})
	}
}

func (p *parser) module() {
	p.header()
	for !p.end() {
		line, col := p.line, p.col()
		d, ok := p.directive()
		if !ok {
			p.fail("expected a directive, found %s", p.found())
		}
		switch d {
		case "file":
			if n := p.count(); n != len(p.m.Files)+1 {
				p.failAt(line, col, ".file %d out of order; the next is %d", n, len(p.m.Files)+1)
			}
			p.m.Files = append(p.m.Files, p.quoted())
		case "visible":
			if d, _ := p.directive(); d != "entry" {
				p.failAt(line, col, "only .entry can be .visible here")
			}
			p.kernel()
		case "entry":
			p.kernel()
		case "extern":
			d, _ := p.directive()
			v := p.variable(d)
			v.Extern = true
			p.m.Vars = append(p.m.Vars, v)
		default:
			if space(d) == NoSpace {
				p.failAt(line, col, "unknown directive .%s", d)
			}
			p.m.Vars = append(p.m.Vars, p.variable(d))
		}
	}
}

// header reads .version, .target and .address_size, which come first.
func (p *parser) header() {
	next := func(want string) {
		if d, _ := p.directive(); d != want {
			p.fail("the text must start with .version, .target and .address_size 64; .%s is missing", want)
		}
	}
	next("version")
	p.started = true
	major := p.count()
	if p.pos == len(p.text) || p.text[p.pos] != '.' {
		p.fail("a version is two numbers with a dot")
	}
	p.pos++
	p.m.Version = isa.Version{Major: major, Minor: p.count()}
	next("target")
	p.m.Target = p.name()
	next("address_size")
	if n := p.count(); n != 64 {
		p.fail(".address_size %d: only 64 is known", n)
	}
}

func space(name string) Space {
	switch name {
	case "global":
		return Global
	case "shared":
		return Shared
	case "const":
		return Const
	case "local":
		return Local
	}
	return NoSpace
}

// typed reads {.align N} .type name.
func (p *parser) typed() (align int, t isa.Type, name string) {
	line, col := p.line, p.col()
	d, ok := p.directive()
	if ok && d == "align" {
		align = p.count()
		if align < 1 || align&(align-1) != 0 {
			p.failAt(line, col, "alignment %d is not a power of two", align)
		}
		p.space()
		line, col = p.line, p.col()
		d, ok = p.directive()
	}
	if !ok {
		p.fail("expected a type, found %s", p.found())
	}
	t, ok = isa.ParseType(d)
	if !ok {
		p.failAt(line, col, "unknown type .%s", d)
	}
	return align, t, p.name()
}

// elements reads [N], or [] as 0 where that is allowed.
func (p *parser) elements(unsized bool) int {
	if !p.accept('[') {
		return 0
	}
	if unsized && p.accept(']') {
		return 0
	}
	n := p.count()
	if n == 0 {
		p.fail("an array of no elements")
	}
	p.expect(']')
	return n
}

// variable reads a declaration after its state space.
func (p *parser) variable(d string) *Var {
	s := space(d)
	if s == NoSpace {
		p.fail("%q is no state space of a variable", d)
	}
	v := &Var{Space: s}
	v.Align, v.Type, v.Name = p.typed()
	v.Count = p.elements(true)
	p.expect(';')
	return v
}

func (p *parser) kernel() {
	k := &Kernel{Name: p.name()}
	p.expect('(')
	for !p.accept(')') {
		if len(k.Params) > 0 {
			p.expect(',')
		}
		if d, _ := p.directive(); d != "param" {
			p.fail("a parameter starts with .param")
		}
		a := &Parameter{}
		a.Align, a.Type, a.Name = p.typed()
		a.Count = p.elements(false)
		k.Params = append(k.Params, a)
	}
	p.directives(k)
	p.expect('{')
	p.m.Kernels = append(p.m.Kernels, k)
	if p.heads {
		p.skipBlock()
		return
	}
	p.k, p.last, p.regs = k, nil, map[string]*Reg{}
	for !p.accept('}') {
		p.statement()
	}
	p.k = nil
}

func (p *parser) directives(k *Kernel) {
	for {
		d, ok := p.directive()
		if !ok {
			return
		}
		switch d {
		case "explicitcluster":
			k.ExplicitCluster = true
		case "reqnctapercluster":
			k.ReqNCTAPerClust = p.dims()
		case "reqntid":
			k.ReqNTID = p.dims()
		case "maxntid":
			k.MaxNTID = p.dims()
		case "minnctapersm":
			k.MinCTAPerSM = p.count()
		case "maxnreg":
			k.MaxNReg = p.count()
		default:
			p.fail("unknown directive .%s of a kernel", d)
		}
	}
}

func (p *parser) dims() [3]int {
	d := [3]int{p.count(), 1, 1}
	for i := 1; i < 3 && p.accept(','); i++ {
		d[i] = p.count()
	}
	return d
}

func (p *parser) statement() {
	switch c := p.peek(); c {
	case 0:
		p.fail("the kernel %s has no closing brace", p.k.Name)
	case '.':
		p.declaration()
		return
	case '@':
		p.instr()
		return
	}
	line, col := p.line, p.col()
	w := p.take()
	if w == "" {
		p.fail("expected a statement, found %s", p.found())
	}
	if p.pos < len(p.text) && p.text[p.pos] == ':' && !(p.pos+1 < len(p.text) && p.text[p.pos+1] == ':') {
		if '0' <= w[0] && w[0] <= '9' || strings.ContainsRune(w, '%') {
			p.failAt(line, col, "malformed label %q", w)
		}
		p.pos++
		p.last = nil
		p.k.Body = append(p.k.Body, &LabelStmt{Label(w), line})
		return
	}
	p.pos -= len(w)
	p.instr()
}

func (p *parser) declaration() {
	line, col := p.line, p.col()
	d, _ := p.directive()
	switch d {
	case "reg":
		p.registers()
	case "loc":
		l := &Loc{p.count(), p.count(), p.count()}
		if l.File < 1 || l.File > len(p.m.Files) {
			p.failAt(line, col, ".loc of the undeclared file %d", l.File)
		}
		p.last = nil
		p.k.Body = append(p.k.Body, l)
	case "pragma":
		p.last = nil
		p.k.Body = append(p.k.Body, &Pragma{p.quoted()})
		p.expect(';')
	default:
		if space(d) == NoSpace {
			p.failAt(line, col, "unknown directive .%s", d)
		}
		p.k.Vars = append(p.k.Vars, p.variable(d))
	}
}

// maxRange bounds %r<N>, so that a short text cannot ask for all memory.
const maxRange = 1 << 16

func (p *parser) registers() {
	d, _ := p.directive()
	t, ok := isa.ParseType(d)
	if !ok {
		p.fail("unknown register type .%s", d)
	}
	for {
		p.space()
		line, col := p.line, p.col()
		name := p.name()
		if p.accept('<') {
			n := p.count()
			if n > maxRange {
				p.failAt(line, col, "%d registers; at most %d are known", n, maxRange)
			}
			p.expect('>')
			regs := make([]Reg, n)
			for i := range regs {
				regs[i] = Reg{name + strconv.Itoa(i), t}
				p.declare(&regs[i], line, col)
			}
		} else {
			p.declare(&Reg{name, t}, line, col)
		}
		if p.accept(';') {
			return
		}
		p.expect(',')
	}
}

func (p *parser) declare(r *Reg, line, col int) {
	if p.regs[r.Name] != nil {
		p.failAt(line, col, "register %s declared twice", r.Name)
	}
	if _, ok := isa.LookupSpecial(r.Name); ok {
		p.failAt(line, col, "%s is a special register", r.Name)
	}
	p.regs[r.Name] = r
	p.k.Regs = append(p.k.Regs, r)
}

func (p *parser) instr() {
	var g Guard
	if p.accept('@') {
		g.Negate = p.accept('!')
		line, col := p.line, p.col()
		g.P = p.register()
		if g.P.Type != isa.Pred {
			p.failAt(line, col, "%s is no predicate", g.P.Name)
		}
	}
	p.space()
	line, col := p.line, p.col()
	op := p.opcode()
	matches, ok := p.opcodes[op]
	if !ok {
		var err error
		if matches, err = isa.Matches(op); err != nil {
			p.failAt(line, col, "%v", err)
		}
		p.opcodes[op] = matches
	}
	labels := slices.ContainsFunc(matches[0].Form.Operands, func(o isa.Operand) bool { return o.Kinds&isa.Label != 0 })
	var args []Operand
	bars := uint64(0) // bit k: a bar precedes operand k
	for !p.accept(';') {
		if len(args) > 0 {
			if p.accept('|') {
				bars |= 1 << (len(args) & 63)
			} else {
				p.expect(',')
			}
		}
		args = append(args, p.operand(labels))
	}
	ended := p.line
	i, err := choose(op, matches, args)
	if err != nil {
		p.failAt(line, col, "%v", err)
	}
	for k, o := range i.Operands() {
		if bar := bars>>k&1 == 1; bar != o.Bar {
			p.failAt(line, col, "%s: comma and bar between operands are mixed up; the form is %q", op, i.Form.Grammar)
		}
	}
	i.Mods = slices.Clone(i.Mods)
	i.Guard, i.Line, i.Col = g, line, col
	p.k.Body = append(p.k.Body, i)
	p.last, p.ended = i, ended
}

// opcode reads a mnemonic with all its dots.
func (p *parser) opcode() string {
	start := p.pos
	p.name()
	for p.pos < len(p.text) && (word(p.text[p.pos]) || p.text[p.pos] == '.' || p.colons()) {
		p.pos++
	}
	return p.text[start:p.pos]
}
