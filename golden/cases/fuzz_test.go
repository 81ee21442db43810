package cases

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// FuzzParse: whatever the text, parsing gives an error or a case that Format
// writes so that it is read again, and whose inputs can be made, in bounded time.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.json")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		begin := time.Now()
		defer func() {
			if d := time.Since(begin); d > 20*time.Second {
				t.Errorf("it took %v", d)
			}
		}()
		c, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(c.Format())
		if err != nil {
			t.Fatalf("written as %s: %v", c.Format(), err)
		}
		if diff := cmp.Diff(c, again); diff != "" {
			t.Fatalf("(-parsed +again):\n%s", diff)
		}
		if c.Elements() > 1<<17 {
			return
		}
		make := map[string]func() error{
			"decode":    func() error { _, err := c.Decode(); return err },
			"prefill":   func() error { _, err := c.Prefill(); return err },
			"extend":    func() error { _, err := c.Extend(); return err },
			"merge":     func() error { _, err := c.Merge(); return err },
			"upproject": func() error { _, err := c.UpProject(); return err },
			"absorb":    func() error { _, err := c.Absorb(); return err },
			"append":    func() error { _, err := c.Append(); return err },
			"layer":     func() error { _, err := c.Extend(); return err },
		}[c.Op]
		if err := make(); err != nil {
			t.Fatalf("it was accepted: %v", err)
		}
	})
}

// TestLargeFiles: a file without an end is refused, and not read to it.
func TestLargeFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "large.json")
	if err := os.WriteFile(file, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{file, "/dev/zero"} {
		if _, err := Read(file); err == nil || !strings.Contains(err.Error(), "it is larger than 1048576 bytes") {
			t.Errorf("%s: %v", file, err)
		}
	}
}
