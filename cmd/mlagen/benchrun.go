package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/mlagen/mlagen/golden/oracle"
	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/bench"
	"github.com/mlagen/mlagen/templates/variants"
)

// schedulePool is the pool, in bytes, where only schedules are timed: it is
// what empties the L2 between bursts.
const schedulePool = 1 << 30

// runBench times the shapes and reports.
func (a *app) runBench(f *benchFlags, shapes []bench.Anchor) (err error) {
	pool := int64(f.pool * 1e9)
	if f.op == "schedule" && pool == 0 {
		pool = schedulePool
	}
	driver, b, err := a.openBench(f, pool)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close(), driver.Close()) }()

	report := benchReport{device: driver.Name(), attributes: driver.Attributes(), pool: b.Pool(), sustained: f.sustained > 0}
	p := a.progress(len(shapes) + len(f.products()))
	r := benchRun{flags: f, bench: b, blocks: func(heads, sq int) []int {
		return variants.Source{Tune: f.tune}.RowBlocks(runtime.DecodeShape{Heads: heads, SQ: sq, Latent: 512, Rope: 64})
	}, stderr: p.writer(a.stderr)}
	switch {
	case f.op == "schedule":
		err = r.schedules(&report, shapes, p)
	case productOps[f.op] != nil:
		err = r.products(&report, b, f.products(), p)
	default:
		err = r.decodes(&report, shapes, p)
	}
	p.done()
	report.compiled, report.meter = b.Compiled(), b.MeterError()
	if err != nil {
		// The device may be beyond use; what was measured is still told.
		return errors.Join(err, report.print(a.stdout))
	}
	if err := report.print(a.stdout); err != nil {
		return err
	}
	if f.csv != "" {
		if err := writeOutputs(a.stdout, output{f.csv, report.csv()}); err != nil {
			return err
		}
	}
	if r.wrong > 0 {
		return fmt.Errorf("%d of %d measurements gave WRONG RESULTS and were not timed", r.wrong, r.tried)
	}
	return nil
}

// measurer is what a run takes of bench.Bench.
type measurer interface {
	Bandwidth() (float64, error)
	Decode(bench.Shape) (bench.Result, error)
	DecodeWith(bench.Shape, bench.Setting) (bench.Result, error)
	Schedule(bench.Shape, bench.Setting) (bench.ScheduleResult, error)
}

// benchRun measures shapes for a report.
type benchRun struct {
	flags        *benchFlags
	bench        measurer
	blocks       func(heads, sq int) []int // row blocks worth trying
	stderr       io.Writer
	tried, wrong int
}

// timed reports whether a measurement gave a time. A wrong result, and kernels
// that cannot be loaded where skip says that others will do, are told and
// counted; other errors end the run.
func (r *benchRun) timed(err error, skip bool) (bool, error) {
	r.tried++
	var wrong *bench.WrongError
	var load *bench.LoadError
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &wrong):
		r.wrong++
	case !skip || !errors.As(err, &load):
		return false, err
	}
	fmt.Fprintf(r.stderr, "mlagen: %v\n", err)
	return false, nil
}

// within says what an error is of.
func within(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

// decodes times the shapes between two measurements of the bandwidth.
func (r *benchRun) decodes(report *benchReport, shapes []bench.Anchor, p progress) (err error) {
	if report.stream, err = r.bench.Bandwidth(); err != nil {
		return err
	}
	for _, s := range shapes {
		p.step(s.String())
		row, ok, err := r.decode(s)
		if ok {
			report.rows = append(report.rows, row)
		}
		if err != nil {
			return err
		}
	}
	report.streamAfter, err = r.bench.Bandwidth()
	return err
}

// decode times a shape: as chosen, with the other row blocks and in the
// batch-invariant mode, as the flags say.
func (r *benchRun) decode(s bench.Anchor) (row benchRow, ok bool, err error) {
	row = benchRow{anchor: s}
	row.Result, err = r.bench.Decode(s.Shape)
	if ok, err = r.timed(err, false); !ok {
		return row, false, err
	}
	if r.flags.variant == allVariants {
		blocks := append(r.blocks(s.Heads, s.SQ), row.BlockH)
		slices.Sort(blocks)
		for _, h := range slices.Compact(blocks) {
			v, ok := row.Result, true
			if h != row.BlockH {
				v, err = r.bench.DecodeWith(s.Shape, bench.Setting{BlockH: h, Splits: r.flags.splits})
				if ok, err = r.timed(within(err, "row block %d", h), true); err != nil {
					return row, true, err
				}
			}
			if ok {
				row.variants = append(row.variants, v)
			}
		}
	}
	if n := r.flags.invariant; n != 0 {
		v, err := r.bench.DecodeWith(s.Shape, bench.Setting{AnyLoad: n != bench.FromCapacity, Splits: n})
		ok, err := r.timed(within(err, "batch-invariant, %d pieces", n), true)
		if err != nil {
			return row, true, err
		}
		if ok {
			row.invariant = &v
		}
	}
	return row, true, nil
}

// schedules times the schedule kernel for the shapes.
func (r *benchRun) schedules(report *benchReport, shapes []bench.Anchor, p progress) error {
	for _, s := range shapes {
		p.step(s.String())
		result, err := r.bench.Schedule(s.Shape, bench.Setting{Splits: r.flags.splits})
		ok, err := r.timed(err, false)
		if err != nil {
			return err
		}
		if ok {
			report.schedules = append(report.schedules, result)
		}
	}
	return nil
}

// reference is the oracle's answer for one row.
func reference(r bench.Row) ([]float64, float64) {
	d := oracle.Decode[float32]{
		Heads: 1, QLen: 1, Latent: r.Latent, Rope: len(r.Q) - r.Latent, Scale: r.Scale, KVLen: []int{r.Keys},
		Q:   func(int, int, int) []float32 { return r.Q },
		Row: func(_, position int) []float32 { return r.Record(position) },
	}
	return d.One(0, 0, 0)
}
