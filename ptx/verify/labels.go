package verify

import "github.com/mlagen/mlagen/ptx"

// labels checks that every target exists once and every label has a branch.
func (c *kernelChecker) labels() {
	defined := map[ptx.Label]*ptx.LabelStmt{}
	var all []*ptx.LabelStmt
	for _, s := range c.k.Body {
		l, ok := s.(*ptx.LabelStmt)
		if !ok {
			continue
		}
		if defined[l.Name] != nil {
			c.report(l, "labels", "label %s is defined twice", l.Name)
			continue
		}
		defined[l.Name] = l
		all = append(all, l)
	}
	used := map[ptx.Label]bool{}
	for _, i := range c.g.instrs {
		for _, a := range i.Args {
			l, ok := a.(ptx.Label)
			if !ok {
				continue
			}
			used[l] = true
			if defined[l] == nil {
				c.report(i, "labels", "label %s is not defined", l)
			}
		}
	}
	for _, l := range all {
		if !used[l.Name] {
			c.report(l, "labels", "no branch goes to label %s", l.Name)
		}
	}
}
