package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/cache"
)

// TestBenchLoad: every kernel of a model is compiled in the first two loads,
// like texts once, and comes from the cache in the others.
func TestBenchLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "load.csv")
	code, stdout, stderr := mlagen("bench", "-op", "load", "-device", "emu", "-heads", "8", "-replays", "1", "-csv", file)
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	for _, want := range []string{"emulator", "first, cache off", "later, median", "absorb-decode heads=8 s_q=1 bf16 block=32"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the report lacks %q:\n%s", want, stdout)
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
	type load struct {
		Phase           string
		Kernels, Cached string
		Compiles, Timed bool
	}
	var got []load
	compiled := 0
	for _, row := range rows[1:] {
		cell := func(name string) string { return row[column[name]] }
		number := func(name string) float64 { v, _ := strconv.ParseFloat(cell(name), 64); return v }
		if cell("kernel") != "" {
			compiled++
			continue
		}
		got = append(got, load{cell("load"), cell("kernels"), cell("cached"), number("compile_seconds") > 0, number("seconds") > 0})
	}
	want := []load{
		{"first, cache off", "12", "0", true, true}, {"first, cache empty", "12", "0", true, true},
		{"second", "12", "12", false, true}, {"later, median", "12", "12", false, true},
	}
	if diff := cmp.Diff(want, got); diff != "" || compiled < 6 || compiled > 12 {
		t.Errorf("%d kernels were compiled; loads (-want +got):\n%s", compiled, diff)
	}
}

func TestBenchLoadRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"-kv", "64"}, {"-anchors", "x"}, {"-block-h", "16"}, {"-parallel", "-1"}, {"-replays", "0"}, {"-device", "tpu"},
	} {
		code, _, stderr := mlagen(append([]string{"bench", "-op", "load", "-device", "emu"}, args...)...)
		if code != exitUsage {
			t.Errorf("%v: exit %d, %s", args, code, stderr)
		}
	}
}

// TestBenchLoadStartsAnew: the driver's own cache is turned off before the
// driver is there.
func TestBenchLoadStartsAnew(t *testing.T) {
	t.Setenv("CUDA_CACHE_DISABLE", "")
	var got []string
	a := &app{stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}, again: func(_ context.Context, settings ...string) error {
		got = settings
		return errQuiet
	}}
	if code := a.main([]string{"bench", "-op", "load", "-device", "cuda"}); code != exitFailure {
		t.Errorf("exit %d", code)
	}
	if diff := cmp.Diff([]string{"CUDA_CACHE_DISABLE=1"}, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func TestCompileReport(t *testing.T) {
	w := runtime.Warning{Kernel: "k", Kind: runtime.Serialised, Text: "(C7510)"}
	kernels := []*runtime.Kernel{
		{Variant: runtime.Variant{Name: "k"}, Warnings: []runtime.Warning{w}, CompileSeconds: 1.5},
		{Variant: runtime.Variant{Name: "k"}, Warnings: []runtime.Warning{w}, Cached: true},
	}
	got := compileReport(kernels)
	if strings.Count(got, "warning: k: serialised: (C7510)\n") != 1 || !strings.Contains(got, "1.500") || !strings.Contains(got, "cached") {
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
