// Command stub makes a libcuda.so to link against on a machine without the
// NVIDIA driver. It takes the function names from cuda.h and lets gcc build a
// shared library whose soname is the driver's, libcuda.so.1, and whose every
// function returns CUDA_ERROR_STUB_LIBRARY. A binary linked with it finds the
// real driver where there is one.
//
//	go run ./runtime/cuda/stub -headers DIR -o FILE
//
// DIR holds the toolkit's cuda.h. The compiler is $CC, or gcc.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "stub:", err)
		}
		os.Exit(1)
	}
}

func run(args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("stub", flag.ContinueOnError)
	flags.SetOutput(stderr)
	headers := flags.String("headers", "", "folder of the toolkit's cuda.h")
	output := flags.String("o", "libcuda.so", "shared library to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *headers == "" || flags.NArg() > 0 {
		return errors.New("usage: stub -headers DIR [-o FILE]")
	}
	header, err := os.ReadFile(filepath.Join(*headers, "cuda.h"))
	if err != nil {
		return err
	}
	names := functions(header)
	if len(names) == 0 {
		return fmt.Errorf("%s declares no function", filepath.Join(*headers, "cuda.h"))
	}
	return compile(source(names), *output)
}

// A function is declared as `CUresult CUDAAPI cuName(`; a macro redirects its
// name to a later version, `#define cuName cuName_v2`, possibly through the
// per-thread-stream selector `__CUDA_API_PTSZ(cuName_v2)`.
var (
	declaration = regexp.MustCompile(`\bCUDAAPI\s+(cu[A-Z]\w*)\s*\(`)
	redirection = regexp.MustCompile(`(?m)^\s*#\s*define\s+cu[A-Z]\w*\s+(?:__CUDA_API_PT(?:SZ|DS)\()?(cu[A-Z]\w*)\)?\s*$`)
)

// functions returns every function name that cuda.h declares or redirects to,
// sorted.
func functions(header []byte) []string {
	var names []string
	for _, pattern := range []*regexp.Regexp{declaration, redirection} {
		for _, match := range pattern.FindAllSubmatch(header, -1) {
			names = append(names, string(match[1]))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// source is the C text of the library. 34 is CUDA_ERROR_STUB_LIBRARY; whoever
// runs against the stub learns it from the first call.
func source(names []string) string {
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "int %s(void) { return 34; }\n", name)
	}
	return b.String()
}

// compile writes the library beside its final place and renames it, so that a
// failed run leaves nothing behind.
func compile(text, output string) error {
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "gcc"
	}
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return err
	}
	if at, err := os.Stat(output); err == nil && !at.Mode().IsRegular() {
		return fmt.Errorf("%s is no file and is not replaced by one", output)
	}
	temporary := fmt.Sprintf("%s.%d.tmp", output, os.Getpid())
	defer os.Remove(temporary)
	command := exec.Command(compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-x", "c", "-", "-o", temporary)
	command.Stdin = strings.NewReader(text)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", compiler, err, out)
	}
	return os.Rename(temporary, output)
}
