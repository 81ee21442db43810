package hopper

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSwizzleFigures(t *testing.T) {
	type figures struct {
		Name              string
		Bytes, Row, Atom  int
		Descriptor, Cuda  int
		At16, At128, At1K uint32 // where the bytes at 16, 128 and 1024 go
		At896             uint32 // row 7 of the 128-byte pattern
	}
	// Sizes and codes: the manual's descriptor table and cuda.h, which count in
	// opposite directions.
	want := []figures{
		{"none", 0, 16, 128, 0, 0, 16, 128, 1024, 896},
		{"32B", 32, 32, 256, 3, 1, 16, 128 + 16, 1024, 896 + 16},
		{"64B", 64, 64, 512, 2, 2, 16, 128 + 16, 1024, 896 + 48},
		{"128B", 128, 128, 1024, 1, 3, 16, 128 + 16, 1024, 896 + 112},
	}
	var got []figures
	for s := SwizzleNone; s <= Swizzle128; s++ {
		got = append(got, figures{s.String(), s.Bytes(), s.RowBytes(), s.AtomBytes(), int(s.DescriptorCode()), s.MapCode(),
			s.Apply(16), s.Apply(128), s.Apply(1024), s.Apply(896)})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestSwizzleByRowAndChunk compares the address form with the one in which
// tensor copies are described: chunk c of row r goes to chunk c^f(r).
func TestSwizzleByRowAndChunk(t *testing.T) {
	for _, c := range []struct {
		s    Swizzle
		flip func(row int) int
	}{
		{SwizzleNone, func(int) int { return 0 }},
		{Swizzle32, func(r int) int { return r / 4 % 2 }},
		{Swizzle64, func(r int) int { return r / 2 % 4 }},
		{Swizzle128, func(r int) int { return r % 8 }},
	} {
		chunks := c.s.RowBytes() / 16
		for row := range 64 {
			for chunk := range chunks {
				for _, b := range []int{0, 1, 15} {
					from := uint32((row*chunks+chunk)*16 + b)
					to := uint32(row*chunks*16 + (chunk^c.flip(row))*16 + b)
					if got := c.s.Apply(from); got != to {
						t.Fatalf("%v: byte %d of chunk %d of row %d goes to %d, want %d", c.s, b, chunk, row, got, to)
					}
				}
			}
		}
	}
}

func TestSwizzleIsAnInvolution(t *testing.T) {
	for s := SwizzleNone; s <= Swizzle128; s++ {
		for a := uint32(0); a < 1<<14; a++ {
			if got := s.Apply(s.Apply(a)); got != a {
				t.Fatalf("%v applied twice to %d is %d", s, a, got)
			}
		}
	}
}

func TestSwizzleOf(t *testing.T) {
	for bytes, want := range map[int]Swizzle{0: SwizzleNone, 32: Swizzle32, 64: Swizzle64, 128: Swizzle128} {
		if got, err := SwizzleOf(bytes); err != nil || got != want {
			t.Errorf("SwizzleOf(%d) = %v, %v; want %v", bytes, got, err, want)
		}
	}
	for _, bytes := range []int{-1, 16, 96, 256} {
		if _, err := SwizzleOf(bytes); err == nil {
			t.Errorf("SwizzleOf(%d) is accepted", bytes)
		}
	}
}
