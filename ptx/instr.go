package ptx

import (
	"fmt"
	"math"

	"github.com/mlagen/mlagen/ptx/isa"
)

// NewInstr returns the instruction that opcode, with all its dots, and args
// make. It picks the form by opcode and operands, and checks the number,
// shapes and types of the operands against it; the error says what fits.
func NewInstr(opcode string, args ...Operand) (*Instr, error) {
	matches, err := isa.Matches(opcode)
	if err != nil {
		return nil, err
	}
	return choose(opcode, matches, args)
}

// choose returns the first match whose operands fit args.
func choose(opcode string, matches []isa.Match, args []Operand) (*Instr, error) {
	var first error
	for _, m := range matches {
		err := check(m, args)
		if err == nil {
			return &Instr{Form: m.Form, Mods: m.Mods, Args: args}, nil
		}
		if first == nil {
			first = err
		}
	}
	if len(matches) > 1 {
		first = fmt.Errorf("%w (nor does any other of the %d forms fit)", first, len(matches))
	}
	return nil, fmt.Errorf("%s: %w", opcode, first)
}

// NewSpecial returns the special register of that name ("%tid.x").
func NewSpecial(name string) (Special, error) {
	s, ok := isa.LookupSpecial(name)
	if !ok {
		return Special{}, fmt.Errorf("unknown special register %s", name)
	}
	return Special{Name: s.Name, Type: s.Type}, nil
}

// Operands returns, for each argument as written, the operand of the form
// that it is; nil when they do not fit the form.
func (i *Instr) Operands() []*isa.Operand {
	idx, ok := i.Form.Bind(i.Mods, len(i.Args))
	if !ok {
		return nil
	}
	out := make([]*isa.Operand, len(idx))
	for k, n := range idx {
		out[k] = &i.Form.Operands[n]
	}
	return out
}

// Arg returns the argument that the form calls name ("d", "addr", "scale-d"),
// nil when it was left out.
func (i *Instr) Arg(name string) Operand {
	idx, _ := i.Form.Bind(i.Mods, len(i.Args))
	for k, n := range idx {
		if k < len(i.Args) && i.Form.Operands[n].Name == name {
			return i.Args[k]
		}
	}
	return nil
}

func check(m isa.Match, args []Operand) error {
	f := m.Form
	idx, ok := f.Bind(m.Mods, len(args))
	if !ok {
		return fmt.Errorf("%d operands do not fit %q", len(args), f.Grammar)
	}
	for k, n := range idx {
		o := &f.Operands[n]
		if err := checkOperand(f, m.Mods, o, args[k]); err != nil {
			return fmt.Errorf("operand %d (%s): %w", k+1, o.Name, err)
		}
	}
	// The manual allows at most 128 bits per access.
	if v := f.Mod(m.Mods, "vec"); v == "v4" {
		if t, _ := isa.ParseType(f.Mod(m.Mods, "type")); t.Bits() > 32 {
			return fmt.Errorf("four elements of .%s are more than 128 bits", t)
		}
	}
	return nil
}

func checkOperand(f *isa.Form, mods []string, o *isa.Operand, arg Operand) error {
	t := f.OperandType(o, mods)
	count := f.Elements(o, mods)
	switch a := arg.(type) {
	case Vec:
		if o.Kinds&isa.Vector == 0 || count == 0 {
			return fmt.Errorf("a brace list does not fit %q", f.Grammar)
		}
		if len(a) != count {
			return fmt.Errorf("%d elements in braces where the modifiers say %d", len(a), count)
		}
		for k, e := range a {
			if err := checkScalar(f, o, t, e); err != nil {
				return fmt.Errorf("element %d: %w", k, err)
			}
		}
		return nil
	case Tensor:
		if o.Kinds&isa.Tensor == 0 {
			return fmt.Errorf("a tensor operand does not fit %q", f.Grammar)
		}
		if len(a.Coords) != count {
			return fmt.Errorf("%d coordinates where the modifiers say %d", len(a.Coords), count)
		}
		switch b := a.Map.(type) {
		case *Reg:
			if b == nil || !integer(b.Type, 64) {
				return fmt.Errorf("the tensor map's address must be a 64-bit register")
			}
		case Symbol:
		default:
			return fmt.Errorf("a tensor map's address is a register or a symbol, not %T", a.Map)
		}
		for k, c := range a.Coords {
			switch c := c.(type) {
			case *Reg:
				if c == nil || !integer(c.Type, 32) {
					return fmt.Errorf("coordinate %d must be a 32-bit register", k)
				}
			case Imm:
				if c < math.MinInt32 || c > math.MaxInt32 {
					return fmt.Errorf("coordinate %d: %d is not a 32-bit integer", k, int64(c))
				}
			default:
				return fmt.Errorf("coordinate %d is a register or a constant, not %T", k, c)
			}
		}
		return nil
	}
	if count > 0 {
		return fmt.Errorf("%d elements in braces are needed, not %s", count, describe(arg))
	}
	return checkScalar(f, o, t, arg)
}

