package verify

import (
	"github.com/mlagen/mlagen/ptx"
)

// barrier names an mbarrier by the operand that addresses it; version counts
// the writes of the base register before, within the block.
type barrier struct {
	base    ptx.Operand
	offset  int64
	version int
}

// traffic is what a block does to one mbarrier.
type traffic struct {
	expects     []*ptx.Instr
	expected    int64
	copied      int64
	copies      int
	guard       ptx.Guard
	undecidable bool
}

// transactions checks that the bytes expected of an mbarrier are those of the
// copies that signal it. It judges only what a block says completely: constant
// byte counts, boxes known from the manifest, one guard, and no copy onto the
// same barrier in another block.
func (c *kernelChecker) transactions() {
	type place struct {
		base   ptx.Operand
		offset int64
	}
	blocks := map[place]map[int]bool{}
	for n, i := range c.g.instrs {
		if b, ok := c.signalled(i); ok {
			at := place{b.base, b.offset}
			if blocks[at] == nil {
				blocks[at] = map[int]bool{}
			}
			blocks[at][c.g.blockOf[n]] = true
		}
	}
	for n := range c.g.blocks {
		seen, order := c.traffic(n)
		if seen == nil {
			continue
		}
		for _, b := range order {
			t := seen[b]
			if t.undecidable || len(blocks[place{b.base, b.offset}]) > 1 || len(t.expects) == 0 || t.copies == 0 {
				continue
			}
			if t.expected != t.copied {
				c.report(t.expects[0], "expect-tx", "%d bytes expected, but the %d copies that follow bring %d", t.expected, t.copies, t.copied)
			}
		}
	}
}

// traffic collects the expects and copies of block n by barrier, in order of
// first use; nil when the block has copies onto a barrier that it expects
// nothing of, for then two operands may name one barrier.
func (c *kernelChecker) traffic(n int) (map[barrier]*traffic, []barrier) {
	seen := map[barrier]*traffic{}
	var order []barrier
	writes := map[ptx.Operand]int{}
	at := func(b barrier, i *ptx.Instr) *traffic {
		b.version = writes[b.base]
		t := seen[b]
		if t == nil {
			t = &traffic{guard: i.Guard}
			seen[b] = t
			order = append(order, b)
		}
		t.undecidable = t.undecidable || t.guard != i.Guard
		return t
	}
	blk := c.g.blocks[n]
	for _, i := range c.g.instrs[blk.first:blk.end] {
		switch i.Form.Root {
		case "mbarrier.arrive.expect_tx", "mbarrier.expect_tx":
			b, ok := address(i.Arg("addr"))
			if !ok || i.Mod("space") == "shared::cluster" {
				return nil, nil
			}
			t := at(b, i)
			t.expects = append(t.expects, i)
			bytes, ok := c.constant(i.Arg("txCount"))
			t.expected += bytes
			t.undecidable = t.undecidable || !ok || t.copies > 0
		case "mbarrier.complete_tx", "st.async":
			return nil, nil
		}
		if b, ok := c.signalled(i); ok {
			t := at(b, i)
			t.copies++
			bytes, ok := c.bytes(i)
			t.copied += bytes
			t.undecidable = t.undecidable || !ok
		}
		for _, r := range written(i) {
			writes[r]++
		}
	}
	for _, t := range seen {
		if t.copies > 0 && len(t.expects) == 0 {
			return nil, nil
		}
	}
	return seen, order
}

// signalled returns the mbarrier that a copy completes its bytes on.
func (c *kernelChecker) signalled(i *ptx.Instr) (barrier, bool) {
	switch i.Form.Root {
	case "cp.async.bulk", "cp.async.bulk.tensor":
		return address(i.Arg("mbar"))
	}
	return barrier{}, false
}

// bytes returns how many bytes copy i signals, false when unknown.
func (c *kernelChecker) bytes(i *ptx.Instr) (int64, bool) {
	if i.Mod("multicast::cluster") != "" {
		return 0, false
	}
	if i.Form.Root == "cp.async.bulk" {
		return c.constant(i.Arg("size"))
	}
	if tm := c.mapOf(i); tm != nil {
		n := boxBytes(tm)
		return int64(n), n > 0
	}
	return 0, false
}

// address returns a memory operand as a barrier's name.
func address(o ptx.Operand) (barrier, bool) {
	a, ok := o.(ptx.Addr)
	if !ok {
		return barrier{}, false
	}
	switch a.Base.(type) {
	case *ptx.Reg, ptx.Symbol:
		return barrier{base: a.Base, offset: a.Offset}, true
	}
	return barrier{}, false
}

// constant returns o's value when it is a constant or a register that is only
// ever set to one.
func (c *kernelChecker) constant(o ptx.Operand) (int64, bool) {
	switch o := o.(type) {
	case ptx.Imm:
		return int64(o), true
	case *ptx.Reg:
		if d := c.g.defs[o]; len(d) == 1 && d[0].Form.Root == "mov" && d[0].Guard.P == nil {
			v, ok := d[0].Arg("a").(ptx.Imm)
			return int64(v), ok
		}
	}
	return 0, false
}
