//go:build cuda

package cuda

import (
	"bytes"
	"errors"
	"math"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/mlagen/mlagen/runtime"
	"github.com/mlagen/mlagen/runtime/cache"
)

// TestMain keeps the tests out of the user's cache.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "mlagen-cache-*")
	if err != nil {
		panic(err)
	}
	os.Setenv(cache.Variable, dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// TestCompile: the linker takes sm_90a, several threads at a time, gives the
// same code each time, and what it gives runs.
func TestCompile(t *testing.T) {
	d := open(t).(*Driver)
	t.Logf("toolchain: %+v", d.Toolchain())
	for name, target := range map[string]int{"the context's": targetOfContext, "sm_90a": targetSM90a} {
		m, err := shimLink(d.context, []byte(stepText), target)
		t.Logf("target %s: %d bytes of code, %.3f s, %v\n%s", name, len(m.Code), m.Seconds, err, m.Log)
	}
	var images [8]runtime.Image
	var group sync.WaitGroup
	for i := range images {
		group.Go(func() {
			var err error
			if images[i], err = d.Compile([]byte(stepText)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if t.Failed() {
		return
	}
	for i, m := range images {
		if !bytes.Equal(m.Code, images[0].Code) || len(m.Code) == 0 || m.Seconds <= 0 {
			t.Errorf("image %d: %d bytes of code, %v s", i, len(m.Code), m.Seconds)
		}
	}
	if !strings.Contains(images[0].Log, "registers") {
		t.Errorf("the log does not tell the registers: %q", images[0].Log)
	}
	_, err := d.Compile([]byte(brokenText))
	wantError(t, err, "compile PTX: cuLinkAddData", "nonsense")
	for _, code := range [][]byte{nil, []byte("not an image of any kind")} {
		if _, err := d.LoadImage(code); err == nil {
			t.Errorf("%q was loaded", code)
		}
	}
}

// TestCache: what comes from the cache runs like what was compiled.
func TestCache(t *testing.T) {
	d := open(t)
	s := newStream(t, d)
	word := alloc(t, d, 4)
	store := cache.New(t.TempDir(), 0)
	for _, want := range []bool{false, true, true} {
		k, err := runtime.Load(d, runtime.Variant{PTX: []byte(stepText), Manifest: stepManifest()}, runtime.WithCache(store))
		if err != nil {
			t.Fatal(err)
		}
		if k.Cached != want || (k.CompileSeconds > 0) == want || k.Attributes.Registers == 0 || len(k.Warnings) > 0 {
			t.Errorf("cached %v, %v s, %+v, %v; cached should be %v", k.Cached, k.CompileSeconds, k.Attributes, k.Warnings, want)
		}
		try(t, d.Fill(word, 0, 4), k.Launch(s, runtime.Dim3{X: 1}, k.NewParams().Pointer("word", word), false), s.Synchronize())
		if got := words(download(t, d, word, 4))[0]; got != 1 {
			t.Errorf("the kernel gave %d, not 1", got)
		}
		try(t, k.Unload())
	}
}

// TestNoMemory: whatever takes memory says how much there was.
func TestNoMemory(t *testing.T) {
	d := open(t).(*Driver)
	_, err := d.Alloc("workspace", math.MaxInt64/4)
	wantError(t, err, `allocate "workspace", 2305843009213693951 bytes`, " bytes free)", "CUDA_ERROR_OUT_OF_MEMORY")
	var e *Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"compile": d.compileError(e, ""), "log": d.compileError(e, "said"), "else": d.short(e)} {
		if !strings.Contains(err.Error(), " bytes free)") || !errors.Is(err, e) {
			t.Errorf("%s: %v", what, err)
		}
	}
	other := &Error{Call: "cuInit", Code: 3}
	if err := d.short(other); err != error(other) || d.short(nil) != nil {
		t.Errorf("an error of another kind became %v", err)
	}
}
