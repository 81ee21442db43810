package ptx

import (
	"strconv"
	"strings"

	"github.com/mlagen/mlagen/ptx/isa"
)

// registers declares regs type by type, in the order in which the types first
// occur. Names that differ only in a number become one range %r<N>, provided
// that most of the range exists and no other type shares the prefix.
func (p *printer) registers(regs []*Reg) {
	var types []isa.Type
	byType := map[isa.Type][]*Reg{}
	for _, r := range regs {
		if byType[r.Type] == nil {
			types = append(types, r.Type)
		}
		byType[r.Type] = append(byType[r.Type], r)
	}
	ranges := registerRanges(regs)
	for _, t := range types {
		var printed map[string]bool
		var rest []string
		for _, r := range byType[t] {
			prefix, _, ok := splitNumber(r.Name)
			if ok && ranges[prefix] > 0 {
				if printed[prefix] {
					continue
				}
				if printed == nil {
					printed = map[string]bool{}
				}
				printed[prefix] = true
				p.s("\t.reg .", t.String(), " ", prefix, "<")
				p.n(int64(ranges[prefix]))
				p.s(">;\n")
				continue
			}
			rest = append(rest, r.Name)
		}
		for len(rest) > 0 {
			n := min(len(rest), 8)
			p.s("\t.reg .", t.String(), " ", strings.Join(rest[:n], ", "), ";\n")
			rest = rest[n:]
		}
	}
}

// registerRanges returns, for each name prefix that can be declared as a
// range, the range's length.
func registerRanges(regs []*Reg) map[string]int {
	type use struct {
		t     isa.Type
		count int
		last  int
		mixed bool
	}
	uses := map[string]*use{}
	for _, r := range regs {
		prefix, n, ok := splitNumber(r.Name)
		if !ok {
			continue
		}
		u := uses[prefix]
		if u == nil {
			u = &use{t: r.Type}
			uses[prefix] = u
		}
		u.count++
		u.last = max(u.last, n)
		u.mixed = u.mixed || u.t != r.Type
	}
	out := map[string]int{}
	for prefix, u := range uses {
		if !u.mixed && u.count > 1 && 2*u.count > u.last {
			out[prefix] = u.last + 1
		}
	}
	return out
}

// splitNumber splits a register name into prefix and decimal number.
func splitNumber(name string) (prefix string, n int, ok bool) {
	i := len(name)
	for i > 0 && name[i-1] >= '0' && name[i-1] <= '9' {
		i--
	}
	digits := name[i:]
	if digits == "" || len(digits) > 6 || len(digits) > 1 && digits[0] == '0' {
		return "", 0, false
	}
	n, _ = strconv.Atoi(digits)
	return name[:i], n, true
}
