package verify

import (
	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
)

// edge leads to a block; exit is -1. When p is not nil the edge is taken only
// while p has that value.
type edge struct {
	to    int
	p     *ptx.Reg
	value bool
}

const exit = -1

// block is a run of instructions [first, end) that is entered at its top and
// left at its end.
type block struct {
	first, end int
	succ       []edge
	pred       []int // with repetition when two edges join the same blocks
}

// graph is a kernel's control flow. Edges to labels that do not exist are
// left out; labels reports them.
type graph struct {
	instrs  []*ptx.Instr
	blocks  []block
	blockOf []int                     // of each instruction
	order   []int                     // reachable blocks in reverse postorder
	defs    map[*ptx.Reg][]*ptx.Instr // every write of a register, in text order
}

func newGraph(k *ptx.Kernel) *graph {
	g := &graph{defs: map[*ptx.Reg][]*ptx.Instr{}}
	labels := map[ptx.Label]int{}
	for _, s := range k.Body {
		switch s := s.(type) {
		case *ptx.Instr:
			g.instrs = append(g.instrs, s)
		case *ptx.LabelStmt:
			if _, twice := labels[s.Name]; !twice {
				labels[s.Name] = len(g.instrs)
			}
		}
	}
	n := len(g.instrs)
	leader := make([]bool, n+1)
	leader[0] = true
	for _, at := range labels {
		leader[at] = true
	}
	for i, in := range g.instrs {
		if branches(in) || ends(in) {
			leader[i+1] = true
		}
		eachRegister(in, func(r *ptx.Reg, o *isa.Operand, a isa.Access) {
			if a&isa.Write != 0 {
				g.defs[r] = append(g.defs[r], in)
			}
		})
	}
	g.blockOf = make([]int, n+1)
	for i := range n {
		if leader[i] {
			g.blocks = append(g.blocks, block{first: i})
		}
		b := len(g.blocks) - 1
		g.blockOf[i] = b
		g.blocks[b].end = i + 1
	}
	g.blockOf[n] = exit
	for b := range g.blocks {
		g.link(b, labels)
	}
	for b := range g.blocks {
		for _, e := range g.blocks[b].succ {
			if e.to != exit {
				g.blocks[e.to].pred = append(g.blocks[e.to].pred, b)
			}
		}
	}
	g.number()
	return g
}

// link gives block b its outgoing edges.
func (g *graph) link(b int, labels map[ptx.Label]int) {
	blk := &g.blocks[b]
	last := g.instrs[blk.end-1]
	next := g.blockOf[blk.end]
	p, negate := last.Guard.P, last.Guard.Negate
	target, jumps := exit, ends(last)
	if branches(last) {
		if l, ok := last.Args[0].(ptx.Label); ok {
			var at int
			if at, jumps = labels[l]; jumps {
				target = g.blockOf[at]
			}
		}
	}
	switch {
	case !jumps:
		blk.succ = []edge{{to: next}}
	case p == nil:
		blk.succ = []edge{{to: target}}
	default:
		blk.succ = []edge{{target, p, !negate}, {next, p, negate}}
	}
}

// number finds the reachable blocks, predecessors before successors except
// along back edges.
func (g *graph) number() {
	if len(g.blocks) == 0 {
		return
	}
	seen := make([]bool, len(g.blocks))
	type frame struct{ b, next int }
	stack := []frame{{0, 0}}
	seen[0] = true
	for len(stack) > 0 {
		f := &stack[len(stack)-1]
		if f.next == len(g.blocks[f.b].succ) {
			g.order = append(g.order, f.b)
			stack = stack[:len(stack)-1]
			continue
		}
		to := g.blocks[f.b].succ[f.next].to
		f.next++
		if to != exit && !seen[to] {
			seen[to] = true
			stack = append(stack, frame{to, 0})
		}
	}
	for i, j := 0, len(g.order)-1; i < j; i, j = i+1, j-1 {
		g.order[i], g.order[j] = g.order[j], g.order[i]
	}
}

// none marks a block from which no path leads to the kernel's end.
const none = -2

