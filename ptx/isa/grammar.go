package isa

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// instruction groups the forms of one mnemonic that share version, target and
// effect. Its forms are written as in the manual's Syntax sections, one form
// per string. The first line is the syntax; the lines below it name the
// values of the slots and what the manual's prose says of the operands:
//
//	mul.mode.type d, a, b
//	.mode = hi lo
//	.type = u16 u32 u64 s16 s32 s64
//
// A dotted word that no line below defines stands for itself, {.x} is
// optional, [a] is a memory operand, [a, c] a tensor operand, {a} a brace
// list, {, a} an operand that may be left out and d|p a pair of results.
// An operand line gives, after the colon, any of
//
//	r w rw        read, written, both (default: d is written, the rest is read)
//	b32, .dtype   the value's type, or the slot that holds it (default .type)
//	_             always discarded
//	reg imm sink label symbol special not   the shapes allowed
//	2, vec        the number of elements in braces; vec = as the modifiers say
//	wide          the register may be wider than the type
//	with=X        written exactly when slot X is
type instruction struct {
	name    string
	ptx     Version
	target  Target
	scope   Scope
	async   Async
	proxy   Proxy
	anchor  string // fragment of the manual's address
	summary string
	forms   []string
}

const manual = "https://docs.nvidia.com/cuda/parallel-thread-execution/#"

// parse turns the group's syntax lines into forms.
func (in *instruction) parse() ([]*Form, error) {
	var out []*Form
	for _, text := range in.forms {
		f, err := in.form(text)
		if err != nil {
			return nil, fmt.Errorf("isa: %q: %w", text, err)
		}
		out = append(out, f)
	}
	return out, nil
}

func (in *instruction) form(text string) (*Form, error) {
	lines := strings.Split(text, "\n")
	syntax := strings.TrimSpace(lines[0])
	slots := map[string][]string{}
	notes := map[string][]string{}
	for _, l := range lines[1:] {
		l = strings.TrimSpace(l)
		if name, values, ok := strings.Cut(l, "="); ok && strings.HasPrefix(l, ".") {
			v, err := expand(strings.Fields(values))
			if err != nil {
				return nil, err
			}
			slots[strings.TrimSpace(name)[1:]] = v
			continue
		}
		names, words, ok := strings.Cut(l, ":")
		if !ok {
			return nil, fmt.Errorf("line %q defines neither a slot nor an operand", l)
		}
		for name := range strings.SplitSeq(names, ",") {
			notes[strings.TrimSpace(name)] = strings.Fields(words)
		}
	}
	f := &Form{
		Root: in.name, Grammar: syntax, PTX: in.ptx, Target: in.target, Scope: in.scope,
		Async: in.async, Proxy: in.proxy, Link: manual + in.anchor, Summary: in.summary,
	}
	opcode, operands, _ := strings.Cut(syntax, " ")
	tail, ok := strings.CutPrefix(opcode, in.name)
	if !ok {
		return nil, fmt.Errorf("does not start with %q", in.name)
	}
	if err := f.parseSlots(tail, slots); err != nil {
		return nil, err
	}
	if err := f.parseOperands(operands, notes); err != nil {
		return nil, err
	}
	for name := range slots {
		if f.slot(name) == nil {
			return nil, fmt.Errorf("no slot .%s", name)
		}
	}
	for name := range notes {
		if !slices.ContainsFunc(f.Operands, func(o Operand) bool { return o.Name == name }) {
			return nil, fmt.Errorf("no operand %s", name)
		}
	}
	return f, nil
}

// expand replaces a value such as m64n{8:256:8}k16 by the values of its range.
func expand(words []string) ([]string, error) {
	var out []string
	for _, w := range words {
		head, rest, ok := strings.Cut(w, "{")
		if !ok {
			out = append(out, w)
			continue
		}
		spec, tail, ok := strings.Cut(rest, "}")
		parts := strings.Split(spec, ":")
		if !ok || len(parts) != 3 {
			return nil, fmt.Errorf("malformed range in %q", w)
		}
		var n [3]int
		for i, p := range parts {
			v, err := strconv.Atoi(p)
			if err != nil {
				return nil, err
			}
			n[i] = v
		}
		for v := n[0]; v <= n[1]; v += n[2] {
			out = append(out, head+strconv.Itoa(v)+tail)
		}
	}
	return out, nil
}

func (f *Form) slot(name string) *Slot {
	for i := range f.Slots {
		if f.Slots[i].Name == name {
			return &f.Slots[i]
		}
	}
	return nil
}

