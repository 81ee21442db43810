//go:build cuda

package vectors

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/runtime/cuda"
)

var update = flag.Bool("update", false, "write what the GPU makes of the experiments to MLAGEN_VECTORS_OUT, or testdata")

// TestRecord runs every experiment on the first GPU. With -update it writes
// the results, also when a unit disagrees with them: the hardware is right.
// Without it, they must equal the recorded ones.
func TestRecord(t *testing.T) {
	d, err := cuda.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	t.Logf("%s, driver %d", d.Name(), d.Attributes().DriverVersion)
	set, err := Record(d)
	if err != nil {
		t.Error(err)
	}
	if set == nil {
		return
	}
	dir := os.Getenv("MLAGEN_VECTORS_OUT")
	if dir == "" {
		dir = "testdata"
	}
	if *update {
		if err := set.Write(dir); err != nil {
			t.Fatal(err)
		}
		t.Logf("wrote %s", dir)
	} else {
		recorded, err := Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(recorded, set); diff != "" {
			t.Errorf("the GPU differs from the record: %.4000s", diff)
		}
	}
	for _, err := range set.Check() {
		t.Error(err)
	}
}
