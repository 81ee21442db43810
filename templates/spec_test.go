package templates

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// numbers are a spec's fields as the command line names them.
var numbers = map[string]func(*Spec) *int{
	"heads":   func(s *Spec) *int { return &s.Heads },
	"sq":      func(s *Spec) *int { return &s.SQ },
	"block-h": func(s *Spec) *int { return &s.BlockH },
	"block-n": func(s *Spec) *int { return &s.BlockN },
	"latent":  func(s *Spec) *int { return &s.Latent },
	"rope":    func(s *Spec) *int { return &s.Rope },
	"page":    func(s *Spec) *int { return &s.Page },
	"stages":  func(s *Spec) *int { return &s.Stages },
	"cluster": func(s *Spec) *int { return &s.Cluster },
	"teams":   func(s *Spec) *int { return &s.Teams },
}

// corrected returns s with the refused field at the nearest value.
func corrected(t *testing.T, s Spec, e *SpecError) Spec {
	t.Helper()
	switch n := e.Nearest.(type) {
	case string:
		if e.Field != "dtype" {
			t.Fatalf("field %q has the nearest %q", e.Field, n)
		}
		s.DType = n
	case int:
		if e.Field == "heads × sq" {
			if full := s.WithDefaults(); full.SQ > full.Heads {
				s.SQ = n / full.Heads
			} else {
				s.Heads = n / full.SQ
			}
			break
		}
		place := numbers[e.Field]
		if place == nil {
			t.Fatalf("no flag is named %q", e.Field)
		}
		*place(&s) = n
	default:
		t.Fatalf("nearest is a %T", n)
	}
	return s
}

// refusal builds s and returns the refusal, nil when there is none; it must
// say what it has to, and what it proposes must build.
func refusal(t *testing.T, s Spec) *SpecError {
	t.Helper()
	_, err := Build("absorb-decode", s)
	if err == nil {
		return nil
	}
	var e *SpecError
	if !errors.As(err, &e) {
		t.Fatalf("%+v: %v: want a *SpecError", s, err)
	}
	for _, part := range []string{e.Field, fmt.Sprint(e.Value), e.Reason, fmt.Sprint(e.Nearest)} {
		if part == "" || !strings.Contains(err.Error(), part) {
			t.Errorf("%+v: %q does not say %q", s, err, part)
		}
	}
	if _, err := Build("absorb-decode", corrected(t, s, e)); err != nil {
		t.Errorf("%+v is refused with %q, and then with %q", s, e, err)
	}
	return e
}

// TestEveryWidthTakesAnyRows: the default row block leaves room for two tiles,
// whatever the widths; one that does not is refused for itself.
func TestEveryWidthTakesAnyRows(t *testing.T) {
	for _, latent := range latentWidths {
		for _, rope := range ropeWidths {
			for _, rows := range []int{1, 40, 41, 42, 64, 80, 81, 128, 640} {
				s := Spec{Heads: rows, Latent: latent, Rope: rope}
				if err := s.WithDefaults().Validate(); err != nil {
					t.Errorf("%d rows of %d+%d: %v", rows, latent, rope, err)
				}
				s.BlockH = 64
				var e *SpecError
				err := s.WithDefaults().Validate()
				if refused := errors.As(err, &e); refused != (latent+rope == 640) || refused && (e.Field != "block-h" || e.Nearest != 40) {
					t.Errorf("%d rows of %d+%d in blocks of 64: %v", rows, latent, rope, err)
				}
			}
		}
	}
	if got := (Spec{Heads: 42, Rope: 128}).WithDefaults().BlockH; got != 24 {
		t.Errorf("42 rows of 640 columns are in blocks of %d, not 24", got)
	}
	if refusal(t, Spec{Heads: 42, Rope: 128}) != nil || refusal(t, Spec{Heads: 42, Rope: 128, BlockH: 64}) == nil {
		t.Error("it builds otherwise")
	}
}

