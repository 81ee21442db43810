package hopper

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestViewFigures quotes the practice for bf16: K-major 128B has SBO 1024 and
// 32 bytes per 16 of K inside the atom; MN-major 128B has SBO 1024, LBO = the
// bytes between 64-column blocks, and 2048 bytes per 16 of K.
func TestViewFigures(t *testing.T) {
	type figures struct{ LBO, SBO, Step16, Step64, Next int }
	step := func(v View, mn, k int) int {
		n, err := v.Step(mn, k)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	kv := Tile{Rows: 64, Columns: 576, ElemBytes: 2, Swizzle: Swizzle128}
	if got := [4]int{kv.Bytes(), kv.Blocks(), kv.BlockBytes(), kv.BlockColumns()}; got != [4]int{73728, 9, 8192, 64} {
		t.Errorf("64×576 bf16 tile: bytes, blocks, block bytes, block columns = %v", got)
	}
	if diff := cmp.Diff([]int{64, 64}, kv.Box()); diff != "" {
		t.Error(diff)
	}
	k, err := KMajor(kv)
	if err != nil {
		t.Fatal(err)
	}
	// Next: the second 8 rows.
	got := figures{k.LeadingBytes, k.StrideBytes, step(k, 0, 16), step(k, 0, 64), step(k, 8, 0)}
	if diff := cmp.Diff(figures{16, 1024, 32, 8192, 1024}, got); diff != "" {
		t.Errorf("K-major: %s", diff)
	}
	v, err := MNMajor(kv)
	if err != nil {
		t.Fatal(err)
	}
	// Next: the second 64 columns.
	got = figures{v.LeadingBytes, v.StrideBytes, step(v, 0, 16), step(v, 0, 48), step(v, 64, 0)}
	if diff := cmp.Diff(figures{8192, 1024, 2048, 3 * 2048, 8192}, got); diff != "" {
		t.Errorf("MN-major: %s", diff)
	}
}

// TestViewsReadTheTile: whatever window of the tile a descriptor starts at, the
// address that the canonical layout gives for (mn, k) is the byte where the
// tile keeps that element. Both views on the same bytes.
func TestViewsReadTheTile(t *testing.T) {
	const start = 5 * 1024
	for s := SwizzleNone; s <= Swizzle128; s++ {
		for _, rows := range []int{16, 64, 128} {
			for _, elem := range []int{1, 2} {
				tile := Tile{Rows: rows, Columns: 256 / elem, ElemBytes: elem, Swizzle: s}
				depth := 32 / elem
				k, err := KMajor(tile)
				if err != nil {
					t.Fatal(err)
				}
				for mn0 := 0; mn0 < rows; mn0 += 8 {
					for k0 := 0; k0 < tile.Columns; k0 += depth {
						step, err := k.Step(mn0, k0)
						if err != nil {
							t.Fatal(err)
						}
						d := k.Descriptor(start + uint32(step))
						for mn := range min(64, rows-mn0) {
							for kk := range depth {
								if got, want := k.Address(d, mn, kk), start+uint32(tile.Offset(mn0+mn, k0+kk)); got != want {
									t.Fatalf("%v %+v K-major window (%d,%d): (%d,%d) read at %d, lies at %d", s, tile, mn0, k0, mn, kk, got, want)
								}
							}
						}
					}
				}
				if elem != 2 {
					continue
				}
				v, err := MNMajor(tile)
				if err != nil {
					t.Fatal(err)
				}
				for mn0 := 0; mn0 < tile.Columns; mn0 += tile.BlockColumns() {
					for k0 := 0; k0+16 <= rows; k0 += 8 {
						step, err := v.Step(mn0, k0)
						if err != nil {
							t.Fatal(err)
						}
						d := v.Descriptor(start + uint32(step))
						for mn := range min(128, tile.Columns-mn0) {
							for kk := range 16 {
								if got, want := v.Address(d, mn, kk), start+uint32(tile.Offset(k0+kk, mn0+mn)); got != want {
									t.Fatalf("%v %+v MN-major window (%d,%d): (%d,%d) read at %d, lies at %d", s, tile, mn0, k0, mn, kk, got, want)
								}
							}
						}
					}
				}
			}
		}
	}
}

// TestTileOffsetIsABijection: no two elements share bytes, none lies outside.
func TestTileOffsetIsABijection(t *testing.T) {
	for s := SwizzleNone; s <= Swizzle128; s++ {
		tile := Tile{Rows: 24, Columns: 192, ElemBytes: 2, Swizzle: s}
		seen := make([]bool, tile.Bytes()/2)
		for r := range tile.Rows {
			for c := range tile.Columns {
				at := tile.Offset(r, c)
				if at%2 != 0 || at/2 >= len(seen) || seen[at/2] {
					t.Fatalf("%v: element (%d,%d) at %d is outside or taken", s, r, c, at)
				}
				seen[at/2] = true
			}
		}
	}
}

func TestTileErrors(t *testing.T) {
	for _, c := range []struct {
		tile Tile
		want string
	}{
		{Tile{Rows: 12, Columns: 64, ElemBytes: 2, Swizzle: Swizzle128}, "tile rows: was 12, must be a positive multiple of 8"},
		{Tile{Rows: 8, Columns: 96, ElemBytes: 2, Swizzle: Swizzle128}, "tile columns: was 96, must be a positive multiple of 64 (128 bytes)"},
		{Tile{Rows: 8, Columns: 64, ElemBytes: 3}, "tile element bytes: was 3"},
		{Tile{Rows: 8, Columns: 64, ElemBytes: 2, Swizzle: 4}, "tile swizzle: was 4"},
	} {
		for name, view := range map[string]func(Tile) (View, error){"KMajor": KMajor, "MNMajor": MNMajor} {
			if _, err := view(c.tile); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s(%+v) = %v, want %q", name, c.tile, err, c.want)
			}
		}
	}
	if _, err := MNMajor(Tile{Rows: 8, Columns: 128, ElemBytes: 1, Swizzle: Swizzle128}); err == nil {
		t.Error("an MN-major view of 8-bit elements is accepted")
	}
	v, err := MNMajor(Tile{Rows: 16, Columns: 128, ElemBytes: 2, Swizzle: Swizzle128})
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range [][2]int{{32, 0}, {0, 4}, {128, 0}, {0, 16}, {-64, 0}} {
		if n, err := v.Step(at[0], at[1]); err == nil {
			t.Errorf("Step(%d, %d) = %d, want an error", at[0], at[1], n)
		}
	}
}
