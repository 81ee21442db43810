package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/templates"
)

const (
	exampleDir  = "../../examples/decode"
	exampleStem = "mla_decode_h8"
)

// files reads the folder's files whose names match a pattern.
func files(t *testing.T, dir, pattern string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s in %s: %d files, %v", pattern, dir, len(paths), err)
	}
	texts := map[string]string{}
	for _, p := range paths {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(p)] = string(text)
	}
	return texts
}

// mustBind runs bind and expects no word from it.
func mustBind(t *testing.T, args ...string) {
	t.Helper()
	if code, stdout, stderr := mlagen(append([]string{"bind"}, args...)...); code != 0 || stdout != "" || stderr != "" {
		t.Fatalf("bind %q: exit %d, stdout %q, stderr %q", args, code, stdout, stderr)
	}
}

// TestBindMakesTheExample: what is committed is what bind writes today, in the
// package that go generate names, and a second time it touches nothing.
func TestBindMakesTheExample(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("GOPACKAGE", "main")
	mustBind(t, "-op", "decode", "-heads", "8", "-out-dir", dir)
	if d := cmp.Diff(files(t, exampleDir, exampleStem+"*"), files(t, dir, "*")); d != "" {
		t.Errorf("if the change is meant: go generate ./examples/...\n%.4000s", d)
	}
	code := filepath.Join(dir, exampleStem+"_mlagen.go")
	before, err := os.Stat(code)
	if err != nil {
		t.Fatal(err)
	}
	mustBind(t, "-heads", "8", "-out-dir", dir)
	if after, err := os.Stat(code); err != nil || !os.SameFile(before, after) || before.ModTime() != after.ModTime() {
		t.Errorf("a file with the same bytes was touched: %v", err)
	}
	if hidden, _ := filepath.Glob(filepath.Join(dir, ".*")); len(hidden) > 0 {
		t.Errorf("left behind: %v", hidden)
	}
}

func TestBindPackage(t *testing.T) {
	for _, c := range []struct{ env, flag, want string }{{"", "", "kernels"}, {"served", "", "served"}, {"served", "other", "other"}} {
		dir := t.TempDir()
		t.Setenv("GOPACKAGE", c.env)
		mustBind(t, "-out-dir", dir, "-name", "small", "-pkg", c.flag)
		code := files(t, dir, "*.go")["small_mlagen.go"]
		if !strings.Contains(code, "\npackage "+c.want+"\n") || !strings.Contains(code, "\nfunc LoadSmall(drv ") {
			t.Errorf("%+v: %s", c, code)
		}
	}
}

