package runtime

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/runtime/cache"
)

// fakeCompiler is a fake driver that compiles apart from loading. Its image of
// a text is the text behind a word.
type fakeCompiler struct {
	*fakeDriver
	toolchain Toolchain
	linkLog   string
	refuses   string       // a text that Compile fails for
	waits     func(string) // while compiling a text

	mu            sync.Mutex
	compiled      []string
	running, most int
	wholes        int   // modules that Compile loaded
	unload        error // of those
}

const imageWord = "image of "

func newFakeCompiler() *fakeCompiler {
	return &fakeCompiler{fakeDriver: newFake(), toolchain: Toolchain{Card: "card", Driver: "1", Options: "none", Kept: true}}
}

func (d *fakeCompiler) Toolchain() Toolchain { return d.toolchain }

func (d *fakeCompiler) Compile(ptx []byte) (Image, error) {
	d.mu.Lock()
	d.compiled = append(d.compiled, string(ptx))
	d.running++
	d.most = max(d.most, d.running)
	d.mu.Unlock()
	if d.waits != nil {
		d.waits(string(ptx))
	}
	d.mu.Lock()
	d.running--
	d.mu.Unlock()
	if string(ptx) == d.refuses || string(ptx) == "broken" {
		return Image{}, errors.New("link: refused")
	}
	if WholeProgram(ptx) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.wholes++
		return Image{Module: &wholeModule{fakeModule{d.fakeDriver}, d}, Log: d.linkLog, Seconds: 0.25}, nil
	}
	return Image{Code: []byte(imageWord + string(ptx)), Log: d.linkLog, Seconds: 0.25}, nil
}

func (d *fakeCompiler) LoadImage(code []byte) (Module, error) {
	if !bytes.HasPrefix(code, []byte(imageWord)) {
		return nil, errors.New("not an image")
	}
	d.loads++
	return &fakeModule{d.fakeDriver}, nil
}

// wholeModule is what Compile loaded.
type wholeModule struct {
	fakeModule
	compiler *fakeCompiler
}

func (m *wholeModule) Unload() error { return errors.Join(m.fakeModule.Unload(), m.compiler.unload) }

// left returns how many modules are loaded.
func (d *fakeCompiler) left() int { return d.loads + d.wholes - d.unloaded }

// count returns how many texts were compiled since the last call.
func (d *fakeCompiler) count() int {
	n := len(d.compiled)
	d.compiled = nil
	return n
}

func variants(names ...string) (all []Variant) {
	for _, n := range names {
		all = append(all, variant(n, 128, nil, "a", "*f32"))
	}
	return all
}

// whole makes a variant that must be compiled as a whole program.
func whole(name string) Variant {
	v := variant(name, 128, nil, "a", "*f32")
	v.PTX, v.Manifest.PTXSHA256 = append(v.PTX, "setmaxnreg.inc.sync.aligned.u32 240;\n"...), ""
	return v
}

func loadAll(t *testing.T, d Driver, v []Variant, o ...LoadOption) []*Kernel {
	t.Helper()
	kernels, err := LoadAll(d, v, o...)
	if err != nil {
		t.Fatal(err)
	}
	return kernels
}

// together returns a wait that ends when n callers wait, or too late.
func together(t *testing.T, n int) func(string) {
	var group sync.WaitGroup
	group.Add(n)
	all := make(chan struct{})
	go func() { group.Wait(); close(all) }()
	return func(text string) {
		group.Done()
		select {
		case <-all:
		case <-time.After(10 * time.Second):
			t.Errorf("%q was compiled without the others", text)
		}
	}
}

