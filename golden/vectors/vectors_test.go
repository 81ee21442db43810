package vectors

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/ptxas"
)

// TestVectors compares ptx/hopper and the units of ptx/emu with what hardware
// made of every experiment.
func TestVectors(t *testing.T) {
	set, err := Read("testdata")
	if err != nil {
		t.Fatalf("%v (record with -tags cuda and -update where a GPU is)", err)
	}
	for _, err := range set.Check() {
		t.Error(err)
	}
}

// TestText: the kernels are in the subset that the emulator runs too.
func TestText(t *testing.T) {
	for _, f := range families() {
		m, err := ptx.Parse(f.name+".ptx", []byte(f.ptx))
		if err != nil {
			t.Errorf("%s: %v", f.name, err)
			continue
		}
		entries := map[string]*ptx.Kernel{}
		for _, k := range m.Kernels {
			entries[k.Name] = k
		}
		for _, e := range f.experiments {
			if k := entries[e.entry]; k == nil {
				t.Errorf("%s/%s: no kernel %s", f.name, e.name, e.entry)
			} else if len(k.Params) != len(e.params) {
				t.Errorf("%s/%s: %d parameters for the %d of %s", f.name, e.name, len(e.params), len(k.Params), e.entry)
			}
		}
	}
}

// TestAssembles: ptxas takes the kernels.
func TestAssembles(t *testing.T) {
	assembler := ptxas.Find(t)
	for _, f := range families() {
		log, err := ptxas.Assemble(assembler, []byte(f.ptx))
		if err != nil || strings.Contains(log, "warning") {
			t.Errorf("%s: %v\n%.4000s", f.name, err, log)
		}
	}
}

func TestNamesAreUnique(t *testing.T) {
	for _, f := range families() {
		seen := map[string]bool{}
		for _, e := range f.experiments {
			if seen[e.name] {
				t.Errorf("%s/%s twice", f.name, e.name)
			}
			seen[e.name] = true
			if len(e.outputs()) != 1 {
				t.Errorf("%s/%s: %d outputs, must be 1", f.name, e.name, len(e.outputs()))
			}
		}
	}
}

// TestInputsAreStable: two calls make the same experiments, or records would
// be refused.
func TestInputsAreStable(t *testing.T) {
	a, b := families(), families()
	for i := range a {
		for j := range a[i].experiments {
			if a[i].experiments[j].inputs() != b[i].experiments[j].inputs() || a[i].ptx != b[i].ptx {
				t.Errorf("%s/%s differs between calls", a[i].name, a[i].experiments[j].name)
			}
		}
	}
}

func TestFiles(t *testing.T) {
	set := Set{}
	for _, f := range families() {
		set[f.name] = map[string]Result{}
	}
	set["tma"]["a"] = Result{[]byte{1, 2, 3, 4}, 2, [8]byte{7}}
	set["wgmma"]["b"] = Result{[]byte{1, 2, 3, 4, 5, 6, 7, 8}, 4, [8]byte{8}}
	set["wgmma"]["c"] = Result{[]byte{1, 2, 3}, 1, [8]byte{9}}
	// An element lies across the inflater's window of 32 KiB: the header has 82 bytes.
	long := make([]byte, 4*9000)
	for i := range long {
		long[i] = byte(i % 2039)
	}
	set["wgmma"]["d"] = Result{long, 4, [8]byte{10}}
	dir := t.TempDir()
	if err := set.Write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(set, got); d != "" {
		t.Error(d)
	}
	if _, err := Read(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty folder: %v", err)
	}
}

// TestCheckRefuses: a wrong, missing, surplus or outdated result is an error.
func TestCheckRefuses(t *testing.T) {
	f := matrixFamily()
	e := f.experiments[0]
	right := func() Set {
		return Set{"matrix": {e.name: Result{registerBytesOf(t, e), 4, e.inputs()}}}
	}
	f.experiments = f.experiments[:1]
	if errs := right().check(f); errs != nil {
		t.Errorf("the right result: %v", errs)
	}
	for name, edit := range map[string]func(Set){
		"computed": func(s Set) { s["matrix"][e.name].Bytes[5] ^= 1 },
		"bytes": func(s Set) {
			r := s["matrix"][e.name]
			r.Bytes = r.Bytes[4:]
			s["matrix"][e.name] = r
		},
		"other inputs":       func(s Set) { s["matrix"][e.name] = Result{nil, 4, [8]byte{}} },
		"not recorded":       func(s Set) { delete(s["matrix"], e.name) },
		"no such experiment": func(s Set) { s["matrix"]["old"] = Result{} },
	} {
		s := right()
		edit(s)
		errs := s.check(f)
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), name) {
			t.Errorf("%s: %v", name, errs)
		}
	}
}

// registerBytesOf is the result of ldmatrix.x1, by hand: lane l gets words of
// row l/4, 32 bytes apart, from a ramp of 16-bit values that starts with 1.
func registerBytesOf(t *testing.T, e experiment) []byte {
	t.Helper()
	if e.name != "ldmatrix_x1" {
		t.Fatalf("the first experiment is %s", e.name)
	}
	b := e.outputs()[0].data
	b = append([]byte(nil), b...)
	for lane := range 32 {
		first := lane/4*16 + lane%4*2 + 1
		b[4*lane], b[4*lane+1] = byte(first), byte(first>>8)
		b[4*lane+2], b[4*lane+3] = byte(first+1), byte((first+1)>>8)
	}
	return b
}

// refused are the experiments that an H200 takes for illegal instructions, and
// so must the units and the emulator.
var refused = []string{
	"tma/load_odd", "tma/load_odd_below", "tma/store_below_sw0", "tma/store_below_sw128", "tma/store_below_sw32", "tma/store_below_sw64",
}

// TestUnitsCompute: the units accept every other experiment and disagree with
// nonsense of the right size.
func TestUnitsCompute(t *testing.T) {
	for _, f := range families() {
		for _, e := range f.experiments {
			size := len(e.outputs()[0].data)
			nonsense := make([]byte, size)
			for i := range nonsense {
				nonsense[i] = byte(i*151 + 77)
			}
			if f.name == "tma" && strings.HasPrefix(e.name, "load") {
				copy(nonsense[size-4:], []byte{1, 0, 0, 0}) // the barrier saw the bytes
			}
			want := "recorded"
			if slices.Contains(refused, f.name+"/"+e.name) {
				want = "the unit refuses it"
			}
			err := e.check(nonsense)
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "refuses") != strings.Contains(want, "refuses") {
				t.Errorf("%s/%s: %v", f.name, e.name, err)
			}
		}
	}
}

// TestProductsByHand: experiments on where operands lie have a result that
// needs no unit: the operand itself.
func TestProductsByHand(t *testing.T) {
	n := 0
	for _, p := range products() {
		side, _, _ := strings.Cut(p.name, "_")
		if p.A != p.B || p.K != 16 || (side != "a" && side != "b") {
			continue
		}
		n++
		d, _, err := p.result()
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
			continue
		}
		for i, got := range d {
			thread, r := i%128, i/128
			row, column := thread/32*16+thread%32/4+8*(r/2%2), r/4*8+thread%4*2+r%2
			want := distinct(row, column)
			if side == "b" {
				want = distinct(column, row%16)
			}
			if got != want {
				t.Errorf("%s: D(%d, %d) = %v, want %v", p.name, row, column, got, want)
				break
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d experiments", n)
	}
}
