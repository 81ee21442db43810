package differential

import (
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
)

// Row is what two devices made of one result of a kernel.
type Row struct {
	Kernel string // as package templates names it
	Case   string
	Result string // which of the kernel's results
	Figures
}

// Table lists rows for people.
func Table(rows []Row, limits Limits) string {
	w := table.NewWriter()
	w.AppendHeader(table.Row{"kernel", "case", "result", "elements", "differ", "ulp", "own ulp", "LSE", ""})
	for _, r := range rows {
		verdict := "ok"
		if limits.Err(r.Figures) != nil {
			verdict = "FAIL"
		}
		lse := "–"
		if r.LSEs > 0 {
			lse = fmt.Sprintf("%.1e", r.LSE)
		}
		w.AppendRow(table.Row{r.Kernel, r.Case, r.Result, r.Elements, r.Differ, fmt.Sprintf("%.2f", r.ULP), fmt.Sprintf("%.3g", r.Own), lse, verdict})
	}
	return w.Render()
}

// Summary lists the worst figures of every kernel, in the order in which
// kernels first appear, with the case and result of the largest distance.
func Summary(rows []Row, limits Limits) string {
	var all []Row
	at := map[string]int{}
	for _, r := range rows {
		i, ok := at[r.Kernel]
		if !ok {
			i = len(all)
			at[r.Kernel] = i
			all = append(all, Row{Kernel: r.Kernel, Case: "all alike", Result: "all"})
		}
		if r.ULP > all[i].ULP {
			all[i].Case, all[i].Result = r.Case, r.Result
		}
		all[i].add(r.Figures)
	}
	return Table(all, limits)
}
