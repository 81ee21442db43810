package verify

import (
	"slices"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// When a register may hold no value yet: never, always, or while a predicate
// has a value. The last lets the kernel guard the use as it guarded the write.
type unset int32

const (
	never  unset = 0
	always unset = 1
)

// when is the condition that predicate number p has value v.
func when(p int, v bool) unset {
	u := unset(2 + 2*p)
	if v {
		u++
	}
	return u
}

// condition splits what when made.
func (u unset) condition() (p int, v bool, ok bool) {
	return int(u-2) / 2, u&1 == 1, u >= 2
}

// flow is what is known at a point: which registers may be unset, and the
// values that branches have shown predicates to have (1 false, 2 true).
type flow struct {
	unset []unset
	fact  []uint8
}

func (f *flow) clone() *flow { return &flow{slices.Clone(f.unset), slices.Clone(f.fact)} }

func factOf(v bool) uint8 {
	if v {
		return 2
	}
	return 1
}

// registers finds registers that are read but never written, and reads that a
// path reaches without a write. A guarded write counts as a write, and so does
// a wgmma accumulator's, since scale-d may be false the first time.
func (c *kernelChecker) registers() {
	if len(c.g.blocks) == 0 {
		return
	}
	a := &assignment{c: c, number: map[*ptx.Reg]int{}, reported: map[*ptx.Reg]bool{}}
	for _, i := range c.g.instrs {
		eachRegister(i, func(r *ptx.Reg, _ *isa.Operand, access isa.Access) {
			if access&isa.Read != 0 && c.g.defs[r] == nil && !a.reported[r] {
				a.reported[r] = true
				c.report(i, "registers", "register %s is never written", r.Name)
			}
			if _, ok := a.number[r]; !ok {
				a.number[r] = len(a.regs)
				a.regs = append(a.regs, r)
			}
		})
	}
	if n, m := len(c.g.blocks), len(a.regs); n > maxFlows/max(1, m) {
		c.report(nil, "registers", "%d blocks with %d registers are too many to be followed: at most %d for each", n, m, maxFlows/m)
		return
	}
	a.solve()
}

// maxFlows bounds registers × blocks, some ten times those of the largest kernels.
const maxFlows = 1 << 26

type assignment struct {
	c        *kernelChecker
	regs     []*ptx.Reg
	number   map[*ptx.Reg]int
	out      []*flow // at each block's end
	reported map[*ptx.Reg]bool
}

func (a *assignment) solve() {
	g := a.c.g
	a.out = make([]*flow, len(g.blocks))
	found := fixedPoint(g, a.out, a.in, a.walk, func(x, y *flow) bool {
		return slices.Equal(x.unset, y.unset) && slices.Equal(x.fact, y.fact)
	})
	if !found {
		a.c.unfollowed("registers")
	}
}

// in joins what comes over the edges into block b; nil when none is feasible
// as far as is known.
func (a *assignment) in(b int) *flow {
	var f *flow
	if b == 0 {
		f = &flow{make([]unset, len(a.regs)), make([]uint8, len(a.regs))}
		for i := range f.unset {
			f.unset[i] = always
		}
	}
	done := map[int]bool{}
	for _, from := range a.c.g.blocks[b].pred {
		if done[from] {
			continue
		}
		done[from] = true
		for _, e := range a.c.g.blocks[from].succ {
			if e.to != b || a.out[from] == nil {
				continue
			}
			if in := a.along(e, a.out[from]); in != nil {
				f = join(f, in)
			}
		}
	}
	return f
}

// along returns what holds after edge e, nil when e cannot be taken.
func (a *assignment) along(e edge, f *flow) *flow {
	f = f.clone()
	if e.p == nil {
		return f
	}
	p := a.number[e.p]
	if f.fact[p] == factOf(!e.value) {
		return nil
	}
	f.fact[p] = factOf(e.value)
	off := when(p, !e.value)
	for r, u := range f.unset {
		if u == off {
			f.unset[r] = never
		}
	}
	return f
}

func join(a, b *flow) *flow {
	if a == nil {
		return b
	}
	// The predicate under which the two sides differ, if branches have shown one.
	differ := -1
	for p := range a.fact {
		if a.fact[p]+b.fact[p] == 3 && a.fact[p] != 0 && b.fact[p] != 0 {
			differ = p
			break
		}
	}
	for r, u := range a.unset {
		if v := b.unset[r]; u != v {
			a.unset[r] = joinUnset(u, v, a, b, differ)
		}
	}
	for p := range a.fact {
		if a.fact[p] != b.fact[p] {
			a.fact[p] = 0
		}
	}
	return a
}

// joinUnset joins u of flow a with another v of flow b.
func joinUnset(u, v unset, a, b *flow, differ int) unset {
	switch {
	case v == never:
		u, v, a, b = v, u, b, a
		fallthrough
	case u == never:
		// Unset on b's side only.
		if v == always && differ >= 0 {
			return when(differ, b.fact[differ] == 2)
		}
		return v
	case u == always:
		u, v, a, b = v, u, b, a
		fallthrough
	default:
		// u is a condition; v is covered by it when b's side has shown it to hold.
		if p, value, ok := u.condition(); ok && b.fact[p] == factOf(value) {
			return u
		}
		return always
	}
}

// walk moves f through block b, reporting reads of unset registers if asked.
func (a *assignment) walk(b int, f *flow, report bool) {
	blk := a.c.g.blocks[b]
	for _, i := range a.c.g.instrs[blk.first:blk.end] {
		accumulates := i.Form.Root == "wgmma.mma_async"
		if report {
			eachRegister(i, func(r *ptx.Reg, o *isa.Operand, access isa.Access) {
				if access&isa.Read == 0 || accumulates && access&isa.Write != 0 || a.reported[r] {
					return
				}
				if o == nil || !a.guarded(i, r, f) {
					if u := f.unset[a.number[r]]; u != never {
						a.reported[r] = true
						a.c.report(i, "registers", "register %s may be read before it is written", r.Name)
					}
				}
			})
		}
		eachRegister(i, func(r *ptx.Reg, _ *isa.Operand, access isa.Access) {
			if access&isa.Write == 0 {
				return
			}
			n := a.number[r]
			f.unset[n] = never
			if r.Type != isa.Pred {
				return
			}
			f.fact[n] = 0
			for k, u := range f.unset {
				if p, _, ok := u.condition(); ok && p == n {
					f.unset[k] = always
				}
			}
		})
	}
}

// guarded reports whether what i reads of r is set whenever i executes.
func (a *assignment) guarded(i *ptx.Instr, r *ptx.Reg, f *flow) bool {
	p, v, ok := f.unset[a.number[r]].condition()
	if !ok {
		return false
	}
	if f.fact[p] == factOf(!v) {
		return true
	}
	return i.Guard.P != nil && a.number[i.Guard.P] == p && i.Guard.Negate == v
}
