package main

import (
	"bytes"
	"fmt"
	"io"
	"strconv"

	"github.com/mlagen/mlagen/runtime/bench"
)

// loadReport is what a run has to tell.
type loadReport struct {
	device loadRun // any of them, for what it says of the device
	rows   []loadRow
}

// loadRow is a load of a model.
type loadRow struct {
	loadModel
	open, generated float64 // seconds that the device and the texts took; 0 where they were there
	bench.LoadResult
}

// add adds what a process told.
func (r *loadReport) add(m loadModel, run loadRun) {
	r.device = run
	for i, load := range run.Loads {
		row := loadRow{loadModel: m, LoadResult: load}
		if i == 0 {
			row.open, row.generated = run.Open, run.Generate
		}
		r.rows = append(r.rows, row)
	}
}

// heading says what was measured and where.
func (r *loadReport) heading() string {
	a := r.device.Attributes
	return fmt.Sprintf("%s, driver for CUDA %d.%d (%s); each load but later ones in a process of its own, our cache and the driver's in a directory of their own",
		r.device.Device, a.DriverVersion/1000, a.DriverVersion%1000/10, r.device.Toolchain.Driver)
}

func (r *loadReport) print(w io.Writer) error {
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s\n", r.heading())
	t := newTable("heads", "s_q", "load", "kernels", "from our cache", "by the driver's loader", "s", "compiles added up, s", "opening, s", "generating, s")
	for _, m := range r.rows {
		t.AppendRow([]any{m.heads, m.sq, m.Phase, len(m.Kernels), m.Hits(), m.Whole(), fixed(m.Seconds, 4), fixed(m.CompileSeconds(), 3), seconds(m.open), seconds(m.generated)})
	}
	out.WriteString(t.Render() + "\n")
	var all []bench.LoadedKernel
	for _, m := range r.rows {
		all = append(all, m.Kernels...)
		if m.Phase == bench.LoadFirst {
			out.WriteString(compileTable(m.Compiled()).Render() + "\n")
		}
	}
	out.WriteString(warningLines(all))
	_, err := w.Write(out.Bytes())
	return err
}

// seconds is empty for what took none.
func seconds(v float64) string {
	if v == 0 {
		return ""
	}
	return fixed(v, 3)
}

// loadFigure is a row for programs: a load, or one kernel of the first.
type loadFigure struct {
	loadRow
	kernel *bench.LoadedKernel // nil = the whole load
}

// csv is the figures for programs.
func (r *loadReport) csv() []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "# %s; rows with a kernel are its compile in the first load\n", r.heading())
	var figures []loadFigure
	for _, m := range r.rows {
		figures = append(figures, loadFigure{m, nil})
		if m.Phase == bench.LoadFirst {
			for _, k := range m.Compiled() {
				figures = append(figures, loadFigure{m, &k})
			}
		}
	}
	kernel := func(x loadFigure) bool { return x.kernel != nil }
	whole := func(x loadFigure) bool { return x.kernel == nil }
	number := func(of func(loadFigure) int) func(loadFigure) string {
		return func(x loadFigure) string { return strconv.Itoa(of(x)) }
	}
	writeCSV(&out, []column[loadFigure]{
		{"heads", number(func(x loadFigure) int { return x.heads })},
		{"s_q", number(func(x loadFigure) int { return x.sq })},
		{"load", func(x loadFigure) string { return string(x.Phase) }},
		{"kernel", when(kernel, func(x loadFigure) string { return x.kernel.Name })},
		{"kernels", when(whole, number(func(x loadFigure) int { return len(x.Kernels) }))},
		{"cached", when(whole, number(func(x loadFigure) int { return x.Hits() }))},
		{"driver_loader", when(whole, number(func(x loadFigure) int { return x.Whole() }))},
		{"seconds", when(whole, func(x loadFigure) string { return fixed(x.Seconds, 5) })},
		{"compile_seconds", func(x loadFigure) string {
			if x.kernel != nil {
				return fixed(x.kernel.CompileSeconds, 4)
			}
			return fixed(x.CompileSeconds(), 4)
		}},
		{"open_seconds", when(whole, func(x loadFigure) string { return seconds(x.open) })},
		{"generate_seconds", when(whole, func(x loadFigure) string { return seconds(x.generated) })},
		{"ptx_bytes", when(kernel, number(func(x loadFigure) int { return x.kernel.PTXBytes }))},
		{"registers", when(kernel, number(func(x loadFigure) int { return x.kernel.Registers }))},
		{"warnings", when(kernel, number(func(x loadFigure) int { return len(x.kernel.Warnings) }))},
	}, figures)
	return out.Bytes()
}