func TestTextsAreCompiledSideBySide(t *testing.T) {
	d := newFakeCompiler()
	d.waits = together(t, 5)
	kernels := loadAll(t, d, variants("a", "b", "c", "d", "e"), WithCache(nil), WithParallel(5))
	for i, k := range kernels {
		if k.Name != string("abcde"[i]) || k.CompileSeconds != 0.25 || k.Cached || k.Attributes.Registers != 136 {
			t.Errorf("kernel %d: %s, %v s, cached %v, %d registers", i, k.Name, k.CompileSeconds, k.Cached, k.Attributes.Registers)
		}
	}
	d.waits = together(t, 3) // an operation's kernels
	if _, err := LoadDecode(d, decodeVariants(16, 1, 16), WithCache(nil), WithParallel(3)); err != nil {
		t.Fatal(err)
	}
	d.waits = together(t, 3) // of several operations, whose texts are alike here
	decodes, err := LoadDecodes(d, []DecodeVariants{decodeVariants(16, 1, 16), decodeVariants(16, 1, 32), decodeVariants(16, 1, 64)}, WithCache(nil), WithParallel(3))
	if err != nil || len(decodes) != 3 || decodes[1].Model().BlockH != 32 {
		t.Fatalf("%d decodes, %v", len(decodes), err)
	}
	d.waits, d.most = func(string) { time.Sleep(time.Millisecond) }, 0
	loadAll(t, d, variants("a", "b", "c", "d", "e"), WithCache(nil), WithParallel(2))
	if d.most > 2 {
		t.Errorf("%d compiled at a time, not 2", d.most)
	}
}

func TestLikeTextsAreCompiledOnce(t *testing.T) {
	d := newFakeCompiler()
	v := variants("a", "b", "a", "a")
	bad := variant("a", 0, nil, "a", "*f32") // the same text for a manifest that is refused
	if _, err := LoadAll(d, append([]Variant{bad}, v...), WithCache(nil)); err == nil || !strings.Contains(err.Error(), "threads was 0") {
		t.Errorf("got %v", err)
	}
	d.count()
	seconds := 0.0
	for _, k := range loadAll(t, d, v, WithCache(nil)) {
		seconds += k.CompileSeconds
	}
	slices.Sort(d.compiled)
	if diff := cmp.Diff([]string{"// a\n", "// b\n"}, d.compiled); diff != "" || seconds != 0.5 {
		t.Errorf("compiled in %v s (-want +got):\n%s", seconds, diff)
	}
	// A variant whose twin is refused is compiled all the same.
	d.count()
	_, err := loadAhead(d, []LoadOption{WithCache(nil)}, []Variant{bad, v[0]}, func(l *loader) (*Kernel, error) { return l.load(v[0]) })
	if err != nil || d.count() != 1 {
		t.Errorf("beside its refused twin: %v", err)
	}
}

func TestRefusedVariantsAreNotCompiled(t *testing.T) {
	d, v := newFakeCompiler(), variants("a")
	v[0].Manifest.Cluster, d.attributes.Clusters = 2, false
	if _, err := LoadAll(d, v, WithCache(nil)); err == nil || !strings.Contains(err.Error(), "load a on fake: it runs in clusters of 2 blocks") {
		t.Errorf("got %v", err)
	}
	if n := d.count(); n != 0 {
		t.Errorf("%d texts were compiled", n)
	}
}

func TestLoadAllUnloadsAfterAnError(t *testing.T) {
	d, v := newFakeCompiler(), variants("a", "b", "c", "d")
	v[2].PTX, v[2].Manifest.PTXSHA256 = []byte("broken"), ""
	if _, err := LoadAll(d, v, WithCache(nil)); err == nil || err.Error() != "load c on fake: ptxas: line 1; syntax error" {
		t.Errorf("got %v", err)
	}
	if d.loads != 2 || d.unloaded != 2 || d.running != 0 {
		t.Errorf("%d loaded, %d unloaded, %d still being compiled", d.loads, d.unloaded, d.running)
	}
	if _, err := LoadAll(nil, v); err == nil || !strings.Contains(err.Error(), "load a: driver was nil") {
		t.Errorf("got %v", err)
	}
}

