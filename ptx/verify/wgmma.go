package verify

import (
	"slices"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// age says how far the wgmma that uses a register has come: idle, issued but
// not committed, or in the n-th newest committed group as committed+n-1.
type age uint8

const (
	idle age = iota
	issued
	committed
	oldest age = 64
)

// multiplies is the state of a warpgroup's asynchronous products at a point:
// what may be true on some path.
type multiplies struct {
	accumulator []age  // of wgmma in flight, by register
	input       []age  // A fragments likewise
	dirty       []bool // written by other instructions since the last wgmma.fence
	unfenced    bool   // no wgmma.fence yet
}

func (m *multiplies) clone() *multiplies {
	return &multiplies{slices.Clone(m.accumulator), slices.Clone(m.input), slices.Clone(m.dirty), m.unfenced}
}

func (m *multiplies) equal(o *multiplies) bool {
	return slices.Equal(m.accumulator, o.accumulator) && slices.Equal(m.input, o.input) && slices.Equal(m.dirty, o.dirty) && m.unfenced == o.unfenced
}

// join adds what may be true on another path. Of two ages the older counts,
// so that a wait which covers either is taken to cover both.
func (m *multiplies) join(o *multiplies) {
	for r := range m.dirty {
		m.accumulator[r] = max(m.accumulator[r], o.accumulator[r])
		m.input[r] = max(m.input[r], o.input[r])
		m.dirty[r] = m.dirty[r] || o.dirty[r]
	}
	m.unfenced = m.unfenced || o.unfenced
}

// wgmma follows wgmma fences, groups and waits along all paths: accumulators
// and A fragments must not be touched while a product may be using them, a
// fence must lie between other writes of such registers and the product, and
// nothing may be in flight at the end.
func (c *kernelChecker) wgmma() {
	w := &products{c: c, number: map[*ptx.Reg]int{}, reported: map[*ptx.Instr]bool{}}
	for _, i := range c.g.instrs {
		if i.Form.Root != "wgmma.mma_async" {
			continue
		}
		for _, r := range append(vector(i.Arg("d")), vector(i.Arg("a"))...) {
			if _, ok := w.number[r]; !ok {
				w.number[r] = len(w.number)
			}
		}
	}
	if len(w.number) > 0 {
		w.solve()
	}
}

type products struct {
	c        *kernelChecker
	number   map[*ptx.Reg]int // of the registers that wgmma uses
	out      []*multiplies
	reported map[*ptx.Instr]bool
	leaking  bool
}

func (w *products) solve() {
	g := w.c.g
	if n, m := len(g.blocks), len(w.number); n > maxFlows/m {
		w.c.report(nil, "wgmma", "%d blocks with %d registers of wgmma are too many to be followed: at most %d for each", n, m, maxFlows/m)
		return
	}
	w.out = make([]*multiplies, len(g.blocks))
	if !fixedPoint(g, w.out, w.in, w.walk, (*multiplies).equal) {
		w.c.unfollowed("wgmma")
	}
}

func (w *products) in(b int) *multiplies {
	var m *multiplies
	if b == 0 {
		n := len(w.number)
		m = &multiplies{make([]age, n), make([]age, n), make([]bool, n), true}
	}
	for _, p := range w.c.g.blocks[b].pred {
		switch {
		case w.out[p] == nil:
		case m == nil:
			m = w.out[p].clone()
		default:
			m.join(w.out[p])
		}
	}
	return m // not nil: in reverse postorder a predecessor came before
}

func (w *products) walk(b int, m *multiplies, report bool) {
	complain := func(i *ptx.Instr, format string, args ...any) {
		if report && !w.reported[i] {
			w.reported[i] = true
			w.c.report(i, "wgmma", format, args...)
		}
	}
	blk := w.c.g.blocks[b]
	for _, i := range w.c.g.instrs[blk.first:blk.end] {
		switch i.Form.Root {
		case "wgmma.fence":
			m.unfenced = false
			clear(m.dirty)
		case "wgmma.commit_group":
			for r := range m.dirty {
				m.accumulator[r] = older(m.accumulator[r])
				m.input[r] = older(m.input[r])
			}
		case "wgmma.wait_group":
			if n, ok := i.Arg("N").(ptx.Imm); ok {
				for r := range m.dirty {
					m.accumulator[r] = waited(m.accumulator[r], int64(n))
					m.input[r] = waited(m.input[r], int64(n))
				}
			}
		case "wgmma.mma_async":
			w.issue(i, m, complain)
		default:
			w.touch(i, m, complain)
			if ends(i) && i.Form.Root != "trap" {
				w.finish(i, m, report)
			}
		}
	}
	if next := blk.end; next == len(w.c.g.instrs) && !ends(w.c.g.instrs[next-1]) {
		w.finish(w.c.g.instrs[next-1], m, report)
	}
}

func older(a age) age {
	if a == idle || a == oldest {
		return a
	}
	return a + 1
}

// waited returns what a is after a wait that leaves n groups pending.
func waited(a age, n int64) age {
	if a >= committed && int64(a-committed) >= n {
		return idle
	}
	return a
}

func (w *products) issue(i *ptx.Instr, m *multiplies, complain func(*ptx.Instr, string, ...any)) {
	d, a := vector(i.Arg("d")), vector(i.Arg("a"))
	if m.unfenced {
		complain(i, "no wgmma.fence comes before the first wgmma.mma_async")
	}
	for _, r := range append(slices.Clone(d), a...) {
		if m.dirty[w.number[r]] {
			complain(i, "%s was written after the last wgmma.fence", r.Name)
		}
	}
	for _, r := range a {
		if m.accumulator[w.number[r]] != idle {
			complain(i, "the A fragment %s is the result of a wgmma.mma_async that is not waited for", r.Name)
		}
		m.input[w.number[r]] = issued
	}
	for _, r := range d {
		m.accumulator[w.number[r]] = issued
	}
}

// touch handles an instruction other than wgmma.
func (w *products) touch(i *ptx.Instr, m *multiplies, complain func(*ptx.Instr, string, ...any)) {
	eachRegister(i, func(r *ptx.Reg, _ *isa.Operand, access isa.Access) {
		n, ok := w.number[r]
		if !ok {
			return
		}
		state := func(a age) string {
			if a == issued {
				return "not committed"
			}
			return "not waited for"
		}
		switch acc := m.accumulator[n]; {
		case acc != idle && access&isa.Write != 0:
			complain(i, "%s is written while a wgmma.mma_async that accumulates into it is %s", r.Name, state(acc))
		case acc != idle:
			complain(i, "%s is read while the wgmma.mma_async that accumulates into it is %s", r.Name, state(acc))
		case m.input[n] != idle && access&isa.Write != 0:
			complain(i, "%s is written while a wgmma.mma_async that reads it is %s", r.Name, state(m.input[n]))
		}
		if access&isa.Write != 0 {
			m.dirty[n] = true
		}
	})
}

func (w *products) finish(i *ptx.Instr, m *multiplies, report bool) {
	if !report || w.leaking {
		return
	}
	for _, a := range m.accumulator {
		if a != idle {
			w.leaking = true
			w.c.report(i, "wgmma", "the kernel may end while a wgmma.mma_async is in flight")
			return
		}
	}
}

// vector returns the registers of a brace list.
func vector(o ptx.Operand) []*ptx.Reg {
	v, _ := o.(ptx.Vec)
	var out []*ptx.Reg
	for _, e := range v {
		if r, ok := e.(*ptx.Reg); ok && r != nil {
			out = append(out, r)
		}
	}
	return out
}

// written returns the registers that i writes.
func written(i *ptx.Instr) []*ptx.Reg {
	var out []*ptx.Reg
	eachRegister(i, func(r *ptx.Reg, _ *isa.Operand, a isa.Access) {
		if a&isa.Write != 0 {
			out = append(out, r)
		}
	})
	return out
}
