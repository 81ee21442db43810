//go:build !cuda

package vectors

import (
	"strings"
	"testing"
	"time"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
)

func openChild() (runtime.Driver, error) { return emu.Open(emu.Options{}) }

// undecided are experiments on which the emulator and its own unit differ; a
// record will tell which is right.
var undecided = map[string]bool{
	"scalar/cvt_rn_relu_bf16x2_f32": true, // −0 after relu
}

// TestProcesses records the emulator in real child processes: the kernels do
// what the experiments mean.
func TestProcesses(t *testing.T) {
	set, failures, err := RecordApart(recordChild, time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", Summary(set, failures))
	for _, err := range set.Check() {
		if name, _, _ := strings.Cut(err.Error(), ":"); !undecided[name] {
			t.Error(err)
		}
	}
	for _, f := range failures {
		t.Error(f)
	}
}