func TestBindRefuses(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("GOPACKAGE", "")
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"-op extend", `-op "extend" cannot be bound; decode and prefill can`},
		{"-op prefill -block-n 100", "the nearest that can is 96"},
		{"-heads 0", "heads 0 cannot be built: it must be at least 1"},
		{"-block-h 48", "the nearest that can is 40"},
		{"-dtype fp8", "dtype fp8"},
		{"-name mla_linux", `-name "mla_linux" cannot be used: files that end in _linux`},
		{"-name mla_test", "end it in something else"},
		{"-name ../mla", "lower-case"},
		{"-pkg func", `-pkg "func" cannot be used`},
		{"-pkg a_test", "a package of tests"},
		{"x", "no arguments"},
		{"-out-dir " + filepath.Join(dir, "missing"), "-out-dir"},
		{"-out-dir " + filepath.Join(dir, "file"), "make it first, or name another"},
	} {
		args := append([]string{"bind", "-out-dir", dir}, strings.Fields(c.args)...)
		if code, stdout, stderr := mlagen(args...); code != 2 || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit %d, stdout %q, stderr %q; want exit 2 and %q", c.args, code, stdout, stderr, c.want)
		}
	}
	// A test package that go generate names is refused like one of -pkg.
	t.Setenv("GOPACKAGE", "a_test")
	if code, _, stderr := mlagen("bind", "-out-dir", dir); code != 2 || !strings.Contains(stderr, "a_test") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	// A place that cannot be written keeps the others from being written.
	if err := os.Mkdir(filepath.Join(dir, "small_mlagen.go"), 0o777); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := mlagen("bind", "-out-dir", dir, "-pkg", "p", "-name", "small"); code != 1 || !strings.Contains(stderr, "small_mlagen.go: is a directory") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestBindHelp(t *testing.T) {
	if code, stdout, stderr := mlagen("bind", "-h"); code != 0 || stderr != "" || !strings.HasPrefix(stdout, "usage: mlagen bind") || !strings.Contains(stdout, "-out-dir folder") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func TestPrefillStem(t *testing.T) {
	for want, s := range map[string]templates.Spec{
		"mla_prefill_h128":          {},
		"mla_prefill_fp16_h16":      {Heads: 16, DType: "fp16"},
		"mla_prefill_h16_n96":       {Heads: 16, BlockN: 96},
		"mla_prefill_h16_m192":      {Heads: 16, BlockM: 192, BlockN: 96},
		"mla_prefill_h16_m192_n80":  {Heads: 16, BlockM: 192, BlockN: 80},
		"mla_prefill_h1_k64_v64":    {Heads: 1, Nope: 64, Value: 64},
		"mla_prefill_h128_n64_s3":   {BlockN: 64, Stages: 3},
		"mla_prefill_fp16_h128_n80": {DType: "fp16", BlockN: 80, BlockM: 128},
	} {
		if got := prefillStem(s); got != want {
			t.Errorf("%+v: %s, want %s", s, got, want)
		}
	}
}

func TestDecodeStem(t *testing.T) {
	for want, s := range map[string]templates.Spec{
		"mla_decode_h16":           {},
		"mla_decode_h128_sq2":      {Heads: 128, SQ: 2},
		"mla_decode_fp16_h20":      {Heads: 20, DType: "fp16", BlockH: 24},
		"mla_decode_h20_b8":        {Heads: 20, BlockH: 8},
		"mla_decode_h20_b32":       {Heads: 20, BlockH: 32},
		"mla_decode_h16_l128_r128": {Latent: 128, Rope: 128, DType: "bf16"},
		"mla_decode_h16_l128_s4":   {Latent: 128, Stages: 4},
	} {
		if got := decodeStem(s); got != want {
			t.Errorf("%+v: %s, want %s", s, got, want)
		}
	}
}

// TestBindElsewhere: in a module of its own, without network, bindings pass go
// vet, two of them share a package, and the example's program runs with one and
// agrees with the oracle. Code of another generation does not compile.
func TestBindElsewhere(t *testing.T) {
	if testing.Short() {
		t.Skip("short: bindings are not compiled and run in a module of their own")
	}
	dir := t.TempDir()
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	// All that this module requires, at the same versions, and this module.
	mod := files(t, repo, "go.mod")["go.mod"]
	mod = regexp.MustCompile(`(?m)^module .*$`).ReplaceAllLiteralString(mod, "module example.com/serve")
	mod += fmt.Sprintf("\nrequire github.com/mlagen/mlagen v0.0.0\n\nreplace github.com/mlagen/mlagen => %q\n", repo)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", mod)
	write("go.sum", files(t, repo, "go.sum")["go.sum"])
	for name, text := range files(t, exampleDir, "main*.go") {
		write(name, text)
	}
	command := func(args ...string) (string, error) {
		t.Helper()
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOPROXY=off", "GOSUMDB=off", "GOFLAGS=-mod=mod", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	must := func(args ...string) string {
		t.Helper()
		out, err := command(args...)
		if err != nil {
			t.Fatalf("go %q: %v\n%s", args, err, out)
		}
		return out
	}
	mustBind(t, "-heads", "8", "-out-dir", dir, "-pkg", "main")
	mustBind(t, "-heads", "20", "-sq", "2", "-dtype", "fp16", "-out-dir", dir, "-pkg", "main")
	mustBind(t, "-op", "prefill", "-heads", "6", "-dtype", "fp16", "-out-dir", dir, "-pkg", "main")
	write("other_test.go", `package main

import (
	"testing"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
)

func TestOther(t *testing.T) {
	drv, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := LoadMLADecodeFP16H20SQ2(drv)
	if err != nil {
		t.Fatal(err)
	}
	if m := d.Model(); m.Heads != 20 || m.SQ != 2 || m.DType != runtime.FP16 || m.Out != runtime.FP16 {
		t.Errorf("%+v", m)
	}
	p, err := LoadMLAPrefillFP16H6(drv)
	if err != nil {
		t.Fatal(err)
	}
	if m := p.Model(); m.Heads != 6 || m.Key() != 192 || m.Value != 128 || m.DType != runtime.FP16 {
		t.Errorf("%+v", m)
	}
}
`)
	must("vet", ".")
	if out := must("test", "-v", "."); !strings.Contains(out, "--- PASS: TestStep") || !strings.Contains(out, "--- PASS: TestOther") {
		t.Error(out)
	}
	if out := must("run", "."); !strings.Contains(out, "request 1, 37 tokens, head 0: out [") {
		t.Error(out)
	}

	code := exampleStem + "_mlagen.go"
	write(code, strings.Replace(files(t, dir, code)[code], "runtime.ABI2", "runtime.ABI999", 1))
	if out, err := command("build", "."); err == nil || !strings.Contains(out, "ABI999") {
		t.Errorf("another generation: %v %s", err, out)
	}
}
