package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/bench"
	"github.com/mlagen/mlagen/templates"
)

// driverCacheOff is the setting of the environment with which the GPU's driver
// compiles anew what its own cache holds. It reads it when it starts.
const driverCacheOff = "CUDA_CACHE_DISABLE=1"

// loadModel is a model whose decode kernels are loaded.
type loadModel struct{ heads, sq int }

// variants generates what an engine loads for the model that chooses the row
// block by load: decode, schedule and combine for each block.
func (m loadModel) variants(from source) (all []runtime.Variant, err error) {
	shape := runtime.DecodeShape{Heads: m.heads, SQ: m.sq, Latent: 512, Rope: 64, Page: 64, DType: runtime.BF16}
	for _, shape.BlockH = range templates.BlockHs(m.heads * m.sq) {
		v, err := from.Decode(shape)
		if err != nil {
			return nil, err
		}
		all = append(all, v.Decode, v.Schedule, v.Combine)
	}
	return all, nil
}

// loadModels returns what is to be loaded.
func (f *benchFlags) loadModels() (models []loadModel, err error) {
	switch {
	case f.replays < 1 || f.parallel < 0:
		return nil, usagef("-replays must be at least 1; -parallel must not be negative")
	case f.splits != 0 || f.invariant != 0 || f.variant == allVariants || f.varlen || f.tune != (templates.Spec{}) || f.anchors != "" ||
		f.kv != nil || f.batch != nil || f.sustained > 0 || f.pool > 0:
		return nil, usagef("-op load loads every row block of a model and runs none; it takes -heads, -sq, -parallel, -replays, -quick, -device and -csv")
	}
	for _, heads := range f.heads.or(16) {
		for _, sq := range f.sq.or(1) {
			models = append(models, loadModel{heads, sq})
		}
	}
	return models, nil
}

// benchLoad times loading.
func (a *app) benchLoad(ctx context.Context, f *benchFlags) (err error) {
	models, err := f.loadModels()
	if err != nil {
		return err
	}
	d, err := findDevice(f.device)
	if err != nil {
		return err
	}
	if !d.emulated && os.Getenv("CUDA_CACHE_DISABLE") != "1" {
		if a.again == nil {
			return usagef("set %s, or the driver's own cache hides what compiling takes", driverCacheOff)
		}
		return a.again(ctx, driverCacheOff)
	}
	begin := time.Now()
	driver, err := d.open(false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, driver.Close()) }()
	report := loadReport{device: driver.Name(), attributes: driver.Attributes(), open: time.Since(begin).Seconds()}
	if !d.emulated {
		report.note = "; the driver's own cache is off (" + driverCacheOff + ")"
	}
	if c, ok := driver.(runtime.Compiler); ok {
		report.toolchain = c.Toolchain()
	}
	replays := f.replays
	if f.quick {
		replays = min(replays, 3)
	}
	p := a.progress(len(models))
	for _, m := range models {
		p.step(fmt.Sprintf("heads %d, s_q %d", m.heads, m.sq))
		begin := time.Now()
		variants, e := m.variants(source{})
		if err = e; err != nil {
			break
		}
		row := loadRow{loadModel: m, generated: time.Since(begin).Seconds()}
		row.results, err = bench.Loads(driver, variants, f.parallel, replays)
		report.rows = append(report.rows, row)
		if err != nil {
			break
		}
	}
	p.done()
	err = errors.Join(err, report.print(a.stdout)) // what was measured is told in any case
	if err == nil && f.csv != "" {
		err = writeOutputs(a.stdout, output{f.csv, report.csv()})
	}
	return err
}

// loadReport is what a run has to tell.
type loadReport struct {
	device     string
	attributes runtime.Attributes
	toolchain  runtime.Toolchain
	open       float64 // seconds until the device was there
	note       string
	rows       []loadRow
}

// loadRow is a model and how long loading it took.
type loadRow struct {
	loadModel
	generated float64 // seconds that the texts took
	results   []bench.LoadResult
}

// heading says what was measured and where.
func (r *loadReport) heading() string {
	a := r.attributes
	return fmt.Sprintf("%s, driver for CUDA %d.%d (%s), opened in %.3f s%s", r.device, a.DriverVersion/1000, a.DriverVersion%1000/10, r.toolchain.Driver, r.open, r.note)
}

func (r *loadReport) print(w io.Writer) error {
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s\n", r.heading())
	t := newTable("heads", "s_q", "load", "kernels", "compiled", "from cache", "s", "compiles added up, s", "generating, s")
	for _, m := range r.rows {
		for _, x := range m.results {
			t.AppendRow([]any{m.heads, m.sq, x.Phase, len(x.Kernels), len(x.Compiled()), x.Hits(), fixed(x.Seconds, 4), fixed(x.CompileSeconds(), 3), fixed(m.generated, 3)})
		}
	}
	out.WriteString(t.Render() + "\n")
	var all []*runtime.Kernel
	for _, m := range r.rows {
		for i, x := range m.results {
			all = append(all, x.Kernels...)
			if i == 0 {
				out.WriteString(compileTable(x.Compiled()).Render() + "\n")
			}
		}
	}
	out.WriteString(warningLines(all))
	_, err := w.Write(out.Bytes())
	return err
}

// loadFigure is a row for programs: a load, or one kernel of the first.
type loadFigure struct {
	loadRow
	result bench.LoadResult
	kernel *runtime.Kernel // nil = the whole load
}

// csv is the figures for programs.
func (r *loadReport) csv() []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "# %s; rows with a kernel are its compile in the first load\n", r.heading())
	var figures []loadFigure
	for _, m := range r.rows {
		for i, x := range m.results {
			figures = append(figures, loadFigure{m, x, nil})
			for _, k := range x.Compiled() {
				if i == 0 {
					figures = append(figures, loadFigure{m, x, k})
				}
			}
		}
	}
	kernel := func(x loadFigure) bool { return x.kernel != nil }
	whole := func(x loadFigure) bool { return x.kernel == nil }
	writeCSV(&out, []column[loadFigure]{
		{"heads", func(x loadFigure) string { return strconv.Itoa(x.heads) }},
		{"s_q", func(x loadFigure) string { return strconv.Itoa(x.sq) }},
		{"load", func(x loadFigure) string { return string(x.result.Phase) }},
		{"kernel", when(kernel, func(x loadFigure) string { return x.kernel.Name })},
		{"kernels", when(whole, func(x loadFigure) string { return strconv.Itoa(len(x.result.Kernels)) })},
		{"cached", when(whole, func(x loadFigure) string { return strconv.Itoa(x.result.Hits()) })},
		{"seconds", when(whole, func(x loadFigure) string { return fixed(x.result.Seconds, 5) })},
		{"compile_seconds", func(x loadFigure) string {
			if x.kernel != nil {
				return fixed(x.kernel.CompileSeconds, 4)
			}
			return fixed(x.result.CompileSeconds(), 4)
		}},
		{"ptx_bytes", when(kernel, func(x loadFigure) string { return strconv.Itoa(len(x.kernel.PTX)) })},
		{"registers", when(kernel, func(x loadFigure) string { return strconv.Itoa(x.kernel.Attributes.Registers) })},
		{"warnings", when(kernel, func(x loadFigure) string { return strconv.Itoa(len(x.kernel.Warnings)) })},
	}, figures)
	return out.Bytes()
}
