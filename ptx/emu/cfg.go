package emu

// Control flow: where the lanes that a branch separates meet again.

// reconvergence sets reconv of every branch to the first instruction of its
// block's immediate post-dominator, which is where the compiler would place
// the convergence barrier. Where some way ends the thread, only those that go
// on to the end of the program count.
func (c *compiler) reconvergence() {
	n := len(c.code)
	leader := make([]bool, n+1)
	leader[0] = true
	for i := range c.code {
		if o := &c.code[i]; o.target >= 0 {
			leader[o.target], leader[i+1] = true, true
		} else if o.ends() {
			leader[i+1] = true
		}
	}
	var starts []int
	block := make([]int, n)
	for i := range n {
		if leader[i] {
			starts = append(starts, i)
		}
		block[i] = len(starts) - 1
	}
	exit := len(starts)
	// edges returns the successors of every block. An exit of some lanes only
	// is no edge: those lanes are gone, and the others go on together. With
	// last, the program's last exit is the only one.
	edges := func(last bool) [][]int {
		succ := make([][]int, exit)
		for b := range starts {
			end := n - 1
			if b+1 < len(starts) {
				end = starts[b+1] - 1
			}
			o := &c.code[end]
			if o.target >= 0 {
				succ[b] = append(succ[b], block[o.target])
			}
			switch {
			case o.ends() && o.guard < 0:
				if !last || b == exit-1 {
					succ[b] = append(succ[b], exit)
				}
			case o.target < 0 || o.guard >= 0:
				succ[b] = append(succ[b], b+1)
			}
		}
		return succ
	}
	all, only := postDominators(edges(false)), postDominators(edges(true))
	for i := range c.code {
		o := &c.code[i]
		if o.target < 0 || o.guard < 0 {
			continue
		}
		p := all[block[i]]
		if p < 0 || p == exit {
			p = only[block[i]]
		}
		if p >= 0 && p < exit {
			o.reconv = starts[p]
		}
	}
}

// ends reports whether o ends the thread.
func (o *op) ends() bool {
	switch o.in.Form.Root {
	case "ret", "exit", "trap":
		return true
	}
	return false
}

// postDominators returns the immediate post-dominator of each block, -1 where
// a block does not reach the exit, which is numbered len(succ) (Cooper, Harvey
// and Kennedy's algorithm on the reversed graph).
func postDominators(succ [][]int) []int {
	n := len(succ)
	pred := make([][]int, n+1)
	for b, ss := range succ {
		for _, s := range ss {
			pred[s] = append(pred[s], b)
		}
	}
	// Postorder of the reversed graph from the exit.
	order := make([]int, 0, n+1)
	number := make([]int, n+1)
	seen := make([]bool, n+1)
	type frame struct{ b, i int }
	stack := []frame{{n, 0}}
	seen[n] = true
	for len(stack) > 0 {
		f := &stack[len(stack)-1]
		if f.i < len(pred[f.b]) {
			p := pred[f.b][f.i]
			f.i++
			if !seen[p] {
				seen[p] = true
				stack = append(stack, frame{p, 0})
			}
			continue
		}
		number[f.b] = len(order)
		order = append(order, f.b)
		stack = stack[:len(stack)-1]
	}
	idom := make([]int, n+1)
	for i := range idom {
		idom[i] = -1
	}
	idom[n] = n
	meet := func(a, b int) int {
		for a != b {
			for number[a] < number[b] {
				a = idom[a]
			}
			for number[b] < number[a] {
				b = idom[b]
			}
		}
		return a
	}
	for changed := true; changed; {
		changed = false
		for i := len(order) - 1; i >= 0; i-- {
			b := order[i]
			if b == n {
				continue
			}
			dom := -1
			for _, s := range succ[b] {
				if idom[s] < 0 {
					continue
				}
				if dom < 0 {
					dom = s
				} else {
					dom = meet(dom, s)
				}
			}
			if dom != idom[b] {
				idom[b], changed = dom, true
			}
		}
	}
	return idom[:n]
}
