package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/mlagen/mlagen/golden/cases"
	"github.com/mlagen/mlagen/golden/check"
	"github.com/mlagen/mlagen/ptx/emu"
	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/templates"
)

// runReport is what run has to tell; its JSON is for programs.
type runReport struct {
	Device string         `json:"device"`
	SMs    int            `json:"sms"`
	Preset string         `json:"preset,omitempty"` // that the spec is
	Spec   templates.Spec `json:"spec"`
	KVLen  []int          `json:"kv_len"`
	Splits int            `json:"splits"`
	Inputs uint64         `json:"inputs_seed"`
	Seeds  []uint64       `json:"seeds,omitempty"` // of the schedules that ran

	Status check.Status `json:"status"`
	Reason string       `json:"reason,omitempty"`
	Errors struct {
		Out          float64 `json:"out"` // worst over rows of ‖row−reference‖/‖reference‖
		LSE          float64 `json:"lse"` // worst difference
		OutTolerance float64 `json:"out_tolerance"`
		LSETolerance float64 `json:"lse_tolerance"`
	} `json:"errors"`

	// What the kernels did under the first schedule, and what was found under
	// any. Empty on a device that cannot tell.
	Kernels []kernelRun `json:"kernels,omitempty"`
	Total   emu.Stats   `json:"total"`
	Hazards []finding   `json:"hazards"`

	manifest *manifest.Manifest // of decode
}

// kernelRun is what the launches of a kernel did.
type kernelRun struct {
	Kernel    string              `json:"kernel"`
	Launches  int                 `json:"launches"`
	Stats     emu.Stats           `json:"stats"`
	Conflicts []emu.LineConflicts `json:"conflicts,omitempty"`
}

// finding is a hazard, with the schedule that showed it first.
type finding struct {
	Severity string `json:"severity"`
	Seed     uint64 `json:"seed"`
	emu.Hazard
}

func newRunReport(drv runtime.Driver, s templates.Spec, c *cases.Case, m *manifest.Manifest) *runReport {
	r := &runReport{
		Device: drv.Name(), SMs: drv.Attributes().SMs, Spec: s, KVLen: c.KVLen, Splits: c.Splits, Inputs: c.Seed,
		Hazards: []finding{}, manifest: m,
	}
	s.LineInfo = false
	for _, p := range templates.Presets() {
		if p.Kernel == "absorb-decode" && p.Spec == s {
			r.Preset = p.Name
		}
	}
	r.Errors.OutTolerance, r.Errors.LSETolerance = c.Tolerance.Out, c.Tolerance.LSE
	return r
}

// add takes in a schedule's launches. Proven hazards are its error.
func (r *runReport) add(seed uint64, launches []*emu.Report) error {
	first := len(r.Seeds) == 0
	r.Seeds = append(r.Seeds, seed)
	proven := 0
	for _, l := range launches {
		if first {
			k := r.kernel(l.Kernel)
			k.Launches++
			k.Stats.Add(l.Stats)
			r.Total.Add(l.Stats)
			k.Conflicts = mergeConflicts(k.Conflicts, l.Conflicts)
		}
		for _, h := range l.Hazards {
			if h.Severity == emu.Error {
				proven++
			}
			r.hazard(seed, h)
		}
	}
	if proven > 0 {
		return fmt.Errorf("%s", plural(proven, "hazard"))
	}
	return nil
}

// kernel returns the entry of the kernel called name.
func (r *runReport) kernel(name string) *kernelRun {
	for i := range r.Kernels {
		if r.Kernels[i].Kernel == name {
			return &r.Kernels[i]
		}
	}
	r.Kernels = append(r.Kernels, kernelRun{Kernel: name})
	return &r.Kernels[len(r.Kernels)-1]
}

// hazard notes a finding; one between the same two instructions only counts.
func (r *runReport) hazard(seed uint64, h emu.Hazard) {
	for i := range r.Hazards {
		f := &r.Hazards[i]
		if f.Kernel == h.Kernel && f.Rule == h.Rule && lineOf(f.First) == lineOf(h.First) && lineOf(f.Second) == lineOf(h.Second) {
			f.Count += h.Count
			return
		}
	}
	r.Hazards = append(r.Hazards, finding{h.Severity.String(), seed, h})
}

func lineOf(a *emu.Access) int {
	if a == nil {
		return 0
	}
	return a.Line
}

func mergeConflicts(all, more []emu.LineConflicts) []emu.LineConflicts {
	for _, c := range more {
		i := slices.IndexFunc(all, func(o emu.LineConflicts) bool { return o.Line == c.Line })
		if i < 0 {
			all = append(all, c)
			continue
		}
		all[i].Executions += c.Executions
		all[i].Extra += c.Extra
	}
	slices.SortStableFunc(all, func(a, b emu.LineConflicts) int { return cmp.Compare(b.Extra, a.Extra) })
	return all
}

// finish takes in how the case ended.
func (r *runReport) finish(o check.Outcome) {
	r.Status, r.Reason = o.Status, o.Reason
	r.Errors.Out, r.Errors.LSE = o.Errors.Out, o.Errors.LSE
}

func (r *runReport) json(w io.Writer) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", b)
	return err
}

