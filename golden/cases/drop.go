package cases

import "slices"

// Drop removes a sequence.
func (c *Case) Drop(i int) {
	drop := func(x []int) []int { return slices.Delete(slices.Clone(x), i, i+1) }
	c.KVLen = drop(c.KVLen)
	if c.QLen.Each != nil {
		c.QLen.Each = drop(c.QLen.Each)
	}
	if c.Paths != nil {
		c.Paths = slices.Delete(slices.Clone(c.Paths), i, i+1)
	}
	if c.Graph != nil {
		c.Graph = &Graph{CaptureKVLen: drop(c.Graph.CaptureKVLen)}
	}
}
