package runtime

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mlagen/mlagen/runtime/cache"
)

const (
	tortureWorkers = 8
	tortureTime    = 1500 * time.Millisecond
	tortureHang    = 60 * time.Second // far beyond what a load takes

	tortureDir  = "MLAGEN_TORTURE_DIR" // set in a worker
	tortureSeed = "MLAGEN_TORTURE_SEED"
	tortureHits = "found in the cache: " // a worker's last words
)

// tortureDriver makes images that it knows when it sees them: of many lengths,
// with a hash that is the compiler's and not the cache's.
type tortureDriver struct {
	*fakeDriver
	text [sha256.Size]byte // of the module that must be loaded next
	bad  error
	hits int
}

func (d *tortureDriver) Toolchain() Toolchain { return Toolchain{Card: "torture", Driver: "1"} }

func (d *tortureDriver) Compile(ptx []byte) (Image, error) {
	return Image{Code: tortureImage(sha256.Sum256(ptx)), Log: "compiled"}, nil
}

// tortureImage is a text's only right image, up to some 100 KB.
func tortureImage(text [sha256.Size]byte) []byte {
	r := rand.New(rand.NewChaCha8(text))
	code := make([]byte, 1+r.IntN(100_000))
	for i := range code {
		code[i] = byte(r.Uint32())
	}
	return code
}

func (d *tortureDriver) LoadImage(code []byte) (Module, error) {
	if !bytes.Equal(code, tortureImage(d.text)) {
		d.bad = fmt.Errorf("a wrong or half module of %d bytes", len(code))
	}
	return &fakeModule{d.fakeDriver}, nil
}

// TestTortureWorker is what the workers of TestTorture run: loads of random
// kernels, until they are told to stop or are killed.
func TestTortureWorker(t *testing.T) {
	dir := os.Getenv(tortureDir)
	if dir == "" {
		return // not a worker
	}
	seed, err := strconv.ParseUint(os.Getenv(tortureSeed), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(seed, 1))
	d := &tortureDriver{fakeDriver: newFake()}
	for {
		if _, err := os.Stat(filepath.Join(dir, "stop")); err == nil {
			break
		}
		// A limit below the size of all images, so that entries are evicted too.
		store := cache.New(filepath.Join(dir, "cache"), 300_000)
		v := variants(fmt.Sprintf("kernel_%d", r.IntN(10)))
		d.text = textSum(v[0])
		k, err := LoadAll(d, v, WithCache(store))
		if err = errors.Join(err, d.bad); err != nil {
			t.Fatal(err)
		}
		if k[0].Cached {
			d.hits++
		}
	}
	fmt.Printf(tortureHits+"%d\n", d.hits)
}

// TestTorture: eight processes load through one cache while some are killed and
// entries are cut, altered, swapped and replaced by what is none. No process
// may get a wrong module, fail or hang.
func TestTorture(t *testing.T) {
	dir := t.TempDir()
	store := cache.New(filepath.Join(dir, "cache"), 0)
	ctx, cancel := context.WithTimeout(t.Context(), tortureHang)
	defer cancel()
	var stopping atomic.Bool
	var group sync.WaitGroup
	var kills, ends, hits atomic.Int64
	for worker := range tortureWorkers {
		group.Go(func() {
			r := rand.New(rand.NewPCG(uint64(worker), 2))
			for n := uint64(0); !stopping.Load(); n++ {
				var out bytes.Buffer
				c := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestTortureWorker$")
				c.Env = append(os.Environ(), tortureDir+"="+dir, fmt.Sprint(tortureSeed, "=", 1000*uint64(worker)+n))
				c.Stdout, c.Stderr = &out, &out
				if err := c.Start(); err != nil {
					t.Error(err)
					return
				}
				// Half of the workers are killed at moments of all kinds.
				killed := false
				if worker%2 == 0 {
					time.Sleep(time.Duration(20+r.IntN(200)) * time.Millisecond)
					if killed = !stopping.Load(); killed {
						c.Process.Kill()
						kills.Add(1)
					}
				}
				switch err := c.Wait(); {
				case ctx.Err() != nil:
					t.Errorf("worker %d hangs", worker)
					return
				case err != nil && !killed:
					t.Errorf("worker %d: %v\n%s", worker, err, &out)
					return
				case err == nil:
					ends.Add(1)
					_, words, _ := strings.Cut(out.String(), tortureHits)
					var n int64
					fmt.Sscan(words, &n)
					hits.Add(n)
				}
			}
		})
	}
	r, spoilt := rand.New(rand.NewPCG(7, 3)), map[string]int{}
	for begin := time.Now(); time.Since(begin) < tortureTime || len(spoilt) < len(damages) && time.Since(begin) < tortureHang/2; time.Sleep(2 * time.Millisecond) {
		if what, ok := spoil(r, store.Dir()); ok {
			spoilt[what]++
		}
	}
	stopping.Store(true)
	if err := os.WriteFile(filepath.Join(dir, "stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	t.Logf("%d workers were killed, %d ended after %d hits; spoilt: %v", kills.Load(), ends.Load(), hits.Load(), spoilt)
	if kills.Load() == 0 || hits.Load() == 0 || len(spoilt) < len(damages) {
		t.Error("not everything happened that was to happen: this proved nothing")
	}
	// After all that, every kernel is compiled at most once more.
	d := &tortureDriver{fakeDriver: newFake()}
	for i := range 10 {
		v := variants(fmt.Sprintf("kernel_%d", i))
		d.text = textSum(v[0])
		loadAll(t, d, v, WithCache(store))
		if k := loadAll(t, d, v, WithCache(store)); d.bad != nil || !k[0].Cached || k[0].Warnings != nil {
			t.Errorf("kernel %d: %v, cached %v, %v", i, d.bad, k[0].Cached, k[0].Warnings)
		}
	}
}

// damages are ways to spoil one entry by another, in place.
var damages = map[string]func(r *rand.Rand, name, other string) error{
	"cut": func(r *rand.Rand, name, _ string) error {
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		return os.Truncate(name, r.Int64N(info.Size()+1))
	},
	"altered": func(r *rand.Rand, name, _ string) error {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		var b [1]byte
		at := r.Int64N(info.Size() + 1)
		if _, err := f.ReadAt(b[:], at); err != nil {
			return err
		}
		b[0] ^= 1 << r.IntN(8)
		_, err = f.WriteAt(b[:], at)
		return err
	},
	"swapped":  func(_ *rand.Rand, name, other string) error { return os.Rename(other, name) },
	"foreign":  func(_ *rand.Rand, name, _ string) error { return os.WriteFile(name, []byte("foreign"), 0o600) },
	"gone":     func(_ *rand.Rand, name, _ string) error { return os.Remove(name) },
	"a folder": func(_ *rand.Rand, name, _ string) error { return errors.Join(os.Remove(name), os.Mkdir(name, 0o700)) },
	"a link": func(_ *rand.Rand, name, other string) error {
		return errors.Join(os.Remove(name), os.Symlink(filepath.Base(other), name))
	},
	"endless": func(_ *rand.Rand, name, _ string) error {
		return errors.Join(os.Remove(name), os.Symlink("/dev/zero", name))
	},
}

// spoil does one kind of damage to a random entry.
func spoil(r *rand.Rand, dir string) (what string, ok bool) {
	names, err := filepath.Glob(filepath.Join(dir, "image-*"))
	if err != nil || len(names) < 2 {
		return "", false
	}
	var kinds []string
	for k := range damages {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	what = kinds[r.IntN(len(kinds))]
	return what, damages[what](r, names[r.IntN(len(names))], names[r.IntN(len(names))]) == nil
}
