package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/templates"
)

func TestExplain(t *testing.T) {
	code, text, stderr := mlagen("explain", "-kernel", "absorb-decode", "-heads", "16")
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	for _, want := range []string{
		"160 threads per CTA; 218 372 of 232 448 bytes of shared memory",
		"as 2 of 3 of decode, once per layer: grid parts * row_blocks × 1 × 1",
		"attend     warps  0 to 3   at most 255, as launched",
		"197632 ········································████···· q: 16x576 bf16",
		"218372 end; 14 076 bytes free",
		"36 × wgmma m64n16k16", "32 × wgmma m64n16k16",
		"1 088 cycles at least, 2.23 MFLOP, of which 100 %",
		"30 FLOP a byte; a tile takes 3 956 cycles to arrive: bound by memory, tensor cores busy 28 % at best",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	// A file of the same kernel says the same.
	if code, got, stderr := mlagen("explain", "../../golden/ptx/absorb-decode-h16.ptx"); code != 0 || got != text {
		t.Errorf("exit %d, %s\n%s", code, stderr, got)
	}
	_, text, _ = mlagen("explain", "-kernel", "absorb-decode", "-heads", "128")
	if !strings.Contains(text, "read once from memory for 2 CTAs") || !strings.Contains(text, "bound by the tensor cores") {
		t.Error(text)
	}
}

// TestExplainAll: every preset has a card; shared memory is told to the end, in
// order and without overlap.
func TestExplainAll(t *testing.T) {
	for _, p := range templates.Presets() {
		c, err := cardOfKernel(p.Kernel, p.Spec)
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
			continue
		}
		end := 0
		for _, r := range c.Regions {
			if r.Offset < end {
				t.Errorf("%s: %s at %d, before %d", p.Name, r.Name, r.Offset, end)
			}
			end = r.Offset + r.Bytes
		}
		if end != c.Manifest.Shared {
			t.Errorf("%s: the map ends at %d of %d bytes", p.Name, end, c.Manifest.Shared)
		}
		code, text, stderr := mlagen("explain", "-json", filepath.Join("../../golden/ptx", p.Name+".ptx"))
		var got card
		if err := json.Unmarshal([]byte(text), &got); code != 0 || err != nil || len(got.Regions) != len(c.Regions) || (got.Tile == nil) != (c.Tile == nil) {
			t.Errorf("%s: exit %d, %v, %s", p.Name, code, err, stderr)
		}
	}
}

func TestExplainRefuses(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ptx, err := os.ReadFile("../../golden/ptx/stream.ptx")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile("../../golden/ptx/stream.json")
	if err != nil {
		t.Fatal(err)
	}
	changed := func(f func(*manifest.Manifest)) []byte {
		t.Helper()
		m, err := manifest.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		f(m)
		text, err := m.Text()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	alone := write("alone.ptx", ptx)
	other := write("other.ptx", append(ptx, ' '))
	write("other.json", raw)
	huge := write("huge.ptx", ptx)
	write("huge.json", changed(func(m *manifest.Manifest) { m.Spec = templates.Spec{Heads: 1 << 60, SQ: 1 << 60} }))
	unknown := write("unknown.ptx", ptx)
	write("unknown.json", changed(func(m *manifest.Manifest) { m.Launch, m.Kernel = nil, "unknown" }))
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "name a kernel with -kernel"},
		{[]string{"-kernel", "none"}, 2, `kernel "none" does not exist`},
		{[]string{"-kernel", "stream", "-heads", "0"}, 2, "must be at least 1"},
		{[]string{"-kernel", "absorb-decode", "-block-h", "48"}, 2, "the nearest that can is 40"},
		{[]string{"-kernel", "stream", alone}, 2, "a file or -kernel"},
		{[]string{alone, other}, 2, "takes one file"},
		{[]string{filepath.Join(dir, "missing.ptx")}, 1, "no such file"},
		{[]string{alone}, 1, "alone.json is missing: explain reads the manifest beside the PTX"},
		{[]string{other}, 1, "the manifest describes another text"},
		{[]string{huge}, 1, "huge.json: spec of stream: heads"},
		{[]string{unknown}, 1, `kernel "unknown" does not exist`},
	} {
		code, stdout, stderr := mlagen(append([]string{"explain"}, c.args...)...)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: exit %d, stdout %.100q, stderr %q; want exit %d and %q", c.args, code, stdout, stderr, c.code, c.want)
		}
	}
}
