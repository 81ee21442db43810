package templates

import (
	"errors"
	"testing"
)

// TestStateRefusals: what merging and appending cannot be built for is refused
// for the field that is wrong, with a value that builds.
func TestStateRefusals(t *testing.T) {
	for _, c := range []struct {
		kernel  string
		spec    Spec
		field   string
		nearest any
	}{
		{"merge-states", Spec{Value: 100}, "value", 128},
		{"merge-states", Spec{Value: 1024}, "value", 512},
		{"merge-states", Spec{DType: "f32"}, "dtype", "bf16"},
		{"merge-states", Spec{Partial: "fp16"}, "partial", "bf16"},
		{"append-kv", Spec{Latent: 500}, "latent", 512},
		{"append-kv", Spec{Rope: 1}, "rope", 64},
		{"append-kv", Spec{Page: 32}, "page", 64},
		{"append-kv", Spec{DType: "fp8"}, "dtype", "bf16"},
		{"append-kv", Spec{Rotate: "neox"}, "rotate", "interleaved"},
	} {
		_, err := Build(c.kernel, c.spec)
		var refused *SpecError
		if !errors.As(err, &refused) || refused.Field != c.field || refused.Nearest != c.nearest || refused.Reason == "" {
			t.Errorf("%s %+v: %v; want %s refused, with %v for the nearest", c.kernel, c.spec, err, c.field, c.nearest)
			continue
		}
		fixed := c.spec
		switch n := refused.Nearest.(type) {
		case int:
			*map[string]*int{"value": &fixed.Value, "latent": &fixed.Latent, "rope": &fixed.Rope, "page": &fixed.Page}[c.field] = n
		case string:
			*map[string]*string{"dtype": &fixed.DType, "partial": &fixed.Partial, "rotate": &fixed.Rotate}[c.field] = n
		}
		if _, err := Build(c.kernel, fixed); err != nil {
			t.Errorf("%s: the nearest to %+v does not build: %v", c.kernel, c.spec, err)
		}
	}
}
