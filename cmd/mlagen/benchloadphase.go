package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/bench"
	"github.com/mlagen/mlagen/runtime/cache"
	"github.com/mlagen/mlagen/runtime/tune"
	"github.com/mlagen/mlagen/templates/variants"
)

// loadPhaseVariable names the load that a process is started for; it prints a
// loadRun. Nobody else sets it.
const loadPhaseVariable = "MLAGEN_BENCH_LOAD"

// driverCacheOff is 1 where the GPU's driver has no cache. It reads it when it
// starts.
const driverCacheOff = "CUDA_CACHE_DISABLE"

// loadRun is what a process tells of its loads.
type loadRun struct {
	Device     string
	Attributes runtime.Attributes
	Toolchain  runtime.Toolchain
	Open       float64 // seconds until the device was there
	Generate   float64 // seconds that the texts took
	Loads      []bench.LoadResult
}

// loadInPhase is the process for a phase: what is cached is the environment's.
func (a *app) loadInPhase(ctx context.Context, f *benchFlags, d *device, m loadModel, phase bench.LoadPhase) (err error) {
	begin := time.Now()
	driver, err := d.open(false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, driver.Close()) }()
	run := loadRun{Device: driver.Name(), Attributes: driver.Attributes(), Open: time.Since(begin).Seconds()}
	if c, ok := driver.(runtime.Compiler); ok {
		run.Toolchain = c.Toolchain()
	}
	switch phase {
	case bench.LoadUncached, bench.LoadFirst, bench.LoadSecond:
		err = run.loadAll(driver, m, phase, f)
	case bench.LoadTuned:
		err = run.loadChosen(driver, m, phase, f.choices)
	case bench.LoadDefaults:
		err = run.loadDefaults(ctx, driver, m)
	default:
		err = usagef("%s was %q: it is not for you to set", loadPhaseVariable, phase)
	}
	if err != nil {
		return err
	}
	text, err := json.Marshal(&run)
	if err == nil {
		_, err = a.stdout.Write(text)
	}
	return err
}

// loadAll loads every kernel of the model.
func (r *loadRun) loadAll(driver runtime.Driver, m loadModel, phase bench.LoadPhase, f *benchFlags) error {
	begin := time.Now()
	variants, err := m.variants(variants.Source{})
	if err != nil {
		return err
	}
	r.Generate = time.Since(begin).Seconds()
	store, err := cache.Default()
	if err != nil {
		return err
	}
	load, err := bench.Load(driver, variants, phase, store, f.parallel)
	r.Loads = append(r.Loads, load)
	if err == nil && phase == bench.LoadSecond {
		load, err = bench.LoadAgain(driver, variants, store, f.parallel, f.replays)
		r.Loads = append(r.Loads, load)
	}
	return err
}

// loadChosen loads what an engine does that has a file of choices, reading it
// included.
func (r *loadRun) loadChosen(driver runtime.Driver, m loadModel, phase bench.LoadPhase, file string) error {
	from := &timedSource{}
	begin := time.Now()
	choices, err := tune.ReadFile(file)
	if err != nil {
		return err
	}
	decode, err := tune.LoadDecode(driver, from, choices, choices.Model, m.sq)
	if err != nil {
		return err
	}
	took := time.Since(begin)
	load := bench.LoadResult{Phase: phase, Seconds: (took - from.took()).Seconds(), Kernels: bench.Tell(decode.Kernels())}
	r.Generate, r.Loads = from.took().Seconds(), append(r.Loads, load)
	return errors.Join(decode.Ignored(), decode.Close())
}

// loadDefaults is loadChosen with a file of what is chosen without measuring, for
// many loads.
func (r *loadRun) loadDefaults(ctx context.Context, driver runtime.Driver, m loadModel) (err error) {
	choices, err := tune.OnDevice(ctx, driver, tune.Config{Source: variants.Source{}, Model: tune.DeepSeek(m.heads), Envelope: tune.Envelope{
		SQ: []int{m.sq}, Batches: tune.Doubling(1, 256), Tokens: tune.Doubling(1024, 32768),
	}})
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mlagen-choices-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "choices.json")
	if err := choices.WriteFile(file); err != nil {
		return err
	}
	return r.loadChosen(driver, m, bench.LoadDefaults, file)
}

// timedSource knows how long the kernels took that were asked for at once.
type timedSource struct {
	variants.Source
	mu          sync.Mutex
	first, last time.Time
}

// Decode implements runtime.Source.
func (s *timedSource) Decode(shape runtime.DecodeShape) (runtime.DecodeVariants, error) {
	begin := time.Now()
	v, err := s.Source.Decode(shape)
	end := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first.IsZero() || begin.Before(s.first) {
		s.first = begin
	}
	if end.After(s.last) {
		s.last = end
	}
	return v, err
}

func (s *timedSource) took() time.Duration { return s.last.Sub(s.first) }
