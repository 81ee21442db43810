package golden_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/check"
	"github.com/mlagen/mlagen/runtime/emu"
	"github.com/mlagen/mlagen/templates"
)

// TestReadAhead: the parts without a piece read what they are meant to, and no page
// that their pieces will not want; the result is right and nothing is found to doubt.
func TestReadAhead(t *testing.T) {
	for _, c := range []struct {
		heads, blockH, teams, sms int
		kvLen                     []int
		pieces                    []int // tiles of the first items of the parts that have one
		dtype                     string
	}{
		{heads: 8, sms: 4, kvLen: []int{560, 570, 550}, pieces: []int{9, 9, 9}},
		{heads: 16, sms: 4, kvLen: []int{560, 570, 550}, pieces: []int{9, 9, 9}, dtype: "fp16"},
		{heads: 24, sms: 4, kvLen: []int{576, 513, 576}, pieces: []int{9, 9, 9}},
		{heads: 32, sms: 9, kvLen: []int{2048, 2040}, pieces: slices.Repeat([]int{8}, 8)}, // requests that are cut
		{heads: 32, blockH: 16, sms: 8, kvLen: []int{640, 600, 610}, pieces: []int{10, 10, 10}},
		{heads: 16, blockH: 8, sms: 9, kvLen: []int{640, 600, 610}, pieces: []int{10, 10, 10}},
		{heads: 16, teams: 2, sms: 4, kvLen: []int{560, 570, 550}, pieces: []int{9, 9, 9}},
		{heads: 16, sms: 7, kvLen: []int{640, 600, 610, 580, 590}, pieces: []int{10, 10, 10, 10, 10}},    // two readers, one of whom has a piece more
		{heads: 8, sms: 14, kvLen: slices.Repeat([]int{4100}, 13), pieces: slices.Repeat([]int{65}, 13)}, // more steps than a warp has lanes
		{heads: 8, sms: 4, kvLen: []int{440, 440, 440}},                                                  // pieces of 7
		{heads: 64, sms: 4, kvLen: []int{560, 570, 550}},
		{heads: 40, blockH: 40, sms: 4, kvLen: []int{560, 570, 550}},
	} {
		if c.dtype == "" {
			c.dtype = "bf16"
		}
		t.Run(fmt.Sprintf("heads=%d,block-h=%d,teams=%d,sms=%d,kv=%v", c.heads, c.blockH, c.teams, c.sms, c.kvLen[0]), func(t *testing.T) {
			lengths, err := json.Marshal(c.kvLen)
			if err != nil {
				t.Fatal(err)
			}
			spec, err := cases.Parse([]byte(fmt.Sprintf(
				`{"name": "ahead", "op": "decode", "model": {"heads": %d, "latent": 512, "rope": 64, "nope": 128, "value": 128}, "dtype": %q, "kv_len": %s}`,
				c.heads, c.dtype, lengths)))
			if err != nil {
				t.Fatal(err)
			}
			driver, err := emu.Open(emu.Options{Programs: programs, SMs: c.sms})
			if err != nil {
				t.Fatal(err)
			}
			tune := templates.Spec{Heads: c.heads, SQ: 1, BlockH: c.blockH, Teams: c.teams}
			blocks, many := tune.WithDefaults().RowBlocks(), tune.WithDefaults().BlockH > 16
			want := 0
			for _, n := range c.kvLen {
				want += (n + 63) / 64 * blocks
			}
			if len(c.pieces) > 0 {
				ahead := pagesAhead(c.pieces, c.sms/blocks*blocks-len(c.pieces)*blocks, many)
				if ahead == 0 {
					t.Error("nobody reads ahead")
				}
				want += ahead
			}
			runs := 0
			r := check.New(check.Options{Driver: driver, Source: source{tune}, Hazards: true, Inspect: func(uint64) error {
				var errs []error
				for _, rep := range driver.Reports() {
					for _, h := range rep.Hazards {
						errs = append(errs, fmt.Errorf("%s: %v", rep.Kernel, h))
					}
					if got := int(rep.Stats.TMABytes) / (64 * 576 * 2); rep.Kernel == "absorb_decode" {
						runs++
						if got != want {
							errs = append(errs, fmt.Errorf("%d pages were read, want %d", got, want))
						}
					}
				}
				return errors.Join(errs...)
			}})
			if o := r.Case(spec); o.Status != check.OK {
				t.Error(o)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if runs == 0 {
				t.Error("nothing was inspected")
			}
		})
	}
}

// pagesAhead counts what readers read for pieces of so many tiles: each visits every
// so-many-th piece in turn, from its fifth page on, further on by 5/4 of a page a step,
// or 7/4 with many rows, and by one more a turn, up to the last eighth of the longest.
func pagesAhead(pieces []int, readers int, many bool) (pages int) {
	longest, quarters := 0, 5
	for _, n := range pieces {
		longest = max(longest, n)
	}
	if many {
		quarters = 7
	}
	for reader := range readers {
		step := 0
		for turn := 0; reader < len(pieces); turn++ {
			begun := step
			for piece := reader; piece < len(pieces); piece += readers {
				if page := 4 + step*quarters/4 + turn; page < longest-longest/8 && page < pieces[piece] {
					pages++
				}
				step++
			}
			if 4+begun*quarters/4+turn >= longest {
				break
			}
		}
	}
	return pages
}
