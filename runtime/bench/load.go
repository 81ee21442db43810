package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/cache"
)

// LoadPhase is a state of the cache before kernels are loaded.
type LoadPhase string

// Phases, in the order in which they are timed. Later loads find what a process
// finds that is not the first.
const (
	CacheOff   LoadPhase = "first, cache off"
	CacheEmpty LoadPhase = "first, cache empty"
	CacheFull  LoadPhase = "second"
	CacheLater LoadPhase = "later, median"
)

// LoadResult is how long loading a set of kernels took.
type LoadResult struct {
	Phase   LoadPhase
	Seconds float64           // from the texts to kernels that can be launched, all of them
	Kernels []*runtime.Kernel // unloaded; for their compile times and warnings
}

// Compiled returns the kernels that came of a compile: of those with the same
// text one.
func (r *LoadResult) Compiled() (kernels []*runtime.Kernel) {
	for _, k := range r.Kernels {
		if k.CompileSeconds > 0 {
			kernels = append(kernels, k)
		}
	}
	return kernels
}

// CompileSeconds is how long the compiles took if it is added up.
func (r *LoadResult) CompileSeconds() (seconds float64) {
	for _, k := range r.Kernels {
		seconds += k.CompileSeconds
	}
	return seconds
}

// Hits returns how many kernels were in the cache.
func (r *LoadResult) Hits() (n int) {
	for _, k := range r.Kernels {
		if k.Cached {
			n++
		}
	}
	return n
}

// Whole returns how many kernels only the driver's own cache may have had.
func (r *LoadResult) Whole() (n int) {
	for _, k := range r.Kernels {
		if k.Whole {
			n++
		}
	}
	return n
}

// Loads times loading variants with no cache, with an empty one and with a full
// one, that again so many times, in a directory of its own that it removes. With
// parallel above 0 so many texts are compiled at a time. It is an error if a
// kernel is not in the cache that should be.
func Loads(drv runtime.Driver, variants []runtime.Variant, parallel, repeats int) (results []LoadResult, err error) {
	dir, err := os.MkdirTemp("", "mlagen-load-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	load := func(phase LoadPhase) (LoadResult, error) {
		var store *cache.Store
		if phase != CacheOff {
			store = cache.New(filepath.Join(dir, "cache"), 0)
		}
		begin := time.Now()
		kernels, err := runtime.LoadAll(drv, variants, runtime.WithCache(store), runtime.WithParallel(parallel))
		r := LoadResult{phase, time.Since(begin).Seconds(), kernels}
		for _, k := range kernels {
			err = errors.Join(err, k.Unload())
		}
		if n := r.Hits() + r.Whole(); err == nil && (phase == CacheFull || phase == CacheLater) && n < len(kernels) {
			err = fmt.Errorf("%d of %d kernels were in the cache or left to the driver's, must be all:%s", n, len(kernels), warnings(kernels))
		}
		return r, err
	}
	for _, phase := range []LoadPhase{CacheOff, CacheEmpty, CacheFull} {
		r, err := load(phase)
		if err != nil {
			return results, err
		}
		results = append(results, r)
	}
	later := LoadResult{Phase: CacheLater}
	var seconds []float64
	for range repeats {
		r, err := load(CacheLater)
		if err != nil {
			return results, err
		}
		seconds, later.Kernels = append(seconds, r.Seconds), r.Kernels
	}
	if len(seconds) > 0 {
		later.Seconds = median(seconds)
		results = append(results, later)
	}
	return results, nil
}

func warnings(kernels []*runtime.Kernel) (s string) {
	for _, k := range kernels {
		for _, w := range k.Warnings {
			s += "\n  " + w.String()
		}
	}
	return s
}
