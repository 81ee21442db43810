package templates

import "slices"

// fields are a spec's fields by their names on the command line.
var fields = []struct {
	name string
	of   func(*Spec) any // a *int or a *string
}{
	{"heads", func(s *Spec) any { return &s.Heads }},
	{"sq", func(s *Spec) any { return &s.SQ }},
	{"block-h", func(s *Spec) any { return &s.BlockH }},
	{"block-m", func(s *Spec) any { return &s.BlockM }},
	{"block-n", func(s *Spec) any { return &s.BlockN }},
	{"latent", func(s *Spec) any { return &s.Latent }},
	{"rope", func(s *Spec) any { return &s.Rope }},
	{"nope", func(s *Spec) any { return &s.Nope }},
	{"value", func(s *Spec) any { return &s.Value }},
	{"page", func(s *Spec) any { return &s.Page }},
	{"stages", func(s *Spec) any { return &s.Stages }},
	{"cluster", func(s *Spec) any { return &s.Cluster }},
	{"dtype", func(s *Spec) any { return &s.DType }},
	{"partial", func(s *Spec) any { return &s.Partial }},
	{"rotate", func(s *Spec) any { return &s.Rotate }},
	{"evict", func(s *Spec) any { return &s.Evict }},
	{"piece-cost", func(s *Spec) any { return &s.PieceCost }},
	{"teams", func(s *Spec) any { return &s.Teams }},
}

// optional are the fields that a kernel uses although it does without by default.
var optional = map[string][]string{
	"absorb-decode":   {"evict", "teams"},
	"decode-combine":  {"teams"},
	"decode-schedule": {"piece-cost"},
	"append-kv":       {"rotate"},
}

// Fields lists, by their names on the command line, the fields of a spec that the
// kernel called name is generated from.
func Fields(name string) (names []string, err error) {
	t, err := find(name)
	if err != nil {
		return nil, err
	}
	full := t.family.defaults(Spec{})
	for _, f := range fields {
		if !zero(f.of(&full)) || slices.Contains(optional[name], f.name) {
			names = append(names, f.name)
		}
	}
	return names, nil
}

// clear zeroes the fields that the template is not generated from, which would
// only be in its manifest.
func (t template) clear(s Spec) Spec {
	used, _ := Fields(t.Name) // it exists
	for _, f := range fields {
		if slices.Contains(used, f.name) {
			continue
		}
		switch p := f.of(&s).(type) {
		case *int:
			*p = 0
		case *string:
			*p = ""
		}
	}
	return s
}

func zero(field any) bool {
	switch p := field.(type) {
	case *int:
		return *p == 0
	case *string:
		return *p == ""
	}
	return false
}
