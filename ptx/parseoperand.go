package ptx

import (
	"strconv"

	"github.com/mlagen/mlagen/ptx/isa"
)

func (p *parser) register() *Reg {
	p.space()
	line, col := p.line, p.col()
	n := p.name()
	r := p.regs[n]
	if r == nil {
		p.failAt(line, col, "undeclared register %s", n)
	}
	return r
}

func (p *parser) operand(labels bool) Operand {
	switch c := p.peek(); {
	case c == '{':
		return p.list(labels)
	case c == '[':
		return p.address()
	case c == '!':
		p.pos++
		return Not{p.register()}
	case c == '-' || '0' <= c && c <= '9':
		return p.constant()
	case !word(c):
		p.fail("expected an operand, found %s", p.found())
	}
	line, col := p.line, p.col()
	n := p.name()
	if n == "_" {
		return Sink{}
	}
	if r := p.regs[n]; r != nil {
		return r
	}
	if n[0] == '%' {
		if p.pos+1 < len(p.text) && p.text[p.pos] == '.' {
			p.pos++
			n += "." + p.take()
		}
		s, err := NewSpecial(n)
		if err != nil {
			p.failAt(line, col, "undeclared register %s", n)
		}
		return s
	}
	if labels {
		return Label(n)
	}
	return Symbol(n)
}

func (p *parser) list(labels bool) Vec {
	p.expect('{')
	v := Vec{}
	for {
		if p.peek() == '{' {
			p.fail("a brace list inside a brace list")
		}
		v = append(v, p.operand(labels))
		if p.accept('}') {
			return v
		}
		p.expect(',')
	}
}

// constant reads an integer, or a floating-point constant as its bits.
func (p *parser) constant() Operand {
	line, col := p.line, p.col()
	if w := p.text[p.pos:min(p.pos+2, len(p.text))]; w == "0f" || w == "0F" || w == "0d" || w == "0D" {
		w := p.take()
		digits, t := 8, isa.F32
		if w[1] == 'd' || w[1] == 'D' {
			digits, t = 16, isa.F64
		}
		bits, err := strconv.ParseUint(w[2:], 16, 64)
		if err != nil || len(w) != 2+digits {
			p.failAt(line, col, "malformed constant %s", w)
		}
		return Float{bits, t}
	}
	return Imm(p.integer())
}

func (p *parser) address() Operand {
	p.expect('[')
	line, col := p.line, p.col()
	var a Addr
	if c := p.peek(); c == '-' || '0' <= c && c <= '9' {
		a.Offset = p.integer()
		p.expect(']')
		return a
	}
	a.Base = p.operand(false)
	switch a.Base.(type) {
	case *Reg, Symbol:
	default:
		p.failAt(line, col, "the base of an address is a register or a symbol")
	}
	switch {
	case p.accept('+'):
		a.Offset = p.integer()
	case p.peek() == '-':
		a.Offset = p.integer()
	case p.accept(','):
		t := Tensor{Map: a.Base, Coords: p.list(false)}
		p.expect(']')
		return t
	}
	p.expect(']')
	return a
}
