package random

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/golden/cases"
)

// drawn is a case rich enough to be shrunk.
func drawn() *cases.Case {
	c := cases.Default()
	c.Name, c.Why, c.Op = "x", "drawn", "decode"
	c.Model.Heads, c.QLen, c.KVLen = 48, cases.Lengths{All: 4}, []int{300, 64, 7, 129, 0}
	c.Splits, c.Repeat, c.Seed, c.LSEBase, c.BlockH = 7, 2, 99, "2", 24
	c.Layout, c.Pages = cases.Layout{Q: "split", QRows: "heads", KVRow: 584, KVPage: 40000, Out: "padded"}, cases.Pages{Order: "reversed", Tail: 5, Base: 3}
	c.Fill.Q, c.Fill.Unused = "uniform", "inf"
	c.Graph, c.Holds = &cases.Graph{CaptureKVLen: []int{1, 2, 3, 4, 5}}, []string{cases.ForeignNaN}
	return &c
}

// TestShrink: what makes a case fail stays, everything else becomes plain.
func TestShrink(t *testing.T) {
	c := drawn()
	fails := func(x *cases.Case) (bool, error) {
		if err := x.Validate(); err != nil {
			t.Errorf("tried what is no case: %v", err)
		}
		long := slices.ContainsFunc(x.KVLen, func(n int) bool { return n > 100 })
		return x.Model.Heads >= 17 && long && x.Splits > 1 && x.Layout.Q == "split", nil
	}
	least, err := Shrink(c, 1000, fails)
	if err != nil {
		t.Fatal(err)
	}
	want := cases.Default()
	want.Name, want.Why, want.Op = "x", "drawn", "decode"
	want.Model.Heads, want.KVLen, want.Splits, want.Layout.Q, want.Pages.Order = 17, []int{101}, 2, "split", "identity"
	want.Fill.Q, want.Fill.KV = "zero", "zero"
	if d := cmp.Diff(&want, least); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if d := cmp.Diff(drawn(), c); d != "" {
		t.Errorf("the case itself was changed:\n%s", d)
	}
	least, err = Shrink(c, 1000, func(*cases.Case) (bool, error) { return true, nil })
	if err != nil || len(least.KVLen) != 0 || least.Model.Heads != 1 {
		t.Errorf("what always fails shrinks to %s, %v", least.Format(), err)
	}
}

func TestShrinkStops(t *testing.T) {
	tried := 0
	count := func(*cases.Case) (bool, error) { tried++; return true, nil }
	if _, err := Shrink(drawn(), 5, count); err != nil || tried != 5 {
		t.Errorf("%d tried, %v", tried, err)
	}
	gone := errors.New("gone")
	if least, err := Shrink(drawn(), 5, func(*cases.Case) (bool, error) { return true, gone }); err != gone || len(least.KVLen) != 5 {
		t.Error(err)
	}
}

// TestDrawsAreCases: every case is one, the same for the same numbers, within
// its cost, and the contract is covered.
func TestDrawsAreCases(t *testing.T) {
	seen := map[string]int{}
	for _, l := range []Limits{{Seconds: 0.1}, {Seconds: 0.4, Emulated: true}} {
		for group := range 300 {
			g := DrawGroup(7, group, l)
			for number := group * 4; number < group*4+4; number++ {
				c := g.Draw(7, number, l)
				if err := c.Validate(); err != nil {
					t.Fatalf("case %d: %v\n%s", number, err, c.Format())
				}
				if d := cmp.Diff(c, DrawGroup(7, group, l).Draw(7, number, l)); d != "" {
					t.Fatalf("case %d is not the same twice:\n%s", number, d)
				}
				if again, err := cases.Parse(c.Format()); err != nil || cmp.Diff(c, again) != "" {
					t.Fatalf("case %d is another when written and read: %v\n%s", number, err, cmp.Diff(c, again))
				}
				// What is left when a case cannot be made any cheaper is one
				// sequence of a tile or so.
				if e := cost(c, l.Emulated); e > 40*l.Seconds {
					t.Errorf("case %d costs %.1f s: %s", number, e, c.Format())
				}
				see(seen, g, c)
			}
		}
	}
	for _, want := range strings.Split("decode prefill extend layer merge append upproject absorb bf16 fp16 nan inf -Inf empty-batch length-0 length-1 tile-edge "+
		"pairs teams piece-cost longer-than-2000 batch-over-20 heads-over-100 heads-odd s_q-9 splits balanced block graph repeat invariant base-2 split-q joint-q q-padded q-heads "+
		"strided padded-out out-heads tail-huge tail-negative not-causal chunk paths rotate f32-states "+
		strings.Join(slices.Concat(cases.Relations["decode"], cases.Relations["prefill"], cases.Relations["extend"], cases.Relations["layer"]), " "), " ") {
		if seen[want] == 0 {
			t.Errorf("no case has %s", want)
		}
	}
	if other := DrawGroup(8, 3, Limits{Seconds: 0.1}).Draw(8, 13, Limits{Seconds: 0.1}); cmp.Equal(other.KVLen, DrawGroup(7, 3, Limits{Seconds: 0.1}).Draw(7, 13, Limits{Seconds: 0.1}).KVLen) && other.Seed == 1 {
		t.Error("the seed changes nothing")
	}
}

// see notes what a case covers.
func see(seen map[string]int, g Group, c *cases.Case) {
	note := func(what string, is bool) {
		if is {
			seen[what]++
		}
	}
	note(c.Op, true)
	note(string(c.DType), true)
	note("nan", c.Fill.Unused == "nan")
	note("inf", c.Fill.Unused == "inf")
	note("-Inf", c.Fill.Unused == "const:-Inf")
	note("empty-batch", c.Op == "decode" && len(c.KVLen) == 0)
	for _, n := range c.KVLen {
		note("length-0", n == 0)
		note("length-1", n == 1)
		note("tile-edge", n == 64 || n == 65 || n == 63)
		note("longer-than-2000", n > 2000)
	}
	note("batch-over-20", len(c.KVLen) > 20)
	note("heads-over-100", c.Model.Heads > 100)
	note("heads-odd", c.Model.Heads%2 == 1)
	note("s_q-9", c.Op == "decode" && g.QLen == 9)
	note("splits", c.Op == "decode" && c.Splits > 1)
	note("balanced", c.Op == "decode" && c.Splits == 0)
	note("block", c.BlockH > 0)
	note("pairs", c.Cluster == 2)
	note("teams", c.Teams == 2)
	note("piece-cost", c.PieceCost > 0)
	note("graph", c.Graph != nil)
	note("repeat", c.Repeat > 1)
	note("invariant", c.BatchInvariant)
	note("base-2", c.LSEBase == "2")
	note("split-q", c.Layout.Q == "split")
	note("joint-q", c.Layout.Q == "joint")
	note("q-padded", c.Layout.QRows == "padded")
	note("q-heads", c.Layout.QRows == "heads")
	note("strided", c.Layout.KVRow > 0 && c.Layout.KVPage > 0)
	note("padded-out", c.Layout.Out == "padded")
	note("out-heads", c.Layout.Out == "heads")
	note("tail-huge", c.Pages.Tail > 1<<30)
	note("tail-negative", c.Pages.Tail < 0)
	note("not-causal", !c.Causal)
	note("chunk", c.Chunk > 0)
	note("paths", len(c.Paths) > 0)
	note("rotate", c.Rotate != "")
	note("f32-states", c.Partial == "f32")
	for _, relation := range c.Holds {
		note(relation, true)
	}
}
