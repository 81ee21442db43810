//go:build !cuda

package vectors

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
)

func openChild() (runtime.Driver, error) { return emu.Open(emu.Options{}) }

// TestProcesses records the emulator in real child processes: the kernels do
// what the experiments mean, and what hardware refuses is refused.
func TestProcesses(t *testing.T) {
	set, failures, err := RecordApart(recordChild, time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", Summary(set, failures))
	for _, err := range set.Check() {
		t.Error(err)
	}
	var got []string
	for _, f := range failures {
		got = append(got, f.Family+"/"+f.Name)
	}
	slices.Sort(got)
	if d := cmp.Diff(refused, got); d != "" {
		t.Errorf("refused: %s\n%v", d, failures)
	}
}
