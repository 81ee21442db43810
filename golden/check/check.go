// Package check runs conformance cases on a device exactly as a user's calls
// would, through the runtime, and compares the results with the float64 oracle.
package check

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/runtime"
)

// Options say where cases run.
type Options struct {
	Driver runtime.Driver
	Source runtime.Source // of the kernels

	// Dump, when not empty, is the directory under which each case writes its
	// inputs and outputs as DIR/NAME/*.npy.
	Dump string
	// MaxFLOP skips cases with more attention work than this; 0 = no limit.
	MaxFLOP float64
	// Hazards says that the device itself reports reads of memory that was
	// never written, so the workspace is left untouched instead of poisoned.
	Hazards bool

	// Seeds is under how many schedules each case runs, 0 counts as 1: the
	// device is seeded with Seed, Seed+1 and so on, which takes a Seeder. All
	// must be right and give the same bits.
	Seed  uint64
	Seeds int
	// Inspect, when not nil, is called after every schedule, right or wrong.
	// Its error fails the case.
	Inspect func(seed uint64) error

	// Warn, when not nil, is called with each thing that asks for attention in a
	// kernel that was loaded.
	Warn func(runtime.Warning)
}

// Seeder is a device on which a seed decides all timing that kernels leave
// open. SetSeed starts over: the same work after it runs the same way.
type Seeder interface{ SetSeed(seed uint64) }

// Status is how a case ended.
type Status string

// How cases end.
const (
	OK      Status = "ok"
	Failed  Status = "FAIL"
	Skipped Status = "skip"
)

// Outcome is the result of one case.
type Outcome struct {
	Name   string
	Status Status
	Reason string // why it failed or was skipped
	Errors Errors
	Notes  string // further figures
}

// String is the line that the command prints.
func (o Outcome) String() string {
	if o.Status != OK {
		return fmt.Sprintf("%s %s: %s", o.Status, o.Name, o.Reason)
	}
	s := fmt.Sprintf("ok %s out %.1e lse %.1e", o.Name, o.Errors.Out, o.Errors.LSE)
	if o.Notes != "" {
		s += " " + o.Notes
	}
	return s
}

// skip is the reason why a case cannot run on a device.
type skip string

func (s skip) Error() string { return string(s) }

// Runner runs cases one after the other, keeping the kernels they share loaded.
type Runner struct {
	Options
	decodes map[runtime.DecodeShape]*runtime.Decode
	merges  map[runtime.MergeShape]*runtime.MergeStates
	appends map[runtime.AppendShape]*runtime.AppendKV
	loaded  map[any]io.Closer // of other operations, by shape
	open    func(*decodeCall) (decoder, error)
	states  func(*cases.Merge) (out, lse []byte, err error) // merged

	prefills     map[runtime.PrefillShape]*runtime.Prefill
	openPrefills func(*prefillCall) (prefiller, error)
}

// New returns a runner, to be closed.
func New(o Options) *Runner {
	r := &Runner{
		Options: o,
		decodes: map[runtime.DecodeShape]*runtime.Decode{},
		merges:  map[runtime.MergeShape]*runtime.MergeStates{},
		appends: map[runtime.AppendShape]*runtime.AppendKV{},
		loaded:  map[any]io.Closer{},
	}
	r.open, r.states = r.openDecode, r.mergeStates
	r.prefills, r.openPrefills = map[runtime.PrefillShape]*runtime.Prefill{}, r.openPrefill
	return r
}

// Case runs one case.
func (r *Runner) Case(c *cases.Case) Outcome {
	operations := map[string]func(*cases.Case) (Outcome, error){
		"decode":    r.runDecode,
		"prefill":   r.runPrefill,
		"merge":     r.runMerge,
		"append":    r.runAppend,
		"extend":    r.runExtend,
		"upproject": r.runUpProject,
		"absorb":    r.runAbsorb,
		"layer":     r.runLayer,
	}
	run := operations[c.Op]
	if run == nil {
		return Outcome{Name: c.Name, Status: Failed, Reason: fmt.Sprintf("op %q is unknown", c.Op)}
	}
	outcome, err := run(c)
	if err == nil {
		if err = r.relate(c); err == nil && len(c.Holds) > 0 {
			outcome.Notes = strings.TrimSuffix(strings.Join(slices.Concat(c.Holds, []string{outcome.Notes}), ", "), ", ")
		}
	}
	outcome.Name = c.Name
	var why skip
	switch {
	case errors.As(err, &why):
		outcome.Status, outcome.Reason = Skipped, string(why)
	case err != nil:
		outcome.Status, outcome.Reason = Failed, err.Error()
	default:
		outcome.Status = OK
	}
	return outcome
}

// Tally counts outcomes.
type Tally struct{ Passed, Failed, Skipped int }

// String is the closing line.
func (t Tally) String() string {
	s := fmt.Sprintf("%d passed, %d failed", t.Passed, t.Failed)
	if t.Skipped > 0 {
		s += fmt.Sprintf(", %d skipped", t.Skipped)
	}
	return s
}

// Files runs the cases of files in order, printing a line for each and the
// tally at the end. progress is told of every case before it runs. A file that
// is no case fails without keeping the others from running.
func (r *Runner) Files(w io.Writer, files []string, progress func(name string)) Tally {
	var t Tally
	for _, file := range files {
		name := filepath.Base(file)
		if progress != nil {
			progress(name)
		}
		outcome := Outcome{Name: name, Status: Failed}
		if c, err := cases.Read(file); err != nil {
			outcome.Reason = err.Error()
		} else {
			outcome = r.Case(c)
		}
		switch outcome.Status {
		case OK:
			t.Passed++
		case Failed:
			t.Failed++
		case Skipped:
			t.Skipped++
		}
		fmt.Fprintln(w, outcome)
	}
	fmt.Fprintln(w, t)
	return t
}
