package templates

import (
	"testing"
)

func TestEveryKernelBuilds(t *testing.T) {
	for _, info := range Kernels() {
		out, err := Build(info.Name, Spec{})
		if err != nil {
			t.Errorf("%s: %v", info.Name, err)
			continue
		}
		t.Logf("%s: %d bytes of PTX %s, %d bytes of shared memory", info.Name, len(out.PTX), out.Manifest.PTXVersion, out.Manifest.Shared)
	}
}
