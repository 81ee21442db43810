package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/templates"
)

func TestVerifyPassesWhatEmitWrites(t *testing.T) {
	dir := t.TempDir()
	for _, k := range templates.Kernels() {
		ptx := filepath.Join(dir, k.Name+".ptx")
		if code, _, stderr := mlagen("emit", "-kernel", k.Name, "-o", ptx, "-manifest", filepath.Join(dir, k.Name+".json")); code != 0 {
			t.Fatal(stderr)
		}
		if code, stdout, stderr := mlagen("verify", ptx); code != 0 || stdout != "" || stderr != "" {
			t.Errorf("%s: exit %d, %s%s", k.Name, code, stdout, stderr)
		}
	}
}

func TestVerifyFindings(t *testing.T) {
	_, text, _ := mlagen("emit", "-kernel", "decode-combine")
	undefined := regexp.MustCompile(`bra \S+;`).ReplaceAllString(text, "bra NOWHERE;")
	for _, c := range []struct{ name, text, want string }{
		{"no PTX", "hello", `^k\.ptx:\d+:\d+: syntax: `},
		{"an undefined label", undefined, `^k\.ptx:\d+:\d+: \S+: .*NOWHERE`},
	} {
		t.Chdir(t.TempDir())
		if err := os.WriteFile("k.ptx", []byte(c.text), 0o666); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := mlagen("verify", "k.ptx")
		if code != 1 || stderr != "" || !regexp.MustCompile(c.want).MatchString(stdout) {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", c.name, code, stdout, stderr)
		}
	}
}

func TestVerifyReadsTheManifestBesideTheFile(t *testing.T) {
	t.Chdir(t.TempDir())
	if code, _, stderr := mlagen("emit", "-kernel", "stream", "-o", "k.ptx", "-manifest", "k.json"); code != 0 {
		t.Fatal(stderr)
	}
	raw, err := os.ReadFile("k.json")
	if err != nil {
		t.Fatal(err)
	}
	wrong := regexp.MustCompile(`"threads": \d+`).ReplaceAll(raw, []byte(`"threads": 512`))
	if err := os.WriteFile("k.json", wrong, 0o666); err != nil {
		t.Fatal(err)
	}
	if code, stdout, _ := mlagen("verify", "k.ptx"); code != 1 || !strings.Contains(stdout, "manifest") {
		t.Errorf("exit %d, %q", code, stdout)
	}
	if err := os.WriteFile("k.json", []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := mlagen("verify", "k.ptx"); code != 1 || !strings.Contains(stderr, "k.json") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	if code, _, stderr := mlagen("verify", "absent.ptx"); code != 1 || !strings.Contains(stderr, "absent.ptx") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

func TestVerifyStandardInput(t *testing.T) {
	_, text, _ := mlagen("emit", "-kernel", "stream")
	var out, err bytes.Buffer
	if code := run([]string{"verify", "-"}, strings.NewReader(text), &out, &err); code != 0 {
		t.Error(code, out.String(), err.String())
	}
}
