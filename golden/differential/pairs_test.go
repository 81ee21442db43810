package differential

import (
	"errors"
	"math"
	"testing"

	"github.com/mlagen/mlagen/runtime/emu"
)

// TestEitherPieceFinishesLast: a pair's bits are the same whichever of its pieces
// finishes last, and either does under some schedule.
func TestEitherPieceFinishesLast(t *testing.T) {
	runs := 24
	if testing.Short() {
		runs = 8
	}
	for i, c := range []decodeCase{
		{heads: 16},
		{heads: 8, dtype: "fp16"},
		{heads: 16, more: `"fill": {"q": "normal*4", "kv": "normal"}`}, // weights far apart
		{heads: 16, more: `"teams": 2`},
		{heads: 8, sq: 5},
		{heads: 64},
		{heads: 128, dtype: "fp16"},
	} {
		dc := c.parse(t, uint64(50+i))
		dc.KVLen = []int{260, 130}
		spec := dc.Spec()
		dc.SMs = 4 * spec.RowBlocks()
		t.Run(dc.Name, func(t *testing.T) {
			in, err := dc.Case.Decode()
			if err != nil {
				t.Fatal(err)
			}
			var drivers [2]*emu.Driver
			for i := range drivers {
				if drivers[i], err = emu.Open(emu.Options{SMs: 132, NoHazards: true}); err != nil {
					t.Fatal(err)
				}
			}
			p := &Pair{A: drivers[0], B: drivers[1]}
			var first *decodeResult
			last := [2]int{} // how often the first piece of a pair finished last, and the second
			for run := 0; run < runs; run += len(drivers) {
				for i, d := range drivers {
					d.SetSeed(uint64(run + i))
				}
				results, err := each(p, dc.SMs, func(dev *device) (*decodeResult, error) { return p.decode(dev, dc, in) })
				if err != nil {
					t.Fatal(err)
				}
				for i, r := range results {
					if first == nil {
						first = r
					}
					var f Figures
					f.row(dc.DType, first.out, r.out, rms)
					f.lses(first.lse, r.lse)
					if err := (Limits{Exact: true}).Err(f); err != nil {
						t.Errorf("seed %d: %v", run+i, err)
					}
					for piece, n := range r.finishedLast(t, formOf(spec)) {
						last[piece] += n
					}
				}
			}
			if err := errors.Join(p.Close(), drivers[0].Close(), drivers[1].Close()); err != nil {
				t.Error(err)
			}
			t.Logf("the first piece finished last %d times and the second %d times", last[0], last[1])
			if last[0] == 0 || last[1] == 0 {
				t.Error("one of the pieces never finished last")
			}
		})
	}
}

// finishedLast counts pairs' row blocks by which of their pieces has left no
// partial result: the one that found the other's.
func (r *decodeResult) finishedLast(t *testing.T, f form) (last [2]int) {
	t.Helper()
	const pairedBit, secondBit = 1 << 30, 1 << 29
	written := func(slot int32, block int) bool {
		lse := r.partialState[int(slot)*f.states()+f.state(0, block*f.rows)]
		return math.Float32bits(lse) != poison<<24|poison<<16|poison<<8|poison
	}
	items := decodeInts(r.schedule["items"])
	for at := 3; at < len(items); at += 4 {
		destination := items[at]
		if destination < pairedBit || destination&secondBit != 0 {
			continue // whole, or the second of a pair
		}
		slot := destination &^ pairedBit
		for block := range f.blocks {
			a, b := written(slot, block), written(slot+1, block)
			if a == b {
				t.Errorf("of the pieces in slots %d and %d the partial results are there: %v and %v", slot, slot+1, a, b)
			}
			if !a {
				last[0]++
			} else {
				last[1]++
			}
		}
	}
	return last
}