func TestCachedKernels(t *testing.T) {
	d, v := newFakeCompiler(), variants("a", "b")
	d.linkLog = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to x\n" +
		"ptxas info    : (C7507) Potential Performance Loss: 'setmaxnreg' ignored to maintain minimum register requirements."
	store := cache.New(t.TempDir(), 0)
	first := loadAll(t, d, v, WithCache(store))
	if n := d.count(); n != 2 {
		t.Errorf("%d texts were compiled at first", n)
	}
	var told []Warning
	second := loadAll(t, d, v, WithCache(store), WithWarnings(func(w Warning) { told = append(told, w) }))
	if n := d.count(); n != 0 {
		t.Errorf("%d texts were compiled again", n)
	}
	var want []Warning
	for i, k := range second {
		want = append(want, first[i].Warnings...)
		if !k.Cached || k.CompileSeconds != 0 || k.Attributes != first[i].Attributes || first[i].Cached {
			t.Errorf("%s: cached %v, %v s, %+v", k.Name, k.Cached, k.CompileSeconds, k.Attributes)
		}
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if len(told) != 4 || told[2].Kernel != "b" || told[2].Kind != Serialised || told[3].Kind != IgnoredRegisters ||
		!strings.HasPrefix(told[2].String(), "b: serialised: ptxas info    : (C7510)") {
		t.Errorf("warned of %v", told)
	}
	// What is from the cache is inspected like what was compiled.
	d.function.LocalBytes = 8
	d.linkLog = ""
	if _, err := LoadAll(d, v, WithCache(store)); err == nil || !strings.Contains(err.Error(), "8 bytes of local memory") {
		t.Errorf("got %v", err)
	}
	if d.unloaded == 0 {
		t.Error("what was refused stays loaded")
	}
}

// TestRefusedKernelsAreNotKept: an image that fails inspection is no good to
// anybody.
func TestRefusedKernelsAreNotKept(t *testing.T) {
	d, store := newFakeCompiler(), cache.New(t.TempDir(), 0)
	d.function.LocalBytes = 8
	if _, err := LoadAll(d, variants("a"), WithCache(store)); err == nil {
		t.Fatal("loaded with local memory")
	}
	if n, _, err := store.Size(); n != 0 || err != nil {
		t.Errorf("%d entries, %v", n, err)
	}
}

func TestEveryIngredientIsInTheKey(t *testing.T) {
	store := cache.New(t.TempDir(), 0)
	loadAll(t, newFakeCompiler(), variants("a"), WithCache(store))
	for name, change := range map[string]func(*fakeCompiler, *Variant){
		"card":    func(d *fakeCompiler, _ *Variant) { d.toolchain.Card = "card 2" },
		"driver":  func(d *fakeCompiler, _ *Variant) { d.toolchain.Driver = "2" },
		"options": func(d *fakeCompiler, _ *Variant) { d.toolchain.Options = "all" },
		"moved": func(d *fakeCompiler, _ *Variant) {
			d.toolchain.Card, d.toolchain.Driver = d.toolchain.Driver, d.toolchain.Card
		},
		"text": func(_ *fakeCompiler, v *Variant) { v.PTX, v.Manifest.PTXSHA256 = append(v.PTX, '\n'), "" },
		"none": func(*fakeCompiler, *Variant) {},
	} {
		d, v := newFakeCompiler(), variants("a")
		change(d, &v[0])
		for i, want := range []bool{name == "none", true} {
			if k := loadAll(t, d, v, WithCache(store)); k[0].Cached != want {
				t.Errorf("%s, load %d: cached %v", name, i, k[0].Cached)
			}
		}
	}
}

// TestBadEntries: whatever lies in an entry's place, the kernel is right, and
// the entry after it.
func TestBadEntries(t *testing.T) {
	d, v := newFakeCompiler(), variants("a")
	key := imageKey(d.toolchain, [32]byte{})
	for name, spoil := range map[string]func(*cache.Store, string) error{
		"cut":     func(_ *cache.Store, f string) error { return os.Truncate(f, 80) },
		"empty":   func(_ *cache.Store, f string) error { return os.Truncate(f, 0) },
		"foreign": func(_ *cache.Store, f string) error { return os.WriteFile(f, []byte("something else"), 0o600) },
		"no image": func(s *cache.Store, _ string) error {
			return s.Put(imageKey(d.toolchain, textSum(v[0])), (&Image{Log: "log", Code: []byte("other code")}).pack())
		},
		"no code": func(s *cache.Store, _ string) error {
			return s.Put(imageKey(d.toolchain, textSum(v[0])), (&Image{Log: "log"}).pack())
		},
		"nothing": func(s *cache.Store, _ string) error { return s.Put(imageKey(d.toolchain, textSum(v[0])), nil) },
		"other key's": func(s *cache.Store, f string) error {
			if err := s.Put(key, (&Image{Code: []byte(imageWord + "other")}).pack()); err != nil {
				return err
			}
			return os.Rename(otherFile(s, f), f)
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := cache.New(t.TempDir(), 0)
			loadAll(t, d, v, WithCache(store))
			if err := spoil(store, otherFile(store, "")); err != nil {
				t.Fatal(err)
			}
			d.count()
			if k := loadAll(t, d, v, WithCache(store)); k[0].Cached || d.count() != 1 {
				t.Error("the entry was taken")
			}
			if k := loadAll(t, d, v, WithCache(store)); !k[0].Cached {
				t.Error("the entry was not replaced")
			}
			if d.loads-d.unloaded < 0 {
				t.Errorf("%d loaded, %d unloaded", d.loads, d.unloaded)
			}
		})
	}
}

