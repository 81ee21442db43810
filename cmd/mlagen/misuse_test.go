package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
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

// TestOutputsThatAreNoFiles: what is at the place and no file is written into
// and stays what it is; a link stays one. (Replacing /dev/null would break a
// machine.)
func TestOutputsThatAreNoFiles(t *testing.T) {
	dir := t.TempDir()
	pipe, link, linked := filepath.Join(dir, "pipe"), filepath.Join(dir, "link"), filepath.Join(dir, "linked")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	if err := errors.Join(os.Symlink(linked, link), os.WriteFile(linked, []byte("old"), 0o600)); err != nil {
		t.Fatal(err)
	}
	read := make(chan string)
	go func() {
		text, _ := os.ReadFile(pipe)
		read <- string(text)
	}()
	code, stdout, stderr := mlagen("emit", "-kernel", "stream", "-o", link, "-manifest", pipe)
	if code != 0 || stdout != "" {
		t.Fatalf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if text := <-read; !strings.HasPrefix(text, "{") {
		t.Errorf("the pipe got %.40q", text)
	}
	for place, mode := range map[string]os.FileMode{pipe: os.ModeNamedPipe, link: os.ModeSymlink, linked: 0} {
		if at, err := os.Lstat(place); err != nil || at.Mode().Type() != mode {
			t.Errorf("%s: %v %v", place, at.Mode(), err)
		}
	}
	if text, err := os.ReadFile(linked); err != nil || !strings.Contains(string(text), ".version") {
		t.Errorf("behind the link: %.40q %v", text, err)
	}
	for want, args := range map[string][]string{
		"two outputs are both": {"-o", filepath.Join(dir, "k"), "-manifest", dir + "/./k"},
		"names no file":        {"-o", ""},
		"is none":              {"-o", pipe, "-check"},
	} {
		if code, _, stderr := mlagen(append([]string{"emit", "-kernel", "stream"}, args...)...); code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit %d, %s", args, code, stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "k")); err == nil {
		t.Error("a file of two outputs was written")
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

// TestInputsWithoutEnd: a file that never ends is refused, and not read for ever.
func TestInputsWithoutEnd(t *testing.T) {
	if _, err := os.Stat("/dev/zero"); err != nil {
		t.Skip(err)
	}
	for _, args := range [][]string{{"verify", "/dev/zero"}, {"check", "/dev/zero"}} {
		code, stdout, stderr := mlagen(args...)
		if code != 1 || !strings.Contains(stdout+stderr, "it is larger than") {
			t.Errorf("%q: exit %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
	}
}

// TestCasesStayInTheirFolder: a case whose name leads elsewhere is refused, and
// nothing is written anywhere.
func TestCasesStayInTheirFolder(t *testing.T) {
	dir := t.TempDir()
	inside := filepath.Join(dir, "dump")
	if err := os.Mkdir(inside, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../out", "..", ".", "/" + dir + "/out", "a/../../out", "", ".hidden"} {
		file := filepath.Join(dir, "case.json")
		text := `{"name":` + strconv.Quote(name) + `,"op":"merge","kv_len":[1]}`
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := mlagen("check", "-dump", inside, file)
		if code != 1 || !strings.Contains(stdout, "must be a plain file name") {
			t.Errorf("%q: exit %d, %s%s", name, code, stdout, stderr)
		}
		for _, place := range []string{dir, inside} {
			left, err := os.ReadDir(place)
			if want := map[string]int{dir: 2, inside: 0}[place]; err != nil || len(left) != want {
				t.Errorf("%q: %s holds %v %v", name, place, left, err)
			}
		}
	}
}
