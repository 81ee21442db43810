package golden_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/ptx/manifest"
	"github.com/mlagen/mlagen/runtime"
)

// entry is a function that loads, and what it takes: a pointer to variants.
type entry struct {
	variants any
	load     func(runtime.Driver, any) (io.Closer, error)
}

// entryOf makes an entry.
func entryOf[V any, T io.Closer](v V, load func(runtime.Driver, V) (T, error)) entry {
	return entry{&v, func(d runtime.Driver, v any) (io.Closer, error) {
		loaded, err := load(d, *v.(*V))
		if err != nil {
			return nil, err
		}
		return loaded, nil
	}}
}

// single is what a load of one kernel takes.
type single struct{ Variant runtime.Variant }

// unloader closes a plain kernel.
type unloader struct{ *runtime.Kernel }

func (u unloader) Close() error { return u.Unload() }

func loads(k *paperKernels) map[string]entry {
	return map[string]entry{
		"decode": entryOf(k.decode2(), func(d runtime.Driver, v runtime.DecodeVariants) (*runtime.Decode, error) {
			return runtime.LoadDecode(d, v)
		}),
		"prefill": entryOf(k.prefill, func(d runtime.Driver, v runtime.PrefillVariants) (*runtime.Prefill, error) {
			return runtime.LoadPrefill(d, v)
		}),
		"extend": entryOf(k.layer.Extend, func(d runtime.Driver, v runtime.ExtendVariants) (*runtime.Extend, error) {
			return runtime.LoadExtend(d, v)
		}),
		"layer": entryOf(k.layer, func(d runtime.Driver, v runtime.LayerVariants) (*runtime.Layer, error) {
			return runtime.LoadLayer(d, v)
		}),
		"kernel": entryOf(single{k.append}, func(d runtime.Driver, v single) (unloader, error) {
			kernel, err := runtime.Load(d, v.Variant)
			return unloader{kernel}, err
		}),
		"up-project": entryOf(single{k.layer.Extend.UpProject}, func(d runtime.Driver, v single) (*runtime.UpProject, error) {
			return runtime.LoadUpProject(d, v.Variant)
		}),
		"absorb-q": entryOf(single{k.layer.AbsorbQuery[0]}, func(d runtime.Driver, v single) (*runtime.AbsorbQuery, error) {
			return runtime.LoadAbsorbQuery(d, v.Variant)
		}),
		"absorb-o": entryOf(single{k.layer.AbsorbOutput[0]}, func(d runtime.Driver, v single) (*runtime.AbsorbOutput, error) {
			return runtime.LoadAbsorbOutput(d, v.Variant)
		}),
		"merge-states": entryOf(single{k.merge}, func(d runtime.Driver, v single) (*runtime.MergeStates, error) {
			return runtime.LoadMergeStates(d, v.Variant)
		}),
		"append-kv": entryOf(single{k.append}, func(d runtime.Driver, v single) (*runtime.AppendKV, error) {
			return runtime.LoadAppendKV(d, v.Variant)
		}),
		"launcher": entryOf(single{k.launched}, func(d runtime.Driver, v single) (*runtime.Launcher, error) {
			return runtime.LoadLauncher(d, v.Variant)
		}),
	}
}

// variantsIn finds all variants in v, with their paths.
func variantsIn(v reflect.Value, path string, found map[string]reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[runtime.Variant]():
		found[path] = v
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			variantsIn(v.Field(i), path+"."+v.Type().Field(i).Name, found)
		}
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			variantsIn(v.Index(i), fmt.Sprintf("%s[%d]", path, i), found)
		}
	}
}

