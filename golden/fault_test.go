package golden_test

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/check"
	"github.com/mlagen/mlagen/runtime/emu"
	"github.com/mlagen/mlagen/runtime/faulty"
)

var faultStep = flag.Int("fault-step", 5, "of the faults of cases and programs every so many are tried; 1 = all")

// TestFaultsOfLoading: a load of which any call fails says what failed and leaves
// nothing loaded, and the device takes the next load.
func TestFaultsOfLoading(t *testing.T) {
	k := makePaperKernels(t)
	total := 0
	for _, sticky := range []bool{false, true} {
		for name, l := range loads(k) {
			d := faulty.New(faulty.NewHollow())
			use := func() error {
				c, err := l.load(d.Device(), l.variants)
				if err != nil {
					return err
				}
				return c.Close()
			}
			n, err := d.Faults(faulty.Sweep{Sticky: sticky, Again: 1}, use, func(err error) error { return err })
			if err != nil {
				t.Errorf("%s, sticky %v: %v", name, sticky, err)
			}
			if n < 5 { // load, find, look, set, unload
				t.Errorf("%s: only %d faults", name, n)
			}
			total += n
		}
	}
	t.Logf("%d faults", total)
}

// TestFaultsOnEmulator: after a fault a case that runs on the emulator is right.
func TestFaultsOnEmulator(t *testing.T) {
	from := paperSource{made: map[string]any{}, whole: true}
	for name, step := range map[string]int{"append-half": 7, "merge-one": 11, "decode-graph-shorter": 17} {
		c, err := cases.Read("cases/testdata/" + name + ".json")
		must(t, err)
		if c.Op == "decode" {
			c.Model.Heads, c.KVLen, c.Graph.CaptureKVLen = 4, []int{70, 3}, []int{130, 1}
		}
		device, err := emu.Open(emu.Options{})
		must(t, err)
		d := faulty.New(device)
		use := func() error {
			r := check.New(check.Options{Driver: d.Device(), Source: from, Hazards: true})
			if outcome := r.Case(c); outcome.Status != check.OK {
				return errors.Join(errors.New(outcome.Reason), r.Close())
			}
			return r.Close()
		}
		n, err := d.Faults(faulty.Sweep{Step: min(step, step**faultStep/5), Again: 1}, use, func(err error) error { return err })
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%s: %d faults", name, n)
	}
}

// TestFaultsOfCases: a conformance case, from loading to the last download, with
// graph, of every operation, of which any call fails, says what failed and gives
// everything back; then the device works as before.
func TestFaultsOfCases(t *testing.T) {
	from := paperSource{made: map[string]any{}}
	total := 0
	for _, name := range []string{
		"decode-graph-mtp", "prefill-graph", "merge-repeatable", "append-half", "extend-graph", "upproject-graph", "absorb-split-q", "layer-graph",
	} {
		c, err := cases.Read("cases/testdata/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		c.Model.Heads = min(c.Model.Heads, 2) // calls are the same with less work
		d := faulty.New(faulty.NewHollow())
		use := func() error {
			r := check.New(check.Options{Driver: d.Device(), Source: from})
			outcome := r.Case(c)
			if outcome.Status != check.Failed {
				return fmt.Errorf("the case ended with %q on a device that computes nothing", outcome.Status)
			}
			return errors.Join(errors.New(outcome.Reason), r.Close())
		}
		begin := time.Now()
		first := ""
		right := func(err error) error {
			if first == "" {
				first = err.Error()
			}
			if strings.Contains(err.Error(), faulty.Err.Error()) || err.Error() != first {
				return err
			}
			return nil
		}
		n, err := d.Faults(faulty.Sweep{Step: *faultStep, Sticky: total%2 == 1}, use, right)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%s: %d faults, %v, otherwise %s", name, n, time.Since(begin), first)
		total += n
	}
	t.Logf("%d faults", total)
}
