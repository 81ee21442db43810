package runtime

import "testing"

// Decodes that differ in their schedule alone share the other kernels, in one call
// and with what was loaded before, and whoever is closed last unloads them.
func TestDecodesShareKernels(t *testing.T) {
	make := func(blockH int, schedule string) DecodeVariants {
		v := decodeVariants(16, 1, blockH)
		v.Decode.PTX, v.Decode.Manifest.PTXSHA256 = append(v.Decode.PTX, "setmaxnreg.inc.sync.aligned.u32 240;\n"...), ""
		v.Schedule.PTX, v.Schedule.Manifest.PTXSHA256 = append(v.Schedule.PTX, "// "+schedule...), ""
		return v
	}
	d := newFakeCompiler()
	first, err := LoadDecodes(d, []DecodeVariants{make(64, "a"), make(64, "b"), make(32, "a")}, WithCache(nil))
	if err != nil {
		t.Fatal(err)
	}
	// Three kernels, another schedule, and for the other block decode and merge: of
	// one text, which is compiled once, but another manifest.
	if d.wholes != 1 || d.left() != 6 {
		t.Errorf("%d whole programs, %d modules are loaded", d.wholes, d.left())
	}
	var loaded []*Kernel
	for _, x := range first {
		loaded = append(loaded, x.Kernels()...)
	}
	compiled := d.count()
	later, err := LoadDecode(d, make(64, "c"), WithCache(nil), WithLoaded(loaded...))
	if err != nil {
		t.Fatal(err)
	}
	if n := d.count(); n != 1 || d.left() != 7 {
		t.Errorf("%d texts were compiled after %d, %d modules are loaded; another schedule was due", n, compiled, d.left())
	}
	for i, want := range []int{7, 4, 3, 0} { // block 32 has the schedule of the first as well
		x := []*Decode{first[0], first[2], first[1], later}[i]
		if err := x.Close(); err != nil || d.left() != want {
			t.Errorf("%v; closed %d, and %d modules are loaded, want %d", err, i, d.left(), want)
		}
		if err := x.Close(); err != nil || d.left() != want {
			t.Errorf("closed twice: %v; %d modules are loaded, want %d", err, d.left(), want)
		}
	}
}