// badVariants are changes that spoil any variant.
var badVariants = map[string]func(v *runtime.Variant, m *manifest.Manifest){
	"nothing":           func(v *runtime.Variant, m *manifest.Manifest) { *v = runtime.Variant{} },
	"no manifest":       func(v *runtime.Variant, m *manifest.Manifest) { v.Manifest = nil },
	"an empty manifest": func(v *runtime.Variant, m *manifest.Manifest) { *m = manifest.Manifest{} },
	"no PTX":            func(v *runtime.Variant, m *manifest.Manifest) { v.PTX = nil },
	"another kernel":    func(v *runtime.Variant, m *manifest.Manifest) { m.Kernel = "stream" },
	"another text":      func(v *runtime.Variant, m *manifest.Manifest) { m.PTXSHA256 = hex.EncodeToString(make([]byte, 32)) },
	"another schema":    func(v *runtime.Variant, m *manifest.Manifest) { m.Schema = 999 },
	"no threads":        func(v *runtime.Variant, m *manifest.Manifest) { m.Threads = 0 },
	"threads":           func(v *runtime.Variant, m *manifest.Manifest) { m.Threads = math.MaxInt },
	"shared memory":     func(v *runtime.Variant, m *manifest.Manifest) { m.Shared = math.MaxInt },
	"negative shared":   func(v *runtime.Variant, m *manifest.Manifest) { m.Shared = -1 },
	"negative cluster":  func(v *runtime.Variant, m *manifest.Manifest) { m.Cluster = -2 },
	"target":            func(v *runtime.Variant, m *manifest.Manifest) { m.MinDriver = math.MaxInt },
	"a parameter less":  func(v *runtime.Variant, m *manifest.Manifest) { m.Params = m.Params[1:] },
	"no parameters":     func(v *runtime.Variant, m *manifest.Manifest) { m.Params = nil },
	"a parameter more": func(v *runtime.Variant, m *manifest.Manifest) {
		last := m.Params[len(m.Params)-1]
		end := (last.Offset + last.Size + 7) / 8 * 8
		m.Params = append(m.Params[:len(m.Params):len(m.Params)], manifest.Param{Name: "surprise", Kind: manifest.PointerParam, Type: "b8", Size: 8, Align: 8, Offset: end})
	},
	"a parameter's size":         func(v *runtime.Variant, m *manifest.Manifest) { m.Params[len(m.Params)-1].Size = math.MaxInt },
	"a parameter's place":        func(v *runtime.Variant, m *manifest.Manifest) { m.Params[len(m.Params)-1].Offset = math.MaxInt },
	"a negative place":           func(v *runtime.Variant, m *manifest.Manifest) { m.Params[0].Offset = -8 },
	"no alignment":               func(v *runtime.Variant, m *manifest.Manifest) { m.Params[0].Align = 0 },
	"a parameter of three bytes": func(v *runtime.Variant, m *manifest.Manifest) { m.Params[0].Size = 3 },
	"a parameter of no kind":     func(v *runtime.Variant, m *manifest.Manifest) { m.Params[0].Kind = "thing" },
	"a spec of no struct":        func(v *runtime.Variant, m *manifest.Manifest) { m.Spec = math.Pi },
	"a spec that is none":        func(v *runtime.Variant, m *manifest.Manifest) { m.Spec = func() {} },
}

// TestLoadMisuse: every variant of every load, spoiled in every way, is an error
// that says which kernel it is of, and nothing stays loaded.
func TestLoadMisuse(t *testing.T) {
	count := 0
	k := makePaperKernels(t)
	for name, l := range loads(k) {
		if err := tryLoad(l.load, nil, l.variants); err == nil || !strings.Contains(err.Error(), "driver was nil, must be") {
			t.Errorf("%s without a driver: %v", name, err)
		}
		if err := tryLoad(l.load, newPaper(), l.variants); err != nil {
			t.Errorf("%s as it is right: %v", name, err)
		}
		found := map[string]reflect.Value{}
		variantsIn(reflect.ValueOf(l.variants).Elem(), name, found)
		if len(found) == 0 {
			t.Errorf("%s takes no variant", name)
		}
		for path, v := range found {
			right := v.Interface().(runtime.Variant)
			for what, spoil := range badVariants {
				switch {
				case what == "another kernel" && (name == "kernel" || name == "launcher"): // Load takes any
					continue
				case strings.HasSuffix(path, ".Rows") && strings.Contains(what, "a spec"): // it is made for nothing in particular
					continue
				case strings.Contains(strings.ToLower(path), "decode") && (what == "a parameter less" || what == "no parameters"):
					continue // decode's kernels take what they need; what a text takes is held against its manifest, and these have none
				}
				wrong := right
				m := *right.Manifest
				m.Params = append([]manifest.Param{}, m.Params...)
				wrong.Manifest = &m
				spoil(&wrong, &m)
				v.Set(reflect.ValueOf(wrong))
				dev := newPaper()
				err := tryLoad(l.load, dev, l.variants)
				count++
				v.Set(reflect.ValueOf(right))
				if plain := (name == "kernel" || name == "launcher") && (strings.Contains(what, "spec") || strings.Contains(what, "parameter")); plain && err == nil {
					continue // what a kernel takes is for its caller to know
				}
				label := right.Manifest.Kernel
				if err == nil || strings.HasPrefix(err.Error(), "panic") || !strings.Contains(err.Error(), label) && what != "nothing" && !strings.Contains(err.Error(), right.Name) {
					t.Errorf("%s with %s: %v, want an error that names %s", path, what, err, label)
				}
				if dev.loaded != 0 {
					t.Errorf("%s with %s: %d modules stay loaded", path, what, dev.loaded)
				}
			}
		}
	}
	t.Logf("%d spoiled variants", count)
}