// parseSlots reads the dotted tail of an opcode: .x is required, {.x} optional.
func (f *Form) parseSlots(s string, values map[string][]string) error {
	for s != "" {
		var word string
		optional := strings.HasPrefix(s, "{.")
		if optional {
			w, rest, ok := strings.Cut(s[2:], "}")
			if !ok {
				return fmt.Errorf("unclosed brace")
			}
			word, s = w, rest
		} else {
			if s[0] != '.' {
				return fmt.Errorf("malformed opcode at %q", s)
			}
			end := strings.IndexAny(s[1:], ".{")
			if end < 0 {
				end = len(s) - 1
			}
			word, s = s[1:1+end], s[1+end:]
		}
		v := values[word]
		if v == nil {
			v = []string{word}
		}
		if f.slot(word) != nil {
			return fmt.Errorf("slot .%s twice", word)
		}
		f.Slots = append(f.Slots, Slot{Name: word, Values: v, Optional: optional})
	}
	return nil
}

// parseOperands reads the operand list of a syntax line.
func (f *Form) parseOperands(s string, notes map[string][]string) error {
	s = strings.TrimSpace(s)
	for s != "" {
		var o Operand
		s = strings.TrimLeft(s, ", ")
		switch {
		case strings.HasPrefix(s, "|"):
			o.Bar = true
			s = s[1:]
		case strings.HasPrefix(s, "{,"):
			o.Optional = true
			s = strings.TrimLeft(s[2:], " ")
		}
		var name string
		switch s[0] {
		case '[':
			inner, rest, ok := strings.Cut(s[1:], "]")
			if !ok {
				return fmt.Errorf("unclosed bracket")
			}
			var tensor bool
			name, _, tensor = strings.Cut(inner, ",")
			o.Kinds = Addr
			if tensor {
				o.Kinds, o.Count = Tensor, -1
			}
			s = rest
		case '{':
			inner, rest, ok := strings.Cut(s[1:], "}")
			if !ok {
				return fmt.Errorf("unclosed brace")
			}
			name, o.Kinds, s = inner, Vector, rest
		default:
			end := strings.IndexAny(s, " ,|{}")
			if end < 0 {
				end = len(s)
			}
			name, s = s[:end], s[end:]
		}
		if o.Optional {
			s = strings.TrimPrefix(s, "}")
		}
		o.Name = name
		o.Access = Read
		if name == "d" {
			o.Access = Write
		}
		if err := f.annotate(&o, notes[name]); err != nil {
			return err
		}
		f.Operands = append(f.Operands, o)
	}
	return nil
}

// annotate applies an operand line and then the defaults.
func (f *Form) annotate(o *Operand, words []string) error {
	given := o.Kinds
	discarded := false
	for _, w := range words {
		if t, ok := ParseType(w); ok {
			o.Type = t
			continue
		}
		if n, err := strconv.Atoi(w); err == nil {
			o.Count = n
			continue
		}
		switch w {
		case "r":
			o.Access = Read
		case "w":
			o.Access = Write
		case "rw":
			o.Access = ReadWrite
		case "reg":
			o.Kinds |= Reg
		case "imm":
			o.Kinds |= Imm
		case "_":
			o.Access, o.Kinds, discarded = Write, Sink, true
		case "sink":
			o.Kinds |= Sink
		case "label":
			o.Kinds |= Label
		case "symbol":
			o.Kinds |= Symbol
		case "special":
			o.Kinds |= Special
		case "not":
			o.Kinds |= NotPred
		case "vec":
			o.Count = -1
		case "wide":
			o.Wider = true
		default:
			switch {
			case strings.HasPrefix(w, "with="):
				o.With = w[len("with="):]
				if f.slot(o.With) == nil {
					return fmt.Errorf("operand %s goes with slot %q, which is not there", o.Name, o.With)
				}
			case strings.HasPrefix(w, "."):
				o.TypeSlot = w[1:]
			default:
				return fmt.Errorf("operand %s: unknown word %q", o.Name, w)
			}
		}
	}
	switch {
	case discarded || given != 0 || o.Kinds&^(Sink|NotPred) != 0:
	case o.Access&Write != 0 || o.Type == Pred:
		o.Kinds |= Reg
	default:
		o.Kinds |= Reg | Imm
	}
	if o.Count == -1 && given == 0 {
		o.Kinds |= Vector
	}
	if o.Kinds == Label {
		return nil
	}
	if o.Type == NoType && o.TypeSlot == "" && f.slot("type") != nil {
		o.TypeSlot = "type"
	}
	if o.TypeSlot != "" && f.slot(o.TypeSlot) == nil {
		return fmt.Errorf("operand %s: no slot .%s", o.Name, o.TypeSlot)
	}
	if o.Type == NoType && o.TypeSlot == "" && o.Kinds&(Addr|Tensor|Label) == 0 {
		return fmt.Errorf("operand %s has no type", o.Name)
	}
	return nil
}
