package bind

import (
	"errors"
	"flag"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/ptx/manifest"
)

var update = flag.Bool("update", false, "write the golden file anew")

// sample is a binding of two kernels.
func sample() *Binding {
	return &Binding{
		Package: "kernels", Stem: "mla_decode_fp16_h16", Op: "Decode", Summary: "something \"quoted\" for 16 heads",
		Kernels: []Kernel{
			{Field: "Decode", Name: `decode "h16"`, PTX: []byte("// decode\n"), Manifest: &manifest.Manifest{Kernel: "absorb_decode"}},
			{Field: "Schedule", Name: "schedule", PTX: []byte("// schedule\n"), Manifest: &manifest.Manifest{Kernel: "decode_schedule"}},
		},
	}
}

func TestFiles(t *testing.T) {
	files, err := sample().Files()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
	}
	if d := cmp.Diff([]string{
		"mla_decode_fp16_h16_decode.ptx", "mla_decode_fp16_h16_decode.json",
		"mla_decode_fp16_h16_schedule.ptx", "mla_decode_fp16_h16_schedule.json", "mla_decode_fp16_h16_mlagen.go",
	}, names); d != "" {
		t.Fatal(d)
	}
	if got := string(files[2].Data); got != "// schedule\n" {
		t.Errorf("PTX became %q", got)
	}
	if got := string(files[3].Data); !strings.Contains(got, `"decode_schedule"`) || !strings.HasSuffix(got, "}\n") {
		t.Errorf("manifest became %s", got)
	}

	code := files[4].Data
	isGolden(t, "sample.golden", code)
	parsed, err := parser.ParseFile(token.NewFileSet(), "", code, parser.ParseComments)
	if err != nil || !ast.IsGenerated(parsed) {
		t.Errorf("not a generated Go file: %v", err)
	}
	for range 20 {
		again, err := sample().Files()
		if d := cmp.Diff(files, again); err != nil || d != "" {
			t.Fatalf("made again: %v %s", err, d)
		}
	}
}

// isGolden holds a Go file against the one in testdata, and against gofmt.
func isGolden(t *testing.T, name string, code []byte) {
	t.Helper()
	golden := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(golden, code, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(code)); d != "" {
		t.Errorf("the Go file is another; if that is meant: go test ./gen/bind -update\n%s", d)
	}
	if formatted, err := format.Source(code); err != nil || string(formatted) != string(code) {
		t.Errorf("not formatted: %v", err)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ pkg, stem, option, reason string }{
		{"p", "", "name", "mla_decode_h16"},
		{"p", "Decode", "name", "lower-case"},
		{"p", "a__b", "name", "single underscores"},
		{"p", "a_", "name", "single underscores"},
		{"p", "_a", "name", "single underscores"},
		{"p", "8_heads", "name", "lower-case"},
		{"p", "../a", "name", "lower-case"},
		{"p", "a\nb", "name", "lower-case"},
		{"p", "decode_linux", "name", "end in _linux"},
		{"p", "decode_amd64", "name", "end in _amd64"},
		{"p", "decode_linux_arm64", "name", "end in _arm64"},
		{"p", "wasm", "name", "end in _wasm"},
		{"p", "decode_test", "name", "end in _test"},
		{"p", "decode_linux_test", "name", "end in _test"},
		{"func", "a", "pkg", "identifier"},
		{"", "a", "pkg", "identifier"},
		{"_", "a", "pkg", "identifier"},
		{"a.b", "a", "pkg", "identifier"},
		{"p_test", "a", "pkg", "tests"},
	} {
		b := sample()
		b.Package, b.Stem = c.pkg, c.stem
		files, err := b.Files()
		var refused *OptionError
		if !errors.As(err, &refused) || refused.Option != c.option || !strings.Contains(refused.Reason, c.reason) || files != nil {
			t.Errorf("package %q, stem %q: %v", c.pkg, c.stem, err)
		}
	}
	for _, stem := range []string{"a", "linux_decode", "decode_h16", "test_decode", "mlagen", "unix", "a_8"} {
		b := sample()
		b.Stem = stem
		if _, err := b.Files(); err != nil {
			t.Errorf("%s: %v", stem, err)
		}
	}
}

func TestNames(t *testing.T) {
	for stem, want := range map[string][2]string{
		"mla_decode_h16":      {"MLADecodeH16", "mlaDecodeH16"},
		"mla_decode_fp16_sq5": {"MLADecodeFP16SQ5", "mlaDecodeFP16SQ5"},
		"small":               {"Small", "small"},
		"layer_8":             {"Layer8", "layer8"},
	} {
		if d := cmp.Diff(want, [2]string{goName(stem), localName(stem)}); d != "" {
			t.Errorf("%s: %s", stem, d)
		}
	}
}
