package bind

import (
	"fmt"
	"go/build"
	"go/token"
	"io"
	"regexp"
	"strings"
)

// OptionError is an option that no binding can be made with: its name, as on
// the command line, and value, and what to do about it.
type OptionError struct{ Option, Value, Reason string }

// Error implements error.
func (e *OptionError) Error() string {
	return fmt.Sprintf("-%s %q cannot be used: %s", e.Option, e.Value, e.Reason)
}

var (
	stemForm = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	// numbered is a part of a stem such as h16, sq5 or fp16.
	numbered = regexp.MustCompile(`^[a-z]{1,2}[0-9]+$`)
)

// checkStem refuses stems that make no file names or identifiers.
func checkStem(stem string) error {
	refuse := func(reason string, args ...any) error {
		return &OptionError{"name", stem, fmt.Sprintf(reason, args...)}
	}
	last := stem[strings.LastIndexByte(stem, '_')+1:]
	switch {
	case !stemForm.MatchString(stem):
		return refuse("files and functions are named after it; use lower-case letters and digits in parts joined by single underscores, such as mla_decode_h16")
	case last == "test":
		return refuse("files that end in _test are for tests alone; end it in something else")
	case constrained(stem):
		return refuse("files that end in _%s are for that platform alone; end it in something else", last)
	}
	return nil
}

// constrained reports whether go build reads a platform from the end of a
// file's name. It asks package go/build, whose list grows with Go, about a
// platform that does not exist.
func constrained(stem string) bool {
	nowhere := build.Context{GOOS: "nowhere", GOARCH: "none", OpenFile: func(string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("package p\n")), nil
	}}
	// The prefix makes a stem of one part, such as linux, a last part as well.
	match, err := nowhere.MatchFile("", "x_"+stem+".go")
	return err != nil || !match
}

// checkPackage refuses what no package of ordinary files can be called.
func checkPackage(name string) error {
	switch {
	case !token.IsIdentifier(name) || name == "_":
		return &OptionError{"pkg", name, "it must be a Go identifier, the name in the package clause of the other files"}
	case strings.HasSuffix(name, "_test"):
		return &OptionError{"pkg", name, "a package of tests holds no bindings; write the //go:generate line in a file of the package itself, or name that"}
	}
	return nil
}

// goName returns a stem as the exported part of an identifier.
func goName(stem string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(stem, "_") {
		if part == "mla" || numbered.MatchString(part) {
			part = strings.ToUpper(part)
		}
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}

// localName returns a stem as the beginning of an identifier that is not exported.
func localName(stem string) string {
	first, rest, _ := strings.Cut(stem, "_")
	if rest == "" {
		return first
	}
	return first + goName(rest)
}

// initialisms are words that identifiers spell in capitals.
var initialisms = map[string]string{"kv": "KV", "lse": "LSE", "ptx": "PTX", "id": "ID"}

// fieldName returns an argument's name as an exported identifier.
func fieldName(name string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(name, "_") {
		if spelled, ok := initialisms[word]; ok {
			b.WriteString(spelled)
		} else if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}

// argumentName returns an argument's name as the name of a parameter.
func argumentName(name string) string {
	first, rest, _ := strings.Cut(name, "_")
	name = first + fieldName(rest)
	if token.IsKeyword(name) || name == "k" {
		return name + "_"
	}
	return name
}
