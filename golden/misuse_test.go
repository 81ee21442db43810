package golden_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mlagen/mlagen/runtime"
)

// misuse holds one public call against every mistake that each of its
// arguments can have.
type misuse struct {
	name string
	// open makes arguments that are right, a pointer to a struct, on dev, and the
	// call that takes them.
	open func(dev *paper) (args any, call func(runtime.Stream) error)
	host bool           // it runs on the host: it takes no stream and launches nothing
	rows map[string]row // by field, the path from the struct where structs are nested
	more []mistake      // that are the call's own
}

// row says what a field of an argument struct is to the call.
type row struct {
	name   string   // in errors, "" = the field's in snake case
	blames []string // arguments that may be named instead, for the two disagree
	free   []int    // axes that may be shorter
	most   map[int]int64
	spread bool   // strides of outer dimensions may be 0: the same again and again; a number may too
	table  bool   // strides of outer dimensions need not be multiples of anything
	loose  bool   // and so may the innermost
	absent bool   // need not be given
	output bool   // is written
	itself string // the argument that it may be
	bad    []int  // numbers, beside what no integer may be; of an address, by how many bytes it may not be moved
	any    bool   // every value is right
}

// mistake is a change that makes right arguments wrong.
type mistake struct {
	what   string
	change func(dev *paper, args any)
	want   []string // the arguments one of which the error must name
}

// TestMisuse: every mistake in every argument of every call is an error that
// names the argument, and launches nothing. An argument without a row is a
// failure, so that nothing new is forgotten.
func TestMisuse(t *testing.T) {
	total := 0
	for _, m := range misuses(t) {
		t.Run(m.name, func(t *testing.T) {
			n := m.check(t)
			t.Logf("%d mistakes", n)
			total += n
		})
	}
	t.Logf("%d mistakes in all", total)
	if total < 2000 {
		t.Errorf("only %d mistakes were made", total)
	}
}

func (m *misuse) check(t *testing.T) (count int) {
	fields := fieldsOf(reflect.TypeOf(m.args()).Elem(), "")
	for _, f := range fields {
		if _, ok := m.rows[f]; !ok {
			t.Errorf("argument %s has no row in the table", f)
		}
	}
	for f := range m.rows {
		if !slices.Contains(fields, f) {
			t.Errorf("row %s is of no argument", f)
		}
	}
	if t.Failed() {
		return 0
	}
	dev := newMapped()
	_, call := m.open(dev)
	dev.launches = nil
	if err := run(call, dev); err != nil {
		t.Fatalf("right arguments: %v", err)
	}
	if len(dev.launches) == 0 && !m.host {
		t.Fatal("right arguments launched nothing")
	}
	for _, x := range m.mistakes() {
		count++
		m.try(t, x)
	}
	if m.host {
		return count
	}
	count += m.checkApart(t)
	// The stream is an argument too.
	for what, s := range map[string]func(*paper) runtime.Stream{
		"nil":              func(*paper) runtime.Stream { return nil },
		"another device's": func(*paper) runtime.Stream { return newMapped() },
	} {
		count++
		dev := newMapped()
		_, call := m.open(dev)
		if err := run(call, s(dev)); !names(err, "stream") {
			t.Errorf("stream %s: %v", what, err)
		}
	}
	return count
}

// newMapped is a device that knows where its memory is.
func newMapped() *paper {
	p := newPaper()
	p.maps = true
	return p
}

// run calls, and makes an error of a panic.
func run(call func(runtime.Stream) error, s runtime.Stream) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return call(s)
}

// args returns right arguments of no device in particular.
func (m *misuse) args() any {
	args, _ := m.open(newPaper())
	return args
}

// try makes one mistake.
func (m *misuse) try(t *testing.T, x mistake) {
	dev := newMapped()
	args, call := m.open(dev)
	x.change(dev, args)
	dev.launches = nil
	err := run(call, dev)
	if !names(err, x.want...) {
		t.Errorf("%s: %v, want an error that names %s", x.what, err, strings.Join(x.want, " or "))
	}
	if len(dev.launches) > 0 {
		t.Errorf("%s: launched %v", x.what, dev.launches)
	}
}

// names reports that err is a mistake in one of the arguments.
func names(err error, arguments ...string) bool {
	var a *runtime.ArgumentError
	return errors.As(err, &a) && slices.Contains(arguments, a.Argument)
}

var (
	tensorType = reflect.TypeFor[runtime.Tensor]()
	bufferType = reflect.TypeFor[runtime.Buffer]()
)

// fieldsOf lists the leaves of an argument struct. Elements of a slice of
// structs count once.
func fieldsOf(t reflect.Type, path string) (fields []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name := path + f.Name
		switch {
		case !f.IsExported():
		case f.Type == tensorType || f.Type == bufferType:
			fields = append(fields, name)
		case f.Type.Kind() == reflect.Struct:
			fields = append(fields, fieldsOf(f.Type, name+".")...)
		case f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct:
			fields = append(fields, name)
			fields = append(fields, fieldsOf(f.Type.Elem(), name+"[].")...)
		default:
			fields = append(fields, name)
		}
	}
	return fields
}

