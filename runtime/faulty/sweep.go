package faulty

import (
	"fmt"
	"strings"
)

// Sweep is how faults are tried, one after the other.
type Sweep struct {
	Step   int  // from the number of a call that fails to the next one's, 0 counts as 1
	Sticky bool // the calls after it fail as well
	Again  int  // after every so many faults use runs without one, on the same device; 0 = only at the end
}

// Faults runs use with a fault in its first call and so on, until it ends before
// the fault is due. Each time its error must tell of the fault and nothing may stay
// held. What it returns without a fault is given to right. Faults returns how many
// there were.
func (d *Driver) Faults(s Sweep, use func() error, right func(error) error) (faults int, err error) {
	without := func() error {
		d.FailAt(0, false)
		err := right(use())
		if held := d.Held(); err == nil && len(held) > 0 {
			err = fmt.Errorf("not given back: %v", held)
		}
		if err != nil {
			return fmt.Errorf("without a fault, after %d of them: %w", faults, err)
		}
		return nil
	}
	for n := 1; ; n += max(1, s.Step) {
		d.FailAt(n, s.Sticky)
		got := use()
		failed := d.Failed()
		if failed == "" {
			return faults, without()
		}
		faults++
		if held := d.Held(); len(held) > 0 {
			return faults, fmt.Errorf("call %d, %s, failed: not given back: %v; the error is %v", n, failed, held, got)
		}
		if failed == "compile" && right(got) == nil {
			continue // what was not compiled ahead is compiled while it is loaded
		}
		if got == nil || !strings.Contains(got.Error(), Err.Error()) {
			return faults, fmt.Errorf("call %d, %s, failed; the error is %v", n, failed, got)
		}
		if s.Again > 0 && faults%s.Again == 0 {
			if err := without(); err != nil {
				return faults, err
			}
		}
	}
}
