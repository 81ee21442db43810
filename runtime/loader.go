package runtime

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/runtime/cache"
)

// LoadOption changes how kernels are loaded.
type LoadOption func(*loadOptions)

type loadOptions struct {
	store    *cache.Store
	chosen   bool // store is the caller's choice
	parallel int
	warn     func(Warning)
	loaded   []*Kernel
}

// WithCache keeps compiled kernels in a store of the caller's, or nowhere if it
// is nil, whatever the environment says (cache.Default) and whether or not the
// driver thinks that its images are worth it.
func WithCache(s *cache.Store) LoadOption {
	return func(o *loadOptions) { o.store, o.chosen = s, true }
}

// WithParallel compiles at most n texts at a time; without it, as many as Go
// runs threads.
func WithParallel(n int) LoadOption { return func(o *loadOptions) { o.parallel = n } }

// WithWarnings calls warn, on the caller's goroutine, with each warning; it is
// in Kernel.Warnings too.
func WithWarnings(warn func(Warning)) LoadOption { return func(o *loadOptions) { o.warn = warn } }

// WithLoaded shares kernels of the same driver: a variant with the text and the
// manifest of one of them is not loaded again. It is unloaded when all that share
// it have unloaded it.
func WithLoaded(kernels ...*Kernel) LoadOption {
	return func(o *loadOptions) { o.loaded = append(o.loaded, kernels...) }
}

// LoadAll loads variants as Load does, and compiles them side by side. The
// kernels are in the order of the variants. At the first error those that were
// loaded are unloaded.
func LoadAll(drv Driver, variants []Variant, o ...LoadOption) ([]*Kernel, error) {
	return loadAhead(drv, o, variants, func(l *loader) (kernels []*Kernel, err error) {
		for _, v := range variants {
			k, err := l.load(v)
			if err != nil {
				for _, k := range kernels {
					err = errors.Join(err, k.Unload())
				}
				return nil, err
			}
			kernels = append(kernels, k)
		}
		return kernels, nil
	})
}

// loadAhead begins to compile the variants, all that load will ask for, and
// runs load.
func loadAhead[T any](drv Driver, o []LoadOption, variants []Variant, load func(*loader) (T, error)) (loaded T, err error) {
	l := newLoader(drv, o)
	defer func() { err = l.close(err) }()
	l.ahead(variants)
	return load(l)
}

// loader loads variants for one operation. Its compiles run beside each other
// and beside load; load and close alone touch the driver otherwise, so that its
// methods are called one at a time.
type loader struct {
	loadOptions
	driver     Driver
	attributes Attributes
	compiler   Compiler // nil where loading compiles
	toolchain  Toolchain

	slots chan struct{} // one for each compile that runs
	stop  chan struct{} // closed: nothing else is begun
	group sync.WaitGroup

	checks map[checked]*result[struct{}]
	images map[[sha256.Size]byte]*result[compiled]

	first    *Kernel // to whose warnings belongs what is wrong with the cache
	mu       sync.Mutex
	uncached error // what that is
}

// checked identifies a variant.
type checked struct {
	manifest *manifest.Manifest
	text     [sha256.Size]byte
}

