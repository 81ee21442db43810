package differential

import (
	"fmt"
	"testing"

	"github.com/mlagen/mlagen/runtime"
)

var mergeCases = []MergeCase{
	{Shape: runtime.MergeShape{Width: 128, DType: runtime.BF16, Partial: runtime.BF16}, Tokens: 40, Heads: 5, States: 2},
	{Shape: runtime.MergeShape{Width: 512, DType: runtime.FP16, Partial: runtime.F32}, Tokens: 9, Heads: 16, States: 7},
	{Shape: runtime.MergeShape{Width: 64, DType: runtime.FP16, Partial: runtime.FP16}, Tokens: 33, Heads: 1, States: 70},
}

var appendCases = []AppendCase{
	{Shape: runtime.AppendShape{Latent: 512, Rope: 64, Page: 64, DType: runtime.BF16}, Tokens: 150, Pages: 5},
	{Shape: runtime.AppendShape{Latent: 512, Rope: 64, Page: 64, DType: runtime.BF16, Rotate: runtime.RotateHalf}, Tokens: 100, Pages: 3},
	{Shape: runtime.AppendShape{Latent: 256, Rope: 128, Page: 64, DType: runtime.FP16, Rotate: runtime.RotateInterleaved}, Tokens: 100, Pages: 3},
}

// stateRows compares the kernels that work on states and on the cache.
func stateRows(t *testing.T, p *Pair, report func(*testing.T, []Row, error)) {
	for i, c := range mergeCases {
		c.Name, c.Seed = fmt.Sprintf("width=%d,%s,%s,states=%d", c.Shape.Width, c.Shape.DType, c.Shape.Partial, c.States), uint64(i+1)
		t.Run("merge/"+c.Name, func(t *testing.T) {
			rows, err := p.Merge(c)
			report(t, rows, err)
		})
	}
	for i, c := range appendCases {
		c.Name, c.Seed = fmt.Sprintf("latent=%d+%d,%s,%s", c.Shape.Latent, c.Shape.Rope, c.Shape.DType, c.Shape.Rotate), uint64(i+1)
		t.Run("append/"+c.Name, func(t *testing.T) {
			rows, err := p.Append(c)
			report(t, rows, err)
		})
	}
}
