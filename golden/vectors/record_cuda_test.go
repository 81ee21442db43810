//go:build cuda

package vectors

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/cuda"
)

var update = flag.Bool("update", false, "write what the GPU makes of the experiments to MLAGEN_VECTORS_OUT, or testdata")

func openChild() (runtime.Driver, error) { return cuda.Open(0) }

// disagreements is how many are printed; report.txt has all.
const disagreements = 25

// TestRecord runs every experiment on the first GPU. With -update it writes
// the results, also when a unit disagrees with them: the hardware is right.
// Without it, they must equal the recorded ones.
func TestRecord(t *testing.T) {
	dir, out := "testdata", os.Getenv("MLAGEN_VECTORS_OUT")
	if out != "" {
		dir = out
	}
	var progress func(Set) error
	if *update {
		progress = func(s Set) error { return s.Write(dir) }
	}
	set, failures, err := RecordApart(recordChild, 40*time.Second, progress)
	if err != nil {
		t.Error(err)
	}
	summary := Summary(set, failures)
	fmt.Print(summary)
	errs := set.Check()
	if *update && out != "" {
		text := fmt.Sprintf("%s\n%v\n\n%v\n", summary, errors.Join(join(failures)...), errors.Join(errs...))
		if err := os.WriteFile(filepath.Join(dir, "report.txt"), []byte(text), 0o666); err != nil {
			t.Error(err)
		}
	}
	if !*update {
		recorded, err := Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(recorded, set); diff != "" {
			t.Errorf("the GPU differs from the record: %.4000s", diff)
		}
	}
	for i, err := range errs {
		if i == disagreements {
			t.Errorf("and %d more", len(errs)-i)
			break
		}
		if !strings.HasSuffix(err.Error(), notRecorded) { // the summary has it
			t.Error(err)
		}
	}
	for _, f := range failures {
		if !f.Probe {
			t.Fail()
		}
	}
}

func join(failures []Failure) (errs []error) {
	for _, f := range failures {
		errs = append(errs, f)
	}
	return
}
