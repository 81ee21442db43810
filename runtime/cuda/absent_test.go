//go:build !cuda

package cuda

import (
	"strings"
	"testing"
)

func TestOpenSaysHowToBuild(t *testing.T) {
	d, err := Open(0)
	if d != nil || err == nil || !strings.Contains(err.Error(), "-tags cuda") {
		t.Errorf("got %v, %v", d, err)
	}
}
