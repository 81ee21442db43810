package vectors

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mlagen/mlagen/runtime"
)

// report is what a child process says through its pipe: before an experiment,
// with its name alone, and after it, with End set.
type report struct {
	Name  string
	End   bool
	Bytes []byte
	Error string // empty: Bytes are the outputs
}

// The environment of a child process: the family, and the experiments to run,
// separated by commas.
const (
	childFamily = "MLAGEN_VECTORS_FAMILY"
	childNames  = "MLAGEN_VECTORS_NAMES"
	childPipe   = 3 // file descriptor
)

// RecordApart runs every experiment in child processes, which command makes
// and which must call RecordChild. A fault on a GPU leaves a process nothing
// but to end, so a child ends with its first failure and another one goes on
// after it. A child that says nothing for so long is killed. progress, when
// not nil, is given the results after each family.
func RecordApart(command func() *exec.Cmd, silence time.Duration, progress func(Set) error) (Set, []Failure, error) {
	set := Set{}
	fs := families()
	for _, f := range fs {
		set[f.name] = map[string]Result{}
	}
	var failures []Failure
	for _, f := range fs {
		failures = append(failures, f.recordApart(set[f.name], func(names []string, each func(report)) error {
			cmd := command()
			cmd.Env = append(cmd.Environ(), childFamily+"="+f.name, childNames+"="+strings.Join(names, ","))
			return child(cmd, silence, each)
		})...)
		if progress != nil {
			if err := progress(set); err != nil {
				return set, failures, err
			}
		}
	}
	return set, failures, nil
}

// recordApart starts one child after another until all experiments have a
// result or are a failure.
func (f family) recordApart(results map[string]Result, child func(names []string, each func(report)) error) (failures []Failure) {
	for rest := f.experiments; len(rest) > 0; {
		var names []string
		for _, e := range rest {
			names = append(names, e.name)
		}
		begun := false // the first of rest
		failed := func(err error) {
			failures = append(failures, Failure{f.name, rest[0].name, rest[0].probe, err})
			rest, begun = rest[1:], false
		}
		before := len(rest)
		err := child(names, func(r report) {
			switch {
			case len(rest) == 0 || r.Name != rest[0].name: // out of order: the child's end will tell
			case !r.End:
				begun = true
			case r.Error != "":
				failed(errors.New(r.Error))
			default:
				results[r.Name] = rest[0].result(r.Bytes)
				rest, begun = rest[1:], false
			}
		})
		if begun {
			if err == nil {
				err = errors.New("the process ended in it")
			}
			failed(err)
		}
		if len(rest) == before { // another child would do no better
			if err == nil {
				err = errors.New("a process ended before its first experiment")
			}
			return append(failures, Failure{Family: f.name, Err: fmt.Errorf("%s and %d after it: %w", rest[0].name, len(rest)-1, err)})
		}
	}
	return failures
}

// child runs a command and gives its reports to each. An error has what the
// command printed last.
func child(cmd *exec.Cmd, silence time.Duration, each func(report)) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	cmd.ExtraFiles = []*os.File{w}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return err
	}
	var silent atomic.Bool
	timer := time.AfterFunc(silence, func() {
		silent.Store(true)
		_ = cmd.Process.Kill() // it may have ended just now
	})
	d := gob.NewDecoder(r)
	for {
		var p report
		if err = d.Decode(&p); err != nil {
			break
		}
		timer.Reset(silence)
		each(p)
	}
	wait := cmd.Wait()
	timer.Stop()
	switch {
	case silent.Load():
		return fmt.Errorf("nothing for %v; killed", silence)
	case wait != nil:
		text := strings.TrimSpace(printed.String())
		if len(text) > 2000 {
			text = "…" + text[len(text)-2000:]
		}
		return fmt.Errorf("%w: %s", wait, text)
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// InChild says whether RecordApart started this process.
func InChild() bool { return os.Getenv(childFamily) != "" }

// RecordChild does a child's part on a device.
func RecordChild(d runtime.Driver) error {
	pipe := os.NewFile(childPipe, "reports")
	if pipe == nil {
		return errors.New("no pipe for reports")
	}
	defer pipe.Close()
	enc := gob.NewEncoder(pipe)
	var lost error
	send := func(r report) {
		if err := enc.Encode(r); err != nil && lost == nil {
			lost = err
		}
	}
	wanted := map[string]bool{}
	for _, name := range strings.Split(os.Getenv(childNames), ",") {
		wanted[name] = true
	}
	for _, f := range families() {
		if f.name != os.Getenv(childFamily) {
			continue
		}
		var list []experiment
		for _, e := range f.experiments {
			if wanted[e.name] {
				list = append(list, e)
			}
		}
		err := f.record(d, list, func(e experiment, b []byte, err error) bool {
			r := report{Name: e.name, End: true, Bytes: b}
			if err != nil {
				r.Error = err.Error()
			}
			send(r)
			return err == nil
		}, func(e experiment) { send(report{Name: e.name}) })
		return errors.Join(err, lost)
	}
	return fmt.Errorf("no family %q", os.Getenv(childFamily))
}

// Summary says what failed and how many experiments of each family have a
// result. Probes that hardware refused come last: they are no failures.
func Summary(set Set, failures []Failure) string {
	var b, refused strings.Builder
	for _, f := range failures {
		line, _, _ := strings.Cut(f.Error(), "\n")
		if f.Probe {
			fmt.Fprintf(&refused, "refused (a probe) %s\n", line)
		} else {
			fmt.Fprintf(&b, "FAILED %s\n", line)
		}
	}
	for _, f := range families() {
		wrong := 0
		for _, err := range set.check(f) {
			if !strings.HasSuffix(err.Error(), notRecorded) {
				wrong++
			}
		}
		fmt.Fprintf(&b, "%s: %d of %d recorded, %d of them not what the units compute\n", f.name, len(set[f.name]), len(f.experiments), wrong)
	}
	return b.String() + refused.String()
}
