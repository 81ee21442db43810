package faults

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

// UpProject implements runtime.UpProjectSource.
func (s *source) UpProject(shape runtime.UpProjectShape) (runtime.Variant, error) {
	return s.build("up-project", templates.Spec{
		Heads: shape.Heads, Latent: shape.Latent, Nope: shape.Nope, Rope: shape.Rope, Value: shape.Value, Page: shape.Page, DType: string(shape.DType),
	})
}

// AbsorbQuery implements runtime.AbsorbSource.
func (s *source) AbsorbQuery(shape runtime.AbsorbShape) ([]runtime.Variant, error) {
	return s.absorb("absorb-q", shape, shape.Rope)
}

// AbsorbOutput implements runtime.AbsorbSource.
func (s *source) AbsorbOutput(shape runtime.AbsorbShape) ([]runtime.Variant, error) {
	return s.absorb("absorb-o", shape, 0)
}

// absorb makes the kernel that the case's tokens take.
func (s *source) absorb(kernel string, shape runtime.AbsorbShape, rope int) ([]runtime.Variant, error) {
	rows := templates.AbsorbRows(kernel, shape.Tokens)
	spec := templates.Spec{
		Heads: shape.Heads, Latent: shape.Latent, Nope: shape.Nope, Rope: rope, Value: shape.Value, BlockM: rows[len(rows)-1], DType: string(shape.DType),
	}
	if kernel == "absorb-o" {
		spec.Stages = 3 // fewer than the contraction has blocks, so that slots are filled again
	}
	v, err := s.build(kernel, spec)
	return []runtime.Variant{v}, err
}

// productProblems exercise, of up-project, rings that wrap, runs one after
// another in a cluster, sequences that share no tile, empty ones, pages that are
// not full and CTAs without a partner's rows; of absorb, tiles that are not full,
// a ring that is shorter than the contraction, and several tiles in a CTA.
func productProblems(t *testing.T, op string, heads int, list ...problemFields) (out []problem) {
	t.Helper()
	for i, p := range list {
		c, err := cases.Parse([]byte(fmt.Sprintf(`{"name": "faults-%d", "op": %q, "model": {"heads": %d, "latent": %d, "rope": 64, "nope": 128, "value": 128}, %s}`, i, op, heads, p.latent, p.fields)))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, problem{c, p.sms})
	}
	return out
}

type problemFields struct {
	latent int
	fields string
	sms    int
}

// TestProductCaught plants every fault of the products and prints by which rule
// it is caught.
func TestProductCaught(t *testing.T) {
	testCaught(t, Product, map[int][]problem{
		upHeads: productProblems(t, "upproject", upHeads,
			problemFields{128, `"kv_len": [200, 0, 70, 1, 64]`, 4},
			problemFields{128, `"kv_len": [300, 90], "chunk": 150, "layout": {"out": "padded"}`, 2},
			problemFields{128, `"kv_len": [` + strings.Repeat("0, ", 33) + `3]`, 2}),
		narrowHeads: productProblems(t, "absorb", narrowHeads,
			problemFields{512, `"q_len": 9`, 3},
			problemFields{512, `"q_len": 12, "layout": {"out": "padded"}`, 3}),
		wideHeads: productProblems(t, "absorb", wideHeads,
			problemFields{256, `"q_len": 150`, 2},
			problemFields{256, `"q_len": 250, "layout": {"out": "padded"}`, 1}),
	})
}
