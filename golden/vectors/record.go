package vectors

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/mlagen/mlagen/runtime"
)

// Set is the results of experiments, by family and experiment name.
type Set map[string]map[string]Result

// Result is what a device made of one experiment.
type Result struct {
	Bytes  []byte  // the outputs, one after another
	Elem   int     // bytes of an integer of the outputs: 1, 2 or 4
	Inputs [8]byte // digest of what went in
}

const notRecorded = "not recorded"

// Failure is an experiment without a result.
type Failure struct {
	Family, Name string // no name: the whole family, or what was left of it
	Probe        bool   // the hardware may refuse it
	Err          error
}

func (f Failure) Error() string {
	if f.Name == "" {
		return fmt.Sprintf("%s: %v", f.Family, f.Err)
	}
	return fmt.Sprintf("%s/%s: %v", f.Family, f.Name, f.Err)
}

// Record runs every experiment on a device, in this process. On a GPU a fault
// in one of them makes all that follow fail too: RecordApart is for that.
func Record(d runtime.Driver) (Set, []Failure) {
	set := Set{}
	var failures []Failure
	for _, f := range families() {
		set[f.name] = map[string]Result{}
		err := f.record(d, f.experiments, func(e experiment, b []byte, err error) bool {
			if err != nil {
				failures = append(failures, Failure{f.name, e.name, e.probe, err})
			} else {
				set[f.name][e.name] = e.result(b)
			}
			return true
		}, nil)
		if err != nil {
			failures = append(failures, Failure{Family: f.name, Err: err})
		}
	}
	return set, failures
}

func (e *experiment) result(b []byte) Result { return Result{b, e.outputs()[0].elem, e.inputs()} }

// record runs some of the family's experiments until ended returns false.
// begun, when not nil, is called before each.
func (f family) record(d runtime.Driver, list []experiment, ended func(experiment, []byte, error) bool, begun func(experiment)) error {
	s, err := d.NewStream()
	if err != nil {
		return err
	}
	defer s.Destroy()
	m, err := d.Load([]byte(f.ptx))
	if err != nil {
		return err
	}
	for _, e := range list {
		if begun != nil {
			begun(e)
		}
		b, err := e.run(d, m, s)
		if !ended(e, b, err) {
			return nil // a module does not unload after a fault
		}
	}
	return m.Unload()
}

// Check compares the set with the units of ptx/hopper and ptx/emu. Each error
// names the experiment; a missing or surplus result is one too.
func (s Set) Check() (errs []error) {
	for _, f := range families() {
		errs = append(errs, s.check(f)...)
	}
	return errs
}

func (s Set) check(f family) (errs []error) {
	known := map[string]bool{}
	for _, e := range f.experiments {
		known[e.name] = true
		r, ok := s[f.name][e.name]
		var err error
		switch {
		case !ok && e.probe:
		case !ok:
			err = errors.New(notRecorded)
		case r.Inputs != e.inputs():
			err = errors.New("recorded from other inputs; record it again")
		default:
			err = e.check(r.Bytes)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s/%s: %w", f.name, e.name, err))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s[f.name])) {
		if !known[name] {
			errs = append(errs, fmt.Errorf("%s/%s: recorded, but there is no such experiment", f.name, name))
		}
	}
	return errs
}

// Write writes one file per family into dir, which is made when missing.
func (s Set) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for name, results := range s {
		b, err := marshal(results)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".npz"), b, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// Read reads what Write wrote.
func Read(dir string) (Set, error) {
	set := Set{}
	for _, f := range families() {
		b, err := os.ReadFile(filepath.Join(dir, f.name+".npz"))
		if err != nil {
			return nil, err
		}
		if set[f.name], err = unmarshal(b); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return set, nil
}