func textSum(v Variant) [32]byte { return sha256.Sum256(v.PTX) }

// otherFile returns the store's file that is not called not.
func otherFile(s *cache.Store, not string) string {
	names, _ := filepath.Glob(filepath.Join(s.Dir(), "image-*"))
	for _, n := range names {
		if n != not {
			return n
		}
	}
	return ""
}

func TestCacheOfTheEnvironment(t *testing.T) {
	d, v, dir := newFakeCompiler(), variants("a", "b"), t.TempDir()
	t.Setenv(cache.Variable, dir)
	loadAll(t, d, v)
	if k := loadAll(t, d, v); !k[0].Cached || !k[1].Cached || k[0].Warnings != nil {
		t.Errorf("in a directory: cached %v and %v, %v", k[0].Cached, k[1].Cached, k[0].Warnings)
	}
	t.Setenv(cache.Variable, cache.Off)
	if k := loadAll(t, d, v); k[0].Cached || k[0].Warnings != nil {
		t.Errorf("off: cached %v, %v", k[0].Cached, k[0].Warnings)
	}
	// A driver whose images are not worth it keeps none unless it is told to.
	t.Setenv(cache.Variable, dir)
	d.toolchain.Kept = false
	if k := loadAll(t, d, v); k[0].Cached {
		t.Error("cached though images are cheap")
	}
	if k := loadAll(t, d, v, WithCache(cache.New(dir, 0))); !k[0].Cached {
		t.Error("not cached though a store was given")
	}
}

// TestUnusableCache: kernels load, and one warning says why the next process
// will compile again.
func TestUnusableCache(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		set  func(*testing.T)
		want string
	}{
		"below a file": {func(t *testing.T) { t.Setenv(cache.Variable, filepath.Join(file, "cache")) }, "make the cache: mkdir " + file},
		"no home": {func(t *testing.T) {
			t.Setenv(cache.Variable, "")
			t.Setenv("HOME", "")
			t.Setenv("XDG_CACHE_HOME", "")
		}, "set MLAGEN_CACHE to a directory, or to off"},
	} {
		t.Run(name, func(t *testing.T) {
			test.set(t)
			var told []Warning
			kernels := loadAll(t, newFakeCompiler(), variants("a", "b", "c"), WithWarnings(func(w Warning) { told = append(told, w) }))
			if len(told) != 1 || told[0].Kind != Uncached || told[0].Kernel != "a" || !strings.Contains(told[0].Text, test.want) {
				t.Errorf("warned of %v, want %s", told, test.want)
			}
			if diff := cmp.Diff(told, kernels[0].Warnings); diff != "" || kernels[1].Warnings != nil {
				t.Errorf("kernels' warnings (-told +got):\n%s", diff)
			}
		})
	}
}

// TestLinkerRefuses: what the linker does not take the driver's loader may.
func TestLinkerRefuses(t *testing.T) {
	d, v := newFakeCompiler(), variants("a", "b")
	d.refuses = string(v[1].PTX)
	k := loadAll(t, d, v, WithCache(cache.New(t.TempDir(), 0)))
	want := []Warning{{"b", Uncached, "it had to be compiled while it was loaded: link: refused"}}
	if diff := cmp.Diff(want, k[1].Warnings); diff != "" || k[1].CompileSeconds != 0.125 || k[0].Warnings != nil {
		t.Errorf("%v s, warnings (-want +got):\n%s", k[1].CompileSeconds, diff)
	}
}

