package golden_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/check"
	"github.com/mlagen/mlagen/golden/faults"
	"github.com/mlagen/mlagen/runtime/emu"
	"github.com/mlagen/mlagen/templates"
)

// aheadPiece is some of a request's pages.
type aheadPiece struct{ request, begin, end int }

// inPieces cuts requests of so many tokens into so many pieces each.
func inPieces(kvLen []int, pieces int) (all []aheadPiece) {
	for r, n := range kvLen {
		pages := (n + 63) / 64
		for i := range pieces {
			all = append(all, aheadPiece{r, pages * i / pieces, pages * (i + 1) / pieces})
		}
	}
	return all
}

// TestReadAhead: every page is read by those who attend to it, and besides exactly once
// by a reader if it is what one is meant to read; the result is right and nothing is
// found to doubt. Behind a request's last page the block table has one that exists.
func TestReadAhead(t *testing.T) {
	for _, c := range []struct {
		heads, blockH, teams, sms int
		kvLen                     []int
		pieces                    int // of each request; 0: nobody reads ahead
		dtype                     string
	}{
		{heads: 8, sms: 4, kvLen: []int{560, 570, 550}, pieces: 1},
		{heads: 16, sms: 4, kvLen: []int{560, 570, 550}, pieces: 1, dtype: "fp16"},
		{heads: 24, sms: 4, kvLen: []int{576, 513, 576}, pieces: 1},
		{heads: 32, sms: 9, kvLen: []int{2048, 2040}, pieces: 4},
		{heads: 32, blockH: 16, sms: 8, kvLen: []int{640, 600, 610}, pieces: 1},
		{heads: 16, blockH: 8, sms: 9, kvLen: []int{640, 600, 610}, pieces: 1},
		{heads: 16, teams: 2, sms: 4, kvLen: []int{560, 570, 550}, pieces: 1},
		{heads: 16, sms: 7, kvLen: []int{640, 600, 610, 580, 590}, pieces: 1}, // two readers, one of whom has a piece more
		{heads: 8, sms: 14, kvLen: slices.Repeat([]int{4100}, 13), pieces: 1}, // more steps than a warp has lanes
		// Pieces without pages, and shorter than how far readers go.
		{heads: 8, sms: 8, kvLen: []int{640, 640, 640, 640, 640, 640, 300}, pieces: 1},
		{heads: 8, sms: 8, kvLen: []int{0, 640, 640, 640, 640, 640, 640}, pieces: 1},
		// More readers than pieces, of row blocks in pairs and in eights.
		{heads: 24, blockH: 8, sms: 9, kvLen: []int{512, 512}, pieces: 1},
		{heads: 128, blockH: 16, sms: 24, kvLen: []int{512, 512}, pieces: 1},
		{heads: 24, blockH: 8, sms: 11, kvLen: []int{512, 512}, pieces: 1}, // SMs that no part has
		// No readers: pieces of seven pages, and blocks of more than 32 rows.
		{heads: 8, sms: 4, kvLen: []int{440, 440, 440}},
		{heads: 64, sms: 4, kvLen: []int{560, 570, 550}},
		{heads: 40, blockH: 40, sms: 4, kvLen: []int{560, 570, 550}},
	} {
		if c.dtype == "" {
			c.dtype = "bf16"
		}
		t.Run(fmt.Sprintf("heads=%d,block-h=%d,teams=%d,sms=%d,kv=%v", c.heads, c.blockH, c.teams, c.sms, c.kvLen), func(t *testing.T) {
			lengths, err := json.Marshal(c.kvLen)
			must(t, err)
			spec, err := cases.Parse([]byte(fmt.Sprintf(
				`{"name": "ahead", "op": "decode", "model": {"heads": %d, "latent": 512, "rope": 64, "nope": 128, "value": 128}, "dtype": %q, "kv_len": %s, "pages": {"tail": 0}}`,
				c.heads, c.dtype, lengths)))
			must(t, err)
			in, err := spec.Decode()
			must(t, err)
			page := func(request, tile int) int { return int(in.Table[request*in.Width+tile]) }
			tune := templates.Spec{Heads: c.heads, SQ: 1, BlockH: c.blockH, Teams: c.teams}
			blocks, many := tune.WithDefaults().RowBlocks(), tune.WithDefaults().BlockH > 16
			want := map[int]int{}
			for r, n := range c.kvLen {
				for tile := range (n + 63) / 64 {
					want[page(r, tile)] += blocks
				}
			}
			pieces := inPieces(c.kvLen, c.pieces)
			ahead := pagesAhead(pieces, c.sms/blocks*blocks-len(pieces)*blocks, many, func(p aheadPiece, n int) {
				want[page(p.request, p.begin+n)]++
			})
			if (ahead > 0) != (c.pieces > 0) {
				t.Errorf("%d pages are to be read ahead", ahead)
			}

			var lock sync.Mutex
			got := map[int]int{}
			const pageBytes = 64 * 576 * 2
			driver, err := emu.Open(emu.Options{Programs: programs, SMs: c.sms, Copied: func(allocation string, offset uint64, _ int) {
				if allocation == "kv" && offset%pageBytes == 0 { // a page's first token
					lock.Lock()
					defer lock.Unlock()
					got[int(offset/pageBytes)]++
				}
			}})
			must(t, err)
			runs := 0
			r := check.New(check.Options{Driver: driver, Source: source{tune}, Hazards: true, Inspect: func(uint64) error {
				runs++
				diff := cmp.Diff(want, got)
				got = map[int]int{}
				if diff != "" {
					return errors.Join(findings(driver), fmt.Errorf("how often pages were read (-want +got):\n%s", diff))
				}
				return findings(driver)
			}})
			if o := r.Case(spec); o.Status != check.OK {
				t.Error(o)
			}
			if err := r.Close(); err != nil || runs == 0 {
				t.Errorf("%d runs, %v", runs, err)
			}
		})
	}
}

