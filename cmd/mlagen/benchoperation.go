package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/bench"
	"github.com/mlagen/mlagen/templates"
	"github.com/mlagen/mlagen/templates/variants"
)

// operationRun is an operation that is timed shape by shape and told in a report
// of its own.
type operationRun struct {
	shapes  int
	pool    int64 // bytes
	measure func(b *bench.Bench, p progress, w io.Writer) (wrong int, err error)
	done    func(driver runtime.Driver, b *bench.Bench) // what they say goes into the report
	print   func(io.Writer) error
	csv     func() []byte
}

// openBench opens the device with a pool of so many bytes, 0 for the usual one;
// closing the driver comes after closing the bench.
func (a *app) openBench(f *benchFlags, pool int64) (driver runtime.Driver, b *bench.Bench, err error) {
	d, err := findDevice(f.device)
	if err != nil {
		return nil, nil, err
	}
	if d.emulated {
		return nil, nil, usagef("-device %s keeps no time: bench on a GPU (-device cuda); mlagen plan estimates without one", d.name)
	}
	stream, err := variants.Build("stream", templates.Spec{})
	if err != nil {
		return nil, nil, err
	}
	if driver, err = d.open(false); err != nil {
		return nil, nil, err
	}
	replays := f.replays
	if f.quick {
		replays = min(replays, 3)
	}
	b, err = bench.New(bench.Config{
		Driver: driver, Source: variants.Source{Tune: f.tune}, Stream: stream, Reference: reference,
		PoolBytes: pool, Replays: replays, Splits: f.splits, Sustained: f.sustained, Cautious: f.cautious,
	})
	if err != nil {
		return nil, nil, errors.Join(err, driver.Close())
	}
	return driver, b, nil
}

// timeOperation opens the device, times and tells.
func (a *app) timeOperation(f *benchFlags, o operationRun) (err error) {
	driver, b, err := a.openBench(f, o.pool)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close(), driver.Close()) }()

	p := a.progress(o.shapes)
	wrong, err := o.measure(b, p, p.writer(a.stderr))
	p.done()
	o.done(driver, b)
	err = errors.Join(err, o.print(a.stdout)) // what was measured is told in any case
	if err == nil && f.csv != "" {
		err = writeOutputs(a.stdout, output{f.csv, o.csv()})
	}
	if err == nil && wrong > 0 {
		err = fmt.Errorf("%d of %d shapes gave WRONG RESULTS and were not timed", wrong, o.shapes)
	}
	return err
}

// timeShapes times shapes, keeps what they gave and counts wrong results, which
// it tells to w.
func timeShapes[S fmt.Stringer, R any](shapes []S, p progress, w io.Writer, time func(S) (R, error), keep func(S, R)) (wrong int, err error) {
	for _, s := range shapes {
		p.step(s.String())
		result, err := time(s)
		var mistake *bench.WrongError
		switch {
		case errors.As(err, &mistake):
			fmt.Fprintf(w, "mlagen: %v\n", err)
			wrong++
		case err != nil:
			return wrong, err
		default:
			keep(s, result)
		}
	}
	return wrong, nil
}
