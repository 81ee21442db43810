package ptx_test

import (
	"testing"

	"github.com/mlagen/mlagen/ptx"
	"github.com/mlagen/mlagen/ptx/isa"
	"github.com/mlagen/mlagen/ptx/ptxas"
)

// refusal runs text through ptxas and returns what it says when it refuses.
func refusal(assembler, text string) string {
	if _, err := ptxas.Assemble(assembler, []byte(text), "-O0"); err != nil {
		return err.Error()
	}
	return ""
}

// The table is right when NVIDIA's assembler takes every form of it, with
// every value of every slot, in the PTX version that the row names (8.0 at
// least, since sm_90a needs that), and refuses newer forms in 8.0.
func TestTableAgainstPtxas(t *testing.T) {
	assembler := ptxas.Find(t)
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
			if refusal(assembler, one.String()) == "" {
				t.Errorf("PTX %s is said to be needed, but %s is enough for\n%s", v, base, &one)
			}
		}
	}
	for v, kernels := range byVersion {
		group := *m
		group.Version, group.Kernels = v, kernels
		if out := refusal(assembler, group.String()); out != "" {
			t.Errorf("PTX %s: %s", v, out)
		}
	}
}
