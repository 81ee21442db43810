package templates

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestChosenBlocks: whatever the rows, the load and the device, the chosen
// block can be built.
func TestChosenBlocks(t *testing.T) {
	built := map[int]int{} // by block, how many rows it was built for
	for rows := 1; rows <= 600; rows++ {
		chosen := map[int]bool{}
		for _, batch := range []int{0, 1, 2, 4, 5, 16, 132, 1000} {
			for _, tokens := range []int{0, 1, 64, 65, 700, 4096, 1 << 17} {
				for _, sms := range []int{1, 7, 114, 132} {
					chosen[ChooseBlockH(rows, batch, tokens, sms)] = true
				}
			}
		}
		offered := BlockHs(rows)
		for h := range chosen {
			if !slices.Contains(offered, h) {
				t.Errorf("%d rows: blocks of %d are chosen, %v offered", rows, h, offered)
			}
			s := Spec{Heads: rows, BlockH: h}.WithDefaults()
			if err := s.Validate(); err != nil {
				t.Errorf("%d rows: %v", rows, err)
			} else if built[h]++; built[h]%25 == 1 { // the text varies little with rows
				if _, err := Build("absorb-decode", s); err != nil {
					t.Errorf("%d rows in blocks of %d: %v", rows, h, err)
				}
			}
		}
	}
	for _, h := range []int{8, 16, 24, 32, 40, 64} {
		if built[h] == 0 {
			t.Errorf("blocks of %d were never chosen", h)
		}
	}
}

// TestChosenByLoad: little work is spread over many CTAs, much of it is read
// by few.
func TestChosenByLoad(t *testing.T) {
	got := map[string]int{}
	for _, c := range []struct{ rows, batch, tokens int }{
		{16, 1, 1024}, {16, 128, 32768}, {40, 1, 1024}, {40, 128, 4096}, {64, 1, 1024}, {128, 1, 1024}, {128, 1, 12288}, {128, 128, 4096}, {80, 16, 4096}, {80, 64, 4096}, {64, 4, 4096},
	} {
		got[fmt.Sprint(c)] = ChooseBlockH(c.rows, c.batch, c.tokens, 132)
	}
	want := map[string]int{
		"{16 1 1024}": 8, "{16 128 32768}": 16, "{40 1 1024}": 8, "{40 128 4096}": 40,
		"{64 1 1024}": 8, "{128 1 1024}": 16, "{128 1 12288}": 64, "{128 128 4096}": 64, "{80 16 4096}": 40, "{80 64 4096}": 40, "{64 4 4096}": 32,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestChosenSplits: one piece where requests fill the device, else as many as
// fill it once, of a length that is worth it.
func TestChosenSplits(t *testing.T) {
	for _, c := range []struct{ rows, blockH, batch, tokens, want int }{
		{16, 16, 128, 8192, 1}, {16, 16, 1000, 8192, 1}, {16, 16, 66, 8192, 2}, {16, 16, 1, 4096, 64}, {16, 16, 1, 1 << 20, 132},
		{128, 64, 16, 4096, 4}, {128, 64, 1, 64, 1}, {128, 64, 0, 0, 1}, {64, 64, 1, 1024, 5},
	} {
		if got := ChooseSplits(c.rows, c.blockH, c.batch, c.tokens, 132); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