func tryLoad(load func(runtime.Driver, any) (io.Closer, error), d runtime.Driver, variants any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	_, err = load(d, variants)
	return err
}

// TestClosedAndEmpty: nothing panics that was closed, or never loaded, and every
// call says so.
func TestClosedAndEmpty(t *testing.T) {
	k := makePaperKernels(t)
	dev := newPaper()
	decode := loaded(runtime.LoadDecode(dev, k.decode2()))
	prefill := loaded(runtime.LoadPrefill(dev, k.prefill))
	layer := loaded(runtime.LoadLayer(dev, k.layer))
	extend := loaded(runtime.LoadExtend(dev, k.layer.Extend))
	up := loaded(runtime.LoadUpProject(dev, k.layer.Extend.UpProject))
	query := loaded(runtime.LoadAbsorbQuery(dev, k.layer.AbsorbQuery...))
	output := loaded(runtime.LoadAbsorbOutput(dev, k.layer.AbsorbOutput...))
	merge := loaded(runtime.LoadMergeStates(dev, k.merge))
	appendKV := loaded(runtime.LoadAppendKV(dev, k.append))
	for _, c := range []interface{ Close() error }{decode, prefill, layer, extend, up, query, output, merge, appendKV} {
		must(t, errors.Join(c.Close(), c.Close()))
	}
	if dev.loaded != 0 {
		t.Errorf("%d modules stay loaded", dev.loaded)
	}
	for _, o := range []struct {
		decode  *runtime.Decode
		prefill *runtime.Prefill
		layer   *runtime.Layer
		extend  *runtime.Extend
		up      *runtime.UpProject
		query   *runtime.AbsorbQuery
		output  *runtime.AbsorbOutput
		merge   *runtime.MergeStates
		append  *runtime.AppendKV
	}{
		{decode, prefill, layer, extend, up, query, output, merge, appendKV},
		{&runtime.Decode{}, &runtime.Prefill{}, &runtime.Layer{}, &runtime.Extend{}, &runtime.UpProject{}, &runtime.AbsorbQuery{},
			&runtime.AbsorbOutput{}, &runtime.MergeStates{}, &runtime.AppendKV{}},
	} {
		for name, call := range map[string]func() error{
			"decode": func() error { return o.decode.Run(dev, runtime.DecodeArgs{}) }, "decode schedule": func() error { return o.decode.Schedule(dev, runtime.ScheduleArgs{}) },
			"prefill": func() error { return o.prefill.Run(dev, runtime.PrefillArgs{}) }, "prefill schedule": func() error { return o.prefill.Schedule(dev, runtime.PrefillScheduleArgs{}) },
			"extend": func() error { return o.extend.Run(dev, runtime.ExtendArgs{}) }, "extend schedule": func() error { return o.extend.Schedule(dev, runtime.ExtendScheduleArgs{}) },
			"extend plan": func() error { _, err := o.extend.Plan(runtime.ExtendCapacity{}, 0, 0); return err },
			"layer":       func() error { return o.layer.Run(dev, runtime.LayerArgs{}) }, "layer schedule": func() error { return o.layer.Schedule(dev, runtime.LayerStep{}) },
			"layer plan":      func() error { _, err := o.layer.Plan(nil, runtime.LayerOptions{}); return err },
			"layer buffers":   func() error { _, _, err := o.layer.Buffers(runtime.LayerCapacity{}, 0); return err },
			"up-projection":   func() error { return o.up.Run(dev, runtime.UpProjectArgs{}) },
			"absorbed query":  func() error { return o.query.Run(dev, runtime.AbsorbQueryArgs{}) },
			"absorbed output": func() error { return o.output.Run(dev, runtime.AbsorbOutputArgs{}) },
			"merge states":    func() error { return o.merge.Run(dev, runtime.MergeArgs{}) },
			"append kv":       func() error { return o.append.Run(dev, runtime.AppendArgs{}) },
		} {
			if err := call(); err == nil || err.Error() != name+": was closed, must be loaded" {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, n := range []int{0, -1, math.MinInt, math.MaxInt} {
			o.decode.ScheduleBytes(n, n)
			o.decode.WorkspaceBytes(n, n)
			o.decode.Pieces(nil, n, n)
			o.prefill.ScheduleBytes(n, n)
			o.query.ModelFor(n)
			o.output.ModelFor(n)
		}
		o.decode.Model()
		o.decode.Parts()
		o.decode.Kernels()
		o.prefill.Model()
		o.prefill.Kernels()
		o.extend.Shape()
		o.extend.Kernels()
		o.layer.Shape()
		o.layer.Kernels()
		o.up.Model()
		o.up.Kernels()
		o.query.Model()
		o.query.Kernels()
		o.merge.Shape()
		o.merge.Kernel()
		o.append.Shape()
		o.append.Kernel()
	}
}

// TestHelperMisuse: what helps to call takes anything without a panic, and what
// can fail says of what.
func TestHelperMisuse(t *testing.T) {
	k := makePaperKernels(t)
	dev := newPaper()
	kernel := loaded(runtime.Load(dev, k.append))
	other := loaded(runtime.Load(dev, k.merge))
	filled := func() *runtime.Params {
		p := kernel.NewParams()
		for _, m := range kernel.Manifest.Params {
			if m.Kind == manifest.PointerParam {
				p.Pointer(m.Name, 16)
			} else {
				p.Int(m.Name, 1)
			}
		}
		return p
	}
	for want, call := range map[string]func() error{
		"stream: was nil":                   func() error { return kernel.Launch(nil, runtime.Dim3{X: 1}, filled(), false) },
		"params: was nil":                   func() error { return kernel.Launch(dev, runtime.Dim3{X: 1}, nil, false) },
		"parameters were made for":          func() error { return kernel.Launch(dev, runtime.Dim3{X: 1}, other.NewParams(), false) },
		"parameters not set":                func() error { return kernel.Launch(dev, runtime.Dim3{X: 1}, kernel.NewParams(), false) },
		"grid was -1":                       func() error { return kernel.Launch(dev, runtime.Dim3{X: -1}, filled(), false) },
		"grid was 1 × 65536":                func() error { return kernel.Launch(dev, runtime.Dim3{X: 1, Y: 65536}, filled(), false) },
		`no parameter "surprise"`:           func() error { return filled().Pointer("surprise", 1).Err() },
		`"latent" is a pointer`:             func() error { return filled().Int("latent", 1).Err() },
		`"tokens" was 2147483648, must be`:  func() error { return filled().Int("tokens", 1<<31).Err() },
		`"tokens" is s32, not f32 or f64`:   func() error { return filled().Float("tokens", 1).Err() },
		`"slots" is a pointer, not a table`: func() error { return filled().Table("slots", nil).Err() },
		`"states" has room for`:             func() error { return other.NewParams().Table("states", make([]uint64, 1<<20)).Err() },
		`no tensor map "kv"`:                func() error { _, err := kernel.EncodeTensorMap("kv", 0, nil, nil); return err },
		"batch: was -1":                     func() error { _, err := loaded(runtime.LoadDecode(dev, k.decode2())).Pieces(nil, -1, 0); return err },
		"schedule buffer: size was 0 bytes": func() error { _, err := loaded(runtime.LoadDecode(dev, k.decode2())).Pieces(nil, 3, 0); return err },
		"has item -1 of": func() error {
			d := loaded(runtime.LoadDecode(dev, k.decode2()))
			b := make([]byte, d.ScheduleBytes(3, 0))
			for i := range b {
				b[i] = 0xff
			}
			b[0], b[1], b[2], b[3] = 0xff, 0xff, 0xff, 0xff // items from −1
			b[4], b[5], b[6], b[7] = 1, 0, 0, 0
			_, err := d.Pieces(b, 3, 0)
			return err
		},
		"request -7": func() error { return runtime.CheckPieces([]runtime.Piece{{Request: -7}}, []int{1}) },
		"manifest":   func() error { _, err := runtime.ParseVariant("k", "", "{"); return err },
	} {
		err := func() (err error) {
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("panic: %v", p)
				}
			}()
			return call()
		}()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, w := range []runtime.Tensor{{}, {Shape: []int64{1, 2, 3}, Strides: []int64{1}}, {Shape: []int64{1, 2, 3}}, {Shape: []int64{-1, -2, -3}}} {
		for _, nope := range []int{0, -1, 5, math.MaxInt, math.MinInt} {
			keys, values := runtime.SplitWeights(w, nope)
			q := loaded(runtime.LoadAbsorbQuery(dev, k.layer.AbsorbQuery...))
			if err := q.Run(dev, runtime.AbsorbQueryArgs{QNope: on(dev, bf16, 1, 16, 128), Weights: keys, OutLatent: values}); !names(err, "weights") {
				t.Errorf("%+v split at %d: %v", w, nope, err)
			}
		}
	}
	if len(dev.launches) > 0 {
		t.Errorf("launched %v", dev.launches)
	}
}
