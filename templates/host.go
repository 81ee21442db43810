package templates

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mlagen/mlagen/ptx/manifest"
)

// hostRules is how the kernels of an operation are launched, said once for all
// of them: what the caller gives, what follows from it, and what each parameter
// holds. Package runtime launches the same kernels by code of its own; a test
// holds every launch of both against each other (golden/launch_test.go).
type hostRules struct {
	operation  string
	steps      []manifest.Step
	constants  []manifest.Constant
	arguments  []manifest.Argument
	quantities []manifest.Quantity
	when       string
	only       map[string]string            // in place of when, by .entry name
	grids      map[string][3]string         // by .entry name
	fills      map[string]manifest.Fill     // by parameter
	sources    map[string][]manifest.Source // by tensor map: what it describes and, second, what if that is empty
}

// attach writes into a kernel's manifest what of the rules concerns it.
func (h *hostRules) attach(m *manifest.Manifest) error {
	grid, ok := h.grids[m.Kernel]
	if !ok {
		return fmt.Errorf("%s: operation %s has no grid for it", m.Kernel, h.operation)
	}
	when := h.when
	if only, ok := h.only[m.Kernel]; ok {
		when = only
	}
	l := &manifest.Launch{Operation: h.operation, Steps: h.steps, When: when, Grid: grid, Programmatic: true}
	used := newUsage(h)
	used.exprs(append([]string{when}, grid[:]...)...)
	for i := range m.Params {
		p := &m.Params[i]
		if p.Kind == manifest.TensorMapParam {
			continue
		}
		f, ok := h.fills[p.Name]
		if !ok {
			return fmt.Errorf("%s: operation %s does not say what fills %q", m.Kernel, h.operation, p.Name)
		}
		p.Fill = &f
		used.argument(f.Address)
		used.argument(f.Real)
		used.argument(f.Table)
		used.exprs(f.Offset, f.Value)
	}
	for i := range m.TensorMaps {
		t := &m.TensorMaps[i]
		s := h.sources[t.Param]
		if len(s) == 0 {
			return fmt.Errorf("%s: operation %s does not say what %q describes", m.Kernel, h.operation, t.Param)
		}
		t.Source = &s[0]
		if len(s) > 1 {
			t.IfEmpty = &s[1]
		}
		for _, s := range s {
			used.argument(s.Address)
			used.exprs(s.Offset)
			used.exprs(s.Sizes...)
			used.exprs(s.Strides...)
		}
	}
	l.Constants = kept(h.constants, func(c manifest.Constant) bool { return used.names[c.Name] })
	l.Arguments = kept(h.arguments, func(a manifest.Argument) bool { return used.names[a.Name] })
	l.Quantities = kept(h.quantities, func(q manifest.Quantity) bool { return used.names[q.Name] })
	m.Launch = l
	if err := used.err; err != nil {
		return fmt.Errorf("%s: %w", m.Kernel, err)
	}
	return m.Validate()
}

// kept returns the elements that are kept, in their order.
func kept[T any](all []T, keep func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(v T) bool { return !keep(v) })
}

// usage is which names of the rules a kernel's launch needs.
type usage struct {
	arguments  map[string]manifest.Argument
	quantities map[string]string
	names      map[string]bool
	err        error
}

func newUsage(h *hostRules) *usage {
	u := &usage{map[string]manifest.Argument{}, map[string]string{}, map[string]bool{}, nil}
	for _, a := range h.arguments {
		u.arguments[a.Name] = a
	}
	for _, q := range h.quantities {
		u.quantities[q.Name] = q.Value
	}
	return u
}

// exprs notes what expressions use, and what that uses.
func (u *usage) exprs(texts ...string) {
	for _, text := range texts {
		if text == "" {
			continue
		}
		e, err := manifest.ParseExpr(text)
		if err != nil {
			u.err = err
			return
		}
		e.Names(func(name string) {
			name, _, _ = strings.Cut(name, ".") // of a tensor's dimension, the tensor
			u.argument(name)
			if !u.names[name] {
				u.names[name] = true
				u.exprs(u.quantities[name])
			}
		})
	}
}

