package ptx_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// ptxas returns the assembler to prove text against, or skips the test.
func ptxas(t *testing.T) string {
	t.Helper()
	if p := os.Getenv("MLAGEN_PTXAS"); p != "" {
		return p
	}
	if p, err := filepath.Abs("../.tools/bin/ptxas"); err == nil {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	if p, err := exec.LookPath("ptxas"); err == nil {
		return p
	}
	t.Skip("no ptxas: set MLAGEN_PTXAS, run make tools, or put ptxas on PATH")
	return ""
}

// The table is right when NVIDIA's assembler takes every form of it, with
// every value of every slot.
func TestTableAgainstPtxas(t *testing.T) {
	assembler := ptxas(t)
	m, err := tableModule()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "table.ptx")
	if err := os.WriteFile(file, []byte(m.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(assembler, "-arch=sm_90a", "-O0", "-o", os.DevNull, file)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("ptxas: %v\n%s", err, out)
	}
	if keep := os.Getenv("MLAGEN_KEEP"); keep != "" {
		_ = os.WriteFile(keep, []byte(m.String()), 0o644)
	}
}
