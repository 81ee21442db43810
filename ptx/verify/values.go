package verify

import (
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// threadValues evaluates registers that are functions of the thread index
// alone: those with one unguarded definition made of %tid, %laneid and
// constants. Everything else is unknown.
type threadValues struct {
	g       *graph
	threads int
	ints    map[*ptx.Reg][]uint32
	preds   map[*ptx.Reg]*choice
}

// choice says of a predicate for which threads it may be true and for which
// it may be false; nil slices of unknown ones are never made.
type choice struct{ yes, no []bool }

const evalDepth = 64

// definition returns r's one definition, nil when there is not exactly one or
// it is guarded.
func (v *threadValues) definition(r *ptx.Reg) *ptx.Instr {
	if d := v.g.defs[r]; len(d) == 1 && d[0].Guard.P == nil {
		return d[0]
	}
	return nil
}

func (v *threadValues) fill(f func(thread int) uint32) []uint32 {
	out := make([]uint32, v.threads)
	for t := range out {
		out[t] = f(t)
	}
	return out
}

// value returns o's value in each thread, nil when unknown.
func (v *threadValues) value(o ptx.Operand, depth int) []uint32 {
	switch o := o.(type) {
	case ptx.Imm:
		return v.fill(func(int) uint32 { return uint32(o) })
	case ptx.Special:
		switch o.Name {
		case "%tid.x":
			return v.fill(func(t int) uint32 { return uint32(t) })
		case "%tid.y", "%tid.z":
			return v.fill(func(int) uint32 { return 0 })
		case "%laneid":
			return v.fill(func(t int) uint32 { return uint32(t % 32) })
		}
	case *ptx.Reg:
		if x, ok := v.ints[o]; ok {
			return x
		}
		v.ints[o] = nil // a register that depends on itself is unknown
		if d := v.definition(o); d != nil && depth > 0 && o.Type.Bits() == 32 {
			v.ints[o] = v.result(d, depth-1)
		}
		return v.ints[o]
	}
	return nil
}

// result evaluates a 32-bit instruction.
func (v *threadValues) result(d *ptx.Instr, depth int) []uint32 {
	arg := func(name string) []uint32 { return v.value(d.Arg(name), depth) }
	each := func(f func(a, b uint32) uint32) []uint32 {
		a, b := arg("a"), arg("b")
		if a == nil || b == nil {
			return nil
		}
		return v.fill(func(t int) uint32 { return f(a[t], b[t]) })
	}
	ty := d.Type("type")
	switch d.Form.Root {
	case "mov":
		if ty.Bits() == 32 && !ty.Float() {
			return arg("a")
		}
	case "cvt":
		if d.Type("dtype").Bits() == 32 && d.Type("atype").Bits() == 32 && !d.Type("dtype").Float() && !d.Type("atype").Float() && d.Mod("sat") == "" {
			return arg("a")
		}
	case "shfl.sync":
		return v.broadcast(d, arg("a"))
	}
	if ty.Bits() != 32 || ty.Float() || d.Mod("sat") != "" {
		return nil
	}
	switch d.Form.Root {
	case "add":
		return each(func(a, b uint32) uint32 { return a + b })
	case "sub":
		return each(func(a, b uint32) uint32 { return a - b })
	case "mul":
		if d.Mod("mode") == "lo" {
			return each(func(a, b uint32) uint32 { return a * b })
		}
	case "and":
		return each(func(a, b uint32) uint32 { return a & b })
	case "or":
		return each(func(a, b uint32) uint32 { return a | b })
	case "xor":
		return each(func(a, b uint32) uint32 { return a ^ b })
	case "shl":
		return each(func(a, b uint32) uint32 { return uint32(uint64(a) << min(b, 32)) })
	case "shr":
		if ty.Signed() {
			return each(func(a, b uint32) uint32 { return uint32(int32(a) >> min(b, 31)) })
		}
		return each(func(a, b uint32) uint32 { return uint32(uint64(a) >> min(b, 32)) })
	case "div", "rem":
		return v.divide(d, arg("a"), arg("b"))
	}
	return nil
}

// divide evaluates div and rem of values that are not negative.
func (v *threadValues) divide(d *ptx.Instr, a, b []uint32) []uint32 {
	if a == nil || b == nil {
		return nil
	}
	out := make([]uint32, v.threads)
	for t := range out {
		switch {
		case b[t] == 0 || d.Type("type").Signed() && (a[t]|b[t])>>31 == 1:
			return nil
		case d.Form.Root == "div":
			out[t] = a[t] / b[t]
		default:
			out[t] = a[t] % b[t]
		}
	}
	return out
}

// broadcast evaluates shfl.sync.idx of a constant lane over whole warps.
func (v *threadValues) broadcast(d *ptx.Instr, a []uint32) []uint32 {
	lane, ok := d.Arg("b").(ptx.Imm)
	if c, whole := d.Arg("c").(ptx.Imm); !whole || c&0x1f00 != 0 || !ok || a == nil || d.Mod("mode") != "idx" {
		return nil
	}
	return v.fill(func(t int) uint32 {
		if from := t/32*32 + int(lane&31); from < len(a) {
			return a[from]
		}
		return a[t]
	})
}

// predicate returns what is known of p; nil when nothing is.
func (v *threadValues) predicate(p *ptx.Reg, depth int) *choice {
	if c, ok := v.preds[p]; ok {
		return c
	}
	v.preds[p] = nil
	if d := v.definition(p); d != nil && depth > 0 {
		v.preds[p] = v.decision(d, p, depth-1)
	}
	return v.preds[p]
}

func (v *threadValues) decision(d *ptx.Instr, p *ptx.Reg, depth int) *choice {
	exact := func(f func(t int) bool) *choice {
		c := &choice{make([]bool, v.threads), make([]bool, v.threads)}
		for t := range v.threads {
			c.yes[t] = f(t)
			c.no[t] = !c.yes[t]
		}
		return c
	}
	operand := func(name string) *choice {
		switch o := d.Arg(name).(type) {
		case *ptx.Reg:
			return v.predicate(o, depth)
		case ptx.Not:
			return v.predicate(o.P, depth).inverse()
		}
		return nil
	}
	switch d.Form.Root {
	case "elect.sync":
		// Some one lane per warp; the first stands for it.
		return exact(func(t int) bool { return t%32 == 0 })
	case "mov":
		return operand("a")
	case "not":
		return operand("a").inverse()
	case "and", "or":
		return combine(d.Form.Root, operand("a"), operand("b"))
	case "setp":
		ty := d.Type("type")
		a, b := v.value(d.Arg("a"), depth), v.value(d.Arg("b"), depth)
		var c *choice
		if ty.Bits() == 32 && !ty.Float() && a != nil && b != nil {
			c = exact(func(t int) bool { return compare(d.Mod("cmp"), ty, a[t], b[t]) })
		}
		if p != d.Arg("p") {
			c = c.inverse()
		}
		if op := d.Mod("bool"); op != "" {
			return combine(op, c, operand("c"))
		}
		return c
	}
	return nil
}

func compare(op string, ty isa.Type, a, b uint32) bool {
	x, y := int64(a), int64(b)
	if ty.Signed() {
		x, y = int64(int32(a)), int64(int32(b))
	}
	switch op {
	case "eq":
		return x == y
	case "ne":
		return x != y
	case "lt", "lo":
		return x < y
	case "le", "ls":
		return x <= y
	case "gt", "hi":
		return x > y
	}
	return x >= y
}

func (c *choice) inverse() *choice {
	if c == nil {
		return nil
	}
	return &choice{c.no, c.yes}
}

// combine evaluates a AND b or a OR b, of which either may be unknown.
func combine(op string, a, b *choice) *choice {
	if a == nil {
		a, b = b, a
	}
	if a == nil || op != "and" && op != "or" {
		return nil
	}
	if op == "or" {
		return combine("and", a.inverse(), b.inverse()).inverse()
	}
	c := &choice{make([]bool, len(a.yes)), make([]bool, len(a.yes))}
	for t := range a.yes {
		c.yes[t] = a.yes[t] && (b == nil || b.yes[t])
		c.no[t] = a.no[t] || b == nil || b.no[t]
	}
	return c
}
