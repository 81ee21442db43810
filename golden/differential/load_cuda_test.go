//go:build cuda

package differential

import (
	"fmt"
	"testing"
	"time"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/cache"
	"github.com/mlagen/mlagen/runtime/cuda"
	"github.com/mlagen/mlagen/templates"
)

// anew returns the decode kernel for 128 heads, whose warps take more registers
// than the launch gives them, so many times and each with a comment of its own:
// no cache has it, the driver's neither.
func anew(t *testing.T, n int) (variants []runtime.Variant) {
	t.Helper()
	out, err := templates.Build("absorb-decode", templates.Spec{Heads: 128})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		m := *out.Manifest
		m.PTXSHA256 = "" // of the text without the comment
		text := fmt.Appendf(nil, "%s// %s, %d of %d\n", out.PTX, time.Now().Format(time.RFC3339Nano), i, n)
		variants = append(variants, runtime.Variant{Name: fmt.Sprintf("absorb-decode %d", i), PTX: text, Manifest: &m})
	}
	return variants
}

func loadWhole(t *testing.T, d runtime.Driver, v []runtime.Variant, o ...runtime.LoadOption) time.Duration {
	t.Helper()
	start := time.Now()
	kernels, err := runtime.LoadAll(d, v, o...)
	took := time.Since(start)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kernels {
		t.Logf("%s: compiled in %.3f s, %d registers, %d bytes of local memory, warnings %v", k.Name, k.CompileSeconds, k.Attributes.Registers, k.Attributes.LocalBytes, k.Warnings)
		if !k.Whole || k.Cached || k.Attributes.LocalBytes != 0 {
			t.Errorf("%s: whole %v, from our cache %v, %d bytes of local memory", k.Name, k.Whole, k.Cached, k.Attributes.LocalBytes)
		}
		for _, w := range k.Warnings {
			if w.Kind == runtime.IgnoredRegisters || w.Kind == runtime.Uncached {
				t.Error(w)
			}
		}
		if err := k.Unload(); err != nil {
			t.Error(err)
		}
	}
	return took
}

func openGPU(t *testing.T) runtime.Driver {
	t.Helper()
	d, err := cuda.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// TestRegistersAreNotIgnored: a kernel whose warps change their registers is
// compiled so that they do, at first and from the driver's own cache, and our
// cache has nothing of it.
func TestRegistersAreNotIgnored(t *testing.T) {
	d, v, store := openGPU(t), anew(t, 1), cache.New(t.TempDir(), 0)
	first := loadWhole(t, d, v, runtime.WithCache(store))
	second := loadWhole(t, d, v, runtime.WithCache(store))
	t.Logf("loaded in %.3f s at first and %.4f s after it was unloaded", first.Seconds(), second.Seconds())
	if n, _, err := store.Size(); n != 0 || err != nil {
		t.Errorf("%d entries in our cache, %v", n, err)
	}
}

// TestWholeProgramsSideBySide tells whether the driver's loader compiles for
// several threads at a time: four kernels one after another, and together.
func TestWholeProgramsSideBySide(t *testing.T) {
	d := openGPU(t)
	var seconds [2]float64
	for i, parallel := range []int{1, 4} {
		seconds[i] = loadWhole(t, d, anew(t, 4), runtime.WithCache(nil), runtime.WithParallel(parallel)).Seconds()
		t.Logf("four kernels, %d at a time: %.3f s", parallel, seconds[i])
	}
	t.Logf("side by side %.2f times as fast", seconds[0]/seconds[1])
}