// result is a value that a goroutine is making.
type result[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// compiled is a text's image and where it is from.
type compiled struct {
	Image
	hit   bool // it was in the cache
	taken bool // a kernel has its seconds, and its module if it came with one
}

var (
	errStopped = errors.New("loading was given up")
	errUnfit   = errors.New("the variant that the text was to be compiled for is refused")
)

func newLoader(drv Driver, options []LoadOption) *loader {
	l := &loader{
		driver: drv, stop: make(chan struct{}),
		checks: map[checked]*result[struct{}]{}, images: map[[sha256.Size]byte]*result[compiled]{},
	}
	for _, o := range options {
		o(&l.loadOptions)
	}
	if l.parallel < 1 {
		l.parallel = goruntime.GOMAXPROCS(0)
	}
	l.slots = make(chan struct{}, l.parallel)
	if drv == nil {
		return l // load says so
	}
	l.attributes = drv.Attributes()
	if c, ok := drv.(Compiler); ok {
		l.compiler, l.toolchain = c, c.Toolchain()
		if !l.chosen && l.toolchain.Kept {
			l.store, l.uncached = cache.Default()
		}
	}
	return l
}

// ahead begins to check and to compile variants, about in the order of their
// length, since the longest decide when the last one is done.
func (l *loader) ahead(variants []Variant) {
	if l.driver == nil {
		return
	}
	variants = slices.Clone(variants)
	slices.SortStableFunc(variants, func(a, b Variant) int { return cmp.Compare(len(b.PTX), len(a.PTX)) })
	for _, v := range variants {
		if l.find(v) == nil {
			l.prepare(v)
		}
	}
}

// find returns a loaded kernel that is the variant's, nil where there is none.
func (o *loadOptions) find(v Variant) *Kernel {
	for _, k := range o.loaded {
		if bytes.Equal(k.PTX, v.PTX) && reflect.DeepEqual(k.Manifest, v.Manifest) {
			return k
		}
	}
	return nil
}

// prepare begins to check and to compile a variant, unless that was begun.
func (l *loader) prepare(v Variant) (*result[struct{}], *result[compiled]) {
	text := sha256.Sum256(v.PTX)
	key := checked{v.Manifest, text}
	check := l.checks[key]
	if check == nil {
		check = begin(l, nil, func() (struct{}, error) { return struct{}{}, v.checkFor(l.attributes) })
		l.checks[key] = check
	}
	if l.compiler == nil {
		return check, nil
	}
	image := l.images[text]
	if image == nil {
		image = begin(l, check, func() (compiled, error) { return l.compile(text, v.PTX) })
		l.images[text] = image
	}
	return check, image
}

// begin runs f in a goroutine of its own when there is a slot for it. A text is
// not compiled for seconds to be refused then: where after has failed, f does
// not run.
func begin[T any](l *loader, after *result[struct{}], f func() (T, error)) *result[T] {
	r := &result[T]{done: make(chan struct{}), err: errStopped}
	l.group.Go(func() {
		defer close(r.done)
		if after != nil {
			if <-after.done; after.err != nil {
				r.err = errUnfit
				return
			}
		}
		select {
		case l.slots <- struct{}{}:
			defer func() { <-l.slots }()
		case <-l.stop:
			return
		}
		select {
		case <-l.stop: // a select with two ways chooses either
		default:
			r.value, r.err = f()
		}
	})
	return r
}

// compile takes a text's image from the cache or makes it.
func (l *loader) compile(text [sha256.Size]byte, ptx []byte) (compiled, error) {
	if l.store != nil {
		// Why there is none does not matter: damage is repaired by what is put
		// in its place, and trouble with the directory shows when that is tried.
		if blob, err := l.store.Get(imageKey(l.toolchain, text)); err == nil {
			if m, err := unpackImage(blob); err == nil {
				return compiled{Image: m, hit: true}, nil
			}
		}
	}
	m, err := l.compiler.Compile(ptx)
	return compiled{Image: m}, err
}

// load loads a variant.
func (l *loader) load(v Variant) (*Kernel, error) {
	if l.driver == nil {
		return nil, fmt.Errorf("load %s: driver was nil, must be a device", v.label())
	}
	if k := l.find(v); k != nil {
		atomic.AddInt32(&k.shared, 1)
		return k, nil
	}
	k, err := l.kernel(v)
	if err != nil {
		return nil, fmt.Errorf("load %s on %s: %w", v.label(), l.driver.Name(), err)
	}
	for _, p := range v.Manifest.Params {
		k.offsets = append(k.offsets, p.Offset)
	}
	if l.first == nil {
		l.first = k
	}
	if l.warn != nil {
		for _, w := range k.Warnings {
			l.warn(w)
		}
	}
	return k, nil
}

func (l *loader) kernel(v Variant) (*Kernel, error) {
	check, image := l.prepare(v)
	<-check.done
	if check.err != nil {
		return nil, check.err
	}
	if image == nil {
		return l.loadText(v)
	}
	<-image.done
	text := sha256.Sum256(v.PTX)
	if errors.Is(image.err, errUnfit) { // another variant of the same text
		image.value, image.err = l.compile(text, v.PTX)
	}
	if image.err != nil {
		// What the linker of a driver refuses its loader may take. If it does
		// not either, its words are those that people know.
		k, err := l.loadText(v)
		if err == nil {
			k.warn(Uncached, fmt.Sprintf("it had to be compiled while it was loaded: %v", image.err))
		}
		return k, err
	}
	c := &image.value
	k, err := l.loadImage(v, c)
	if err != nil && c.hit {
		// The entry is whole but no good, whoever made it.
		m, failed := l.compiler.Compile(v.PTX)
		if failed != nil {
			return nil, errors.Join(err, failed)
		}
		*c = compiled{Image: m}
		k, err = l.loadImage(v, c)
	}
	if err == nil && !c.hit && !k.Whole && l.store != nil {
		l.keep(text, c.Image)
	}
	return k, err
}

// loadText lets the driver compile and load at once, again for each kernel.
func (l *loader) loadText(v Variant) (*Kernel, error) {
	m, err := l.driver.Load(v.PTX)
	if err != nil {
		return nil, err
	}
	k := &Kernel{Variant: v, driver: l.driver, module: m, CompileSeconds: m.CompileSeconds(), Warnings: readLog(v.label(), m.Log())}
	return k.inspected()
}

// loadImage loads what was compiled, or takes the module that it was compiled
// to; it is held against the manifest in the same way wherever it is from.
func (l *loader) loadImage(v Variant, c *compiled) (*Kernel, error) {
	m, whole := c.Module, len(c.Code) == 0
	switch {
	case whole && m == nil: // another kernel has it
		k, err := l.loadText(v)
		if err == nil {
			k.Whole = true
		}
		return k, err
	case whole:
		c.Module = nil
	default:
		var err error
		if m, err = l.compiler.LoadImage(c.Code); err != nil {
			return nil, err
		}
	}
	k := &Kernel{Variant: v, driver: l.driver, module: m, Cached: c.hit, Whole: whole, Warnings: readLog(v.label(), c.Log)}
	if !c.hit && !c.taken {
		k.CompileSeconds, c.taken = c.Seconds, true
	}
	return k.inspected()
}

// keep puts an image into the cache while others are being loaded.
func (l *loader) keep(text [sha256.Size]byte, m Image) {
	l.group.Go(func() {
		if err := l.store.Put(imageKey(l.toolchain, text), m.pack()); err != nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.uncached = cmp.Or(l.uncached, err)
		}
	})
}

// close waits for what runs, begins nothing else, and unloads what no kernel
// took. The first kernel says what is wrong with the cache; one warning is
// enough. It returns what loading came to.
func (l *loader) close(err error) error {
	close(l.stop)
	l.group.Wait()
	for _, image := range l.images {
		if m := image.value.Module; m != nil {
			err = errors.Join(err, m.Unload())
		}
	}
	if l.uncached == nil || l.first == nil {
		return err
	}
	w := l.first.warn(Uncached, l.uncached.Error())
	if l.warn != nil {
		l.warn(w)
	}
	return err
}
