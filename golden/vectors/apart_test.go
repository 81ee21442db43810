package vectors

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestRecordChild is what a recording process runs in its children.
func TestRecordChild(t *testing.T) {
	if !InChild() {
		t.Skip("only a recording process runs this")
	}
	d, err := openChild()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := RecordChild(d); err != nil {
		t.Fatal(err)
	}
}

// recordChild is the command of such a child.
func recordChild() *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return exec.Command(self, "-test.run=^TestRecordChild$")
}

// TestFailuresCostThemselves: what comes after a fault, a crash or a hang has
// a result.
func TestFailuresCostThemselves(t *testing.T) {
	f := matrixFamily()
	f.experiments = f.experiments[:6]
	f.experiments[4].probe = true
	var started [][]string
	child := func(names []string, each func(report)) error {
		started = append(started, names)
		for _, name := range names {
			each(report{Name: name})
			switch slices.IndexFunc(f.experiments, func(e experiment) bool { return e.name == name }) {
			case 1:
				each(report{Name: name, End: true, Error: "illegal instruction"})
				return nil
			case 3:
				return errors.New("killed")
			case 4:
				return nil
			}
			each(report{Name: name, End: true, Bytes: []byte(name)})
		}
		return nil
	}
	results := map[string]Result{}
	var got []string
	for _, failure := range f.recordApart(results, child) {
		got = append(got, fmt.Sprint(failure, " ", failure.Probe))
	}
	name := func(i int) string { return f.experiments[i].name }
	want := []string{
		"matrix/" + name(1) + ": illegal instruction false",
		"matrix/" + name(3) + ": killed false",
		"matrix/" + name(4) + ": the process ended in it true",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if len(results) != 3 || string(results[name(5)].Bytes) != name(5) {
		t.Errorf("results: %v", results)
	}
	if len(started) != 4 || len(started[3]) != 1 {
		t.Errorf("children: %v", started)
	}
}

// TestFamilyFails: children that do not come to an experiment are not tried
// once for each.
func TestFamilyFails(t *testing.T) {
	f, n := matrixFamily(), 0
	failures := f.recordApart(map[string]Result{}, func([]string, func(report)) error {
		n++
		return errors.New("no device")
	})
	if n != 1 || len(failures) != 1 || failures[0].Name != "" || !strings.Contains(failures[0].Error(), "no device") {
		t.Errorf("%d children, %v", n, failures)
	}
}

// TestChildIsKilled: a child that hangs ends, and one that crashes tells why.
func TestChildIsKilled(t *testing.T) {
	err := child(exec.Command("sleep", "60"), 50*time.Millisecond, func(report) {})
	if err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("hangs: %v", err)
	}
	err = child(exec.Command("sh", "-c", "echo out of luck; exit 3"), time.Minute, func(report) {})
	if err == nil || !strings.Contains(err.Error(), "exit status 3: out of luck") {
		t.Errorf("crashes: %v", err)
	}
}
