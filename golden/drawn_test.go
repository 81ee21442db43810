package golden_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/extremes"
	"github.com/mlagen/mlagen/golden/faults"
	"github.com/mlagen/mlagen/golden/random"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
	"github.com/mlagen/mlagen/templates"
)

// planted makes decode's kernels with a fault, where they have its place.
type planted struct {
	source
	fault faults.Fault
}

// Decode implements runtime.Source.
func (f planted) Decode(shape runtime.DecodeShape) (runtime.DecodeVariants, error) {
	v, err := f.source.Decode(shape)
	if err != nil {
		return v, err
	}
	// Places of faults are told in a text without lines of the template.
	plain, err := templates.Build("absorb-decode", templates.Spec{
		Heads: shape.Heads, SQ: shape.SQ, Latent: shape.Latent, Rope: shape.Rope, DType: string(shape.DType), BlockH: shape.BlockH, Teams: shape.Teams,
	})
	if err != nil {
		return v, err
	}
	text, err := f.fault.Plant(plain.PTX)
	if err != nil {
		return v, nil
	}
	m := *plain.Manifest
	sum := sha256.Sum256(text)
	m.PTXSHA256 = hex.EncodeToString(sum[:])
	v.Decode = runtime.Variant{Name: v.Decode.Name, PTX: text, Manifest: &m}
	return v, nil
}

func fault(t *testing.T, name string) faults.Fault {
	t.Helper()
	for _, f := range faults.Decode {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no fault is called %q", name)
	return faults.Fault{}
}

// TestDrawnCasesFindFaults: cases drawn at random pass; with a fault in a kernel
// some fail, and the least of them says what the fault takes.
func TestDrawnCasesFindFaults(t *testing.T) {
	run := func(s runtime.Source) (random.Tally, []random.Failure) {
		var found []random.Failure
		tally, err := random.Run(context.Background(), random.Options{
			Open:   func(g random.Group) (runtime.Driver, error) { return emu.Open(emu.Options{SMs: g.SMs}) },
			Source: s, Seed: 2, Cases: 2, PerGroup: 1, Workers: 1, Failures: t.TempDir(), Tries: 50,
			Limits: random.Limits{Seconds: 0.2, Emulated: true, Ops: []string{"decode"}},
			Found:  func(f random.Failure) { found = append(found, f) },
		})
		must(t, err)
		return tally, found
	}
	if tally, found := run(source{}); tally.Total().Passed != 2 {
		t.Fatalf("%v\n%v", tally, found)
	}
	tally, found := run(planted{fault: fault(t, "mask off by one")})
	if tally.Total().Failed == 0 {
		t.Fatalf("a mask that is off by one was not found: %v", tally)
	}
	for _, f := range found {
		c, err := cases.Read(f.File)
		must(t, err)
		// One request of a tile or less, whose last token sees one that is not there.
		if len(c.KVLen) != 1 || c.KVLen[0] >= 64 || c.Model.Heads != 1 || c.Repeat != 1 || len(c.Holds) > 0 || c.Graph != nil {
			t.Errorf("%v is not the least that fails:\n%s", f, c.Format())
		}
	}
}

// TestDrawnCasesShareADevice: groups that run side by side on one device, graphs
// among them, do not disturb each other.
func TestDrawnCasesShareADevice(t *testing.T) {
	// To the observers all launches are one stream's, in which a launch may overlap
	// the one before: here, another group's, whose memory this one may have got.
	d, err := emu.Open(emu.Options{SMs: 4, NoHazards: true})
	must(t, err)
	tally, err := random.Run(context.Background(), random.Options{
		Open: random.Share(d), Source: source{}, Seed: 6, Cases: 24, PerGroup: 3, Workers: 4, Failures: t.TempDir(), Tries: 1, Stall: 10 * time.Minute,
		Limits: random.Limits{Seconds: 0.15, Emulated: true},
		Found:  func(f random.Failure) { t.Error(f) },
	})
	if err != nil || tally.Total().Passed != 24 {
		t.Errorf("%v, %v\n%s", tally, err, tally.Details())
	}
}

// tampering flips a bit of what is called out after so many launches.
type tampering struct {
	*emu.Driver
	out  runtime.Ptr
	left int
}

func (d *tampering) Alloc(name string, size int64) (runtime.Ptr, error) {
	p, err := d.Driver.Alloc(name, size)
	if name == "out" {
		d.out = p
	}
	return p, err
}

func (d *tampering) NewStream() (runtime.Stream, error) {
	s, err := d.Driver.NewStream()
	return tamperingStream{s, d}, err
}

type tamperingStream struct {
	runtime.Stream
	d *tampering
}

func (s tamperingStream) Synchronize() error {
	err := s.Stream.Synchronize()
	if s.d.left--; s.d.left == 0 && err == nil {
		var b [1]byte
		if err = s.d.Download(b[:], s.d.out); err == nil {
			b[0] ^= 1
			err = s.d.Upload(s.d.out, b[:])
		}
	}
	return err
}

// small runs a check of extremes by name.
func small(t *testing.T, name string, d runtime.Driver, s runtime.Source) string {
	t.Helper()
	var b strings.Builder
	extremes.Run(&b, &extremes.Env{Driver: d, Source: s, Small: true}, func(n string) bool { return n == name })
	return b.String()
}

// TestExtremes: checks of extremes pass in their small form, and find a bit that
// is another the second time, kernels that are wrong, and errors that do not say
// enough. `mlagen check -extremes` runs all of them.
func TestExtremes(t *testing.T) {
	open := func() *emu.Driver {
		d, err := emu.Open(emu.Options{})
		must(t, err)
		return d
	}
	for _, name := range []string{"unloaded-while-idle", "seventy-thousand-queries"} {
		if out := small(t, name, open(), source{}); !strings.HasPrefix(out, "ok "+name+" ") {
			t.Error(out)
		}
	}
	for name, left := range map[string]int{"ten-thousand-replays": 3, "graph-of-any-size": 1} {
		if out := small(t, name, &tampering{Driver: open(), left: left}, source{}); !strings.HasPrefix(out, "FAIL "+name+": ") || !strings.Contains(out, " is another") {
			t.Errorf("a bit was flipped: %s", out)
		}
	}
	if out := small(t, "million-tokens", open(), planted{fault: fault(t, "mask off by one")}); !strings.HasPrefix(out, "FAIL ") {
		t.Errorf("a mask is off by one: %s", out)
	}
	if out := small(t, "two-processes", open(), source{}); !strings.HasPrefix(out, "skip ") {
		t.Errorf("without a second process: %s", out)
	}
}
