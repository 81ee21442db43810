package ptx_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
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

// assemble runs text through ptxas and returns what it says when it refuses.
func assemble(t *testing.T, assembler, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "table.ptx")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(assembler, "-arch=sm_90a", "-O0", "-o", os.DevNull, file).CombinedOutput()
	if err == nil {
		return ""
	}
	return err.Error() + "\n" + string(out)
}

// The table is right when NVIDIA's assembler takes every form of it, with
// every value of every slot, in the PTX version that the row names (8.0 at
// least, since sm_90a needs that), and refuses newer forms in 8.0.
func TestTableAgainstPtxas(t *testing.T) {
	assembler := ptxas(t)
	m, err := tableModule()
	if err != nil {
		t.Fatal(err)
	}
	byVersion := map[isa.Version][]*ptx.Kernel{}
	for _, k := range m.Kernels {
		one := *m
		one.Kernels = []*ptx.Kernel{k}
		v := ptx.MinVersion(&one)
		byVersion[v] = append(byVersion[v], k)
		if base := (isa.Version{Major: 8, Minor: 0}); base.Less(v) {
			one.Version = base
			if assemble(t, assembler, one.String()) == "" {
				t.Errorf("PTX %s is said to be needed, but %s is enough for\n%s", v, base, &one)
			}
		}
	}
	for v, kernels := range byVersion {
		group := *m
		group.Version, group.Kernels = v, kernels
		if out := assemble(t, assembler, group.String()); out != "" {
			t.Errorf("PTX %s: %s", v, out)
		}
	}
}
