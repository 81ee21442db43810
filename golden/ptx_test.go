package golden_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/ptx/verify"
	"github.com/mlagen/mlagen/templates"
)

//go:generate go test . -run ^TestPTX$ -update

var update = flag.Bool("update", false, "write the golden files anew")

// ptxDir holds the presets' PTX and, beside it, their manifests.
const ptxDir = "ptx"

// TestPTX: the presets' PTX and manifests are, to the byte, the golden files,
// and nothing else lies beside them.
func TestPTX(t *testing.T) {
	want := map[string][]byte{}
	for _, p := range templates.Presets() {
		out, err := templates.Build(p.Kernel, p.Spec)
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
			continue
		}
		man, err := out.Manifest.Text()
		if err != nil {
			t.Fatal(err)
		}
		want[p.Name+".ptx"], want[p.Name+".json"] = out.PTX, man
	}
	if t.Failed() {
		return
	}
	if *update {
		if err := os.MkdirAll(ptxDir, 0o777); err != nil {
			t.Fatal(err)
		}
		for name, text := range want {
			if err := os.WriteFile(filepath.Join(ptxDir, name), text, 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	files, err := os.ReadDir(ptxDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		path := filepath.Join(ptxDir, f.Name())
		text, ours := want[f.Name()]
		if !ours {
			if *update {
				err = os.Remove(path)
			} else {
				t.Errorf("%s belongs to no preset", path)
			}
		} else if got, err := os.ReadFile(path); err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, text) {
			t.Errorf("%s is not what the generator writes; if the change is meant: go test ./golden -update\n%.4000s",
				path, cmp.Diff(string(got), string(text)))
		}
		if err != nil {
			t.Error(err)
		}
		delete(want, f.Name())
	}
	for name := range want {
		t.Errorf("%s is missing: go test ./golden -update", name)
	}
}

// TestPTXReadsBack: parsing and printing a golden gives the same bytes, and
// the verifier has nothing to say of it.
func TestPTXReadsBack(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(ptxDir, "*.ptx"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d golden files, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m, err := ptx.Parse(file, text)
		if err != nil {
			t.Error(err)
			continue
		}
		if printed := m.String(); printed != string(text) {
			t.Errorf("%s: printed again it differs:\n%.4000s", file, cmp.Diff(string(text), printed))
		}
		var man manifest.Manifest
		if raw, err := os.ReadFile(file[:len(file)-len("ptx")] + "json"); err != nil {
			t.Error(err)
			continue
		} else if err := json.Unmarshal(raw, &man); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		for _, d := range verify.Module(file, m, &man) {
			t.Error(d)
		}
	}
}
