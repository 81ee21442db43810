package manifest

import "fmt"

// Rules evaluates a launch rule, again and again: Begin, then every integer,
// table and tensor argument, then Finish; after that Eval knows every quantity.
// It allocates nothing unless it fails.
type Rules struct {
	launch *Launch
	exprs  map[string]*Expr // by text
	values map[string]int64
	names  [][]dimensionNames // of an argument's dimensions
	tables []string           // an argument's name for how many rows it has
	given  []string           // an argument's name for whether it is given, where it need not be
	lookup func(string) (int64, bool)
}

type dimensionNames struct{ size, stride string }

// Rules compiles the launch rules of a manifest that validates.
func (m *Manifest) Rules() (*Rules, error) {
	if m.Launch == nil {
		return nil, fmt.Errorf("manifest of %s: it has no launch rules", m.Kernel)
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	l := m.Launch
	r := &Rules{launch: l, exprs: map[string]*Expr{}, values: map[string]int64{}}
	r.lookup = func(name string) (int64, bool) {
		v, ok := r.values[name]
		return v, ok
	}
	for _, a := range l.Arguments {
		var names []dimensionNames
		for _, d := range a.Shape {
			names = append(names, dimensionNames{a.Name + ".size." + d.Name, a.Name + ".stride." + d.Name})
		}
		r.names = append(r.names, names)
		given := ""
		if a.Optional {
			given = a.Name + ".given"
		}
		r.given = append(r.given, given)
		r.tables = append(r.tables, a.Name+".rows")
	}
	m.eachExpr(func(text string) {
		r.exprs[text], _ = ParseExpr(text) // it has been validated
	})
	return r, nil
}

// eachExpr calls f with every expression of the launch rules.
func (m *Manifest) eachExpr(f func(string)) {
	given := func(texts ...string) {
		for _, t := range texts {
			if t != "" {
				f(t)
			}
		}
	}
	l := m.Launch
	for _, a := range l.Arguments {
		given(a.Min, a.Max, a.Bytes)
		for _, d := range a.Shape {
			given(d.Size)
		}
	}
	for _, q := range l.Quantities {
		given(q.Value)
	}
	given(l.When)
	given(l.Grid[:]...)
	for _, p := range m.Params {
		if p.Fill != nil {
			given(p.Fill.Offset, p.Fill.Value)
		}
	}
	for _, t := range m.TensorMaps {
		for _, s := range []*Source{t.Source, t.IfEmpty} {
			if s != nil {
				given(s.Offset)
				given(s.Sizes...)
				given(s.Strides...)
			}
		}
	}
}

// Launch returns the rules as the manifest has them.
func (r *Rules) Launch() *Launch { return r.launch }

// Begin forgets a previous call and takes the device's multiprocessors.
func (r *Rules) Begin(sms int) {
	clear(r.values)
	r.values[SMs] = int64(sms)
	for _, k := range r.launch.Constants {
		r.values[k.Name] = k.Value
	}
}

// Integer takes argument number i, an integer, and refuses one out of bounds.
func (r *Rules) Integer(i int, v int64) error {
	a := &r.launch.Arguments[i]
	for j, bound := range [2]string{a.Min, a.Max} {
		if bound == "" {
			continue
		}
		limit, err := r.Eval(bound)
		if err != nil {
			return fmt.Errorf("%s: bound %q: %w", a.Name, bound, err)
		}
		if j == 0 && v < limit {
			return fmt.Errorf("%s: was %d, must be at least %d", a.Name, v, limit)
		}
		if j == 1 && v > limit {
			return fmt.Errorf("%s: was %d, must be at most %d", a.Name, v, limit)
		}
	}
	r.values[a.Name] = v
	return nil
}

// Table takes how many rows argument number i, a table, has.
func (r *Rules) Table(i, rows int) error {
	a := &r.launch.Arguments[i]
	if rows < 0 || rows > a.Rows {
		return fmt.Errorf("%s: had %d rows, must have at most %d", a.Name, rows, a.Rows)
	}
	r.values[r.tables[i]] = int64(rows)
	return nil
}

// Tensor takes the size in elements and the stride in bytes of dimension d of
// argument number i, and refuses a size that is not the one that must be. All
// integers have been given.
func (r *Rules) Tensor(i, d int, size, stride int64) error {
	a := &r.launch.Arguments[i]
	if want := a.Shape[d].Size; want != "" {
		n, err := r.Eval(want)
		if err != nil {
			return fmt.Errorf("%s: size of %s: %w", a.Name, a.Shape[d].Name, err)
		}
		if size != n {
			return fmt.Errorf("%s: dimension %s had %d elements, must have %d", a.Name, a.Shape[d].Name, size, n)
		}
	}
	r.values[r.names[i][d].size], r.values[r.names[i][d].stride] = size, stride
	if r.given[i] != "" {
		r.values[r.given[i]] = 1
	}
	return nil
}

// Absent says that argument number i, a tensor, was left out, and refuses that
// where it must be given.
func (r *Rules) Absent(i int) error {
	if r.given[i] == "" {
		return fmt.Errorf("%s: was not given, must be", r.launch.Arguments[i].Name)
	}
	for _, d := range r.names[i] {
		r.values[d.size], r.values[d.stride] = 0, 0
	}
	r.values[r.given[i]] = 0
	return nil
}

// Finish computes the quantities.
func (r *Rules) Finish() error {
	for i := range r.launch.Quantities {
		q := &r.launch.Quantities[i]
		v, err := r.Eval(q.Value)
		if err != nil {
			return fmt.Errorf("%s = %s: %w", q.Name, q.Value, err)
		}
		r.values[q.Name] = v
	}
	return nil
}

// Eval returns the value of one of the manifest's expressions; an empty one,
// which was left out, is 0.
func (r *Rules) Eval(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	e := r.exprs[text]
	if e == nil {
		return 0, fmt.Errorf("%q is no expression of the manifest", text)
	}
	return e.Eval(r.lookup)
}
