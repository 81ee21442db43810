package differential

import (
	"fmt"
	"testing"

	"github.com/mlagen/mlagen/templates"
)

// upCases are up-projections with and without clusters, in both types, of
// sequences that begin within a page and of empty ones, with several tiles for
// each CTA and with fewer.
var upCases = []ProductCase{
	{Spec: templates.Spec{Heads: 2}, Lengths: []int{200, 0, 70, 1, 64}, First: []int{0, 0, 33, 0, 0}, SMs: 132},
	{Spec: templates.Spec{Heads: 2, DType: "fp16"}, Lengths: []int{700, 90}, First: []int{100, 64}, SMs: 2},
	{Spec: templates.Spec{Heads: 3, Cluster: 1}, Lengths: []int{300}, First: []int{0}, SMs: 2},
	{Spec: templates.Spec{Heads: 2, BlockN: 64, Cluster: 4, DType: "fp16"}, Lengths: []int{150, 300}, First: []int{0, 5}, SMs: 4},
	{Spec: templates.Spec{Heads: 2, Latent: 256, Nope: 64, Value: 128}, Lengths: []int{150, 300}, First: []int{0, 5}, SMs: 4},
}

// absorbCases are every kind of tile.
var absorbCases = []ProductCase{
	{Spec: templates.Spec{Heads: 3, BlockM: 8}, Tokens: 1, SMs: 132},
	{Spec: templates.Spec{Heads: 3, BlockM: 16, DType: "fp16"}, Tokens: 13, SMs: 132},
	{Spec: templates.Spec{Heads: 2, BlockM: 64}, Tokens: 60, SMs: 132},
	{Spec: templates.Spec{Heads: 2, BlockM: 32, BlockN: 64}, Tokens: 70, SMs: 132},
	{Spec: templates.Spec{Heads: 2, BlockM: 128}, Tokens: 300, SMs: 3},
	{Spec: templates.Spec{Heads: 2, BlockM: 128, DType: "fp16"}, Tokens: 129, SMs: 132},
	{Spec: templates.Spec{Heads: 2, BlockM: 256, BlockN: 128}, Tokens: 290, SMs: 2},
	{Spec: templates.Spec{Heads: 1, BlockM: 128, Latent: 256, Nope: 64, Value: 64}, Tokens: 140, SMs: 2},
}

// productRows compares the products with weights.
func productRows(t *testing.T, p *Pair, report func(*testing.T, []Row, error)) {
	for i, c := range upCases {
		s, _ := templates.Defaults("up-project", c.Spec) // the kernel exists
		c.Name, c.Seed = fmt.Sprintf("heads=%d,latent=%d,%dx%d,cluster=%d,%s,lengths=%v,sms=%d", s.Heads, s.Latent, s.BlockM, s.BlockN, s.Cluster, s.DType, c.Lengths, c.SMs), uint64(i+1)
		t.Run("up-project/"+c.Name, func(t *testing.T) {
			rows, err := p.UpProject(c)
			report(t, rows, err)
		})
	}
	for i, c := range absorbCases {
		s, _ := templates.Defaults("absorb-q", c.Spec)
		c.Name, c.Seed = fmt.Sprintf("heads=%d,latent=%d,%dx%d,%s,tokens=%d,sms=%d", s.Heads, s.Latent, s.BlockM, s.BlockN, s.DType, c.Tokens, c.SMs), uint64(i+1)
		t.Run("absorb/"+c.Name, func(t *testing.T) {
			rows, err := p.Absorb(c)
			report(t, rows, err)
		})
	}
}
