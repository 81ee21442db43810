package cases

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFormatIsWhatParseReads: every case survives being written, and what is as
// by default is not.
func TestFormatIsWhatParseReads(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.json")
	for _, file := range files {
		c, err := Read(file)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(c.Format())
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if d := cmp.Diff(c, again); d != "" {
			t.Errorf("%s (-read +written and read):\n%s", file, d)
		}
	}
	c := parse(t, `{"name":"x","op":"decode","kv_len":[3],"fill":{"q":"zero"}}`)
	want := "{\n \"name\": \"x\",\n \"op\": \"decode\",\n \"kv_len\": [\n  3\n ],\n \"fill\": {\n  \"q\": \"zero\"\n }\n}\n"
	if d := cmp.Diff(want, string(c.Format())); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}