// argument notes that an argument is used.
func (u *usage) argument(name string) {
	a, ok := u.arguments[name]
	if !ok || u.names[name] {
		return
	}
	u.names[name] = true
	u.exprs(a.Min, a.Max, a.Bytes)
	for _, d := range a.Shape {
		u.exprs(d.Size)
	}
}

// sections lays out a buffer: it appends to the quantities NAME_at for every
// section, where it begins, and finally BUFFER_bytes.
func (h *hostRules) sections(buffer string, list ...[2]string) {
	at := "0"
	for i, s := range list {
		name, bytes := s[0], s[1]
		h.quantities = append(h.quantities, manifest.Quantity{Name: name + "_at", Value: at})
		at = fmt.Sprintf("%s_at + roundup(%s, %d)", name, bytes, sectionAlign)
		if i == len(list)-1 {
			h.quantities = append(h.quantities, manifest.Quantity{Name: buffer + "_bytes", Value: at})
		}
	}
}

// sectionAlign is the alignment of a section of a buffer in bytes.
const sectionAlign = 256

// Arguments, as rules spell them.

func integerArgument(name, least, most, doc string) manifest.Argument {
	return manifest.Argument{Name: name, Kind: manifest.IntegerArgument, Doc: doc, Min: least, Max: most}
}

func realArgument(name, doc string) manifest.Argument {
	return manifest.Argument{Name: name, Kind: manifest.RealArgument, Doc: doc}
}

func bufferArgument(name, doc string) manifest.Argument {
	return manifest.Argument{Name: name, Kind: manifest.BufferArgument, Doc: doc, Align: rowAlign, Bytes: name + "_bytes"}
}

// rowsArgument is a tensor whose rows may have any place that is aligned.
func rowsArgument(name, dtype, doc string, shape ...string) manifest.Argument {
	return manifest.Argument{Name: name, Kind: manifest.TensorArgument, Doc: doc, DType: dtype, Align: rowAlign, Shape: dimensions(shape)}
}

// denseArgument is a tensor of elements that lie one after the other.
func denseArgument(name, dtype, doc string, shape ...string) manifest.Argument {
	align := 4
	if dtype == "s64" {
		align = 8
	}
	return manifest.Argument{Name: name, Kind: manifest.TensorArgument, Doc: doc, DType: dtype, Align: align, Dense: true, Shape: dimensions(shape)}
}

// optionalArgument may be left out.
func optionalArgument(a manifest.Argument) manifest.Argument {
	a.Optional = true
	return a
}

func outputArgument(a manifest.Argument) manifest.Argument {
	a.Output = true
	return a
}

// rowAlign is the alignment of addresses and strides in bytes that vector
// accesses and the copy engine need.
const rowAlign = 16

// dimensions takes "NAME SIZE", or "NAME" for one of any size.
func dimensions(list []string) []manifest.Dimension {
	var shape []manifest.Dimension
	for _, d := range list {
		name, size, _ := strings.Cut(d, " ")
		shape = append(shape, manifest.Dimension{Name: name, Size: size})
	}
	return shape
}

// strideFills fills parameters NAME_DIMENSION with a tensor's strides in bytes.
func strideFills(fills map[string]manifest.Fill, tensor string, dimensions ...string) {
	for _, d := range dimensions {
		fills[tensor+"_"+d] = manifest.Fill{Value: tensor + ".stride." + d}
	}
}

// addressFills fills parameters with the addresses of the arguments of their
// names.
func addressFills(fills map[string]manifest.Fill, names ...string) {
	for _, n := range names {
		fills[n] = manifest.Fill{Address: n}
	}
}

// valueFills fills parameters with the quantities of their names.
func valueFills(fills map[string]manifest.Fill, names ...string) {
	for _, n := range names {
		fills[n] = manifest.Fill{Value: n}
	}
}

// constants are numbers of a spec.
func constants(values map[string]int) []manifest.Constant {
	var list []manifest.Constant
	for _, name := range slices.Sorted(maps.Keys(values)) {
		list = append(list, manifest.Constant{Name: name, Value: int64(values[name])})
	}
	return list
}
