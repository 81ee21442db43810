package templates

import (
	"errors"
	"testing"
)

// productEmissions are the tiles of a product, and models that are not
// DeepSeek's.
func productEmissions(kernel string) (list []emission) {
	specs := []Spec{{Heads: 1}, {Heads: 128}, {Heads: 16, DType: "fp16"}, {Heads: 7, Latent: 256, Nope: 64, Value: 64}, {Heads: 16, Stages: 2}}
	switch kernel {
	case "up-project":
		specs = append(specs, Spec{Heads: 128, Stages: 4}, Spec{Latent: 128, Nope: 128, Value: 64, Rope: 128, Stages: 4}, Spec{Nope: 64, Value: 64, Stages: 4})
	case "absorb-q":
		for _, rows := range []int{8, 16, 24, 32, 64, 120} {
			specs = append(specs, Spec{Heads: 128, BlockM: rows})
		}
		specs = append(specs, Spec{BlockM: 8, BlockN: 64}, Spec{BlockM: 16, BlockN: 512}, Spec{BlockM: 128, BlockN: 128}, Spec{BlockM: 128, Stages: 4},
			Spec{BlockM: 8, DType: "fp16"}, Spec{BlockM: 256, BlockN: 128}, Spec{Latent: 128, Nope: 192, Rope: 128})
	case "absorb-o":
		for _, rows := range []int{8, 16, 24, 32, 64, 120} {
			specs = append(specs, Spec{Heads: 128, BlockM: rows})
		}
		specs = append(specs, Spec{BlockM: 8, BlockN: 128}, Spec{BlockM: 128, Stages: 4}, Spec{BlockM: 64, DType: "fp16"}, Spec{Value: 256, BlockM: 128},
			Spec{Value: 192, Latent: 256, BlockM: 64})
	}
	for _, s := range specs {
		s, _ = Defaults(kernel, s)
		list = append(list, emission{kernel, s})
	}
	return list
}

// TestProductRefusals: whatever number a field is given, the product builds or
// is refused for a field with a number that builds in its place.
func TestProductRefusals(t *testing.T) {
	places := map[string]func(*Spec) *int{
		"heads":   func(s *Spec) *int { return &s.Heads },
		"latent":  func(s *Spec) *int { return &s.Latent },
		"nope":    func(s *Spec) *int { return &s.Nope },
		"value":   func(s *Spec) *int { return &s.Value },
		"rope":    func(s *Spec) *int { return &s.Rope },
		"page":    func(s *Spec) *int { return &s.Page },
		"block-m": func(s *Spec) *int { return &s.BlockM },
		"block-n": func(s *Spec) *int { return &s.BlockN },
		"stages":  func(s *Spec) *int { return &s.Stages },
		"cluster": func(s *Spec) *int { return &s.Cluster },
	}
	for _, kernel := range []string{"up-project", "absorb-q", "absorb-o"} {
		f := mustFind(t, kernel).family
		for name, place := range places {
			refused := 0
			for _, base := range []Spec{{}, {BlockM: 8}, {BlockM: 64}, {Latent: 256, Nope: 64}} {
				for _, v := range []int{-70, -1, 1, 2, 3, 7, 8, 9, 20, 63, 64, 65, 96, 100, 120, 127, 128, 129, 192, 200, 256, 320, 512, 513, 1 << 14, 1 << 20, 1 << 40} {
					s := base
					*place(&s) = v
					for range 4 { // one field at a time is named
						err := f.validate(f.defaults(s))
						if err == nil {
							break
						}
						refused++
						var e *SpecError
						if !errors.As(err, &e) {
							t.Fatalf("%s %s %d: %v: want a *SpecError", kernel, name, v, err)
						}
						n, ok := e.Nearest.(int)
						to := places[e.Field]
						if !ok || to == nil {
							t.Fatalf("%s %s %d: %v", kernel, name, v, err)
						}
						*to(&s) = n
					}
					err := f.validate(f.defaults(s))
					if err == nil && refused%8 == 1 { // all would take long
						_, err = Build(kernel, s)
					}
					if err != nil {
						t.Errorf("%s: %s %d on %+v: what is proposed last does not build: %v", kernel, name, v, base, err)
					}
				}
			}
			// absorb-o has neither pages nor rope keys, absorb-q no pages.
			unused := name == "page" && kernel != "up-project" || name == "rope" && kernel == "absorb-o"
			if (refused == 0) != unused && name != "block-m" {
				t.Errorf("%s: %d values of %s were refused", kernel, refused, name)
			}
		}
		if _, err := Build(kernel, Spec{DType: "fp8"}); err == nil {
			t.Errorf("%s: fp8 builds", kernel)
		}
	}
}

// TestAbsorbRows: whatever the number of tokens, the last tile holds them or is
// wide.
func TestAbsorbRows(t *testing.T) {
	for _, kernel := range []string{"absorb-q", "absorb-o"} {
		for tokens := range 300 {
			rows := AbsorbRows(kernel, tokens)
			last := Spec{BlockM: rows[len(rows)-1]}
			if tokens == 0 && !last.wide() || tokens > 0 && !last.wide() && last.BlockM < tokens {
				t.Errorf("%s, %d tokens: %v", kernel, tokens, rows)
			}
			for _, m := range rows {
				if _, err := Build(kernel, Spec{BlockM: m}); err != nil {
					t.Errorf("%s, %d rows: %v", kernel, m, err)
				}
				if tokens > 1 {
					break
				}
			}
		}
	}
}

// TestProductDefaults: whatever widths a model has, of those that are built at
// all, the defaults build.
func TestProductDefaults(t *testing.T) {
	for latent := 64; latent <= 512; latent += 64 {
		for nope := 64; nope <= 256; nope += 64 {
			for value := 64; value <= 256; value += 64 {
				for _, kernel := range []string{"up-project", "absorb-q", "absorb-o"} {
					rows := []int{0}
					if kernel != "up-project" {
						rows = AbsorbRows(kernel, 0)
					}
					for _, m := range rows {
						f := mustFind(t, kernel).family
						if err := f.validate(f.defaults(Spec{Latent: latent, Nope: nope, Value: value, BlockM: m})); err != nil {
							t.Errorf("%s, latent %d, nope %d, value %d, %d rows: %v", kernel, latent, nope, value, m, err)
						}
					}
				}
			}
		}
	}
}
