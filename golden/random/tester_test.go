package random

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
)

// refusing is a source that builds nothing.
type refusing struct{ err error }

func (r refusing) Decode(runtime.DecodeShape) (runtime.DecodeVariants, error) {
	return runtime.DecodeVariants{}, r.err
}

// failing are the options of a run in which every case fails.
func failing(t *testing.T, workers int) Options {
	return Options{
		Open:   func(g Group) (runtime.Driver, error) { return emu.Open(emu.Options{SMs: g.SMs}) },
		Source: refusing{errors.New("no such kernel")}, Seed: 5, Cases: 10, PerGroup: 3, Workers: workers, Failures: t.TempDir(), Tries: 40,
		Limits: Limits{Seconds: 0.05, Emulated: true, Ops: []string{"decode"}},
	}
}

// files reads what a run has written.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(name)] = string(text)
	}
	return all
}

// TestFailuresAreWrittenShrunk, the same ones whoever runs them.
func TestFailuresAreWrittenShrunk(t *testing.T) {
	var first map[string]string
	for _, workers := range []int{1, 3} {
		o := failing(t, workers)
		found := 0
		o.Found = func(f Failure) {
			found++
			if !strings.Contains(f.String(), "no such kernel") || !strings.Contains(f.String(), "mlagen check -sms ") {
				t.Errorf("%v", f)
			}
		}
		o.Workers = workers
		tally, err := Run(context.Background(), o)
		if err != nil || tally.Total().Failed != 10 || workers == 1 && found != 10 {
			t.Fatalf("%v, %v", tally, err)
		}
		all := files(t, o.Failures)
		if len(all) != 10 {
			t.Fatalf("%d files", len(all))
		}
		for name, text := range all {
			c, err := cases.Parse([]byte(text))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if c.Name+".json" != name || !strings.HasSuffix(c.Why, "no such kernel") || c.Model.Heads != 1 || len(c.KVLen) != 0 {
				t.Errorf("%s: %s", name, text)
			}
		}
		if first == nil {
			first = all
		} else if d := cmp.Diff(first, all); d != "" {
			t.Errorf("with %d workers:\n%s", workers, d)
		}
	}
}

// dying is a device that gives no memory after so many times.
type dying struct {
	runtime.Driver
	left int
}

func (d *dying) Alloc(name string, size int64) (runtime.Ptr, error) {
	if d.left--; d.left < 0 {
		return 0, errors.New("an illegal address was met")
	}
	return d.Driver.Alloc(name, size)
}

// TestALostDeviceEndsTheRun: what was running is written down.
func TestALostDeviceEndsTheRun(t *testing.T) {
	o := failing(t, 1)
	o.Open = func(Group) (runtime.Driver, error) {
		d, err := emu.Open(emu.Options{})
		return &dying{d, 2}, err
	}
	var told []string
	o.Found = func(f Failure) { told = append(told, f.Reason) }
	_, err := Run(context.Background(), o)
	if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "illegal address") {
		t.Fatal(err)
	}
	all := files(t, o.Failures)
	if all["suspect-random-5-0.json"] == "" || all["failure-5-0.json"] == "" || len(all) != 2 || !slices.ContainsFunc(told, func(s string) bool { return strings.HasPrefix(s, "suspect: ") }) {
		t.Errorf("written %v, told %q", all, told)
	}
}

// stuck is a device whose memory comes never.
type stuck struct{ runtime.Driver }

func (stuck) Alloc(string, int64) (runtime.Ptr, error) { select {} }

// TestAHangEndsTheRun likewise.
func TestAHangEndsTheRun(t *testing.T) {
	o := failing(t, 2)
	o.Stall, o.Every = 20*time.Millisecond, 5*time.Millisecond
	o.Open = func(Group) (runtime.Driver, error) {
		d, err := emu.Open(emu.Options{})
		return stuck{d}, err
	}
	_, err := Run(context.Background(), o)
	if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "hang") {
		t.Fatal(err)
	}
	if all := files(t, o.Failures); len(all) == 0 || len(all) > 2 {
		t.Errorf("written %v", all)
	}
}

// TestSamplesRunTwice: on the device, and emulated.
func TestSamplesRunTwice(t *testing.T) {
	o := failing(t, 1)
	o.Cases, o.Sample, o.Tries, o.OpenEmulated = 4, 2, 1, o.Open
	var opened int
	o.Open = func(g Group) (runtime.Driver, error) {
		opened++
		d, err := emu.Open(emu.Options{})
		return &dying{d, 1 << 30}, err // one without hazards
	}
	tally, err := Run(context.Background(), o)
	if err != nil || tally.Sampled != 2 || tally.Total().Failed != 6 || opened != 2 || !strings.Contains(tally.String(), "2 on the emulator too") {
		t.Errorf("%v, %v; opened %d", tally, err, opened)
	}
}

// TestTheRunEndsInTime and when it is told to.
func TestTheRunEndsInTime(t *testing.T) {
	o := failing(t, 2)
	o.Cases, o.Duration, o.Tries = 0, 100*time.Millisecond, 1
	if tally, err := Run(context.Background(), o); err != nil || tally.Total().Failed == 0 {
		t.Errorf("%v, %v", tally, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	o = failing(t, 2)
	if tally, err := Run(ctx, o); err != nil || tally.Total().Failed > 0 {
		t.Errorf("%v, %v", tally, err)
	}
}
