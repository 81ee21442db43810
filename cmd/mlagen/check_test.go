package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckOnTheEmulator(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return file
	}
	right := write("right.json", `{"name": "right", "op": "decode", "kv_len": [130, 0]}`)
	large := write("large.json", `{"name": "large", "op": "decode", "kv_len": [1500000]}`)
	// Rounding alone is off by more than nothing.
	wrong := write("wrong.json", `{"name": "wrong", "op": "decode", "kv_len": [64], "tolerance": {"out": 0, "lse": 0}}`)

	code, stdout, stderr := mlagen("check", "-seeds", "2", "-seed", "3", right, large)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if code != 0 || stderr != "" || len(lines) != 3 || !strings.HasPrefix(lines[0], "ok right out ") || !strings.HasSuffix(lines[0], "2 schedules identical") ||
		!strings.HasPrefix(lines[1], "skip large: ") || !strings.HasSuffix(lines[1], " GFLOP are too many for emulator") ||
		lines[2] != "1 passed, 0 failed, 1 skipped" {
		t.Errorf("exit %d, stderr %q, stdout\n%s", code, stderr, stdout)
	}
	code, stdout, _ = mlagen("check", wrong, right)
	if code != 1 || !strings.HasPrefix(stdout, "FAIL wrong: request 0") || !strings.HasSuffix(stdout, "\n1 passed, 1 failed\n") {
		t.Errorf("exit %d, stdout\n%s", code, stdout)
	}
}

func TestCheckRandom(t *testing.T) {
	dir := t.TempDir()
	code, stdout, stderr := mlagen("check", "-random", "10", "-seed", "4", "-op", "append,merge,decode", "-cost", "0.15", "-failures", dir)
	if code != 0 || !strings.Contains(stdout, "\n10 cases in ") || !strings.Contains(stdout, " 10 passed (") {
		t.Errorf("exit %d, stderr %q, stdout\n%s", code, stderr, stdout)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("it wrote %v", left)
	}
	for _, wrong := range [][]string{
		{"-random", "-1"}, {"-random", "3", "x.json"}, {"-for", "-1s"}, {"-random", "3", "-seeds", "2"}, {"-random", "3", "-op", "decode,attend"},
		{"-sms", "-2", "x.json"}, {"-random", "3", "-sms", "2"}, {"-random", "3", "-dump", dir},
	} {
		if code, stdout, stderr := mlagen(append([]string{"check"}, wrong...)...); code != 2 || stdout != "" || stderr == "" {
			t.Errorf("%v: exit %d, stdout %q, stderr %q", wrong, code, stdout, stderr)
		}
	}
}
