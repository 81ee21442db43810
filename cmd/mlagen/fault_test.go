package main

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/faulty"
)

var faultStep = flag.Int("fault-step", 15, "of the faults of a command every so many are tried; 1 = all")

// TestFaults: whichever call to the device fails, a command says so, exits with 1
// and gives everything back.
func TestFaults(t *testing.T) {
	d := faulty.New(faulty.NewHollow())
	devices = append(devices, device{name: "faulty", open: func(bool) (runtime.Driver, error) { return d.Device(), nil }})
	defer func() { devices = devices[:len(devices)-1] }()
	for _, c := range []struct {
		step int // a benchmark makes many calls alike
		args []string
	}{
		{1, []string{"run", "-device", "faulty", "-heads", "2", "-kv", "3"}},
		{1, []string{"check", "-device", "faulty", "../../golden/cases/testdata/append-half.json", "../../golden/cases/testdata/merge-one.json"}},
		{20, []string{"bench", "-op", "decode", "-device", "faulty", "-quick", "-heads", "8", "-batch", "1", "-kv", "64", "-pool", "0.001"}},
	} {
		args := c.args
		first := ""
		use := func() error {
			code, stdout, stderr := mlagen(args...)
			if code != 1 {
				return fmt.Errorf("exit %d", code)
			}
			return errors.New(stdout + stderr)
		}
		right := func(err error) error { // a device whose kernels do nothing is found wanting, each time alike
			if first == "" {
				first = err.Error()
			}
			if strings.Contains(err.Error(), faulty.Err.Error()) || err.Error() != first {
				return err
			}
			return nil
		}
		n, err := d.Faults(faulty.Sweep{Step: c.step * *faultStep, Sticky: args[0] == "run"}, use, right)
		if err != nil {
			t.Errorf("%v: %v", args, err)
		}
		t.Logf("%v: %d faults; %s", args, n, first)
	}
}
