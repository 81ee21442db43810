package bench

import (
	"fmt"
	"time"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/cache"
)

// LoadPhase is what is cached before kernels are loaded, by us and by the
// device's driver.
type LoadPhase string

// Phases. All but later ones are a process's first load.
const (
	LoadUncached LoadPhase = "caches off"
	LoadFirst    LoadPhase = "first, nothing cached"
	LoadDefaults LoadPhase = "second, default choices" // of the kernels that they name
	LoadTuned    LoadPhase = "second, tuned choices"
	LoadSecond   LoadPhase = "second"
	LoadLater    LoadPhase = "later, median"
)

// LoadResult is how long loading a set of kernels took.
type LoadResult struct {
	Phase   LoadPhase
	Seconds float64 // from the texts to kernels that can be launched, all of them
	Kernels []LoadedKernel
}

// LoadedKernel is what there is to tell of a kernel that was loaded.
type LoadedKernel struct {
	Name           string
	PTXBytes       int
	Registers      int
	CompileSeconds float64 // spent by the driver; for what it had in its own cache, to find it
	Cached         bool    // the image is from our cache
	Whole          bool    // only the driver's own cache may have had it
	Warnings       []runtime.Warning
}

// Tell describes loaded kernels, for when they are unloaded.
func Tell(kernels []*runtime.Kernel) (told []LoadedKernel) {
	for _, k := range kernels {
		told = append(told, LoadedKernel{k.Name, len(k.PTX), k.Attributes.Registers, k.CompileSeconds, k.Cached, k.Whole, k.Warnings})
	}
	return told
}

// Compiled returns the kernels that came of a compile, be it one that the driver
// answered from its own cache: of those with the same text one, but for whole
// programs.
func (r *LoadResult) Compiled() (kernels []LoadedKernel) {
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

// Hits returns how many kernels were in our cache.
func (r *LoadResult) Hits() int { return r.count(func(k *LoadedKernel) bool { return k.Cached }) }

// Whole returns how many kernels only the driver's own cache may have had.
func (r *LoadResult) Whole() int { return r.count(func(k *LoadedKernel) bool { return k.Whole }) }

func (r *LoadResult) count(is func(*LoadedKernel) bool) (n int) {
	for i := range r.Kernels {
		if is(&r.Kernels[i]) {
			n++
		}
	}
	return n
}

// Check is an error where our cache had a kernel that it could not have, or not
// one that it should have.
func (r *LoadResult) Check() error {
	hits, whole, all := r.Hits(), r.Whole(), len(r.Kernels)
	switch r.Phase {
	case LoadUncached, LoadFirst:
		if hits > 0 {
			return fmt.Errorf("%s: %d of %d kernels were in the cache, must be none", r.Phase, hits, all)
		}
	default:
		if hits+whole < all {
			return fmt.Errorf("%s: %d of %d kernels were in the cache and %d left to the driver's, must be all:%s", r.Phase, hits, all, whole, r.warnings())
		}
	}
	return nil
}

func (r *LoadResult) warnings() (s string) {
	for _, k := range r.Kernels {
		for _, w := range k.Warnings {
			s += "\n  " + w.String()
		}
	}
	return s
}

// Load times loading variants once, with what is compiled kept in a store, or
// nowhere if it is nil; they are unloaded again. With parallel above 0 so many
// texts are compiled at a time. It is an error if the store does not have what
// the phase says.
func Load(drv runtime.Driver, variants []runtime.Variant, phase LoadPhase, store *cache.Store, parallel int) (LoadResult, error) {
	begin := time.Now()
	kernels, err := runtime.LoadAll(drv, variants, runtime.WithCache(store), runtime.WithParallel(parallel))
	r := LoadResult{phase, time.Since(begin).Seconds(), Tell(kernels)}
	for _, k := range kernels {
		if e := k.Unload(); err == nil {
			err = e
		}
	}
	if err == nil {
		err = r.Check()
	}
	return r, err
}

// LoadAgain is Load so many times in a process that has loaded the kernels
// before; the seconds are the median's.
func LoadAgain(drv runtime.Driver, variants []runtime.Variant, store *cache.Store, parallel, repeats int) (r LoadResult, err error) {
	var seconds []float64
	for range max(1, repeats) {
		if r, err = Load(drv, variants, LoadLater, store, parallel); err != nil {
			return r, err
		}
		seconds = append(seconds, r.Seconds)
	}
	r.Seconds = median(seconds)
	return r, nil
}