func checkScalar(f *isa.Form, o *isa.Operand, t isa.Type, arg Operand) error {
	misfit := func() error { return fmt.Errorf("%s does not fit %q", describe(arg), f.Grammar) }
	switch a := arg.(type) {
	case nil:
		return fmt.Errorf("missing")
	case *Reg:
		if a == nil {
			return fmt.Errorf("missing register")
		}
		if o.Kinds&(isa.Reg|isa.Vector) == 0 {
			return misfit()
		}
		if !agrees(t, a.Type, o.Wider) {
			return fmt.Errorf("%s is .%s where .%s is needed", a.Name, a.Type, t)
		}
	case Special:
		if o.Kinds&isa.Special == 0 {
			return misfit()
		}
		if !agrees(t, a.Type, false) {
			return fmt.Errorf("%s is .%s where .%s is needed", a.Name, a.Type, t)
		}
	case Imm:
		if o.Kinds&isa.Imm == 0 {
			return misfit()
		}
		if t.Float() || t == isa.Pred && a != 0 && a != 1 {
			return fmt.Errorf("the integer %d where .%s is needed", int64(a), t)
		}
		if !fits(int64(a), t.Bits()) {
			return fmt.Errorf("%d does not fit in .%s", int64(a), t)
		}
	case Float:
		if o.Kinds&isa.Imm == 0 {
			return misfit()
		}
		if a.Type != t && !(t.Untyped() && t.Bits() == a.Type.Bits()) {
			return fmt.Errorf("a constant of .%s where .%s is needed", a.Type, t)
		}
	case Addr:
		if o.Kinds&isa.Addr == 0 {
			return misfit()
		}
		switch b := a.Base.(type) {
		case nil, Symbol:
		case *Reg:
			if b == nil || !integer(b.Type, 32) && !integer(b.Type, 64) {
				return fmt.Errorf("an address needs a 32- or 64-bit integer register")
			}
		default:
			return fmt.Errorf("the base of an address is a register or a symbol, not %T", a.Base)
		}
		if a.Offset != int64(int32(a.Offset)) && a.Base != nil {
			return fmt.Errorf("offset %d is not a 32-bit integer", a.Offset)
		}
	case Not:
		if o.Kinds&isa.NotPred == 0 {
			return misfit()
		}
		if a.P == nil || a.P.Type != isa.Pred {
			return fmt.Errorf("only a predicate can be negated")
		}
	case Symbol:
		if o.Kinds&isa.Symbol == 0 {
			return misfit()
		}
		if !integer(t, 32) && !integer(t, 64) {
			return fmt.Errorf("an address does not fit in .%s", t)
		}
	case Label:
		if o.Kinds&isa.Label == 0 {
			return misfit()
		}
	case Sink:
		if o.Kinds&isa.Sink == 0 {
			return misfit()
		}
	default:
		return misfit()
	}
	return nil
}

func integer(t isa.Type, bits int) bool {
	return t.Bits() == bits && (t.Untyped() || t.Signed() || t.Unsigned())
}

// agrees applies the manual's rules of operand type agreement: sizes must be
// equal (a wider register is allowed to ld, st and cvt), .bN goes with
// anything, signed with unsigned, floating-point types only with themselves
// and .bN. Registers hold the types smaller than a half, bfloats and packed
// types as .bN.
func agrees(want, have isa.Type, wider bool) bool {
	switch {
	case want == isa.NoType:
		return true
	case want == isa.Pred || have == isa.Pred:
		return want == have
	case wider && have.Bits() > want.Bits():
		return !want.Float() && !have.Float() || want.Float() && have.Untyped() && want.Bits() < 32
	case want.Bits() != have.Bits():
		return false
	case want.Untyped() || have.Untyped():
		return true
	}
	return want == have || !want.Float() && !have.Float()
}

// fits reports whether v is a signed or unsigned integer of that many bits.
func fits(v int64, bits int) bool {
	return bits >= 64 || v >= -1<<(bits-1) && v < 1<<bits
}

func describe(arg Operand) string {
	switch a := arg.(type) {
	case nil:
		return "nothing"
	case Special:
		return "special register " + a.Name
	case *Reg:
		return "a register"
	case Imm, Float:
		return "a constant"
	case Addr:
		return "an address"
	case Vec:
		return "a brace list"
	case Tensor:
		return "a tensor operand"
	case Not:
		return "a negated predicate"
	case Symbol:
		return "symbol " + string(a)
	case Label:
		return "label " + string(a)
	case Sink:
		return "_"
	}
	return fmt.Sprintf("%T", arg)
}

// MinVersion returns the smallest PTX version that has everything m uses. It
// is at least what m's target needs.
func MinVersion(m *Module) isa.Version {
	v := isa.Version{Major: 6, Minor: 0}
	need := func(w isa.Version) {
		if v.Less(w) {
			v = w
		}
	}
	switch m.Target {
	case "sm_90a":
		need(isa.Version{Major: 8, Minor: 0})
	case "sm_90":
		need(isa.Version{Major: 7, Minor: 8})
	case "sm_80":
		need(isa.Version{Major: 7, Minor: 0})
	}
	for _, k := range m.Kernels {
		if k.ExplicitCluster || k.ReqNCTAPerClust != [3]int{} {
			need(isa.Version{Major: 7, Minor: 8})
		}
		for _, s := range k.Body {
			i, ok := s.(*Instr)
			if !ok {
				continue
			}
			need(i.Form.PTX)
			for _, a := range i.Args {
				if s, ok := a.(Special); ok {
					if d, ok := isa.LookupSpecial(s.Name); ok {
						need(d.PTX)
					}
				}
			}
		}
	}
	return v
}

// Check reports whether the instruction fits its form, as NewInstr does for
// one made by hand or changed since.
func (i *Instr) Check() error {
	if i.Form == nil || len(i.Mods) != len(i.Form.Slots) {
		return fmt.Errorf("the modifiers do not belong to the form")
	}
	if err := check(isa.Match{Form: i.Form, Mods: i.Mods}, i.Args); err != nil {
		return fmt.Errorf("%s: %w", i.Opcode(), err)
	}
	return nil
}
