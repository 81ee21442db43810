package runtime

import (
	"fmt"
	"slices"
)

// DecodeTuning is how a decode is launched, as far as that changes no bit of its
// result. Zero fields leave it to the runtime and to the kernels.
type DecodeTuning struct {
	// MergeBlocks is the grid of the kernel that merges requests cut into three
	// pieces or more; 0 leaves it to the runtime, which takes up to three blocks per
	// multiprocessor. Fewer start sooner, more merge faster.
	MergeBlocks int
	// Promotion is the bytes that the L2 fetches at a time for the cache: 64, 128
	// or 256; 0 is what the kernel's manifest says.
	Promotion int
}

// promotions are those that a tensor map knows.
var promotions = []int{0, 64, 128, 256}

// check says what cannot be launched.
func (t DecodeTuning) check() error {
	if t.MergeBlocks < 0 || t.MergeBlocks > maxGridX {
		return argumentError("merge blocks", fmt.Sprintf("0 for what the runtime takes, or at most %d", maxGridX), "was %d", t.MergeBlocks)
	}
	if !slices.Contains(promotions, t.Promotion) {
		return argumentError("promotion", "0 for the kernel's, or 64, 128 or 256 bytes", "was %d", t.Promotion)
	}
	return nil
}

// pairPieces is how many pieces of a request decode merges by itself.
const pairPieces = 2

// needsMerge reports whether a request may have more pieces than decode merges by
// itself. A balanced schedule decides that on the device.
func needsMerge(splits int) bool { return splits == 0 || splits > pairPieces }
