package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/bench"
	"github.com/mlagen/mlagen/runtime/cache"
	"github.com/mlagen/mlagen/runtime/tune"
	"github.com/mlagen/mlagen/templates"
	"github.com/mlagen/mlagen/templates/variants"
)

// loadModel is a model whose decode kernels are loaded.
type loadModel struct{ heads, sq int }

// variants generates what an engine loads for the model that chooses the row
// block by load: decode, schedule and combine for each block.
func (m loadModel) variants(from variants.Source) (all []runtime.Variant, err error) {
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
		return nil, usagef("-op load loads every row block of a model and runs none; it takes -heads, -sq, -choices, -parallel, -replays, -quick, -device and -csv")
	}
	for _, heads := range f.heads.or(16) {
		for _, sq := range f.sq.or(1) {
			models = append(models, loadModel{heads, sq})
		}
	}
	if f.choices == "" {
		return models, nil
	}
	choices, err := tune.ReadFile(f.choices)
	if err != nil {
		return nil, err
	}
	for _, m := range models {
		of := func(b tune.Bucket) bool { return b.SQ == m.sq }
		if choices.Model != tune.DeepSeek(m.heads) || !slices.ContainsFunc(choices.Buckets, of) {
			return nil, usagef("-choices: %s is for %d heads; it has none for %d heads with s_q %d", f.choices, choices.Model.Heads, m.heads, m.sq)
		}
	}
	return models, nil
}

// benchLoad times loading. What a process finds cached depends on those before
// it, so each load is that of a process started for it, with caches, ours and
// the driver's, in a directory that is the model's own.
func (a *app) benchLoad(ctx context.Context, f *benchFlags) (err error) {
	models, err := f.loadModels()
	if err != nil {
		return err
	}
	d, err := findDevice(f.device)
	if err != nil {
		return err
	}
	if phase := os.Getenv(loadPhaseVariable); phase != "" {
		return a.loadInPhase(ctx, f, &d, models[0], bench.LoadPhase(phase))
	}
	if a.again == nil {
		return usagef("-op load starts itself in processes of its own, which cannot be done here")
	}
	report := &loadReport{}
	p := a.progress(len(models) * 4)
	for _, m := range models {
		if err = a.loadModel(ctx, f, m, report, p); err != nil {
			err = fmt.Errorf("heads %d, s_q %d: %w", m.heads, m.sq, err)
			break
		}
	}
	p.done()
	if len(report.rows) > 0 { // what was measured is told in any case
		err = errors.Join(err, report.print(a.stdout))
	}
	if err == nil && f.csv != "" {
		err = writeOutputs(a.stdout, output{f.csv, report.csv()})
	}
	return err
}

// loadModel times all loads of a model.
func (a *app) loadModel(ctx context.Context, f *benchFlags, m loadModel, report *loadReport, p progress) (err error) {
	dir, err := os.MkdirTemp("", "mlagen-load-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	driverCache := filepath.Join(dir, "driver")
	if err := os.Mkdir(driverCache, 0o700); err != nil {
		return err
	}
	chosen := bench.LoadDefaults
	if f.choices != "" {
		chosen = bench.LoadTuned
	}
	caches := []string{driverCacheOff + "=0", "CUDA_CACHE_PATH=" + driverCache, cache.Variable + "=" + filepath.Join(dir, "ours")}
	for _, phase := range []bench.LoadPhase{bench.LoadUncached, bench.LoadFirst, chosen, bench.LoadSecond} {
		p.step(fmt.Sprintf("heads %d, s_q %d, %s", m.heads, m.sq, phase))
		settings, times := caches, 1
		switch phase {
		case bench.LoadUncached:
			settings = []string{driverCacheOff + "=1", cache.Variable + "=" + cache.Off}
		case bench.LoadTuned:
			times = 2 // the first fills the caches: other loads do not take all that is chosen
		}
		var run loadRun
		for range times {
			var out bytes.Buffer
			if err := a.again(ctx, &out, f.loadArguments(m), slices.Concat(settings, []string{loadPhaseVariable + "=" + string(phase)})...); err != nil {
				return fmt.Errorf("%s: %w", phase, err)
			}
			run = loadRun{}
			if err := json.Unmarshal(out.Bytes(), &run); err != nil {
				return fmt.Errorf("what the process for %q printed: %w", phase, err)
			}
		}
		report.add(m, run)
		if phase == chosen && run.Toolchain.Kept {
			if err := run.Loads[0].Check(); err != nil {
				return err
			}
		}
	}
	return nil
}

// loadArguments is the command line for a load of a model.
func (f *benchFlags) loadArguments(m loadModel) []string {
	replays := f.replays
	if f.quick {
		replays = min(replays, 3)
	}
	args := []string{"bench", "-op", "load", "-device", f.device, "-heads", strconv.Itoa(m.heads), "-sq", strconv.Itoa(m.sq),
		"-parallel", strconv.Itoa(f.parallel), "-replays", strconv.Itoa(replays)}
	if f.choices != "" {
		args = append(args, "-choices", f.choices)
	}
	return args
}