// TestWholePrograms: a text whose image the driver keeps to itself is compiled
// beside the others, for one kernel, and not put into the cache.
func TestWholePrograms(t *testing.T) {
	d, v, store := newFakeCompiler(), append(variants("a"), whole("b"), whole("b"), whole("c")), cache.New(t.TempDir(), 0)
	for _, cached := range []bool{false, true} {
		d.waits = together(t, map[bool]int{false: 3, true: 2}[cached])
		kernels := loadAll(t, d, v, WithCache(store), WithParallel(3))
		type loaded struct {
			Whole, Cached bool
			Seconds       float64
			Warnings      int
		}
		var got []loaded
		for _, k := range kernels {
			got = append(got, loaded{k.Whole, k.Cached, k.CompileSeconds, len(k.Warnings)})
		}
		want := []loaded{{Seconds: 0.25}, {Whole: true, Seconds: 0.25}, {Whole: true, Seconds: 0.125}, {Whole: true, Seconds: 0.25}}
		if cached {
			want[0] = loaded{Cached: true}
		}
		if diff := cmp.Diff(want, got); diff != "" || d.wholes != 2 || d.left() != 4 {
			t.Errorf("%d were loaded to be compiled, %d are loaded; kernels (-want +got):\n%s", d.wholes, d.left(), diff)
		}
		for _, k := range kernels {
			if err := k.Unload(); err != nil {
				t.Error(err)
			}
		}
		if d.left() != 0 {
			t.Errorf("%d are loaded in the end", d.left())
		}
		d.wholes, d.loads, d.unloaded = 0, 0, 0
	}
	if n, _, err := store.Size(); n != 1 || err != nil {
		t.Errorf("%d entries in the cache, want that of a; %v", n, err)
	}
	d.waits, d.linkLog = nil, "ptxas info    : (C7504) Potential Performance Loss: 'setmaxnreg' ignored to maintain compatibility across compilation units."
	if k := loadAll(t, d, v[1:2], WithCache(store)); len(k[0].Warnings) != 1 || k[0].Warnings[0].Kind != IgnoredRegisters {
		t.Errorf("of registers that are ignored it warns %v", k[0].Warnings)
	}
}

// TestWholeProgramsDoNotLeak: however loading ends, what no kernel took is
// unloaded, and what one took once.
func TestWholeProgramsDoNotLeak(t *testing.T) {
	broken := variant("broken", 128, nil, "a", "*f32")
	broken.PTX, broken.Manifest.PTXSHA256 = []byte("broken"), ""
	a, b := whole("a"), whole("b")
	for name, v := range map[string][]Variant{"before": {broken, a, b}, "between": {a, broken, b}, "after": {a, b, broken}} {
		d := newFakeCompiler()
		d.waits = together(t, 3) // nothing is given up before it has begun
		if _, err := LoadAll(d, v, WithCache(nil), WithParallel(3)); err == nil || d.wholes != 2 || d.left() != 0 {
			t.Errorf("an error %s: %d were loaded to be compiled, %d are left; %v", name, d.wholes, d.left(), err)
		}
		d.waits, d.unload, d.wholes = together(t, 3), errors.New("device lost"), 0
		if _, err := LoadAll(d, v, WithCache(nil), WithParallel(3)); err == nil || strings.Count(err.Error(), "device lost") != 2 {
			t.Errorf("an error %s, and unloading fails: %v", name, err)
		}
	}
	d := newFakeCompiler()
	d.function.LocalBytes = 8
	if _, err := LoadAll(d, []Variant{a, b}, WithCache(nil)); err == nil || d.left() != 0 {
		t.Errorf("with local memory: %d are left, %v", d.left(), err)
	}
}

func FuzzUnpackImage(f *testing.F) {
	f.Add((&Image{Code: []byte("code"), Log: "log"}).pack())
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 20))
	f.Fuzz(func(t *testing.T, blob []byte) {
		m, err := unpackImage(blob)
		if err != nil {
			return
		}
		if len(m.Code) == 0 || !bytes.Equal(m.pack(), blob) {
			t.Errorf("%d bytes unpack to %d of code and %d of log, and not back", len(blob), len(m.Code), len(m.Log))
		}
	})
}
