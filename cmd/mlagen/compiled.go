package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/bench"
)

// compileReport is a table of the kernels that were loaded, each once with what its
// first load took, and below it what there is to say of them, each thing once; empty
// for none.
func compileReport(kernels []*runtime.Kernel) string {
	if len(kernels) == 0 {
		return ""
	}
	type identity struct {
		name string
		text [sha256.Size]byte
	}
	seen := map[identity]bool{}
	var once []*runtime.Kernel
	for _, k := range kernels {
		if id := (identity{k.Name, sha256.Sum256(k.PTX)}); !seen[id] {
			seen[id] = true
			once = append(once, k)
		}
	}
	return compileTable(bench.Tell(once)).Render() + "\n" + warningLines(bench.Tell(kernels))
}

func compileTable(kernels []bench.LoadedKernel) table.Writer {
	t := newTable("kernel", "PTX KB", "compile s", "registers", "warnings")
	total := 0.0
	for _, k := range kernels {
		seconds := fixed(k.CompileSeconds, 3)
		if k.Cached {
			seconds = "cached"
		}
		t.AppendRow(table.Row{k.Name, fixed(float64(k.PTXBytes)/1e3, 0), seconds, k.Registers, len(k.Warnings)})
		total += k.CompileSeconds
	}
	t.AppendFooter(table.Row{"", "", fixed(total, 3)})
	return t
}

// warningLines are the kernels' warnings, a line for each that differs.
func warningLines(kernels []bench.LoadedKernel) string {
	var out strings.Builder
	told := map[runtime.Warning]bool{}
	for _, k := range kernels {
		for _, w := range k.Warnings {
			if !told[w] {
				told[w] = true
				fmt.Fprintf(&out, "warning: %v\n", w)
			}
		}
	}
	return out.String()
}

// warn tells of warnings as kernels are loaded.
func (a *app) warn(w io.Writer) func(runtime.Warning) {
	return func(warning runtime.Warning) { fmt.Fprintf(w, "mlagen: warning: %v\n", warning) }
}