// field returns the value at a path; of slices the last element is taken.
func field(args any, path string) reflect.Value {
	v := reflect.ValueOf(args).Elem()
	for part := range strings.SplitSeq(path, ".") {
		if name, ok := strings.CutSuffix(part, "[]"); ok {
			v = v.FieldByName(name)
			v = v.Index(v.Len() - 1)
			continue
		}
		v = v.FieldByName(part)
	}
	return v
}

// mistakes lists the mistakes of all rows.
func (m *misuse) mistakes() []mistake {
	list := slices.Clone(m.more)
	args := m.args()
	for _, path := range fieldsOf(reflect.TypeOf(args).Elem(), "") {
		r := m.rows[path]
		if r.any {
			continue
		}
		want := append([]string{r.called(path)}, r.blames...)
		add := func(what string, change func(dev *paper, v reflect.Value), also ...string) {
			list = append(list, mistake{path + ": " + what, func(dev *paper, args any) { change(dev, field(args, path)) }, append(slices.Clone(want), also...)})
		}
		switch v := field(args, path); {
		case v.Type() == tensorType:
			if t := v.Interface().(runtime.Tensor); t.Ptr != 0 { // this call has another in its place
				tensorMistakes(&r, &t, add)
			}
		case v.Type() == bufferType:
			bufferMistakes(&r, add)
		case v.Kind() == reflect.Int || v.Kind() == reflect.Int64:
			for _, n := range append([]int{-1, math.MinInt, 1 << 31, 1 << 62, math.MaxInt}, r.bad...) {
				add(fmt.Sprint(n), func(_ *paper, v reflect.Value) { v.SetInt(int64(n)) })
			}
		case v.Kind() == reflect.Float64:
			bad := []float64{-1, math.NaN(), math.Inf(1), math.Inf(-1)}
			if !r.spread {
				bad = append(bad, 0)
			}
			for _, x := range bad {
				add(fmt.Sprint(x), func(_ *paper, v reflect.Value) { v.SetFloat(x) })
			}
		case v.Kind() == reflect.Float32:
			for _, x := range []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat32} {
				add(fmt.Sprint(x), func(_ *paper, v reflect.Value) { v.SetFloat(x) })
			}
		case v.Kind() == reflect.Pointer, v.Kind() == reflect.Slice:
			add("nil", func(_ *paper, v reflect.Value) { v.SetZero() })
		}
	}
	return list
}

// called returns what errors call the argument.
func (r *row) called(path string) string {
	if r.name != "" {
		return r.name
	}
	var b strings.Builder
	last := path[strings.LastIndex(path, ".")+1:]
	for i, c := range last {
		upper := c >= 'A' && c <= 'Z'
		after := i > 0 && !(last[i-1] >= 'A' && last[i-1] <= 'Z')
		before := i > 0 && i+1 < len(last) && upper && last[i+1] >= 'a'
		if upper && (after || before) {
			b.WriteByte('_')
		}
		b.WriteString(strings.ToLower(string(c)))
	}
	return b.String()
}

// checkApart lays each two arguments over each other, of which one is written,
// and then side by side, which is no mistake.
func (m *misuse) checkApart(t *testing.T) (count int) {
	args := m.args()
	var paths []string
	for _, path := range fieldsOf(reflect.TypeOf(args).Elem(), "") {
		if _, bytes := placeOf(field(args, path)); bytes > 0 {
			paths = append(paths, path)
		}
	}
	for i, a := range paths {
		for _, b := range paths[:i] {
			ra, rb := m.rows[a], m.rows[b]
			if !ra.output && !rb.output {
				continue
			}
			names := []string{ra.called(a), rb.called(b)}
			_, sizeA := placeOf(field(args, a))
			_, sizeB := placeOf(field(args, b))
			const align = 128
			lay := func(what string, distance int64, wrong bool) {
				change := func(dev *paper, args any) {
					at, _ := dev.Alloc("both", sizeA+sizeB+align)
					setPlace(field(args, b), at)
					setPlace(field(args, a), at+runtime.Ptr(distance))
				}
				what = fmt.Sprintf("%s %s %s", a, what, b)
				if wrong {
					m.try(t, mistake{what, change, names})
					return
				}
				dev := newMapped()
				args, call := m.open(dev)
				change(dev, args)
				if err := run(call, dev); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			behind := (sizeB + align - 1) / align * align
			lay("at", 0, ra.itself != b && rb.itself != a)
			lay("over the end of", behind-align, true)
			lay("behind", behind, false)
			count += 2
		}
	}
	return count
}

// placeOf returns where a tensor or a buffer is and how many bytes it has.
func placeOf(v reflect.Value) (at runtime.Ptr, bytes int64) {
	switch x := v.Interface().(type) {
	case runtime.Tensor:
		if x.Ptr == 0 {
			return 0, 0
		}
		bytes = x.DType.Bytes()
		for _, n := range x.Shape { // all are dense
			bytes *= n
		}
		return x.Ptr, bytes
	case runtime.Buffer:
		return x.Ptr, x.Bytes
	}
	return 0, 0
}

func setPlace(v reflect.Value, at runtime.Ptr) { v.FieldByName("Ptr").SetUint(uint64(at)) }
