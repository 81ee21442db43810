package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func TestProgress(t *testing.T) {
	var screen, file bytes.Buffer
	p := newProgress(&screen, 3)
	p.step("first")
	fmt.Fprintf(barWriter{p.bars}, "one\ntwo\n")
	p.step("last")
	fmt.Fprintln(p.writer(&file), "kept")
	p.done()
	after := screen.String()
	for _, want := range []string{"one\n", "two\n"} {
		if !strings.Contains(after, want) {
			t.Errorf("the screen lacks %q: %q", want, after)
		}
	}
	if file.String() != "kept\n" {
		t.Errorf("the file holds %q", file.String())
	}
	if p = (&app{stderr: &file}).progress(3); p.bar != nil {
		t.Error("a file gets a bar")
	}
	p.step("nothing")
	p.done()
}
