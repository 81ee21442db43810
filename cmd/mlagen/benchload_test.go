package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/cache"
)

// commandVariable makes this program the command, in a process of its own.
const commandVariable = "MLAGEN_TEST_COMMAND"

// TestMain: bench -op load starts this program anew, which is then the command.
func TestMain(m *testing.M) {
	if os.Getenv(loadPhaseVariable) != "" || os.Getenv(commandVariable) != "" {
		main()
	}
	os.Exit(m.Run())
}

// benchLoad runs the command, and returns its rows but those of kernels, how
// many kernels were compiled at first, and what it printed.
func benchLoad(t *testing.T, a *app, args ...string) (got []loadCells, compiled int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "load.csv")
	var stdout, stderr bytes.Buffer
	a.stdout, a.stderr = &stdout, &stderr
	code := a.main(append([]string{"bench", "-op", "load", "-device", "emu", "-heads", "8", "-replays", "1", "-csv", file}, args...))
	if code != 0 || stderr.Len() > 0 {
		t.Fatalf("exit %d, %s", code, &stderr)
	}
	for _, want := range []string{"emulator", "caches off", "later, median", "absorb-decode heads=8 s_q=1 bf16 block=32"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, &stdout)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := csv.NewReader(bytes.NewReader(data))
	r.Comment = '#'
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	for _, row := range rows[1:] {
		cell := func(name string) string { return row[column[name]] }
		number := func(name string) float64 { v, _ := strconv.ParseFloat(cell(name), 64); return v }
		if cell("kernel") != "" {
			compiled++
			continue
		}
		got = append(got, loadCells{cell("load"), cell("kernels"), cell("cached"), number("compile_seconds") > 0, number("seconds") > 0, cell("open_seconds") != ""})
	}
	return got, compiled
}

// loadCells is a row of the figures.
type loadCells struct {
	Phase                   string
	Kernels, Cached         string
	Compiled, Timed, Opened bool
}

// TestBenchLoad: every load has a process of its own and finds cached what its
// name says. The emulator has no cache but for the one that it is given.
func TestBenchLoad(t *testing.T) {
	got, compiled := benchLoad(t, &app{again: again})
	want := []loadCells{
		{"caches off", "12", "0", true, true, true}, {"first, nothing cached", "12", "0", true, true, true},
		{"second, default choices", "3", "0", true, true, true},
		{"second", "12", "12", false, true, true}, {"later, median", "12", "12", false, true, false},
	}
	if diff := cmp.Diff(want, got); diff != "" || compiled < 6 || compiled > 12 {
		t.Errorf("%d kernels were compiled; loads (-want +got):\n%s", compiled, diff)
	}
}

func TestBenchLoadRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"-kv", "64"}, {"-anchors", "x"}, {"-csv", ""}, // nothing starts it anew
		{"-block-h", "16"}, {"-parallel", "-1"}, {"-replays", "0"}, {"-device", "tpu"},
	} {
		code, _, stderr := mlagen(append([]string{"bench", "-op", "load", "-device", "emu"}, args...)...)
		if code != exitUsage {
			t.Errorf("%v: exit %d, %s", args, code, stderr)
		}
	}
}

// TestBenchLoadCaches: a process gets the settings of its phase, and of a file of
// choices the first load does not count.
func TestBenchLoadCaches(t *testing.T) {
	t.Setenv("CUDA_CACHE_DISABLE", "1")
	file := filepath.Join(t.TempDir(), "h8.json")
	if code, _, stderr := mlagen("tune", "-device", "emu", "-heads", "8", "-batch", "1", "-kv", "1024", "-budget", "0", "-o", file); code != 0 {
		t.Fatal(stderr)
	}
	type start struct{ Phase, Disable, Driver, Ours string }
	var got []start
	dirs := map[string]bool{}
	a := &app{again: func(ctx context.Context, stdout io.Writer, args []string, settings ...string) error {
		s := map[string]string{}
		for _, setting := range settings {
			name, value, _ := strings.Cut(setting, "=")
			if filepath.IsAbs(value) {
				dirs[filepath.Dir(value)] = true
				value = filepath.Base(value)
			}
			s[name] = value
		}
		got = append(got, start{s[loadPhaseVariable], s["CUDA_CACHE_DISABLE"], s["CUDA_CACHE_PATH"], s[cache.Variable]})
		return again(ctx, stdout, args, settings...)
	}}
	rows, _ := benchLoad(t, a, "-choices", file)
	full := func(phase string) start { return start{phase, "0", "driver", "ours"} }
	want := []start{
		{"caches off", "1", "", "off"}, full("first, nothing cached"),
		full("second, tuned choices"), full("second, tuned choices"), full("second"),
	}
	if diff := cmp.Diff(want, got); diff != "" || len(rows) != 5 || rows[2].Phase != "second, tuned choices" || len(dirs) != 1 {
		t.Errorf("rows %v, caches in %v; processes (-want +got):\n%s", rows, dirs, diff)
	}
	for dir := range dirs {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
	// A file for another model is refused, and so is one for another operation.
	for _, args := range [][]string{{"-op", "load", "-heads", "16"}, {"-op", "load", "-heads", "8", "-sq", "2"}, {"-op", "decode"}} {
		if code, _, stderr := mlagen(append([]string{"bench", "-choices", file}, args...)...); code != exitUsage || !strings.Contains(stderr, "-choices") {
			t.Errorf("%v: exit %d, %s", args, code, stderr)
		}
	}
}

func TestCompileReport(t *testing.T) {
	w := runtime.Warning{Kernel: "k", Kind: runtime.Serialised, Text: "(C7510)"}
	kernels := []*runtime.Kernel{
		{Variant: runtime.Variant{Name: "k"}, Warnings: []runtime.Warning{w}, CompileSeconds: 1.5},
		{Variant: runtime.Variant{Name: "k"}, Warnings: []runtime.Warning{w}, CompileSeconds: 2.5},
		{Variant: runtime.Variant{Name: "k", PTX: []byte("other")}, Cached: true},
		{Variant: runtime.Variant{Name: "k", PTX: []byte("other")}},
	}
	got := compileReport(kernels)
	if strings.Count(got, "warning: k: serialised: (C7510)\n") != 1 || strings.Count(got, " k       0 ") != 2 || strings.Count(got, "1.500") != 2 || !strings.Contains(got, "cached") {
		t.Errorf("got\n%s", got)
	}
	if got := compileReport(nil); got != "" {
		t.Errorf("of no kernel: %q", got)
	}
}

func TestCacheCommand(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(cache.Variable, dir)
	s := cache.New(dir, 0)
	if err := s.Put(cache.Key{Kind: "image"}, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"cache"}, s.Dir() + ": 1 files, 161 bytes\n"},
		{[]string{"cache", "-clear"}, s.Dir() + ": 0 files, 0 bytes\n"},
	} {
		if code, stdout, stderr := mlagen(c.args...); code != 0 || stdout != c.want {
			t.Errorf("%v: exit %d, %q, %s; want %q", c.args, code, stdout, stderr, c.want)
		}
	}
	if _, err := s.Get(cache.Key{Kind: "image"}); !errors.Is(err, cache.ErrMiss) {
		t.Errorf("after it was cleared: %v", err)
	}
	t.Setenv(cache.Variable, cache.Off)
	if code, stdout, _ := mlagen("cache"); code != 0 || stdout != "MLAGEN_CACHE=off: kernels are not kept\n" {
		t.Errorf("off: exit %d, %q", code, stdout)
	}
	if code, _, _ := mlagen("cache", "x"); code != exitUsage {
		t.Errorf("with an argument: exit %d", code)
	}
}
