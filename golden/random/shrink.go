package random

import (
	"reflect"
	"slices"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/dtype"
)

// Shrink returns the least case that it finds which still fails: fewer and
// shorter sequences, fewer heads, plainer contents and layouts. It tries at most
// so many cases, and stops early when fails reports an error, which it returns.
func Shrink(c *cases.Case, tries int, fails func(*cases.Case) (bool, error)) (*cases.Case, error) {
	least := c
	for again := true; again; {
		again = false
		for _, simpler := range simplifications(least) {
			if simpler.Validate() != nil {
				continue
			}
			if tries--; tries < 0 {
				return least, nil
			}
			failed, err := fails(simpler)
			if err != nil {
				return least, err
			}
			if failed { // what was tried before may work now
				least, again = simpler, true
				break
			}
		}
	}
	return least, nil
}

// simplifications lists cases simpler than c, the boldest first. Each differs
// from c.
func simplifications(c *cases.Case) (simpler []*cases.Case) {
	try := func(change func(x *cases.Case)) {
		x := *c
		change(&x)
		if !reflect.DeepEqual(x, *c) {
			simpler = append(simpler, &x)
		}
	}
	plain := cases.Default()
	try(func(x *cases.Case) { x.Holds = nil })
	try(func(x *cases.Case) { x.Graph = nil })
	try(func(x *cases.Case) { x.Repeat = 1 })
	try(func(x *cases.Case) { x.BatchInvariant = false })
	// Half of the batch, and one request less.
	for _, of := range []int{2, 4} {
		for part := range of {
			n := len(c.KVLen)
			if n < of {
				break
			}
			try(func(x *cases.Case) {
				for i := (part+1)*n/of - 1; i >= part*n/of; i-- {
					x.Drop(i)
				}
			})
		}
	}
	for i := range c.KVLen {
		if len(c.KVLen) < 9 {
			try(func(x *cases.Case) { x.Drop(i) })
		}
	}
	number := func(value int, set func(x *cases.Case, v int), least int) {
		for _, v := range []int{least, value / 2, value - value%64, value - 1} {
			if v >= least && v < value {
				try(func(x *cases.Case) { set(x, v) })
			}
		}
	}
	number(c.Model.Heads, func(x *cases.Case, v int) { x.Model.Heads = v }, 1)
	if c.QLen.Each == nil {
		number(c.QLen.All, func(x *cases.Case, v int) { x.QLen.All = v }, min(1, c.QLen.All))
	}
	// All lengths at once, then one by one.
	set := func(of []int, i, v int) []int {
		of = slices.Clone(of)
		of[i] = v
		return of
	}
	halves := func(of []int) []int {
		of = slices.Clone(of)
		for i := range of {
			of[i] /= 2
		}
		return of
	}
	try(func(x *cases.Case) {
		x.KVLen = halves(x.KVLen)
		if x.QLen.Each != nil {
			x.QLen.Each = halves(x.QLen.Each)
		}
	})
	for i, n := range c.KVLen {
		number(n, func(x *cases.Case, v int) { x.KVLen = set(x.KVLen, i, v) }, 0)
		if c.QLen.Each != nil {
			number(c.QLen.Each[i], func(x *cases.Case, v int) { x.QLen.Each = set(x.QLen.Each, i, v) }, 0)
		}
	}
	number(c.Splits, func(x *cases.Case, v int) { x.Splits = v }, 0)
	number(c.Chunk, func(x *cases.Case, v int) { x.Chunk = v }, 0)
	try(func(x *cases.Case) { x.BlockH = 0 })
	try(func(x *cases.Case) { x.Cluster = 0 })
	try(func(x *cases.Case) { x.Teams = 0 })
	try(func(x *cases.Case) { x.PieceCost = 0 })
	try(func(x *cases.Case) { x.Workspace = 0 })
	try(func(x *cases.Case) { x.Layout = plain.Layout })
	try(func(x *cases.Case) { x.Layout.KVRow, x.Layout.KVPage = 0, 0 })
	try(func(x *cases.Case) { x.Layout.Q = plain.Layout.Q })
	try(func(x *cases.Case) { x.Layout.QRows = plain.Layout.QRows })
	try(func(x *cases.Case) { x.Layout.Out = plain.Layout.Out })
	try(func(x *cases.Case) { x.Pages = cases.Pages{Order: "identity", Tail: -1} })
	try(func(x *cases.Case) { x.Pages.Base = 0 })
	if c.Op != "layer" && c.Op != "decode" {
		try(func(x *cases.Case) { x.Causal = plain.Causal })
	}
	try(func(x *cases.Case) { x.LSEBase = plain.LSEBase })
	try(func(x *cases.Case) { x.DType, x.Partial = dtype.BF16, "" })
	try(func(x *cases.Case) { x.Rotate = "" })
	try(func(x *cases.Case) { x.Scale = 0 })
	// Contents stay within the tolerance that was set for those of the case.
	try(func(x *cases.Case) { x.Fill.Unused = plain.Fill.Unused })
	try(func(x *cases.Case) { x.Fill.Out = plain.Fill.Out })
	try(func(x *cases.Case) { x.Fill.Rope = "" })
	fills := []string{"zero", "const:0.25", plain.Fill.KV} // the plainest first
	for i, fill := range fills {
		if at := slices.Index(fills, c.Fill.Q); at < 0 || at > i {
			try(func(x *cases.Case) { x.Fill.Q = fill })
		}
		if at := slices.Index(fills, c.Fill.KV); at < 0 || at > i {
			try(func(x *cases.Case) { x.Fill.KV = fill })
		}
	}
	try(func(x *cases.Case) { x.Seed = 1 })
	return simpler
}
