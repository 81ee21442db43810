package tune

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/runtime"
)

// Kernels identifies the kernels that a choice runs, by their texts: generators
// whose name and version are alike may still differ.
type Kernels struct {
	SQ        int    `json:"s_q"`
	BlockH    int    `json:"block_h"`
	Evict     string `json:"evict,omitempty"`
	Cluster   int    `json:"cluster,omitempty"`
	Teams     int    `json:"teams,omitempty"`
	PieceCost int    `json:"piece_cost,omitempty"`
	SHA256    string `json:"ptx_sha256"` // of the texts' SHA-256, decode, schedule and combine
}

// identify returns the identity of a shape's kernels.
func identify(s runtime.DecodeShape, kernels ...*manifest.Manifest) Kernels {
	sum := sha256.New()
	for _, m := range kernels {
		if m != nil {
			sum.Write([]byte(m.PTXSHA256))
		}
	}
	return Kernels{s.SQ, s.BlockH, s.Evict, s.Cluster, s.Teams, s.PieceCost, hex.EncodeToString(sum.Sum(nil))}
}

// identifyVariants is identify of what a source made.
func identifyVariants(s runtime.DecodeShape, v runtime.DecodeVariants) Kernels {
	return identify(s, v.Decode.Manifest, v.Schedule.Manifest, v.Combine.Manifest)
}
