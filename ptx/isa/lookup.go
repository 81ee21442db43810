package isa

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Match is one form that an opcode fits, with the value of each of its slots,
// "" where an optional one is absent.
type Match struct {
	Form *Form
	Mods []string
}

// table is built once, on first use, from the syntax lines.
var table = sync.OnceValue(func() (t struct {
	forms  []*Form
	byRoot map[string][]*Form
}) {
	t.byRoot = map[string][]*Form{}
	for _, section := range [][]instruction{
		integerArithmetic, floatArithmetic, halfArithmetic, comparison, logic, movement,
		conversion, control, synchronization, atomics, mbarriers, matrices, asyncCopies, warpgroupMatrices, miscellany,
	} {
		for i := range section {
			forms, err := section[i].parse()
			if err != nil {
				panic(err) // a malformed row of the table; the package's tests parse every row
			}
			t.forms = append(t.forms, forms...)
			for _, f := range forms {
				t.byRoot[f.Root] = append(t.byRoot[f.Root], f)
			}
		}
	}
	return t
})

// Table returns every form, in the order of the manual's chapters.
func Table() []*Form { return slices.Clone(table().forms) }

// Lookup returns the first form that the full dotted opcode fits and the value
// of each of its slots, "" where an optional one is absent. Where forms share
// an opcode and differ in operands, Matches has them all.
func Lookup(opcode string) (*Form, []string, error) {
	m, err := Matches(opcode)
	if err != nil {
		return nil, nil, err
	}
	return m[0].Form, m[0].Mods, nil
}

// matched is what Matches found, by opcode: a kernel has thousands of instructions
// and some tens of opcodes. Opcodes that fit nothing are not kept, so that a
// hostile text cannot fill it.
var matched sync.Map

// Matches returns every form that the full dotted opcode fits, at least one
// when the error is nil. The result is everybody's and must not be changed.
func Matches(opcode string) ([]Match, error) {
	if m, ok := matched.Load(opcode); ok {
		return m.([]Match), nil
	}
	m, err := match(opcode)
	if err == nil {
		matched.Store(strings.Clone(opcode), m) // not a whole text that it is a part of
	}
	return m, err
}

func match(opcode string) ([]Match, error) {
	byRoot := table().byRoot
	var out []Match
	var root string
	for end := len(opcode); end > 0; end = strings.LastIndexByte(opcode[:end], '.') {
		forms := byRoot[opcode[:end]]
		if forms == nil {
			continue
		}
		if root == "" {
			root = opcode[:end]
		}
		var words []string
		if end < len(opcode) {
			words = strings.Split(opcode[end+1:], ".")
		}
		for _, f := range forms {
			mods := make([]string, len(f.Slots))
			if fit(f.Slots, words, mods) {
				out = append(out, Match{f, mods})
			}
		}
	}
	switch {
	case out != nil:
		return out, nil
	case root == "":
		return nil, fmt.Errorf("unknown instruction %q", opcode)
	}
	var known []string
	for _, f := range byRoot[root] {
		o, _, _ := strings.Cut(f.Grammar, " ")
		if !slices.Contains(known, o) {
			known = append(known, o)
		}
	}
	return nil, fmt.Errorf("no form of %s is spelled %q; known: %s", root, opcode, strings.Join(known, "; "))
}

// fit matches words against slots, backing up where an optional slot could
// take a word that a later one needs.
func fit(slots []Slot, words, mods []string) bool {
	if len(slots) == 0 {
		return len(words) == 0
	}
	if len(words) > len(slots) {
		return false
	}
	if len(words) > 0 && slices.Contains(slots[0].Values, words[0]) {
		mods[0] = words[0]
		if fit(slots[1:], words[1:], mods[1:]) {
			return true
		}
	}
	mods[0] = ""
	return slots[0].Optional && fit(slots[1:], words, mods[1:])
}

// Bind says which operands of the form n written arguments are: it returns
// their indices, in order, or false when n arguments do not fit the
// modifiers.
func (f *Form) Bind(mods []string, n int) ([]int, bool) {
	idx := make([]int, 0, len(f.Operands))
	free := n
	for i := range f.Operands {
		o := &f.Operands[i]
		if o.With != "" && f.Mod(mods, o.With) != "" || o.With == "" && !o.Optional {
			free--
		}
	}
	if free < 0 {
		return nil, false
	}
	for i := range f.Operands {
		o := &f.Operands[i]
		switch {
		case o.With != "":
			if f.Mod(mods, o.With) == "" {
				continue
			}
		case o.Optional:
			if free == 0 {
				continue
			}
			free--
		}
		idx = append(idx, i)
	}
	return idx, len(idx) == n
}

// Mod returns the value that mods gives to the named slot, "" when absent.
func (f *Form) Mod(mods []string, slot string) string {
	for i := range f.Slots {
		if f.Slots[i].Name == slot {
			return mods[i]
		}
	}
	return ""
}

// OperandType returns the type of operand o under mods; NoType where the form
// fixes none, as for a label or an address without a type slot.
func (f *Form) OperandType(o *Operand, mods []string) Type {
	if o.TypeSlot == "" {
		return o.Type
	}
	t, _ := ParseType(f.Mod(mods, o.TypeSlot))
	return t
}

// Elements returns the number of elements that operand o has in braces under
// mods: 0 for a scalar; for a tensor operand, the number of coordinates.
func (f *Form) Elements(o *Operand, mods []string) int {
	if o.Count >= 0 {
		return o.Count
	}
	if v := f.Mod(mods, "vec"); v != "" { // .v2, .v4
		return digits(v, "v", "")
	}
	if v := f.Mod(mods, "num"); v != "" { // .x1, .x2, .x4
		return digits(v, "x", "")
	}
	if v := f.Mod(mods, "dim"); v != "" { // .1d to .5d
		return digits(v, "", "d")
	}
	// .m64nNkK: 64·N values over 128 threads, halves packed by two.
	n := ShapeN(f.Mod(mods, "shape")) / 2
	if f.Mod(mods, "dtype") == "f16" {
		n /= 2
	}
	return n
}

// ShapeN returns N of a matrix shape such as "m64n256k16", 0 when malformed.
func ShapeN(shape string) int {
	_, rest, _ := strings.Cut(shape, "n")
	n, _, _ := strings.Cut(rest, "k")
	v, _ := strconv.Atoi(n)
	return v
}

func digits(s, prefix, suffix string) int {
	n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(s, prefix), suffix))
	return n
}
