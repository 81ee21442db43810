// Package ptxas runs NVIDIA's assembler, where there is one, to prove PTX text.
// Nothing but tests needs it.
package ptxas

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Find returns the assembler's path: $MLAGEN_PTXAS, else the module's
// .tools/bin/ptxas, which `make tools` brings, else the one on PATH. Without
// one it skips the test.
func Find(t testing.TB) string {
	t.Helper()
	if p := os.Getenv("MLAGEN_PTXAS"); p != "" {
		return p
	}
	if dir, err := os.Getwd(); err == nil {
		for ; ; dir = filepath.Dir(dir) {
			if p := filepath.Join(dir, ".tools", "bin", "ptxas"); exists(p) {
				return p
			}
			if exists(filepath.Join(dir, "go.mod")) || dir == filepath.Dir(dir) {
				break
			}
		}
	}
	if p, err := exec.LookPath("ptxas"); err == nil {
		return p
	}
	t.Skip("no ptxas: set MLAGEN_PTXAS, run make tools, or put ptxas on PATH")
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Assemble compiles text for sm_90a and returns the verbose log. The error
// carries what the assembler says when it refuses.
func Assemble(assembler string, text []byte, options ...string) (log string, err error) {
	cmd := exec.Command(assembler, append([]string{"-arch=sm_90a", "-v", "-o", os.DevNull, "-"}, options...)...)
	cmd.Stdin = bytes.NewReader(text)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%w\n%s", err, out)
	}
	return string(out), nil
}

var (
	kernelLine = regexp.MustCompile(`Compiling entry function '`)
	cleanLine  = regexp.MustCompile(`(?:^|\s)0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads`)
	wrongLine  = regexp.MustCompile(`(?i)warning|serializ|\(C7[56]\d\d\)|bytes stack frame`)
)

// Complaints returns the lines of a verbose log that a fast kernel must not
// cause: warnings, serialised wgmma, an ignored setmaxnreg, a stack frame,
// spills. A log that does not say of every kernel that it has none of the
// latter is a complaint too.
func Complaints(log string) []string {
	var found []string
	kernels, clean := 0, 0
	for line := range strings.Lines(log) {
		line = strings.TrimSpace(line)
		switch {
		case kernelLine.MatchString(line):
			kernels++
		case cleanLine.MatchString(line):
			clean++
		case wrongLine.MatchString(line):
			found = append(found, line)
		}
	}
	if kernels == 0 || clean != kernels && len(found) == 0 {
		found = append(found, fmt.Sprintf("%d of %d kernels are reported without stack frame and spills", clean, kernels))
	}
	return found
}
