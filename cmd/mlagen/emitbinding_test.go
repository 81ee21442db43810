package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEmitGo: the Go file, the PTX and the manifest are written together; -check
// agrees with them until one differs.
func TestEmitGo(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("GOPACKAGE", "served")
	code := filepath.Join(dir, "combine_h8_mlagen.go")
	args := []string{"emit", "-kernel", "decode-combine", "-heads", "8", "-go", code}
	emit := func(more ...string) (int, string) {
		t.Helper()
		exit, stdout, stderr := mlagen(append(args, more...)...)
		if stdout != "" {
			t.Errorf("on standard output: %.100s", stdout)
		}
		return exit, stderr
	}
	if exit, stderr := emit("-check"); exit != 1 || !strings.Contains(stderr, "combine_h8.ptx") {
		t.Errorf("nothing there: exit %d, %s", exit, stderr)
	}
	if exit, stderr := emit(); exit != 0 || stderr != "" {
		t.Fatalf("exit %d, %s", exit, stderr)
	}
	all := files(t, dir, "*")
	if text := all["combine_h8_mlagen.go"]; len(all) != 3 || !strings.Contains(text, "\npackage served\n") || !strings.Contains(text, "//go:embed combine_h8.json") {
		t.Errorf("%d files, %s", len(all), text)
	}
	if exit, stderr := emit("-check"); exit != 0 || stderr != "" {
		t.Errorf("exit %d, %s", exit, stderr)
	}
	for name, text := range all {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text+" "), 0o666); err != nil {
			t.Fatal(err)
		}
		if exit, stderr := emit("-check"); exit != 1 || !strings.Contains(stderr, name+" is not what the generator writes today") {
			t.Errorf("%s: exit %d, %s", name, exit, stderr)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEmitC: a header is all that is written, and holds the PTX.
func TestEmitC(t *testing.T) {
	dir := t.TempDir()
	args := []string{"emit", "-kernel", "decode-combine", "-c", filepath.Join(dir, "combine.h")}
	if code, stdout, stderr := mlagen(args...); code != 0 || stdout != "" || stderr != "" {
		t.Fatalf("exit %d, %.100s, %s", code, stdout, stderr)
	}
	if all := files(t, dir, "*"); len(all) != 1 || !strings.Contains(all["combine.h"], `".visible .entry decode_combine(\n"`) {
		t.Errorf("%d files", len(all))
	}
	if code, _, stderr := mlagen(append(args, "-check")...); code != 0 {
		t.Error(stderr)
	}
	if code, _, stderr := mlagen(append(args, "-check", "-heads", "8")...); code != 1 || !strings.Contains(stderr, "combine.h is not what") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

func TestEmitGoRefuses(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("GOPACKAGE", "")
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-go", "-"}, `-go "-" cannot be used: name a file that ends in .go`},
		{[]string{"-go", in("k.ptx")}, "name a file that ends in .go"},
		{[]string{"-go", in("k.go"), "-o", "-"}, `-o "-" cannot be used beside -go`},
		{[]string{"-go", in("k.go"), "-manifest", filepath.Join(dir, "sub", "k.json")}, "Go embeds files of its own folder"},
		{[]string{"-go", in("k_linux.go")}, "files that end in _linux"},
		{[]string{"-go", in("Kernel.go")}, "lower-case"},
		{[]string{"-go", in("k.go"), "-pkg", "func"}, `-pkg "func" cannot be used`},
		{[]string{"-c", "-"}, `-c "-" cannot be used: name a file that ends in .h`},
		{[]string{"-c", in("Kernel.h")}, `-c "Kernel.h" cannot be used`},
		{[]string{"-pkg", "kernels"}, "name its file with -go"},
		{[]string{"-o", in("same"), "-manifest", in("same")}, "-o and -manifest are both"},
		{[]string{"-go", in("k.go"), "-heads", "0"}, "heads 0 cannot be built"},
	} {
		code, stdout, stderr := mlagen(append([]string{"emit", "-kernel", "decode-combine"}, c.args...)...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: exit %d, stdout %.100q, stderr %q; want exit 2 and %q", c.args, code, stdout, stderr, c.want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
