package tune

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/bench"
)

// Choice is how a load is run.
type Choice struct {
	// These decide which bits a result has, to rounding.
	BlockH int `json:"block_h"`          // packed query rows per CTA
	Splits int `json:"splits,omitempty"` // forced pieces per request; 0 balances on the device
	Teams  int `json:"teams,omitempty"`  // warpgroups that take a row block's tiles in turn; 0 = the source's
	// PieceCost decides where the balanced schedule cuts, and so bits as well.
	PieceCost int `json:"piece_cost,omitempty"` // in tiles; 0 = the source's

	// These change no bit.
	Cluster     int    `json:"cluster,omitempty"`      // CTAs that begin together; 0 = the source's
	Evict       string `json:"evict,omitempty"`        // how the L2 keeps pages; "" = the source's
	MergeBlocks int    `json:"merge_blocks,omitempty"` // 0 = the runtime's
	Promotion   int    `json:"promotion,omitempty"`    // bytes; 0 = the kernel's
}

// Tuning is the part of the choice that a call of decode takes.
func (c Choice) Tuning() runtime.DecodeTuning {
	return runtime.DecodeTuning{MergeBlocks: c.MergeBlocks, Promotion: c.Promotion}
}

// setting is the choice as package bench takes it.
func (c Choice) setting() bench.Setting {
	return bench.Setting{BlockH: c.BlockH, Splits: c.Splits, Evict: c.Evict, Cluster: c.Cluster, Teams: c.Teams, PieceCost: c.PieceCost, Tuning: c.Tuning()}
}

// merges reports whether decode's second kernel is launched.
func (c Choice) merges() bool { return c.Splits == 0 || c.Splits > 2 }

// String says what differs from a balanced schedule launched as usual.
func (c Choice) String() string {
	s := []string{fmt.Sprintf("block %d", c.BlockH)}
	for _, f := range []struct {
		format string
		value  int
	}{{"%d pieces", c.Splits}, {"%d teams", c.Teams}, {"piece cost %d", c.PieceCost}, {"clusters of %d", c.Cluster}, {"merge grid %d", c.MergeBlocks}, {"promotion %d", c.Promotion}} {
		if f.value != 0 {
			s = append(s, fmt.Sprintf(f.format, f.value))
		}
	}
	if c.Evict != "" {
		s = append(s, "evict "+c.Evict)
	}
	return strings.Join(s, ", ")
}

// differs counts the fields that differ.
func (c Choice) differs(o Choice) (n int) {
	for _, other := range []bool{
		c.BlockH != o.BlockH, c.Splits != o.Splits, c.Teams != o.Teams, c.PieceCost != o.PieceCost,
		c.Evict != o.Evict, c.Cluster != o.Cluster, c.MergeBlocks != o.MergeBlocks, c.Promotion != o.Promotion,
	} {
		if other {
			n++
		}
	}
	return n
}

const (
	mostBlockH      = 1 << 14
	mostSplits      = 1 << 16
	mostTeams       = 2
	mostPieceCost   = 16
	mostCluster     = 16
	mostMergeBlocks = 1 << 16
)

var (
	evictions  = []string{"", "normal"}
	promotions = []int{0, 64, 128, 256}
)

// check names the field that cannot be.
func (c Choice) check() error {
	for _, f := range []struct {
		name             string
		was, least, most int
	}{
		{"block_h", c.BlockH, 1, mostBlockH}, {"splits", c.Splits, 0, mostSplits},
		{"teams", c.Teams, 0, mostTeams}, {"piece_cost", c.PieceCost, 0, mostPieceCost}, {"cluster", c.Cluster, 0, mostCluster},
		{"merge_blocks", c.MergeBlocks, 0, mostMergeBlocks},
	} {
		if f.was < f.least || f.was > f.most {
			return fmt.Errorf("%s was %d, must be %d to %d", f.name, f.was, f.least, f.most)
		}
	}
	if !slices.Contains(promotions, c.Promotion) {
		return fmt.Errorf("promotion was %d, must be one of %v", c.Promotion, promotions)
	}
	if !slices.Contains(evictions, c.Evict) {
		return fmt.Errorf("evict was %q, must be one of %q", c.Evict, evictions)
	}
	return nil
}