// TestRefusals: whatever number a field is given, the kernel builds or is
// refused for that field with the nearest number that builds.
func TestRefusals(t *testing.T) {
	for name, place := range numbers {
		t.Run(name, func(t *testing.T) {
			refused := 0
			for _, v := range []int{-70, -1, 1, 2, 3, 5, 7, 8, 9, 12, 16, 20, 31, 32, 33, 40, 63, 64, 65, 96, 100, 128, 192, 256, 400, 512, 513, 1000, 1 << 20} {
				s := Spec{}
				*place(&s) = v
				e := refusal(t, s)
				if e == nil {
					continue
				}
				refused++
				if e.Field != name && !(name == "heads" || name == "sq") {
					t.Errorf("%d is refused for %s", v, e.Field)
				}
				n, _ := e.Nearest.(int)
				for w := min(v, n) + 1; e.Field == name && w < max(v, n) && v < 2000; w++ {
					between := s.WithDefaults()
					*place(&between) = w
					if max(w-v, v-w) < max(n-v, v-n) && between.Validate() == nil {
						t.Errorf("%d: the nearest is said to be %d, but %d is nearer and builds", v, n, w)
					}
				}
			}
			if refused == 0 {
				t.Error("nothing was refused")
			}
		})
	}
	for _, s := range []Spec{
		{Heads: 1 << 62, SQ: 4}, {Heads: 4, SQ: 1 << 62}, {Heads: 1 << 62, SQ: 4, BlockH: 8},
		{Heads: 1 << 14, SQ: 2}, {Heads: 2, SQ: 1 << 14}, {Heads: 129, SQ: 128}, {Heads: math.MaxInt},
	} {
		if e := refusal(t, s); e == nil || !strings.Contains(e.Reason, "rows per request") {
			t.Errorf("%d heads × %d: %v", s.Heads, s.SQ, e)
		}
	}
	for _, kernel := range Kernels() { // both are wrong, so that no one number mends it
		if f := mustFind(t, kernel.Name).family; f.validate(f.defaults(Spec{SQ: 1 << 40})) == nil {
			continue // it has no query tokens per request
		}
		if _, err := Build(kernel.Name, Spec{Heads: 3037000500, SQ: 3037000500}); err == nil || !strings.Contains(err.Error(), "rows per request") {
			t.Errorf("%s: %v", kernel.Name, err)
		}
	}
	if e := refusal(t, Spec{DType: "fp8"}); e == nil || e.Field != "dtype" {
		t.Errorf("dtype fp8: %v", e)
	}
}

// TestTeamsAreRefused: two teams are for rows on wgmma's N and at least two
// accumulators each; one is what a spec says that says nothing.
func TestTeamsAreRefused(t *testing.T) {
	for _, s := range []Spec{{Heads: 128}, {Heads: 16, BlockH: 64}, {Heads: 8, Latent: 128, DType: "fp16"}, {Heads: 16, Latent: 128, Rope: 128}} {
		if refusal(t, s) != nil {
			t.Errorf("%+v is refused with one team", s)
		}
		s.Teams = 2
		if e := refusal(t, s); e == nil || e.Field != "teams" || e.Nearest != 1 {
			t.Errorf("%+v: %v", s, e)
		}
	}
	if one, none := (Spec{Teams: 1}).WithDefaults(), (Spec{}).WithDefaults(); one != none {
		t.Errorf("one team is %+v, not %+v", one, none)
	}
}

func mustFind(t *testing.T, kernel string) template {
	t.Helper()
	f, err := find(kernel)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestBuildNamesTheKernels(t *testing.T) {
	_, err := Build("decode", Spec{})
	want := `kernel "decode" does not exist: want one of absorb-decode, decode-combine, decode-schedule, stream, `
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v: want %s…", err, want)
	}
}

// TestBlocks: all rows have a block; those that fit one on wgmma's N have the
// narrowest that holds them.
func TestBlocks(t *testing.T) {
	for rows := 1; rows <= 700; rows++ {
		s := Spec{Heads: rows}.WithDefaults()
		if s.RowBlocks()*s.BlockH < rows || s.Validate() != nil {
			t.Errorf("%d rows: %d blocks of %d, %v", rows, s.RowBlocks(), s.BlockH, s.Validate())
		}
		if s.rowsOnM() != (rows > swapBlockH) || !s.rowsOnM() && (s.RowBlocks() != 1 || rows <= s.BlockH-8) {
			t.Errorf("%d rows: %d blocks of %d", rows, s.RowBlocks(), s.BlockH)
		}
	}
	var got []string
	for _, rows := range []int{1, 16, 20, 40, 41, 49, 64, 80, 128, 130} {
		s := Spec{Heads: rows}.WithDefaults()
		got = append(got, fmt.Sprintf("%d=%dx%d", rows, s.RowBlocks(), s.BlockH))
	}
	want := []string{"1=1x8", "16=1x16", "20=1x24", "40=1x40", "41=1x64", "49=1x64", "64=1x64", "80=2x64", "128=2x64", "130=3x64"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
