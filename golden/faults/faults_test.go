package faults

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/check"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
	"github.com/mlagen/mlagen/templates"
)

// source builds kernels and plants a fault in one of them.
type source struct {
	fault   *Fault
	planted bool
}

func (s *source) Decode(shape runtime.DecodeShape) (runtime.DecodeVariants, error) {
	spec := templates.Spec{Heads: shape.Heads, SQ: shape.SQ, Latent: shape.Latent, Rope: shape.Rope, Page: shape.Page, DType: string(shape.DType), Teams: shape.Teams}
	var v runtime.DecodeVariants
	for name, to := range map[string]*runtime.Variant{"absorb-decode": &v.Decode, "decode-schedule": &v.Schedule, "decode-combine": &v.Combine} {
		var err error
		if *to, err = s.build(name, spec); err != nil {
			return v, err
		}
	}
	return v, nil
}

func (s *source) Prefill(shape runtime.PrefillShape) (runtime.PrefillVariants, error) {
	spec := templates.Spec{Heads: shape.Heads, Nope: shape.Nope, Rope: shape.Rope, Value: shape.Value, DType: string(shape.DType)}
	var v runtime.PrefillVariants
	for name, to := range map[string]*runtime.Variant{"expand-prefill": &v.Attend, "expand-schedule": &v.Schedule} {
		var err error
		if *to, err = s.build(name, spec); err != nil {
			return v, err
		}
	}
	return v, nil
}

// What all faults have in common: the kernels without one, and their programs.
var (
	programs = new(emu.Programs)
	built    = map[buildKey]runtime.Variant{}
)

type buildKey struct {
	name string
	spec templates.Spec
}

// build makes a kernel, with the fault where it is the fault's.
func (s *source) build(name string, spec templates.Spec) (v runtime.Variant, err error) {
	key := buildKey{name, spec}
	v, ok := built[key]
	if !ok {
		out, err := templates.Build(name, spec)
		if err != nil {
			return v, err
		}
		v = runtime.Variant{Name: name, PTX: out.PTX, Manifest: out.Manifest}
		built[key] = v
	}
	m, text := *v.Manifest, v.PTX
	if s.fault != nil && m.Kernel == s.fault.Kernel {
		if text, err = s.fault.Plant(text); err != nil {
			return v, err
		}
		s.planted = true
		sum := sha256.Sum256(text)
		m.PTXSHA256 = hex.EncodeToString(sum[:])
	}
	return runtime.Variant{Name: name, PTX: text, Manifest: &m}, nil
}

// problem is a case and the number of multiprocessors that it runs on.
type problem struct {
	*cases.Case
	sms int
}

// fields are a problem's, and its multiprocessors.
type fields struct {
	json string
	sms  int
}

// problems exercise a ring that wraps, within a tile too, a last tile that is not full over slots
// that hold NaN, requests cut between two CTAs, forced splits, a combine of so
// many pieces that its warps share them, and outputs that are rescaled.
func problems(t *testing.T, heads int) []problem {
	t.Helper()
	return decodeProblems(t, heads,
		fields{`"kv_len": [450, 100, 1, 64]`, 4},
		fields{`"kv_len": [300], "splits": 3`, 4},
		fields{`"kv_len": [700, 30]`, 4},
		fields{`"kv_len": [800], "splits": 12`, 4},
		fields{`"kv_len": [450, 100]`, 1},
		fields{`"kv_len": [450], "fill": {"q": "normal*4", "kv": "normal"}`, 1}, // references are outgrown
		fields{`"kv_len": [560, 576, 550]`, 4},                                  // a part reads ahead for the others
	)
}

// decodeProblems are cases of decode.
func decodeProblems(t *testing.T, heads int, all ...fields) (out []problem) {
	t.Helper()
	teams := 0
	if heads == teamed {
		teams = 2
	}
	for i, p := range all {
		c, err := cases.Parse([]byte(fmt.Sprintf(`{"name": "faults-%d", "op": "decode", "model": {"heads": %d, "latent": 512, "rope": 64, "nope": 128, "value": 128}, "teams": %d, %s}`, i, heads, teams, p.json)))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, problem{c, p.sms})
	}
	return out
}

