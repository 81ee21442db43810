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
	module      = "github.com/mlagen/mlagen"
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

// TestBindCheck: -check accepts what bind wrote, names the file that differs or
// is missing, and writes nothing.
func TestBindCheck(t *testing.T) {
	dir := t.TempDir()
	args := []string{"-heads", "8", "-out-dir", dir}
	mustBind(t, args...)
	check := append([]string{"bind", "-check"}, args...)
	mustBind(t, check[1:]...)
	for _, name := range []string{exampleStem + "_combine.ptx", exampleStem + "_mlagen.go"} {
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(text, '\n'), 0o666); err != nil {
			t.Fatal(err)
		}
		if code, _, stderr := mlagen(check...); code != 1 || !strings.Contains(stderr, name+" is not what the generator writes today") {
			t.Errorf("%s altered: exit %d, %q", name, code, stderr)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if code, _, stderr := mlagen(check...); code != 1 || !strings.Contains(stderr, name) {
			t.Errorf("%s missing: exit %d, %q", name, code, stderr)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("-check wrote %s", name)
		}
		mustBind(t, args...)
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

// singleTest launches the example's step with the three kernels, each bound
// alone, and expects the bits of the operation's own binding.
const singleTest = `package main

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/emu"
)

//GENERATE go tool mlagen emit -kernel decode-schedule -heads 8 -go schedule_h8.go
//GENERATE go tool mlagen emit -kernel absorb-decode -heads 8 -go absorb_decode_h8_mlagen.go
//GENERATE go tool mlagen emit -kernel decode-combine -heads 8 -go combine_h8.go -manifest combine.json

func TestSingle(t *testing.T) {
	drv, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	schedule, err1 := LoadScheduleH8(drv)
	attend, err2 := LoadAbsorbDecodeH8(drv)
	combine, err3 := LoadCombineH8(drv)
	stream, err4 := drv.NewStream()
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	whole := newStep()
	if err := whole.run(drv); err != nil {
		t.Fatal(err)
	}
	s, m := newStep(), memory{Driver: drv}
	b := int64(len(s.kvLen))
	scheduleBytes, err1 := schedule.ScheduleBytes(b, 0)
	workspaceBytes, err2 := attend.WorkspaceBytes(b, 0)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	q := m.put("q", bf16(s.query))
	view := func(first, columns int64) runtime.Tensor {
		return runtime.Tensor{Ptr: q + runtime.Ptr(2*first), DType: runtime.BF16, Shape: []int64{b, 1, heads, columns}, Strides: []int64{heads * width, heads * width, width, 1}}
	}
	a := AbsorbDecodeH8Args{
		Batch: b, QLatent: view(0, latent), QRope: view(latent, width-latent), Scale: scale, LSEFactor: math.Ln2,
		KV:         runtime.Dense(m.put("kv", bf16(s.cache)), runtime.BF16, pages, page, width),
		BlockTable: runtime.Dense(m.put("block_table", s.table[0], s.table[1]), runtime.S32, b, 2),
		KVLen:      runtime.Dense(m.put("kv_len", s.kvLen), runtime.S32, b),
		Schedule:   m.room("schedule", scheduleBytes), Workspace: m.room("workspace", workspaceBytes),
		Out:        runtime.Dense(m.room("out", 2*b*heads*latent).Ptr, runtime.BF16, b, 1, heads, latent),
		LSE:        runtime.Dense(m.room("lse", 4*b*heads).Ptr, runtime.F32, b, 1, heads),
	}
	out, lse := make([]uint16, len(whole.output)), make([]float32, len(whole.lse))
	if err := errors.Join(m.err,
		schedule.Launch(stream, ScheduleH8Args{Batch: b, KVLen: a.KVLen, Schedule: a.Schedule}),
		attend.Launch(stream, a),
		combine.Launch(stream, CombineH8Args{Batch: b, Schedule: a.Schedule, Workspace: a.Workspace, Out: a.Out, LSE: a.LSE, LSEFactor: a.LSEFactor}),
		stream.Synchronize()); err != nil {
		t.Fatal(err)
	}
	m.get(out, a.Out.Ptr)
	m.get(lse, a.LSE.Ptr)
	if m.err != nil || !slices.Equal(out, bf16(whole.output)) || !slices.Equal(lse, whole.lse) {
		t.Errorf("%v: not what the operation's own binding computes", m.err)
	}
	a.Out.DType = runtime.FP16
	if err := attend.Launch(stream, a); err == nil || err.Error() != "launch absorb-decode: out: dtype was \"fp16\", must be bf16" {
		t.Error(err)
	}
	if err := errors.Join(schedule.Close(), attend.Close(), combine.Close()); err != nil {
		t.Error(err)
	}
}
`

// TestBindElsewhere: in a module of its own, without network, that has mlagen as
// a tool, bindings pass go vet, several share a package, and the example's
// program runs with one and agrees with the oracle; go generate binds single
// kernels, which give the same bits. Code of another generation does not compile.
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
	write("single_test.go", strings.ReplaceAll(singleTest, "//GENERATE", "//go:generate")) // which this module's own go generate must not see
	must("get", "-tool", module+"/cmd/mlagen")
	must("generate", ".")
	must("vet", ".")
	must("vet", "-tags", "cuda", ".")
	out := must("test", "-v", ".")
	for _, name := range []string{"TestStep", "TestOther", "TestSingle"} {
		if !strings.Contains(out, "--- PASS: "+name+" ") {
			t.Error(out)
		}
	}
	for name, text := range files(t, dir, "*_h8*.go") {
		if imports := regexp.MustCompile(`"github.com/[^"]*"`).FindAllString(text, -1); len(imports) != 1 || imports[0] != `"`+module+`/runtime"` {
			t.Errorf("%s imports %v", name, imports)
		}
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
