package tune

import (
	"encoding/json"
	"time"

	"github.com/mlagen/mlagen/ptx/manifest"
)

var defaultNow = time.Now

// decodeKernel is the kernel that choices are about.
const decodeKernel = "absorb_decode"

// kernelOf identifies a decode kernel, and reports whether it is the one that a
// choice takes.
func kernelOf(m *manifest.Manifest, sq int, c Choice) (Kernel, bool) {
	if m == nil || m.Kernel != decodeKernel {
		return Kernel{}, false
	}
	var spec struct {
		SQ     int    `json:"s_q"`
		BlockH int    `json:"block_h"`
		Evict  string `json:"evict"`
	}
	text, err := json.Marshal(m.Spec)
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}
	k := Kernel{SQ: spec.SQ, BlockH: spec.BlockH, Evict: spec.Evict, SHA256: m.PTXSHA256}
	return k, err == nil && spec.SQ == sq && spec.BlockH == c.BlockH && spec.Evict == c.Evict
}
