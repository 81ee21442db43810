package main

import (
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/templates"
)

// specNames are the flags of a spec.
func specNames() (names []string) {
	fs := newFlags("spec")
	specFlags(fs)
	fs.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	return names
}

// TestFlagsWithoutUse: a flag of a spec that a kernel has no use for is refused,
// whatever the command, and nothing is written.
func TestFlagsWithoutUse(t *testing.T) {
	dir := t.TempDir()
	refused := func(name string, args ...string) {
		t.Helper()
		code, stdout, stderr := mlagen(args...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, "-"+name+" ") || !strings.Contains(stderr, "leave it out") {
			t.Errorf("%q: exit %d, stdout %.40q, stderr %q", args, code, stdout, stderr)
		}
	}
	tried := 0
	unused := func(kernels []string, args ...string) {
		t.Helper()
		var used []string
		for _, k := range kernels {
			names, err := templates.Fields(k)
			if err != nil {
				t.Fatal(err)
			}
			used = append(used, names...)
		}
		for _, name := range specNames() {
			if !slices.Contains(used, name) {
				tried++
				refused(name, append(args, "-"+name, "64")...)
			}
		}
	}
	for _, k := range templates.Kernels() {
		unused([]string{k.Name}, "emit", "-kernel", k.Name, "-o", filepath.Join(dir, "k.ptx"))
		unused([]string{k.Name}, "explain", "-kernel", k.Name)
	}
	for name, op := range bindings {
		unused(op.kernels, "bind", "-op", name, "-out-dir", dir)
	}
	unused(bindings["decode"].kernels, "run", "-kv", "1")
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 || tried < 100 {
		t.Errorf("%d tried, left behind: %v", tried, left)
	}
}

// TestFlagsOfAnotherWay: a flag that has no say in the way in which a command was
// called is refused, not ignored.
func TestFlagsOfAnotherWay(t *testing.T) {
	for _, line := range []string{
		"tune -device emu -load x -o y", "tune -device emu -load x -budget 1s", "tune -device emu -load x -heads 8", "tune -device emu -load x -json",
		"tune -device emu -budget 0 -o - -csv -",
		"check -extremes -seeds 4", "check -extremes -sms 4", "check -extremes -dump x", "check -extremes -failures x", "check -extremes -seed 3",
		"check -failures x c.json", "check -op merge c.json", "check -workers 2 c.json", "check -cost 1 c.json", "check -sample 2 c.json",
		"explain -heads 3 ../../golden/ptx/absorb-decode-h16.ptx", "explain -dtype fp16 ../../golden/ptx/absorb-decode-h16.ptx",
		"explain ../../golden/ptx/absorb-decode-h16.json", "explain -kernel absorb-decode -block-h 48",
		"tune -device emu -budget 0 -heads 99999",
	} {
		code, stdout, stderr := mlagen(strings.Fields(line)...)
		if code != 2 || stdout != "" || stderr == "" {
			t.Errorf("%s: exit %d, stdout %.60q, stderr %q", line, code, stdout, stderr)
		}
	}
}

// TestStemsTellBindingsApart: specs that give other files have other stems, so that
// a binding never takes the place of another one in a folder.
func TestStemsTellBindingsApart(t *testing.T) {
	for name, op := range bindings {
		specs := map[string]string{} // by stem
		kinds := map[string]int{}
		try := func(flags ...string) {
			fs := newFlags("spec")
			fs.SetOutput(io.Discard)
			spec := specFlags(fs)
			if err := fs.Parse(flags); err != nil {
				return
			}
			s, err := spec(op.kernels...)
			if err != nil {
				return
			}
			resolved := ""
			for _, k := range op.kernels {
				full, err := templates.Defaults(k, s)
				if err != nil {
					t.Fatal(err)
				}
				if templates.Validate(k, full) != nil {
					return
				}
				resolved += fmt.Sprintf("%+v; ", full)
			}
			stem := op.stem(s)
			if other, taken := specs[stem]; taken && other != resolved {
				t.Errorf("%s: %v has the stem %s of %s", name, flags, stem, other)
			} else if !taken {
				specs[stem] = resolved
				for i := 0; i < len(flags); i += 2 {
					kinds[flags[i]]++
				}
			}
		}
		try()
		for _, f := range specNames() {
			for _, v := range []string{"1", "2", "3", "8", "16", "24", "40", "64", "80", "96", "128", "192", "256", "512", "fp16", "bf16", "normal", "half"} {
				try("-"+f, v)
				try("-"+f, v, "-heads", "128")
				try("-"+f, v, "-heads", "20", "-dtype", "fp16")
			}
		}
		if len(kinds) < 6 {
			t.Errorf("%s: other stems by %v only", name, kinds)
		}
	}
}