// pagesAhead calls read for every page that readers read, and returns how many they are:
// each visits every so-many-th piece in turn, from its fifth page on, further on by 5/4 of a
// page a step, or 7/4 with many rows, and by one more a turn, up to the last eighth of the
// longest.
func pagesAhead(pieces []aheadPiece, readers int, many bool, read func(p aheadPiece, page int)) (pages int) {
	longest, quarters := 0, 5
	for _, p := range pieces {
		longest = max(longest, p.end-p.begin)
	}
	if many {
		quarters = 7
	}
	for reader := range min(readers, len(pieces)) {
		step := 0
		for turn := 0; 4+step*quarters/4+turn < longest; turn++ {
			for i := reader; i < len(pieces); i += readers {
				p := pieces[i]
				if page := 4 + step*quarters/4 + turn; page < longest-longest/8 && page < p.end-p.begin {
					pages++
					read(p, page)
				}
				step++
			}
		}
	}
	return pages
}

// TestReadersWait: readers touch nothing that the kernel ahead may still write; one
// who did not wait for it would be found.
func TestReadersWait(t *testing.T) {
	for _, spec := range []templates.Spec{{Heads: 8}, {Heads: 24}, {Heads: 16, Teams: 2}, {Heads: 32, BlockH: 16}} {
		v, err := appendStep{spec: spec}.decodeSource()
		must(t, err)
		a := appendStep{spec: spec, sms: 4 * spec.WithDefaults().RowBlocks(), lengths: []int32{560, 570, 550}, written: 280, seed: 1}
		for _, a.layers = range []int{1, 2} {
			if _, err := a.run(t, v, a.written); err != nil {
				t.Errorf("%+v: %v", spec, err)
			}
		}
		v.Decode, err = withFault(v.Decode, faults.Fault{Kernel: "absorb_decode", Pattern: `^\tgriddepcontrol\.wait;\n(L\d+_steps:\n)`, Replace: "$1"})
		must(t, err)
		if _, err := a.run(t, v, a.written); notFound(err) {
			t.Errorf("%+v, readers that do not wait: %v", spec, err)
		}
	}
}