// print writes the report for people.
func (r *runReport) print(w io.Writer) error {
	var out bytes.Buffer
	s, m := r.Spec, r.manifest
	fmt.Fprintf(&out, "decode: %s, s_q %d, latent %d + rope %d, %s; kv %s, pages of %d tokens",
		plural(s.Heads, "head"), s.SQ, s.Latent, s.Rope, s.DType, listed(r.KVLen), s.Page)
	if r.Splits > 0 {
		fmt.Fprintf(&out, ", %d pieces per request", r.Splits)
	}
	fmt.Fprintf(&out, "\nkernel: %d rows × %d tokens, %d stages, %d threads, %s bytes of shared memory", s.BlockH, s.BlockN, s.Stages, m.Threads, grouped(m.Shared))
	if r.Preset != "" {
		fmt.Fprintf(&out, " (preset %s)", r.Preset)
	}
	fmt.Fprintf(&out, "\ndevice: %s, %d SMs; inputs from seed %d", r.Device, r.SMs, r.Inputs)
	switch n := len(r.Seeds); {
	case n == 1:
		fmt.Fprintf(&out, ", schedule from seed %d", r.Seeds[0])
	case n > 1:
		fmt.Fprintf(&out, ", %d schedules from seeds %d to %d; the table shows the first", n, r.Seeds[0], r.Seeds[n-1])
	}
	out.WriteString("\n")
	if len(r.Kernels) > 0 {
		out.WriteString(r.table().Render() + "\n")
		r.printConflicts(&out)
		r.printHazards(&out)
	}
	e := r.Errors
	if r.Status == check.OK || e.Out != 0 || e.LSE != 0 {
		fmt.Fprintf(&out, "out is off by %.1e of its norm, at most %.0e; lse by %.1e, at most %.0e\n", e.Out, e.OutTolerance, e.LSE, e.LSETolerance)
	}
	fmt.Fprint(&out, r.Status)
	if r.Reason != "" {
		fmt.Fprintf(&out, ": %s", r.Reason)
	}
	out.WriteString("\n")
	_, err := w.Write(out.Bytes())
	return err
}

// table is what the kernels did.
func (r *runReport) table() table.Writer {
	t := newTable("kernel", "launches", "instructions", "wgmma FLOP", "TMA bytes", "global bytes", "bank conflicts")
	var columns []table.ColumnConfig
	for i := range 7 {
		align := text.AlignRight
		if i == 0 {
			align = text.AlignLeft
		}
		columns = append(columns, table.ColumnConfig{Number: i + 1, Align: align, AlignHeader: align, AlignFooter: align})
	}
	t.SetColumnConfigs(columns)
	t.Style().Format.Footer = text.FormatDefault
	row := func(name string, launches int, s emu.Stats) table.Row {
		return table.Row{name, launches, grouped(s.Instructions), grouped(s.WgmmaFLOPs), grouped(s.TMABytes), grouped(s.GlobalBytes), grouped(s.BankConflicts)}
	}
	launches := 0
	for _, k := range r.Kernels {
		launches += k.Launches
		t.AppendRow(row(k.Kernel, k.Launches, k.Stats))
	}
	t.AppendFooter(row("all", launches, r.Total))
	return t
}

// printConflicts names the instructions that lose most cycles.
func (r *runReport) printConflicts(w io.Writer) {
	const shown = 3
	type place struct {
		kernel string
		emu.LineConflicts
	}
	var all []place
	for _, k := range r.Kernels {
		for _, c := range k.Conflicts {
			all = append(all, place{k.Kernel, c})
		}
	}
	slices.SortStableFunc(all, func(a, b place) int { return cmp.Compare(b.Extra, a.Extra) })
	for _, c := range all[:min(shown, len(all))] {
		fmt.Fprintf(w, "advice: bank conflicts: %s extra cycles in %s executions by a warp\n\t%s, from %s\n",
			grouped(c.Extra), grouped(c.Executions), c.Instruction, cmp.Or(c.Source, c.kernel))
	}
	if more := len(all) - shown; more > 0 {
		fmt.Fprintf(w, "advice: bank conflicts at %s more\n", plural(more, "instruction"))
	}
}

// printHazards lists what was found, the proven first, a few of each rule.
func (r *runReport) printHazards(w io.Writer) {
	if len(r.Hazards) == 0 {
		fmt.Fprintln(w, "no hazards")
		return
	}
	type kind struct {
		kernel   string
		severity emu.Severity
		rule     emu.Rule
	}
	const shown = 3
	count := map[kind]int{}
	kinds := []kind{}
	proven := 0
	for _, severity := range []emu.Severity{emu.Error, emu.Advice} {
		for _, h := range r.Hazards {
			if h.Hazard.Severity != severity {
				continue
			}
			if severity == emu.Error {
				proven++
			}
			k := kind{h.Kernel, severity, h.Rule}
			if count[k]++; count[k] == 1 {
				kinds = append(kinds, k)
			}
			if count[k] > shown {
				continue
			}
			seed := ""
			if len(r.Seeds) > 1 {
				seed = fmt.Sprintf(", seed %d", h.Seed)
			}
			fmt.Fprintf(w, "%s%s: %s\n", h.Kernel, seed, h.Hazard)
		}
	}
	for _, k := range kinds {
		if more := count[k] - shown; more > 0 {
			fmt.Fprintf(w, "%s: %s: %s: %d more at other instructions, which -json shows\n", k.kernel, k.severity, k.rule, more)
		}
	}
	fmt.Fprintf(w, "%s proven, %d doubted; lines are those of the text that emit -lineinfo prints\n", plural(proven, "hazard"), len(r.Hazards)-proven)
}

// plural is a count and what is counted.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%s %ss", grouped(n), noun)
}

// listed shows a few numbers, and of many the first.
func listed(n []int) string {
	const shown = 8
	var s []string
	for _, v := range n[:min(shown, len(n))] {
		s = append(s, grouped(v))
	}
	if len(n) > shown {
		s = append(s, fmt.Sprintf("… (%d requests)", len(n)))
	}
	return strings.Join(s, " ")
}

// grouped writes a number with a space between thousands.
func grouped[T int | uint64](n T) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}