// postdominators returns each block's immediate postdominator: a block, exit
// or none. (Cooper, Harvey and Kennedy: A Simple, Fast Dominance Algorithm, on
// the reversed graph.)
func (g *graph) postdominators() []int {
	n := len(g.blocks)
	root := n // the kernel's end
	into := func(b int) []int {
		if b != root {
			return g.blocks[b].pred
		}
		var out []int
		for i := range g.blocks {
			for _, e := range g.blocks[i].succ {
				if e.to == exit {
					out = append(out, i)
				}
			}
		}
		return out
	}
	rank := make([]int, n+1) // postorder number on the reversed graph, from 1
	var order []int
	seen := make([]bool, n+1)
	type frame struct {
		b    int
		rest []int
	}
	stack := []frame{{root, into(root)}}
	seen[root] = true
	for len(stack) > 0 {
		f := &stack[len(stack)-1]
		if len(f.rest) == 0 {
			order = append(order, f.b)
			rank[f.b] = len(order)
			stack = stack[:len(stack)-1]
			continue
		}
		b := f.rest[0]
		f.rest = f.rest[1:]
		if !seen[b] {
			seen[b] = true
			stack = append(stack, frame{b, into(b)})
		}
	}
	idom := make([]int, n+1)
	for i := range idom {
		idom[i] = none
	}
	idom[root] = root
	meet := func(a, b int) int {
		for a != b {
			for rank[a] < rank[b] {
				a = idom[a]
			}
			for rank[b] < rank[a] {
				b = idom[b]
			}
		}
		return a
	}
	for changed := true; changed; {
		changed = false
		for i := len(order) - 2; i >= 0; i-- {
			b, d := order[i], none
			for _, e := range g.blocks[b].succ {
				to := e.to
				if to == exit {
					to = root
				}
				switch {
				case idom[to] == none: // not yet known, or endless
				case d == none:
					d = to
				default:
					d = meet(d, to)
				}
			}
			if d != idom[b] {
				idom[b], changed = d, true
			}
		}
	}
	for i := range idom[:n] {
		if idom[i] == root {
			idom[i] = exit
		}
	}
	return idom[:n]
}

// region returns the blocks reachable from block from without passing stop.
func (g *graph) region(from, stop int) []int {
	if from == exit || from == stop {
		return nil
	}
	seen := make([]bool, len(g.blocks))
	seen[from] = true
	out := []int{from}
	for i := 0; i < len(out); i++ {
		for _, e := range g.blocks[out[i]].succ {
			if e.to != exit && e.to != stop && !seen[e.to] {
				seen[e.to] = true
				out = append(out, e.to)
			}
		}
	}
	return out
}

// branches reports whether i is a branch with a target.
func branches(i *ptx.Instr) bool { return i.Form.Root == "bra" && len(i.Args) == 1 }

// ends reports whether a thread that executes i goes no further.
func ends(i *ptx.Instr) bool {
	switch i.Form.Root {
	case "ret", "exit", "trap":
		return true
	}
	return false
}

// eachRegister calls f for every register that i touches: the guard, the
// operands, and those inside addresses, which are read whatever happens to
// the memory. o is nil for the guard.
func eachRegister(i *ptx.Instr, f func(r *ptx.Reg, o *isa.Operand, a isa.Access)) {
	if i.Guard.P != nil {
		f(i.Guard.P, nil, isa.Read)
	}
	ops := i.Operands()
	if ops == nil {
		return
	}
	for k, a := range i.Args {
		o := ops[k]
		one := func(x ptx.Operand, access isa.Access) {
			switch x := x.(type) {
			case *ptx.Reg:
				if x != nil {
					f(x, o, access)
				}
			case ptx.Not:
				if x.P != nil {
					f(x.P, o, isa.Read)
				}
			}
		}
		switch a := a.(type) {
		case ptx.Vec:
			for _, e := range a {
				one(e, o.Access)
			}
		case ptx.Addr:
			one(a.Base, isa.Read)
		case ptx.Tensor:
			one(a.Map, isa.Read)
			for _, e := range a.Coords {
				one(e, isa.Read)
			}
		default:
			one(a, o.Access)
		}
	}
}
