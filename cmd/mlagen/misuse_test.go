package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnwritableFiles: an output that cannot be written is named as the user
// named it, and nothing is left behind, of the other one either.
func TestUnwritableFiles(t *testing.T) {
	dir := t.TempDir()
	missing, good := filepath.Join(dir, "missing", "k.ptx"), filepath.Join(dir, "k")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"missing folder":              {[]string{"-o", missing}, "write " + missing + ": no such file or directory"},
		"missing folder for manifest": {[]string{"-o", good, "-manifest", missing}, "write " + missing + ": no such file or directory"},
		"folder":                      {[]string{"-o", dir}, "write " + dir + ": is a directory"},
		"folder for manifest":         {[]string{"-o", good, "-manifest", dir}, "write " + dir + ": is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := mlagen(append([]string{"emit", "-kernel", "stream"}, c.args...)...)
			if code != 1 || stdout != "" || !strings.Contains(stderr, c.want) {
				t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v %v", left, err)
			}
			if beside, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), ".*")); len(beside) > 0 {
				t.Errorf("left behind: %v", beside)
			}
		})
	}
}

// TestNumbersBeyondReason: numbers at which products overflow or memory ends
// are wrong usage, whatever the command.
func TestNumbersBeyondReason(t *testing.T) {
	const huge = "4611686018427387904"
	for _, args := range [][]string{
		{"emit", "-kernel", "absorb-decode", "-heads", huge, "-sq", "4"},
		{"emit", "-kernel", "absorb-decode", "-heads", huge, "-sq", "4", "-block-h", "8"},
		{"emit", "-kernel", "decode-schedule", "-heads", huge, "-sq", "4", "-block-h", "8"},
		{"emit", "-kernel", "decode-combine", "-heads", "3037000500", "-sq", "3037000500"},
		{"run", "-heads", huge, "-sq", "4"},
		{"run", "-batch", "1000000000"},
		{"run", "-batch", "1000000", "-kv", "0"},
		{"run", "-kv", "99999999999"},
		{"run", "-kv", huge},
	} {
		code, stdout, stderr := mlagen(args...)
		if code != 2 || stdout != "" || stderr == "" {
			t.Errorf("%q: exit %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
	}
}