// caught says what finds a fault among the problems, and how: "" when nothing
// does, with the reason if it could not be planted.
func caught(t *testing.T, f *Fault, in []problem, seeds int) (by, how string) {
	t.Helper()
	for seed := range seeds {
		for _, c := range in {
			drv, err := emu.Open(emu.Options{Programs: programs, SMs: c.sms, Seed: uint64(seed)})
			if err != nil {
				t.Fatal(err)
			}
			s := &source{fault: f}
			r := check.New(check.Options{Driver: drv, Source: s, Hazards: true})
			o := r.Case(c.Case)
			_ = r.Close() // its error repeats the outcome's
			if f != nil && (!s.planted || strings.HasPrefix(o.Reason, "load ")) {
				return "", o.Reason // it has no place, or the text is none
			}
			if o.Status == check.OK {
				continue
			}
			var rules []string
			for _, rep := range drv.Reports() {
				for _, h := range rep.Errors() {
					if !slices.Contains(rules, string(h.Rule)) {
						rules = append(rules, string(h.Rule))
					}
				}
			}
			slices.Sort(rules)
			if len(rules) == 0 {
				rules = []string{"oracle"}
			}
			return strings.Join(rules, ", "), o.Reason
		}
	}
	return "", ""
}

// TestCaught plants every fault and prints by which rule it is caught.
func TestCaught(t *testing.T) {
	testCaught(t, Decode, map[int][]problem{narrow: problems(t, narrow), wide: problems(t, wide), teamed: problems(t, teamed)})
}

// testCaught plants faults, of which each must be caught by a problem with its
// heads, all of which are right without one.
func testCaught(t *testing.T, all []Fault, of map[int][]problem) {
	t.Helper()
	for heads, in := range of {
		if by, how := caught(t, nil, in, 2); by != "" {
			t.Fatalf("%d heads without a fault: %s: %s", heads, by, how)
		}
	}
	seeds := 3
	if testing.Short() {
		seeds = 1
	}
	w := table.NewWriter()
	w.AppendHeader(table.Row{"fault", "kernel", "heads", "caught by"})
	for i := range all {
		f := &all[i]
		by, how := caught(t, f, of[f.Heads], seeds)
		if by == "" {
			by = "NOTHING"
			t.Errorf("%s (%s, %d heads): not caught %s", f.Name, f.Kernel, f.Heads, how)
		}
		w.AppendRow(table.Row{f.Name, f.Kernel, f.Heads, by})
	}
	t.Logf("%d faults\n%s", len(all), w.Render())
}

// TestPlant checks that a fault without a place is an error.
func TestPlant(t *testing.T) {
	f := Fault{Name: "x", Kernel: "k", Pattern: `b(\d)`, Nth: -1, Replace: "c$1"}
	if got, err := f.Plant([]byte("b1 b2 b3")); err != nil || string(got) != "b1 b2 c3" {
		t.Errorf("%s %v", got, err)
	}
	f = Fault{Name: "x", Kernel: "k", Pattern: `wait <k full>`, Replace: "wait"}
	if got, err := f.Plant([]byte("// shared: k full at 24, 2 x b64\nwait [%r7+16]; wait [%r7+24];")); err != nil || !strings.HasSuffix(string(got), "\nwait [%r7+16]; wait;") {
		t.Errorf("%s %v", got, err)
	}
	f = Fault{Name: "x", Kernel: "k", Pattern: `b(\d)`, Nth: 3, Replace: "c$1"}
	if _, err := f.Plant([]byte("b1 b2 b3")); err == nil {
		t.Error("planted at a place that is not there")
	}
}

// TestLoadersAndReaders: what reads ahead is much like what loads, and a fault meant for
// one of them does not come to lie in the other.
func TestLoadersAndReaders(t *testing.T) {
	for heads, teams := range map[int]int{narrow: 0, teamed: 2} {
		out, err := templates.Build("absorb-decode", templates.Spec{Heads: heads, Teams: teams})
		if err != nil {
			t.Fatal(err)
		}
		text := string(out.PTX)
		begin, end := strings.Index(text, "// role load"), strings.LastIndex(text, "elect.sync") // the loader's one lane
		if begin < 0 || end < begin || !strings.Contains(text[begin:end], "_steps_end:") {
			t.Fatalf("%d heads: no reader between %d and %d", heads, begin, end)
		}
		for _, f := range Decode {
			if f.Kernel != decode || f.Heads != heads {
				continue
			}
			_, at, err := f.place(out.PTX)
			if err != nil {
				t.Error(err)
				continue
			}
			reader := at[0] >= begin && at[0] < end
			if reader != strings.Contains(f.Name, "read ahead") {
				t.Errorf("%s, %d heads: it lies in what reads ahead: %v", f.Name, heads, reader)
			}
		}
	}
}
